"""Suite runs in the store (table ``suite_runs``)."""

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from persona_pipeline.base.documents.json import storable
from persona_pipeline.suites.results.suite_result import SuiteResult, TestResult, by_target, summary_of

if TYPE_CHECKING:
    from persona_pipeline.base.database.engine import Store


def save_suite_result(store: "Store", result: SuiteResult) -> list[uuid.UUID]:
    """Write a run to the store, one row a target, in one transaction; return the rows' ids."""
    from persona_pipeline.base.database import tables

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


def latest_suite_summaries(store: "Store") -> list[dict[str, Any]]:
    """Return the summaries of the newest saved run of each suite and target, by name."""
    import sqlalchemy as sa

    from persona_pipeline.base.database import tables

    runs = tables.suite_runs
    newest = sa.func.row_number().over(
        partition_by=(runs.c.suite, runs.c.target), order_by=(runs.c.created_at.desc(), runs.c.id)
    )
    ranked = sa.select(runs.c.suite, runs.c.target, runs.c.result, newest.label("place")).subquery()
    query = sa.select(ranked).where(ranked.c.place == 1).order_by(ranked.c.suite, ranked.c.target)
    with store.connect() as connection:
        rows = connection.execute(query).all()
    return [summary_of(row.target, _from_dict(row.result)) for row in rows]


def _from_dict(data: Mapping[str, Any]) -> SuiteResult:
    tests = [TestResult.from_dict(item) for item in data["tests"]]
    return SuiteResult(data["suite"], data["path"], tests, data["suite_hash"])
