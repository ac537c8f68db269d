"""One spelling for one content: canonical JSON and its hash."""

import hashlib
import json
from datetime import UTC, datetime
from typing import Any


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys, no spaces and ASCII escapes; NaN and infinity raise ``ValueError``."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def content_hash(value: Any) -> str:
    """Return the SHA-256 (64 hex digits) of a JSON value's canonical form."""
    return hashlib.sha256(canonical_json(value).encode("ascii")).hexdigest()


def rfc3339(moment: datetime, *, exact: bool = False) -> str:
    """Return a time in UTC, such as ``2026-06-01T09:30:00Z``: to the second, or ``exact``, with what parts of a second it has."""
    return moment.astimezone(UTC).isoformat(timespec="auto" if exact else "seconds").replace("+00:00", "Z")


def storable(text: str) -> str:
    """Return the text with NUL and lone surrogates, which no database takes, as U+FFFD."""
    return text.replace("\x00", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
