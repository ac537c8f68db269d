"""Upkeep: statistics of corrections, old runs to delete, alerts of failed runs."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
from pydantic import Field

from persona_pipeline.base.documents.json import content_hash
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.options import moment
from persona_pipeline.corrections import statistics
from persona_pipeline.corrections.statistics import CorrectionStatistics, forget_bypasses, forget_texts
from persona_pipeline.defs import metadata
from persona_pipeline.defs.platform.assets import AssetOutcome
from persona_pipeline.defs.platform.dagster_internals import (
    PARTITION,
    RANGE,
    delete_run,
    events_of_run,
)
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.resources import known_failures, world_of
from persona_pipeline.defs.platform.run_tags import AGENT, request_tags
from persona_pipeline.defs.platform.settings import OrchestrationSettings
from persona_pipeline.reporting.notify import Notice, addresses, notify
from persona_pipeline.reporting.pages.instruments import statistics_page
from persona_pipeline.reporting.render import render_page
from persona_pipeline.world.messages.revision import age_out
from persona_pipeline.world.models import Window, parse_window
from persona_pipeline.world.runs import forget_reasons
from persona_pipeline.world.settings import WORLD_FILE, load_world_file

ALL_TIME = "all"


class CorrectionsConfig(dg.Config):
    """Which actions are counted."""

    window: str = Field(default="30d", description="Length of time, such as 30d, or 'all'.")
    as_of: str = Field(default="", description="Where it ends (RFC 3339); empty: now.")

    def span(self) -> Window | None:
        """Return the window, None for all of time; ConfigError: the length or the time is not valid."""
        if self.window == ALL_TIME:
            return None
        return Window.ending(moment(self.as_of or None, "as_of") or datetime.now(UTC), parse_window(self.window))


def corrections_outcome(found: CorrectionStatistics) -> AssetOutcome:
    """Return the version, which depends on the counts and not on the window, and the metadata."""
    version = content_hash(found.model_dump(mode="json", exclude={"window_start", "window_end"}))
    total, start, end = found.total.model_dump(exclude_none=True), found.window_start, found.window_end
    facts: metadata.Metadata = {
        **{name: value for name, value in total.items() if isinstance(value, int | float)},
        **{f"latency_ms/{name}": value for name, value in (total.get("latency_ms") or {}).items()},
        "window": f"{start.isoformat()} to {end.isoformat()}" if start and end else "all of time",
        "agents": dg.MetadataValue.md(render_page(statistics_page(found), "markdown")),
    }
    return AssetOutcome(version, facts)


def build_corrections(place: Place) -> dg.Definitions:
    @place.asset("correction_statistics", "corrections", kinds={"sql"})
    def correction_statistics(context: dg.AssetExecutionContext, config: CorrectionsConfig) -> dg.MaterializeResult:
        """What the gate did to outgoing messages: passed, corrected, forced, let through unchecked; how fast, for how much."""
        with known_failures():
            found = statistics.correction_statistics(world_of(place, context).store, config.span())
        return corrections_outcome(found).result()

    tags = request_tags("daily count")
    about = "Counts what the gate did in the last 30 days."
    daily = place.schedule("daily_corrections", correction_statistics, "0 4 * * *", about, tags=tags)
    return dg.Definitions(assets=[correction_statistics], schedules=[daily])


_AT_ONCE = 200
_FINISHED = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)

# From the general to the particular: job, partition, then what of it. A run about ("job", "michael") is about all of michael.
Subject = tuple[str, ...]


def build_upkeep_job(place: Place) -> dg.JobDefinition:
    """Return the job that deletes old runs, texts, reasons and messages."""

    @place.job(
        "upkeep",
        "Deletes runs older than PERSONA_KEEP_DAYS, but the newest about each agent and suite. "
        "What the store holds (scores, baselines) stays, but for the words of corrections older than PERSONA_KEEP_TEXT_DAYS, "
        "the claims and reasons of evaluations older than PERSONA_KEEP_REASONS_DAYS, and messages older than "
        "PERSONA_KEEP_MESSAGES_DAYS.",
    )
    def delete_what_is_old(context: dg.OpExecutionContext) -> None:
        """Delete what the settings do not keep: texts of the store, then finished runs except the newest about anything."""
        opened = world_of(place, context)
        store, kept = opened.store, opened.settings
        ages = (
            ("corrections", forget_texts, kept.keep_text_days),
            ("runs", forget_reasons, kept.keep_reasons_days),
            ("messages", age_out, kept.keep_messages_days),
        )
        forgotten = {name: forget(store, days) for name, forget, days in ages if days is not None}
        before = datetime.now(UTC) - timedelta(days=place.orchestration.keep_days)
        old = list(old_runs(context.instance, before, place))
        for run_id in old:
            delete_run(context.instance, run_id)
        counts = {"deleted": len(old), "before": before.isoformat(), "counts_of_bypasses": forget_bypasses(store)}
        context.add_output_metadata({**counts, **forgotten})

    return delete_what_is_old


def old_runs(instance: dg.DagsterInstance, before: datetime, place: Place) -> Iterator[str]:
    """Yield a place's finished runs created before a time, where newer runs with the same end are about the same."""
    seen: dict[dg.DagsterRunStatus, set[Subject]] = {status: set() for status in _FINISHED}
    cursor: str | None = None
    while records := instance.get_run_records(dg.RunsFilter(statuses=list(_FINISHED)), limit=_AT_ONCE, cursor=cursor):
        for record in records:
            run = record.dagster_run
            newer, about = seen[run.status], subjects(run)
            created = record.create_timestamp
            created = created if created.tzinfo else created.replace(tzinfo=UTC)
            if created < before and place.owns(run) and all(_covered(subject, newer) for subject in about):
                yield run.run_id
            newer.update(about)
        cursor = records[-1].dagster_run.run_id


