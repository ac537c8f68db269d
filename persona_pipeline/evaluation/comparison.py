"""Scores beside the baseline: what fell is asked again through the same stages before it is called a fall."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from persona_pipeline.baselines import Baseline, BaselineComparison, compare
from persona_pipeline.baselines.confirm import CONFIRMATIONS, Compared, settled
from persona_pipeline.evaluation.gate import GateRules, judge_agent
from persona_pipeline.evaluation.judged import Judged, judge_plans
from persona_pipeline.evaluation.plan import AgentPlan
from persona_pipeline.evaluation.report import AgentReport, Expense, expenses_of
from persona_pipeline.evaluation.results import AgentEvaluation
from persona_pipeline.judging.recorded import RecordedJudge
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


def confirm(evaluated: Sequence[Evaluated], judge: Judge, rules: GateRules) -> list[Evaluated]:
    """Return the scores with what fell judged ``CONFIRMATIONS`` times more, in one call for all agents.

    A live judge is asked; a replay takes what was recorded then: left out, it would call a fall what the live run had found to
    be chance. What was confirmed before is not asked again.
    """
    asked = {
        index: item.plan.again(claims, CONFIRMATIONS)
        for index, item in enumerate(evaluated)
        if (claims := _to_confirm(item, judge, rules))
    }
    if not asked:
        return list(evaluated)
    judged = judge_plans(list(asked.values()), judge, [evaluated[index].judged for index in asked])
    found = list(evaluated)
    for index, again in zip(asked, judged, strict=True):
        found[index] = _with_confirmed(evaluated[index], again)
    return found


def compared(
    evaluation: AgentEvaluation, baseline: Baseline | None, rules: GateRules, due: Collection[str] = ALL_DIMENSIONS
) -> AgentReport:
    """Return an agent's report: its scores beside its baseline, every fall tested against the noise, and what is wrong.

    Args:
        due: the dimensions that should be there where the baseline has them.
    """
    evaluation = expecting(evaluation, baseline, due)
    comparison = deltas(evaluation, baseline, rules)
    # Holm's correction is over one agent's tests: whoever else is evaluated with it changes nothing.
    tested = settled({evaluation.agent_id: Compared(comparison, evaluation.dimensions, baseline)})
    return judge_agent(evaluation, tested[evaluation.agent_id], rules)


def deltas(evaluation: AgentEvaluation, baseline: Baseline | None, rules: GateRules) -> BaselineComparison:
    """Return the comparison by the deltas alone."""
    return compare(
        evaluation.agent_id,
        evaluation.dimensions,
        baseline,
        delta=rules.regression_delta,
        proposition_delta=rules.proposition_delta,
        min_coverage=rules.min_coverage,
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
    return found.model_copy(update={"expenses": report.expenses})


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


def _to_confirm(item: Evaluated, judge: Judge, rules: GateRules) -> dict[str, list[str]]:
    """Return the claims worth asking again, by dimension; a dimension that was asked again before is not."""
    plan, evaluation = item.plan, item.evaluation
    found = deltas(evaluation, plan.baseline, rules)
    fallen = {one.dimension for one in (*found.regressions, *found.drops)}
    claims = {
        name: [proposition.id for proposition in stored.propositions.propositions]
        for name, it in evaluation.dimensions.items()
        if name in fallen
        and it.samples <= plan.case.samples
        # A claim file may have gone since: then there is nothing to ask.
        and (stored := plan.sets[name]).propositions is not None
    }
    if judge.live:
        return claims
    if not isinstance(judge, RecordedJudge):
        return {}
    return {
        name: ids for name, ids in claims.items() if judge.has_recorded(plan.again({name: ids}, CONFIRMATIONS).requests)
    }


def _with_confirmed(item: Evaluated, judged: Judged) -> Evaluated:
    again = judged.dimensions()
    evaluation = item.evaluation.with_dimensions({**item.evaluation.dimensions, **again})
    paid = [one.model_copy(update={"usage": judged.costs[name]}) for name, one in again.items()]
    return replace(
        item,
        evaluation=evaluation,
        expenses=[*item.expenses, *expenses_of(evaluation.agent_id, paid, "confirmation")],
    )
