"""Answers kept on disk, by everything that could change them."""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from persona_pipeline.suites.targets.output import Output, OutputError, parse_output

VERSION = 1


def request_key(messages: Any, files: Mapping[str, str]) -> str:
    """Return a SHA-256 of what a target is asked: the messages, and the text of the files they name."""
    return _hash({"messages": messages, "files": dict(files)})


def cache_key(target: Mapping[str, Any], request: str, *, test_id: str, attempt: int) -> str:
    """Return the key of an answer.

    Args:
        target: the target's fingerprint: provider, model, address, prompt, everything but secrets.
        request: the request key.
        attempt: repeated attempts are different answers.
    """
    return _hash(
        {
            "version": VERSION,
            "target": target,
            "request": request,
            "test_id": test_id,
            "attempt": attempt,
        }
    )


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


@dataclass(frozen=True)
class OutputCache:
    """Answers as ``<folder>/<2 hex digits>/<key>.json``. Only answers are kept, never failures."""

    folder: Path

    def path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.json"

    def get(self, key: str) -> Output | None:
        """Return the answer, None when there is none or its file cannot be used."""
        try:
            data = json.loads(self.path(key).read_bytes())
            return parse_output(data) if isinstance(data, dict) else None
        except (OSError, ValueError, RecursionError, OutputError):
            return None

    def put(self, key: str, output: Output) -> None:
        """Keep an answer. A full or read-only disk loses the entry, not the run."""
        path = self.path(key)
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as stream:
                    json.dump(output.to_dict(), stream, ensure_ascii=True)
                Path(temporary).replace(path)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
