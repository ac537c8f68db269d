"""Scores beside the baseline: what fell is asked again through the same stages before it is called a fall."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from persona_pipeline.baselines import Baseline, BaselineComparison, Watched, compare
from persona_pipeline.baselines.confirm import CONFIRMATIONS, Compared, settled, to_confirm
from persona_pipeline.evaluation.gate import GateRules, judge_agent
from persona_pipeline.evaluation.judged import Judged, judge_plans
from persona_pipeline.evaluation.plan import AgentPlan
from persona_pipeline.evaluation.report import AgentReport, Expense, expenses_of
from persona_pipeline.evaluation.results import AgentEvaluation
from persona_pipeline.evaluation.trust import Trust, moved, set_apart, told
from persona_pipeline.judging.open import replayed_by
from persona_pipeline.judging.recordings import RecordedBackend
from persona_pipeline.judging.verdict import Judge, Unscored
from persona_pipeline.propositions import ALL_DIMENSIONS
from persona_pipeline.scoring import DimensionEvaluation


@dataclass(frozen=True)
class Evaluated:
    """One agent's scores so far, with what they were judged from and what that cost."""

    judged: Judged
    evaluation: AgentEvaluation
    expenses: Sequence[Expense] = ()

    @property
    def plan(self) -> AgentPlan:
        """What was asked."""
        return self.judged.plan


@dataclass(frozen=True)
class Guard:
    """By what a fall is told from chance: the rules, and who else is watched.

    Attributes:
        others: the newest p-values of watched agents, needed where many are watched; see ``baselines.confirm.settled``.
        trust: what is known of the judges.
    """

    rules: GateRules
    watched: Watched = field(default_factory=Watched)
    others: Mapping[str, float] = field(default_factory=dict)
    trust: Trust = field(default_factory=Trust)


def confirm(evaluated: Sequence[Evaluated], judge: Judge, guard: Guard) -> list[Evaluated]:
    """Return the scores with what may have fallen judged ``CONFIRMATIONS`` times more, in one call for all agents.

    A live judge is asked for the claims that could change the answer; a replay takes what was recorded then: left out, it would
    call a fall what the live run had found to be chance. What was confirmed before is not asked again.
    """
    asked = {
        index: item.plan.again(claims, CONFIRMATIONS)
        for index, item in enumerate(evaluated)
        if (claims := _to_confirm(item, judge, guard))
    }
    if not asked:
        return list(evaluated)
    judged = judge_plans(list(asked.values()), judge, [evaluated[index].judged for index in asked])
    found = list(evaluated)
    for index, again in zip(asked, judged, strict=True):
        found[index] = _with_confirmed(evaluated[index], again)
    return found


def compared(
    evaluation: AgentEvaluation, baseline: Baseline | None, guard: Guard, due: Collection[str] = ALL_DIMENSIONS
) -> AgentReport:
    """Return an agent's report: its scores beside its baseline, every fall tested against chance, and what is wrong.

    Whoever else is evaluated with it changes nothing: the tests are of this agent, beside those that are watched.

    Args:
        due: the dimensions that should be there where the baseline has them.
    """
    evaluation = expecting(evaluation, baseline, due)
    now = moved(evaluation, baseline, guard.trust)
    comparison = _tested(evaluation, now.baseline, guard)
    if baseline and now.shifts:
        strict = _tested(evaluation, now.strict, guard) if now.strict else None
        comparison = set_apart(comparison, strict, now.shifts, baseline, guard.rules.undecided_delta)
    return judge_agent(evaluation, told(evaluation, comparison, guard.trust, guard.rules), guard.rules)


def _tested(evaluation: AgentEvaluation, baseline: Baseline | None, guard: Guard) -> BaselineComparison:
    agent_id, item = evaluation.agent_id, _compared(evaluation, baseline, guard.rules)
    watched = guard.watched
    found = settled(
        {agent_id: item},
        fleet=watched.baselines,
        watched=watched.count,
        others=guard.others,
        undecided_delta=guard.rules.undecided_delta,
    )
    return found[agent_id]


def judged_on(evaluation: AgentEvaluation) -> dict[str, Any]:
    """Return what an evaluation's scores came from, as a golden file keeps it."""
    return {
        "judge_model": evaluation.provenance["judge_model"],
        "prompt_version": evaluation.provenance["prompt_version"],
        "persona_hash": evaluation.provenance["persona_hash"],
        "messages_hash": evaluation.provenance["messages_hash"],
        "window_start": evaluation.window_start.isoformat() if evaluation.window_start else None,
        "window_end": evaluation.window_end.isoformat(),
        "messages": evaluation.sample_size,
    }


