"""Forgetting old runs, whose events and output take room: 150 KB and more each on SQLite."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg

from persona_pipeline.corrections.keeping import forget_bypasses, forget_texts
from persona_pipeline.defs.platform.dagster_internals import PARTITION, RANGE, delete_run
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.resources import WorldResource
from persona_pipeline.defs.platform.run_tags import Ours
from persona_pipeline.defs.platform.settings import orchestration
from persona_pipeline.world.runs import forget_reasons

_AT_ONCE = 200
_FINISHED = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)

# From the general to the particular: job, partition, then what of it. A run about ("job", "michael") is about all of michael.
Subject = tuple[str, ...]


def build_forget_old_runs(place: Place, ours: Ours) -> dg.JobDefinition:
    """Return the job that forgets what is old; ``ours``: whether a run is one of this place."""

    @dg.op(name=place.name("delete_old_runs"))
    @place.bound
    def delete_old_runs(context: dg.OpExecutionContext) -> None:
        """Delete finished runs older than PERSONA_KEEP_DAYS, but not the newest about anything: its results are still shown."""
        before = datetime.now(UTC) - timedelta(days=orchestration().keep_days)
        instance, deleted = context.instance, 0
        for run_id in list(old_runs(instance, before, ours)):
            delete_run(instance, run_id)
            deleted += 1
        context.add_output_metadata({"deleted": deleted, "before": before.isoformat()})

    @dg.op(name=place.name("forget_old_texts"))
    @place.bound
    def forget_old_texts(context: dg.OpExecutionContext, world: WorldResource) -> None:
        """Take the words out of corrections older than PERSONA_KEEP_TEXT_DAYS, and delete old counts of bypasses."""
        opened = world.open()
        store, days = opened.store, opened.settings.keep_text_days
        forgotten = forget_texts(store, days) if days is not None else 0
        context.add_output_metadata({"corrections": forgotten, "counts_of_bypasses": forget_bypasses(store)})

    @dg.op(name=place.name("forget_old_reasons"))
    @place.bound
    def forget_old_reasons(context: dg.OpExecutionContext, world: WorldResource) -> None:
        """Take claims, reasons and quotes out of runs older than PERSONA_KEEP_REASONS_DAYS; their scores stay."""
        opened = world.open()
        days = opened.settings.keep_reasons_days
        shortened = forget_reasons(opened.store, days) if days is not None else 0
        context.add_output_metadata({"shortened": shortened})

    steps = [
        delete_old_runs.alias("delete_old_runs"),
        forget_old_texts.alias("forget_old_texts"),
        forget_old_reasons.alias("forget_old_reasons"),
    ]

    @dg.job(
        name=place.name("forget_old_runs"),
        executor_def=place.executor,
        description="Deletes runs older than PERSONA_KEEP_DAYS, but the newest about each agent and suite. "
        "What the store holds (scores, baselines) stays, but for the words of corrections older than PERSONA_KEEP_TEXT_DAYS and "
        "the claims and reasons of evaluations older than PERSONA_KEEP_REASONS_DAYS.",
    )
    def forget_old_runs() -> None:
        for step in steps:
            step()

    return forget_old_runs


def old_runs(instance: dg.DagsterInstance, before: datetime, ours: Ours = lambda run: True) -> Iterator[str]:
    """Yield the finished runs created before a time that say nothing a newer run that ended alike does not say too."""
    seen: dict[dg.DagsterRunStatus, set[Subject]] = {status: set() for status in _FINISHED}
    cursor: str | None = None
    while records := instance.get_run_records(dg.RunsFilter(statuses=list(_FINISHED)), limit=_AT_ONCE, cursor=cursor):
        for record in records:
            run = record.dagster_run
            newer, about = seen[run.status], subjects(run)
            created = record.create_timestamp
            created = created if created.tzinfo else created.replace(tzinfo=UTC)
            if created < before and ours(run) and all(_covered(subject, newer) for subject in about):
                yield run.run_id
            newer.update(about)
        cursor = records[-1].dagster_run.run_id


def subjects(run: dg.DagsterRun) -> list[Subject]:
    """Return what a run is about: some of its assets or checks, some suites, some agents and dimensions, or all of its job."""
    # A run over several partitions is about those: another one of the same job may be about others.
    partitions = [run.tags[tag] for tag in (PARTITION, *RANGE) if tag in run.tags]
    whole = (run.job_name, " to ".join(partitions))
    if run.asset_selection:
        return [(*whole, key.to_user_string()) for key in run.asset_selection]
    if run.asset_check_selection:
        return [(*whole, key.to_user_string()) for key in run.asset_check_selection]
    config: Any = run.run_config.get("ops", {})
    suites = config.get("choose_suites", {}).get("config", {}).get("suites")
    if suites:
        return [(*whole, name) for name in suites]
    cohort = config.get("cohort_shards", {}).get("config", {})
    parts = ["comparison"] if cohort.get("compare_only") else cohort.get("dimensions") or []
    agents = [(*whole, agent_id) for agent_id in cohort.get("agents") or ([""] if parts else [])] or [whole]
    return [(*agent, part) for agent in agents for part in parts] or agents


def _covered(subject: Subject, newer: set[Subject]) -> bool:
    return any(subject[:length] in newer for length in range(2, len(subject) + 1))
