"""Results on disk: one JSON line a test, written as soon as it is there, so that a run that was killed can go on."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from persona_pipeline.errors import ConfigError, Problem
from persona_pipeline.suites.format.json_lines import json_rows
from persona_pipeline.suites.results.suite_result import SuiteResult, TestResult
from persona_pipeline.suites.targets.output import OutputError


class RowWriter:
    """Appends rows to a JSON lines file, each flushed; what a killed run left half written is cut off first."""

    def __init__(self, path: Path, *, append: bool) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if append and path.exists():
            _cut_half_line(path)
        self._stream: TextIO = path.open("a" if append else "w", encoding="utf-8", newline="\n")

    def write(self, result: TestResult) -> None:
        self._stream.write(json.dumps(result.to_dict(), ensure_ascii=True, allow_nan=False) + "\n")
        self._stream.flush()

    def close(self) -> None:
        self._stream.close()


def json_parts(result: SuiteResult, parts: Sequence[SuiteResult] = (), *, newline: str = "") -> Iterator[str]:
    """Yield the JSON of a whole run piece by piece, a test at a time: the text of many is never held at once.

    Args:
        parts: the suites of a joined result, to be summed up one by one.
        newline: what stands after each test.
    """
    head = {"suite": result.suite, "path": result.path, "suite_hash": result.suite_hash}
    yield _json(head)[:-1] + ', "tests": [' + newline
    for index, test in enumerate(result.tests):
        yield (f", {newline}" if index else "") + _json(test.to_dict())
    rest = result.closing()
    if len(parts) > 1:
        rest["suites"] = [{"suite": part.suite, "summary": part.summary} for part in parts]
    yield newline + "], " + _json(rest)[1:] + "\n"


def _json(data: Any) -> str:
    return json.dumps(data, ensure_ascii=True, allow_nan=False, default=str)


def _cut_half_line(path: Path) -> None:
    with path.open("rb+") as stream:
        raw = stream.read()
        if raw and not raw.endswith(b"\n"):
            stream.truncate(raw.rfind(b"\n") + 1)


def read_rows(path: Path | str) -> list[dict[str, Any]]:
    """Return the rows of results: JSON lines, or the JSON of a whole run. A later row of the same id replaces an earlier one.

    Raises:
        ConfigError: the file cannot be read or holds something else.
    """
    path = Path(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise ConfigError(
            Problem(f"cannot be read ({getattr(error, 'strerror', None) or 'not UTF-8'})", str(path))
        ) from error
    rows: dict[str, dict[str, Any]] = {}
    for number, row in _parsed(text, path):
        if not isinstance(row, dict) or not isinstance(row.get("id"), str) or "verdict" not in row:
            raise ConfigError(Problem("is no row of results: it has no id and verdict", str(path), number, 1))
        score = row.get("score")
        if score is not None and (isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1):
            raise ConfigError(Problem(f"row {row['id']!r}: score must be from 0 to 1 or null", str(path), number, 1))
        rows[row["id"]] = row
    return list(rows.values())


def _parsed(text: str, path: Path) -> Iterator[tuple[int, Any]]:
    if path.suffix.lower() != ".jsonl":
        with contextlib.suppress(ValueError, RecursionError):
            data = json.loads(text)
            if isinstance(data, dict) and isinstance(data.get("tests"), list):
                yield from enumerate(data["tests"], start=1)
                return
    yield from json_rows(text, str(path), "is not results: {error}", json.loads)


def earlier_results(path: Path) -> list[TestResult]:
    """Return the results an interrupted run left; rows that cannot be read again are run again."""
    if not path.exists():
        return []
    found = []
    for row in read_rows(path):
        with contextlib.suppress(KeyError, TypeError, ValueError, OutputError):
            found.append(TestResult.from_dict(row))
    return found