def _compared(evaluation: AgentEvaluation, baseline: Baseline | None, rules: GateRules) -> Compared:
    return Compared(
        deltas(evaluation, baseline, rules),
        evaluation.dimensions,
        baseline,
        judged_on(evaluation),
        evaluation.sample_size,
    )


def deltas(evaluation: AgentEvaluation, baseline: Baseline | None, rules: GateRules) -> BaselineComparison:
    """Return the comparison by the deltas alone."""
    return compare(
        evaluation.agent_id,
        evaluation.dimensions,
        baseline,
        delta=rules.regression_delta,
        proposition_delta=rules.proposition_delta,
        min_coverage=rules.min_coverage,
        as_recorded=rules.as_recorded,
        provenance=evaluation.provenance,
    )


def restricted(report: AgentReport, dimensions: Sequence[str], rules: GateRules) -> AgentReport:
    """Return what a report says of these dimensions, with the very numbers it has."""
    evaluation, comparison = report.evaluation, report.comparison
    own = {name: item for name, item in evaluation.dimensions.items() if name in dimensions}
    if own.keys() == evaluation.dimensions.keys():
        return report
    said = {name: item for name, item in comparison.dimensions.items() if name in own}
    warnings = [text for text in comparison.warnings if text.partition(":")[0].partition("/")[0] in own]
    narrowed = comparison.model_copy(update={"dimensions": said, "warnings": warnings})
    found = judge_agent(evaluation.with_dimensions(own), narrowed, rules)
    kept = [
        finding
        for finding in report.findings
        if (finding.kind == "trend" and finding.dimension in own) or finding.kind == "voice_alarm"
    ]
    return found.model_copy(
        update={"expenses": report.expenses, "past": report.past, "findings": [*found.findings, *kept]}
    )


def expecting(evaluation: AgentEvaluation, baseline: Baseline | None, due: Collection[str]) -> AgentEvaluation:
    """Return the evaluation with every due dimension of the baseline in it: one that is gone is unscored, not passed."""
    gone = {
        name: DimensionEvaluation(dimension=name, unscored=Unscored.NO_EVIDENCE.value)
        for name in (baseline.dimensions if baseline else ())
        if name in due and name not in evaluation.dimensions
    }
    if not gone:
        return evaluation
    found = {**evaluation.dimensions, **gone}
    return evaluation.model_copy(update={"dimensions": {name: found[name] for name in ALL_DIMENSIONS if name in found}})


def _to_confirm(item: Evaluated, judge: Judge, guard: Guard) -> dict[str, list[str]]:
    """Return the claims worth asking again, by dimension; a dimension that was asked again before is not."""
    plan, evaluation = item.plan, item.evaluation
    recorded = replayed_by(judge)
    if plan.baseline is None or not (judge.live or recorded):
        return {}
    agent_id, rules = evaluation.agent_id, guard.rules
    worth = to_confirm(
        {agent_id: _compared(evaluation, moved(evaluation, plan.baseline, guard.trust).baseline, rules)},
        fleet=guard.watched.baselines,
        watched=guard.watched.count,
        delta=rules.regression_delta,
        proposition_delta=rules.proposition_delta,
    )
    asked = worth[agent_id].claims if agent_id in worth else {}
    claims = {
        # A claim file may have gone since: then there is nothing to ask.
        name: [claim for claim in ids if claim in plan.claims_of(name)]
        for name, ids in asked.items()
        if evaluation.dimensions[name].samples <= plan.case.samples
    }
    if recorded:
        claims = {name: [c for c in ids if _is_recorded(plan, name, c, recorded)] for name, ids in claims.items()}
    return {name: ids for name, ids in claims.items() if ids}


def _is_recorded(plan: AgentPlan, dimension: str, claim: str, recorded: RecordedBackend) -> bool:
    requests = plan.again({dimension: [claim]}, CONFIRMATIONS).requests
    return recorded.has_recorded((item for item in requests if item.proposition_id == claim), failures=True)


def _with_confirmed(item: Evaluated, judged: Judged) -> Evaluated:
    again = judged.dimensions()
    evaluation = item.evaluation.with_dimensions({**item.evaluation.dimensions, **again})
    paid = [one.model_copy(update={"usage": judged.costs[name]}) for name, one in again.items()]
    return replace(
        item,
        evaluation=evaluation,
        expenses=[*item.expenses, *expenses_of(evaluation.agent_id, paid, "confirmation")],
    )
