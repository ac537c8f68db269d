"""What the corrections did, for people who watch: counted by action as the report counts them, on a schedule."""

from collections.abc import Mapping
from datetime import UTC, datetime

import dagster as dg
from pydantic import Field

from persona_pipeline.base.documents.json import content_hash
from persona_pipeline.base.options import moment
from persona_pipeline.corrections import statistics
from persona_pipeline.corrections.statistics import CorrectionEffect, CorrectionStatistics, GateStatistics
from persona_pipeline.defs import metadata
from persona_pipeline.defs.platform import run_tags
from persona_pipeline.defs.platform.assets import AssetOutcome
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.resources import WorldResource, known_failures
from persona_pipeline.reporting.text import format_delta, format_score
from persona_pipeline.world.models import Window, parse_window
from persona_pipeline.world.propositions.models import dimension_label

ALL_TIME = "all"
_COUNTED = (
    *("actions", "passed", "passed_after_retry", "corrected", "forced"),
    *("fail_open", "shadowed", "would_hold", "abandoned"),
)
_COLUMNS = (*_COUNTED, "pass_rate", "p50_ms", "p95_ms", "p99_ms", "checks", "usd")


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
    """Return the version, which changes with what is counted and not with the window, and the tables."""
    version = content_hash(found.model_dump(mode="json", exclude={"window_start", "window_end"}))
    total = found.total
    facts: metadata.Metadata = {
        **{name: getattr(total, name) for name in _COUNTED},
        "checks": total.checks,
        "usd": total.usd,
        "unpriced_checks": total.unpriced_checks,
        "tokens": total.input_tokens + total.output_tokens + total.cached_tokens,
        "window": _window_text(found),
        "agents": _table("agent", found.agents),
        "days": _table("day", {str(day): item for day, item in found.days.items()}),
        "fail_open_reasons": _reasons_table(found),
    }
    if total.pass_rate is not None:
        facts["pass_rate"] = total.pass_rate
    if total.latency_ms is not None:
        facts |= {f"latency_ms/{name}": value for name, value in total.latency_ms.model_dump().items()}
    if found.effects:
        facts["dimensions_before_and_after"] = _effects_table(found.effects)
    return AssetOutcome(version, facts)


def _window_text(found: CorrectionStatistics) -> str:
    if found.window_start is None or found.window_end is None:
        return "all of time"
    return f"{found.window_start.isoformat()} to {found.window_end.isoformat()}"


def _table(label: str, items: Mapping[str, GateStatistics]) -> dg.MarkdownMetadataValue:
    rows = [{label: name, **_row(item)} for name, item in items.items()]
    return metadata.table(rows, (label, *_COLUMNS))


def _row(item: GateStatistics) -> dict[str, str | float]:
    latency = item.latency_ms
    return {
        **{name: getattr(item, name) for name in _COUNTED},
        "pass_rate": "–" if item.pass_rate is None else f"{item.pass_rate:.0%}",
        "p50_ms": round(latency.p50) if latency else "–",
        "p95_ms": round(latency.p95) if latency else "–",
        "p99_ms": round(latency.p99) if latency else "–",
        "checks": item.checks,
        "usd": f"{item.usd:.4f}" + (f" and {item.unpriced_checks} without a price" if item.unpriced_checks else ""),
    }


def _reasons_table(found: CorrectionStatistics) -> dg.MarkdownMetadataValue:
    rows = [
        {"agent": agent_id, "reason": reason, "actions": count}
        for agent_id, item in found.agents.items()
        for reason, count in item.fail_open_by_reason.items()
    ]
    return metadata.table(rows, ("agent", "reason", "actions"))


def _effects_table(effects: Mapping[str, CorrectionEffect]) -> dg.MarkdownMetadataValue:
    rows = [
        {
            "agent": agent_id,
            "dimension": dimension_label(name),
            "before": format_score(item.before),
            "after": format_score(item.after),
            "change": format_delta(item.change),
        }
        for agent_id, effect in effects.items()
        for name, item in effect.dimensions.items()
    ]
    return metadata.table(rows, ("agent", "dimension", "before", "after", "change"))


def build_corrections(place: Place) -> dg.Definitions:
    @place.asset("correction_statistics", "corrections", kinds={"sql"})
    def correction_statistics(
        context: dg.AssetExecutionContext, world: WorldResource, config: CorrectionsConfig
    ) -> dg.MaterializeResult:
        """What the gate did to outgoing messages: passed, corrected, forced, let through unchecked; how fast, for how much."""
        with known_failures():
            found = statistics.correction_statistics(world.open().store, config.span())
        return corrections_outcome(found).result()

    tags = run_tags.request_tags("daily count")
    about = "Counts what the gate did in the last 30 days."
    daily = place.schedule("daily_corrections", correction_statistics, "0 4 * * *", about, tags=tags)
    return dg.Definitions(assets=[correction_statistics], schedules=[daily])
