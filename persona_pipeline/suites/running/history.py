"""Results of runs: rows in files and in the store, and the comparison of two runs."""

import contextlib
import json
import math
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.base.text import storable_json
from persona_pipeline.suites.answering.base import read_results_file
from persona_pipeline.suites.answering.output import OutputError
from persona_pipeline.suites.format.text import json_rows
from persona_pipeline.suites.grading.results import (
    SuiteResult,
    TestResult,
    by_target,
)
from persona_pipeline.suites.running.trials import mean_interval

if TYPE_CHECKING:
    from persona_pipeline.base.database.engine import Store


class RowWriter:
    """Appends rows to a JSON lines file and flushes each; an incomplete last row is removed first."""

    def __init__(self, path: Path, *, append: bool) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if append and path.exists():
            with path.open("rb+") as stream:
                raw = stream.read()
                stream.truncate(raw.rfind(b"\n") + 1)
        self._stream: TextIO = path.open("a" if append else "w", encoding="utf-8", newline="\n")

    def write(self, result: TestResult) -> None:
        self._stream.write(_json(result.to_dict()) + "\n")
        self._stream.flush()

    def close(self) -> None:
        self._stream.close()


def json_parts(result: SuiteResult, parts: Sequence[SuiteResult] = (), *, newline: str = "") -> Iterator[str]:
    """Yield the JSON of a run, one test at a time, to limit memory.

    ``parts``: the suites of a joined result, for their summaries. ``newline``: written after each test.
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
    return storable_json(json.dumps(data, ensure_ascii=True, allow_nan=False, default=str))


def read_rows(path: Path | str) -> list[dict[str, Any]]:
    """Return the rows of results: JSON lines, or the JSON of a whole run. A later row of the same id replaces an earlier one.

    Raises ``ConfigError``: the file cannot be read or has another form.
    """
    path = Path(path)
    rows: dict[str, dict[str, Any]] = {}
    for number, row in _parsed(storable_json(read_results_file(path)), path):
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
    yield from ((number, row) for number, _, row in json_rows(text, str(path), "is not results: {error}"))


def earlier_results(path: Path) -> list[TestResult]:
    """Return the results of an interrupted run; tests with unreadable rows run again."""
    if not path.exists():
        return []
    found = []
    for row in read_rows(path):
        with contextlib.suppress(KeyError, TypeError, ValueError, OutputError):
            found.append(TestResult.from_dict(row))
    return found


def save_suite_result(store: "Store", result: SuiteResult) -> list[uuid.UUID]:
    """Write a run to the store, one row per target, in one transaction; return the rows' ids."""
    from persona_pipeline.base.database import tables

    # SQLite's clock has whole seconds, which two runs may share.
    now = datetime.now(UTC)
    rows = [
        {
            "id": uuid.uuid4(),
            "suite": part.suite,
            "suite_hash": part.suite_hash,
            "target": target,
            "verdict": part.verdict.value,
            "score": part.score,
            "result": part.to_dict(),
            "created_at": now,
        }
        for target, part in by_target(result).items()
    ]
    if rows:
        with store.begin() as connection:
            connection.execute(tables.suite_runs.insert(), rows)
    return [row["id"] for row in rows]


WIN, SURE = 0.1, 0.05


@dataclass(frozen=True)
class Pair:
    """One test in both runs; scores 0-1, or None."""

    id: str
    a: float | None
    b: float | None
    verdict_a: str
    verdict_b: str

    @property
    def delta(self) -> float | None:
        """B minus A."""
        return None if self.a is None or self.b is None else self.b - self.a


@dataclass(frozen=True)
class Comparison:
    """Comparison of run B with run A.

    ``pairs``: tests of both runs; ``only_a`` and ``only_b``: other tests. ``threshold``: difference that counts as won or lost.
    """

    pairs: Sequence[Pair]
    only_a: Sequence[str] = ()
    only_b: Sequence[str] = ()
    threshold: float = WIN

    @property
    def unscored(self) -> list[Pair]:
        return [pair for pair in self.pairs if pair.delta is None]

    @property
    def deltas(self) -> list[float]:
        return [pair.delta for pair in self.pairs if pair.delta is not None]

    @property
    def mean(self) -> float | None:
        """Mean difference B - A; None without pairs."""
        return math.fsum(self.deltas) / len(self.deltas) if self.deltas else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % t interval of the mean difference, cut to [-1, 1]; None with fewer than two pairs."""
        if len(self.deltas) < 2:
            return None
        _, low, high, _ = mean_interval(self.deltas)
        return max(-1.0, low), min(1.0, high)

    @property
    def wins(self) -> int:
        return sum(delta >= max(1e-9, self.threshold - 1e-9) for delta in self.deltas)

    @property
    def losses(self) -> int:
        return sum(delta <= min(-1e-9, -self.threshold + 1e-9) for delta in self.deltas)

    @property
    def headline(self) -> str:
        """The comparison in one short sentence."""
        if self.mean is None:
            return f"{len(self.pairs)} tests in both, none scored in both"
        said = f"{self.mean:+.3f} on average over {len(self.deltas)} tests"
        if self.interval:
            said += f" (95 %: {self.interval[0]:+.3f} to {self.interval[1]:+.3f})"
        said += f", {self.wins} better, {self.losses} worse"
        return said + (f", {len(self.unscored)} not scored in both" if self.unscored else "")

    @property
    def sign_p(self) -> float | None:
        """Two-sided p of the exact sign test over won and lost tests; None without any."""
        from scipy.special import bdtr

        decided = self.wins + self.losses
        return min(1.0, 2 * float(bdtr(min(self.wins, self.losses), decided, 0.5))) if decided else None

    @property
    def surely_worse(self) -> bool:
        """Whether it lost more tests than it won, with p below 5 %.

        One more lost test, or one fewer won test, never turns true into false.
        """
        return self.sign_p is not None and self.wins < self.losses and self.sign_p < SURE

    @property
    def worse(self) -> bool:
        """Whether B's mean is below A's."""
        return self.mean is not None and self.mean < -1e-9

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain JSON."""
        interval = self.interval
        return {
            "summary": {
                "pairs": len(self.deltas),
                "mean_delta": self.mean,
                "ci95": None if interval is None else list(interval),
                "wins": self.wins,
                "losses": self.losses,
                "ties": len(self.deltas) - self.wins - self.losses,
                "sign_test_p": self.sign_p,
                "threshold": self.threshold,
                "unscored": len(self.unscored),
            },
            "only_a": list(self.only_a),
            "only_b": list(self.only_b),
            "tests": [{**vars(pair), "delta": pair.delta} for pair in self.pairs],
        }


def compare_rows(
    a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]], *, threshold: float = WIN
) -> Comparison:
    """Compare the rows of two runs by id. ``threshold``: difference that counts as won or lost, 0-1."""
    first = {row["id"]: row for row in a}
    second = {row["id"]: row for row in b}
    pairs = [
        Pair(key, row.get("score"), second[key].get("score"), str(row["verdict"]), str(second[key]["verdict"]))
        for key, row in first.items()
        if key in second
    ]
    return Comparison(
        pairs, [key for key in first if key not in second], [key for key in second if key not in first], threshold
    )