def subjects(run: dg.DagsterRun) -> list[Subject]:
    """Return what a run is about: some of its assets or checks, some suites, or all of its job."""
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
    return [whole]


def _covered(subject: Subject, newer: set[Subject]) -> bool:
    return any(subject[:length] in newer for length in range(2, len(subject) + 1))


def build_run_failure_alert(place: Place) -> dg.SensorDefinition:
    @dg.run_failure_sensor(
        name=place.name("run_failure_alert"),
        default_status=dg.DefaultSensorStatus.RUNNING
        if place.orchestration.alert_webhook or alerts_of(place)
        else dg.DefaultSensorStatus.STOPPED,
        description="Posts failed runs to PERSONA_ALERT_WEBHOOK (a Slack incoming webhook, or anything that takes its JSON).",
    )
    def run_failure_alert(context: dg.RunFailureSensorContext) -> dg.SkipReason | None:
        """Post what failed, with the first reasons."""
        settings, names = place.orchestration, alerts_of(place)
        known = addresses(names)
        if settings.alert_webhook is not None and not names:
            known = {"PERSONA_ALERT_WEBHOOK": settings.alert_webhook.get_secret_value()}
        if missing := [variable for variable, url in known.items() if not url]:
            context.log.warning(f"{', '.join(missing)}, which alerts in {WORLD_FILE} ask for: not set")
        if not any(known.values()):
            return dg.SkipReason("PERSONA_ALERT_WEBHOOK is not set")
        if not place.owns(context.dagster_run):
            return dg.SkipReason("the run is of another world")
        run_id, kind = context.dagster_run.run_id, dg.DagsterEventType.ASSET_CHECK_EVALUATION
        evaluations = [event.asset_check_evaluation_data for event in events_of_run(context.instance, run_id, kind)]
        failed = [item for item in evaluations if not item.passed and item.severity is dg.AssetCheckSeverity.ERROR]
        reasons = [f"{item.check_name}: {item.description}" for item in failed]
        if not reasons:
            reasons = [_error_of(event) for event in context.get_step_failure_events()] or [
                context.failure_event.message or ""
            ]
        notice = alert_notice(context.dagster_run, reasons, settings)
        if problems := notify(notice, {variable: url for variable, url in known.items() if url}):
            raise RuntimeError("; ".join(problems))
        return None

    return run_failure_alert


def alerts_of(place: Place) -> list[str]:
    """Return the names of a world's alerts; none if its file is not valid."""
    try:
        return load_world_file(place.environment.world_root).alerts
    except ConfigError:
        return []


def alert_notice(run: dg.DagsterRun, reasons: Sequence[str], settings: OrchestrationSettings) -> Notice:
    """Return the notice of a failed run: the job, the agent, the reasons and a link."""
    whom = f" for {run.tags[AGENT]}" if AGENT in run.tags else ""
    link = f"{settings.dagster_url}/runs/{run.run_id}" if settings.dagster_url else f"run {run.run_id}"
    facts = {"kind": "failed_run", "job": run.job_name, "run_id": run.run_id, "agent": run.tags.get(AGENT)}
    return Notice(f"{run.job_name}{whom} failed", reasons, link, facts)


def _error_of(event: dg.DagsterEvent) -> str:
    data = event.step_failure_data
    if data.user_failure_data and data.user_failure_data.description:
        return data.user_failure_data.description
    return data.error_display_string


def build_upkeep(place: Place) -> dg.Definitions:
    """Return the upkeep and the alert of a place."""
    upkeep = build_upkeep_job(place)
    daily = place.schedule("daily_upkeep", upkeep, "15 4 * * *", "Deletes what is older than the settings keep.")
    return dg.Definitions(jobs=[upkeep], schedules=[daily], sensors=[build_run_failure_alert(place)])
