"""Forgetting old runs: each keeps its own event log, 150 KB on SQLite."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import dagster as dg

from persona_pipeline.defs.run_tags import PARTITION
from persona_pipeline.defs.settings import orchestration

_AT_ONCE = 200


@dg.op
def delete_old_runs(context: dg.OpExecutionContext) -> None:
    """Delete finished runs older than PERSONA_KEEP_DAYS, but the newest of each job and agent: its results are still shown."""
    before = datetime.now(UTC) - timedelta(days=orchestration().keep_days)
    deleted = 0
    for run_id in list(old_runs(context.instance, before)):
        context.instance.delete_run(run_id)
        deleted += 1
    context.add_output_metadata({"deleted": deleted, "before": before.isoformat()})


def old_runs(instance: dg.DagsterInstance, before: datetime) -> Iterator[str]:
    """Yield the finished runs created before a time that have a newer finished one of the same job and agent."""
    finished = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
    seen: set[tuple[str, str | None]] = set()
    cursor: str | None = None
    while records := instance.get_run_records(dg.RunsFilter(statuses=finished), limit=_AT_ONCE, cursor=cursor):
        for record in records:
            run = record.dagster_run
            kind = (run.job_name, run.tags.get(PARTITION))
            created = record.create_timestamp
            created = created if created.tzinfo else created.replace(tzinfo=UTC)
            if kind in seen and created < before:
                yield run.run_id
            seen.add(kind)
        cursor = records[-1].dagster_run.run_id


@dg.job(description="Delete runs older than PERSONA_KEEP_DAYS; what the store holds (scores, baselines) stays.")
def forget_old_runs() -> None:
    delete_old_runs()
