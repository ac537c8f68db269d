"""What is looked after: baselines, judges, counts, old runs that are forgotten, failed runs that are told of."""

import json
import os
import urllib.request
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.settings import get_settings
from persona_pipeline.corrections.counting import forget_bypasses, forget_texts
from persona_pipeline.defs.agents.specs import Specs
from persona_pipeline.defs.platform.dagster_internals import PARTITION, RANGE, AssetJob, delete_run, events_of_run
from persona_pipeline.defs.platform.failures import known_failures
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.resources import WorldResource
from persona_pipeline.defs.platform.run_tags import AGENT, Ours, request_tags
from persona_pipeline.defs.platform.settings import OrchestrationSettings, orchestration
from persona_pipeline.defs.upkeep.assets import build_baseline_review, build_calibration
from persona_pipeline.reporting.text import one_line
from persona_pipeline.world.messages.counting import check_counts
from persona_pipeline.world.runs import forget_reasons
from persona_pipeline.world.settings import WORLD_FILE, load_world_file

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


_MOST_NAMED = 20


def build_check_message_counts(place: Place) -> dg.JobDefinition:
    """Return the job that checks the counts."""

    @dg.op(name=place.name("count_all_messages"))
    @place.bound
    def count_all_messages(context: dg.OpExecutionContext, world: WorldResource) -> None:
        """Count every message, agent by agent, and mend what differs from what was counted as they came."""
        with known_failures():
            differing = check_counts(world.open().store)
        for agent_id, days in list(differing.items())[:_MOST_NAMED]:
            context.log.warning(f"{agent_id}: what was said on {days} days was counted wrongly; it is mended")
        context.add_output_metadata({"agents_mended": len(differing), "days_mended": sum(differing.values())})

    count = count_all_messages.alias("count_all_messages")

    @dg.job(
        name=place.name("check_message_counts"),
        executor_def=place.executor,
        description="Compares the counts of what agents said, which triggers in the store keep, with all messages, and mends what "
        "differs: the next look evaluates those agents. Judges nothing.",
    )
    def check_message_counts() -> None:
        count()

    return check_message_counts


_WEBHOOK = "PERSONA_ALERT_WEBHOOK_"
MOST_LINES = 10
MOST_CHARACTERS = 300
SECONDS = 10


def build_run_failure_alert(place: Place, ours: Ours) -> dg.SensorDefinition:
    """Return the sensor of failed runs."""

    @dg.run_failure_sensor(
        name=place.name("run_failure_alert"),
        default_status=dg.DefaultSensorStatus.RUNNING
        if place.orchestration.alert_webhook or alerts_of(place)
        else dg.DefaultSensorStatus.STOPPED,
        description="Posts failed runs to PERSONA_ALERT_WEBHOOK (a Slack incoming webhook, or anything that takes its JSON).",
    )
    @place.bound
    def run_failure_alert(context: dg.RunFailureSensorContext) -> dg.SkipReason | None:
        """Post what failed, with the first reasons."""
        settings, names = orchestration(), alerts_of(place)
        known = {name: os.environ.get(f"{_WEBHOOK}{name.upper().replace('-', '_')}", "") for name in names}
        if settings.alert_webhook is not None and not names:
            known = {"": settings.alert_webhook.get_secret_value()}
        if missing := [name for name, url in known.items() if not url]:
            context.log.warning(f"{WORLD_FILE} names {', '.join(missing)}, whose PERSONA_ALERT_WEBHOOK_NAME is not set")
        if not any(known.values()):
            return dg.SkipReason("PERSONA_ALERT_WEBHOOK is not set")
        if not ours(context.dagster_run):
            return dg.SkipReason("it was no run of this world")
        run_id, kind = context.dagster_run.run_id, dg.DagsterEventType.ASSET_CHECK_EVALUATION
        evaluations = [event.asset_check_evaluation_data for event in events_of_run(context.instance, run_id, kind)]
        failed = [item for item in evaluations if not item.passed and item.severity is dg.AssetCheckSeverity.ERROR]
        reasons = [f"{item.check_name}: {item.description}" for item in failed]
        if not reasons:
            reasons = [_error_of(event) for event in context.get_step_failure_events()] or [
                context.failure_event.message or ""
            ]
        for url in filter(None, known.values()):
            post(url, alert_text(context.dagster_run, reasons, settings))
        return None

    return run_failure_alert


