"""The weekly look at the baselines: which are old, missing, of another judge, or far from where the agent is now."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import dagster as dg

from persona_pipeline.baselines import Baseline, find_baseline
from persona_pipeline.defs.agents.specs import Specs
from persona_pipeline.defs.platform.failures import known_failures
from persona_pipeline.defs.platform.labels import OWNERS
from persona_pipeline.defs.platform.resources import WorldResource, known_agents
from persona_pipeline.defs.platform.settings import orchestration
from persona_pipeline.errors import ConfigError
from persona_pipeline.evaluation.decide import Guard, compared
from persona_pipeline.evaluation.gate import GateRules
from persona_pipeline.evaluation.history import newest_run
from persona_pipeline.evaluation.read import read_trust
from persona_pipeline.evaluation.report import AgentReport
from persona_pipeline.evaluation.trust import Trust
from persona_pipeline.reporting.text import format_delta, format_score, markdown_code, markdown_text
from persona_pipeline.world import World

# A baseline this far below what the agent does now guards against nothing.
OUTGROWN = 1.0
NOTHING_DUE = "nothing_to_review"
_OF_JUDGES = ("other_judge", "judge_changed", "judge_health")


@dataclass(frozen=True)
class Reviewed:
    """What a person should know of one agent's baseline. ``remarks`` is empty when there is nothing to do."""

    agent_id: str
    captured_at: datetime | None
    overall: float | None
    remarks: tuple[str, ...]


def review_agent(world: World, agent_id: str, *, now: datetime, days: int, trust: Trust | None = None) -> Reviewed:
    """Return what is to be said of an agent's baseline; nothing is judged for it."""
    try:
        baseline = find_baseline(world.root, agent_id)
    except ConfigError as error:
        return Reviewed(agent_id, None, None, tuple(str(problem) for problem in error.problems))
    saved = newest_run(world.store, agent_id)
    run = saved.evaluation if saved else None
    if baseline is None:
        remark = "no baseline; run capture_baseline once its scores are as they should be"
        return Reviewed(agent_id, None, run.overall if run else None, (remark,))
    if run is None:
        return Reviewed(agent_id, baseline.captured_at, None, ("never evaluated; run evaluate_agent",))
    report = compared(run, baseline, Guard(GateRules(), trust=trust or Trust()))
    judges = [finding.text for finding in report.findings if finding.kind in _OF_JUDGES]
    remarks = (*_age(baseline, now, days), *judges, *_drift(report), *report.comparison.warnings)
    return Reviewed(agent_id, baseline.captured_at, run.overall, remarks)


def _age(baseline: Baseline, now: datetime, days: int) -> Sequence[str]:
    age = (now - baseline.captured_at).days
    return [f"{age} days old; take it again if the agent is as it should be"] if age >= days else []


def _drift(report: AgentReport) -> Sequence[str]:
    remarks = [f"{item.dimension} regressed ({format_delta(item.delta)})" for item in report.comparison.regressions]
    remarks += [
        f"{item.dimension} has outgrown its baseline ({format_delta(item.delta)}); take it again to guard what was gained"
        for item in report.comparison.dimensions.values()
        if item.delta is not None and item.delta > OUTGROWN
    ]
    missing = [item.dimension for item in report.comparison.dimensions.values() if item.status == "no_baseline"]
    return [*remarks, *([f"no baseline of {', '.join(missing)}"] if missing else [])]


def build_baseline_review(specs: Specs) -> dg.AssetsDefinition:
    """Return the review of a place's baselines."""
    key = specs.place.key("baseline_review")

    @dg.asset(
        key=key,
        group_name=specs.place.path("evaluation"),
        deps=[specs.comparisons],
        kinds={"json", "sql"},
        owners=OWNERS,
        check_specs=[
            dg.AssetCheckSpec(
                NOTHING_DUE,
                asset=key,
                description="No baseline is old, missing, outgrown or of another judge.",
            )
        ],
    )
    @specs.place.bound
    def baseline_review(context: dg.AssetExecutionContext, world: WorldResource) -> dg.MaterializeResult:
        """Which golden baselines need a person: too old, missing, taken with another judge, regressed, outgrown. Judges nothing."""
        days = orchestration().review_days
        with known_failures():
            opened = world.open()
            now, trust = datetime.now(UTC), read_trust(opened)
            reviewed = [
                review_agent(opened, agent_id, now=now, days=days, trust=trust)
                for agent_id in known_agents(opened.root)
            ]
        due = [item for item in reviewed if item.remarks]
        check = dg.AssetCheckResult(
            check_name=NOTHING_DUE,
            passed=not due,
            severity=dg.AssetCheckSeverity.WARN,
            metadata={"to_review": ", ".join(item.agent_id for item in due) or "nobody"},
        )
        return dg.MaterializeResult(
            metadata={
                "baselines": sum(item.captured_at is not None for item in reviewed),
                "to_review": len(due),
                "review": dg.MetadataValue.md(review_table(due) if due else "Nothing to do."),
            },
            check_results=[check],
        )

    return baseline_review


def review_table(due: Sequence[Reviewed]) -> str:
    """Return Markdown with a line an agent."""
    lines = ["| Agent | Baseline of | Overall now | What to look at |", "|:--|:--|--:|:--|"]
    lines += [
        f"| {markdown_code(item.agent_id, in_table=True)} | {f'{item.captured_at:%Y-%m-%d}' if item.captured_at else '–'} "
        f"| {format_score(item.overall)} | {'; '.join(markdown_text(remark) for remark in item.remarks)} |"
        for item in due
    ]
    return "\n".join(lines)
