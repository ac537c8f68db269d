"""Recorded answers: what targets said earlier, to be graded again."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from persona_pipeline.errors import ConfigError, Problem
from persona_pipeline.suites.format.javascript import parse_json
from persona_pipeline.suites.format.json_lines import json_rows
from persona_pipeline.suites.targets.output import Output, OutputError, parse_output

MAX_BYTES = 512_000_000


class ResponseError(Exception):
    """There is no recorded answer to give; ``reason`` is a word for machines."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


@dataclass(frozen=True)
class Responses:
    """Recorded answers by test id, or by ``<test>@<target>``; a list holds one a trial.

    ``content_hash``: SHA-256 of the file they came from, ``""`` where there was none.
    """

    answers: Mapping[str, Any]
    source: str = "the responses"
    content_hash: str = ""

    def raw(self, test_id: str, target: str | None, attempt: int) -> Any:
        """Return what is recorded for one attempt.

        Raises:
            ResponseError: nothing is.
        """
        row_id = f"{test_id}@{target}"
        key = row_id if row_id in self.answers else test_id
        if key not in self.answers:
            raise ResponseError(
                "no_response", f"{self.source} has no answer for {key!r}; record one or leave the test out"
            )
        value = self.answers[key]
        if not isinstance(value, list) or _is_conversation(value):
            return value
        if attempt >= len(value):
            raise ResponseError(
                "no_response",
                f"{self.source} has {len(value)} answers for {key!r}, attempt {attempt + 1} needs one more",
            )
        return value[attempt]

    def output(self, test_id: str, target: str | None, attempt: int, request_key: str | None = None) -> Output:
        """Return the answer of one attempt.

        Args:
            request_key: what is asked now; an answer recorded with another key is stale.

        Raises:
            ResponseError: there is none, it has no known shape, it is stale, or an error was recorded.
        """
        value = self.raw(test_id, target, attempt)
        if isinstance(value, Mapping):
            error = value.get("error")
            if error:
                text = error.get("message") if isinstance(error, Mapping) else error
                raise ResponseError("target_failed", f"the recorded answer is an error: {text}")
            if "__exit__" in value:
                raise ResponseError("target_failed", f"the recorded target exited with code {value['__exit__']}")
            known = value.get("request_key")
            if known is not None and request_key is not None and known != request_key:
                raise ResponseError("stale", f"the test has changed since {test_id!r} was recorded; record it again")
        try:
            return parse_output(value)
        except OutputError as problem:
            raise ResponseError("invalid_response", f"{self.source}, {test_id!r}: {problem}") from problem


def _is_conversation(value: list[Any]) -> bool:
    """Whether a list is the messages of one answer: a list of answers holds texts, mappings without a role, or lists."""
    return bool(value) and all(isinstance(item, dict) and "role" in item for item in value)


def read_responses(data: Any, source: str = "the responses") -> Responses:
    """Return the answers of a mapping from test id to answer, a list of rows with an ``id``, or results of an earlier run.

    Raises:
        ConfigError: it is none of these.
    """
    if isinstance(data, Mapping) and isinstance(data.get("tests"), list) and "summary" in data:
        data = data["tests"]
    if isinstance(data, Mapping):
        return Responses(data, source)
    if not isinstance(data, list):
        raise ConfigError(Problem("must map test ids to answers", source))
    answers: dict[str, Any] = {}
    for index, row in enumerate(data):
        name = row.get("id", row.get("test_id")) if isinstance(row, Mapping) else None
        if not isinstance(name, str):
            raise ConfigError(Problem(f"row {index + 1} has no id", source))
        if name in answers:
            raise ConfigError(Problem(f"row {index + 1}: id {name!r} stands twice; remove one", source))
        answers[name] = _answer_of(row)
    return Responses(answers, source)


def _answer_of(row: Mapping[str, Any]) -> Any:
    """The answer in a row: a list of attempts, or the row itself."""
    for key in ("responses", "attempts"):
        if isinstance(row.get(key), list):
            return row[key]
    trials = row.get("trials")
    if isinstance(trials, list) and trials and all(isinstance(item, Mapping) and "output" in item for item in trials):
        return trials
    return row


def load_responses(path: Path | str) -> Responses:
    """Read recorded answers from JSON (a mapping by test id) or JSON lines (a row an answer, with ``id``).

    Raises:
        ConfigError: the file cannot be read, or is neither.
    """
    path = Path(path)
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
        text = raw.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8"
        raise ConfigError(Problem(f"cannot be read ({reason})", str(path))) from error
    if len(raw) > MAX_BYTES:
        raise ConfigError(Problem(f"is larger than {MAX_BYTES:,} bytes; split it", str(path)))
    digest = hashlib.sha256(raw).hexdigest()
    if path.suffix.lower() == ".jsonl":
        rows = [row for _, row in json_rows(text, str(path), "Malformed JSONL at line {number}: {error}")]
        return replace(read_responses(rows, str(path)), content_hash=digest)
    try:
        return replace(read_responses(parse_json(text), str(path)), content_hash=digest)
    except json.JSONDecodeError as error:
        raise ConfigError(Problem(f"is not JSON: {error.msg}", str(path), error.lineno, error.colno)) from error
    except ValueError as error:
        raise ConfigError(Problem(f"is not JSON: {error}", str(path), 1, 1)) from error
