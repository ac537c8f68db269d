"""The weekly look at the baselines (old, missing, of another judge), and how far judges can be believed."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import dagster as dg

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.defs import metadata
from persona_pipeline.defs.agents.specs import Specs
from persona_pipeline.defs.platform.assets import OWNERS
from persona_pipeline.defs.platform.failures import known_failures
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.resources import WorldResource, known_agents
from persona_pipeline.defs.platform.settings import orchestration
from persona_pipeline.evaluation.calibrate import calibrate_world
from persona_pipeline.evaluation.decide import Guard, compared
from persona_pipeline.evaluation.history import saved_run
from persona_pipeline.evaluation.read import WorldReader
from persona_pipeline.guard.baselines.golden import BASELINES, find_baseline
from persona_pipeline.guard.baselines.models import Baseline
from persona_pipeline.guard.calibration.calibrate import Calibration, DimensionCalibration
from persona_pipeline.guard.gate import GateRules
from persona_pipeline.guard.report import AgentReport
from persona_pipeline.guard.trust import Trust
from persona_pipeline.reporting.text import format_delta, format_score, markdown_code, markdown_text
from persona_pipeline.reporting.view import NOBODY, measured
from persona_pipeline.world.runs import newest_run_row
from persona_pipeline.world.world import World

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
        baseline = find_baseline(world.root / BASELINES, agent_id)
    except ConfigError as error:
        return Reviewed(agent_id, None, None, tuple(str(problem) for problem in error.problems))
    saved = saved_run(newest_run_row(world.store, agent_id))
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
            now, trust = datetime.now(UTC), WorldReader(opened).trust()
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


BELIEVED, ENOUGH, CURRENT = "judge_beats_chance", "enough_labels", "labels_are_current"
COLUMNS = ("dimension", "judge", "judged", "labelled", "belief", "rank", "kappa", "bias", "people_would_give")
MOST_SHOWN = 5


def build_calibration(place: Place) -> dg.AssetsDefinition:
    """Return the calibration of a place's judges."""
    key = place.key("calibration")

    @dg.asset(
        key=key,
        group_name=place.path("evaluation"),
        owners=OWNERS,
        kinds={"python"},
        check_specs=[
            dg.AssetCheckSpec(
                BELIEVED, asset=key, description="No judge is no better than chance where people labelled enough."
            ),
            dg.AssetCheckSpec(
                ENOUGH, asset=key, description="Every dimension has the labels it takes to know its judge."
            ),
            dg.AssetCheckSpec(
                CURRENT,
                asset=key,
                description="No label is of a claim, a persona or messages that changed since.",
            ),
        ],
    )
    @place.bound
    def calibration(context: dg.AssetExecutionContext, world: WorldResource) -> dg.MaterializeResult:
        """How each judge agrees with people on each dimension, and what people would give. Judges nothing."""
        with known_failures():
            found = calibrate_world(world.open())
        chance = [_named(item) for item in found.dimensions if item.belief == "chance"]
        few = [f"{_named(item)}: {item.missing} missing" for item in found.dimensions if item.missing]
        return dg.MaterializeResult(
            metadata=calibration_metadata(found),
            check_results=[
                _check(BELIEVED, chance),
                _check(ENOUGH, few if any(item.people for item in found.dimensions) else [NOBODY]),
                _check(CURRENT, found.stale),
            ],
        )

    return calibration


def calibration_metadata(found: Calibration) -> metadata.Metadata:
    """Return a row a judge and dimension, and what to plot."""
    rows = [
        {
            "dimension": item.dimension,
            "judge": f"{item.judge_model} ({item.prompt_version})",
            "judged": item.judged,
            "labelled": item.labelled,
            "belief": item.belief,
            "rank": measured(item.agreement.rank),
            "kappa": measured(item.agreement.kappa),
            "bias": measured(item.agreement.bias, signed=True),
            "people_would_give": measured(item.people_mean),
        }
        for item in found.dimensions
    ]
    rewrite = [
        f"{i.dimension}/{c.proposition_id}: {c.rewrite}" for i in found.dimensions for c in i.claims if c.rewrite
    ]
    ranks: dict[str, float] = {}
    for item in found.dimensions:
        if item.agreement.rank.value is not None:
            ranks[f"rank_correlation/{item.dimension}"] = round(item.agreement.rank.value, 4)
    return {
        "calibration": metadata.table(rows, COLUMNS),
        "labelled": sum(item.labelled for item in found.dimensions),
        "labels_hash": found.labels_hash or "none",
        **ranks,
        **(
            {"rewrite_these_claims": metadata.table([{"claim": line} for line in rewrite], ("claim",))}
            if rewrite
            else {}
        ),
    }


def _named(item: DimensionCalibration) -> str:
    return f"{item.dimension} ({item.judge_model})"


def _check(name: str, wrong: Sequence[str]) -> dg.AssetCheckResult:
    more = f" and {len(wrong) - MOST_SHOWN} more" if len(wrong) > MOST_SHOWN else ""
    return dg.AssetCheckResult(
        check_name=name,
        passed=not wrong,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"what": ("; ".join(wrong[:MOST_SHOWN]) + more) or "nothing"},
    )
