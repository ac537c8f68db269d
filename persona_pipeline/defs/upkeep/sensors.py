"""What is said when a run failed, and to whom."""

import json
import os
import urllib.request
from collections.abc import Sequence

import dagster as dg

from persona_pipeline.defs.platform.dagster_internals import events_of_run
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.run_tags import AGENT, Ours
from persona_pipeline.defs.platform.settings import OrchestrationSettings, orchestration
from persona_pipeline.errors import ConfigError
from persona_pipeline.reporting.text import one_line
from persona_pipeline.settings import get_settings
from persona_pipeline.world.settings import WORLD_FILE, load_world_file

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