def alerts_of(place: Place) -> list[str]:
    """Return the names of who hears of a world's failed runs; a file that is not valid names nobody."""
    try:
        return load_world_file((place.settings or get_settings()).world_root).alerts
    except ConfigError:
        return []


def alert_text(run: dg.DagsterRun, reasons: Sequence[str], settings: OrchestrationSettings) -> str:
    """Return the alert: what failed, for whom, why, and where to look. Foreign text is escaped as Slack asks for."""
    whom = f" for {run.tags[AGENT]}" if AGENT in run.tags else ""
    lines = [f"*{run.job_name}*{whom} failed"]
    lines += [f"• {_escaped(one_line(reason, MOST_CHARACTERS))}" for reason in reasons[:MOST_LINES]]
    if len(reasons) > MOST_LINES:
        lines.append(f"and {len(reasons) - MOST_LINES} more")
    lines.append(f"{settings.dagster_url}/runs/{run.run_id}" if settings.dagster_url else f"run {run.run_id}")
    return "\n".join(lines)


def post(url: str, text: str) -> None:
    """Post a message.

    Raises:
        RuntimeError: it could not be delivered; the address, which is a secret, is not shown.
    """
    request = urllib.request.Request(
        url, json.dumps({"text": text}).encode("utf-8"), {"Content-Type": "application/json"}, method="POST"
    )
    if request.type not in ("http", "https"):
        raise RuntimeError("PERSONA_ALERT_WEBHOOK is no http address")
    try:
        with urllib.request.urlopen(request, timeout=SECONDS):
            pass
    except (OSError, ValueError) as error:
        code = getattr(error, "code", None)
        raise RuntimeError(f"the alert was not delivered ({code or type(error).__name__})") from None


def _error_of(event: dg.DagsterEvent) -> str:
    data = event.step_failure_data
    if data.user_failure_data and data.user_failure_data.description:
        return data.user_failure_data.description
    return data.error_display_string


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def build_upkeep(specs: Specs, ours: Ours) -> dg.Definitions:
    """Return what looks after a place; ``ours``: whether a run is one of its world."""
    place = specs.place
    review, calibration = build_baseline_review(specs), build_calibration(place)
    review_baselines = dg.define_asset_job(
        place.name("review_baselines"),
        selection=dg.AssetSelection.assets(review),
        executor_def=place.executor,
        description="Lists the golden baselines that need a person. Judges nothing.",
    )
    review_calibration = dg.define_asset_job(
        place.name("review_calibration"),
        selection=dg.AssetSelection.assets(calibration),
        executor_def=place.executor,
        description="Measures the judges against people's labels. Judges nothing.",
    )
    check_message_counts, forget_old_runs = build_check_message_counts(place), build_forget_old_runs(place, ours)
    return dg.Definitions(
        assets=[review, calibration],
        jobs=[review_baselines, review_calibration, forget_old_runs, check_message_counts],
        schedules=[
            _schedule(
                place,
                "weekly_baseline_review",
                review_baselines,
                place.orchestration.review_cron,
                "Lists the golden baselines that need a person: old, missing, outgrown or of another judge.",
                tags=request_tags("weekly review"),
            ),
            _schedule(
                place,
                "weekly_tidying",
                forget_old_runs,
                "0 5 * * 0",
                "Deletes runs older than PERSONA_KEEP_DAYS, the newest about each agent and suite excepted.",
            ),
            _schedule(
                place,
                "daily_message_check",
                check_message_counts,
                "15 4 * * *",
                "Compares the counts of what agents said with all messages in the store, and mends what differs.",
            ),
        ],
        sensors=[build_run_failure_alert(place, ours)],
    )


def _schedule(
    place: Place, name: str, job: dg.JobDefinition | AssetJob, cron: str, description: str, **more
) -> dg.ScheduleDefinition:
    return dg.ScheduleDefinition(
        name=place.name(name),
        job=job,
        cron_schedule=cron,
        execution_timezone=place.orchestration.timezone,
        default_status=place.orchestration.schedule_status,
        description=description,
        **more,
    )
