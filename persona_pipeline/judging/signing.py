"""Recordings signed by who holds a secret: what a pull request writes by hand is then told from what CI recorded."""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

from persona_pipeline.world.canonical import canonical_json

SIGNATURE = "signature"


def signature_of(line: Mapping[str, Any], secret: bytes) -> str:
    """Return the HMAC-SHA256 (64 hex digits) of a recording's fields, its signature left out."""
    signed = canonical_json({name: value for name, value in line.items() if name != SIGNATURE})
    return hmac.new(secret, signed.encode("ascii"), hashlib.sha256).hexdigest()


def is_signed(line: Mapping[str, Any], secret: bytes) -> bool:
    """Whether the recording carries the signature of the secret's holder."""
    given = line.get(SIGNATURE)
    return isinstance(given, str) and hmac.compare_digest(
        given.encode("utf-8"), signature_of(line, secret).encode("ascii")
    )
