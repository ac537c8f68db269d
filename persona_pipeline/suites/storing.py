"""Suite runs in the store (table ``suite_runs``), and what a report shows of them."""

import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from persona_pipeline.suites.grades import SuiteVerdict
from persona_pipeline.suites.results import SuiteResult, TestResult
from persona_pipeline.world.ingest import storable

if TYPE_CHECKING:
    from persona_pipeline.store import Store

MOST_FAILURES = 50


def by_target(result: SuiteResult) -> dict[str | None, SuiteResult]:
    """Return the run's results split by target, in order of first appearance."""
    found: dict[str | None, list[TestResult]] = {}
    for test in result.tests:
        found.setdefault(test.target, []).append(test)
    return {
        target: SuiteResult(
            result.suite, result.path, tests, result.suite_hash, result.warnings, result.judge, result.usage
        )
        for target, tests in found.items()
    }


def save_suite_result(store: "Store", result: SuiteResult) -> list[uuid.UUID]:
    """Write a run to the store, one row a target, in one transaction; return the rows' ids."""
    from persona_pipeline.store import tables

    # SQLite's own clock counts whole seconds, in which two runs fit.
    now = datetime.now(UTC)
    rows = [
        {
            "id": uuid.uuid4(),
            "suite": part.suite,
            "suite_hash": part.suite_hash,
            "target": target,
            "verdict": part.verdict.value,
            "score": part.score,
            "result": _storable(part.to_dict()),
            "created_at": now,
        }
        for target, part in by_target(result).items()
    ]
    if rows:
        with store.begin() as connection:
            connection.execute(tables.suite_runs.insert(), rows)
    return [row["id"] for row in rows]


def _storable(value: Any) -> Any:
    """Return JSON whose texts every database takes."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict):
        return {_storable(key): _storable(item) for key, item in value.items()}
    return [_storable(item) for item in value] if isinstance(value, list | tuple) else value


def suite_summaries(results: Sequence[SuiteResult]) -> list[dict[str, Any]]:
    """Return what a run report shows of suites (``RunReport.statistics["suites"]``): one entry a suite and target."""
    return [_summary(target, part) for result in results for target, part in by_target(result).items()]


def latest_suite_summaries(store: "Store") -> list[dict[str, Any]]:
    """Return the summaries of the newest saved run of each suite and target, by name."""
    import sqlalchemy as sa

    from persona_pipeline.store import tables

    runs = tables.suite_runs
    newest = sa.func.row_number().over(
        partition_by=(runs.c.suite, runs.c.target), order_by=(runs.c.created_at.desc(), runs.c.id)
    )
    ranked = sa.select(runs.c.suite, runs.c.target, runs.c.result, newest.label("place")).subquery()
    query = sa.select(ranked).where(ranked.c.place == 1).order_by(ranked.c.suite, ranked.c.target)
    with store.connect() as connection:
        rows = connection.execute(query).all()
    return [_summary(row.target, _from_dict(row.result)) for row in rows]


def _from_dict(data: Mapping[str, Any]) -> SuiteResult:
    tests = [TestResult.from_dict(item) for item in data["tests"]]
    return SuiteResult(data["suite"], data["path"], tests, data["suite_hash"])


def _summary(target: str | None, part: SuiteResult) -> dict[str, Any]:
    counts = part.summary
    failures = [test for test in part.tests if test.verdict is not SuiteVerdict.PASS]
    return {
        "suite": part.suite,
        "target": target,
        "verdict": part.verdict.value,
        "score": part.score,
        "tests": {
            "pass": counts["passed"],
            "borderline": counts["borderline"],
            "fail": counts["failed"],
            "error": counts["errors"],
        },
        "failures": [
            {"id": test.id, "verdict": test.verdict.value, "score": test.score, "reason": reason_of(test)}
            for test in failures[:MOST_FAILURES]
        ],
    }


def reason_of(test: TestResult) -> str:
    """Return in one sentence why a test did not pass, ``""`` when it did."""
    if test.error:
        return str(test.error)
    if test.best.failed_gates:
        named = [item for item in test.best.results if item.name in test.best.failed_gates]
        return "; ".join(f"gate {item.name}: {_first(item.misses)}" for item in named)
    low = [item for item in test.best.results if item.verdict is not SuiteVerdict.PASS]
    return "; ".join(f"{item.name}: {_first(item.misses) or item.verdict.value}" for item in low)


def _first(misses: Sequence[str]) -> str:
    return misses[0] if misses else ""
