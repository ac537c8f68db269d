"""Live runs are noisy: what fell is judged again before it is called a regression, and small print is given for the rest."""

from collections.abc import Mapping, Sequence

from persona_pipeline.baselines import Baseline, compare
from persona_pipeline.baselines.confirm import CONFIRMATIONS, Compared, settled
from persona_pipeline.evaluation.cases import plan_agent
from persona_pipeline.evaluation.engine import evaluate_stored
from persona_pipeline.evaluation.gate import GateRules, exit_code_of, judge_agent
from persona_pipeline.evaluation.report import RunReport, expenses_of
from persona_pipeline.judging.recorded import RecordedJudge
from persona_pipeline.judging.verdict import Judge
from persona_pipeline.world import World
from persona_pipeline.world.models import Window


def confirm_report(
    world: World,
    report: RunReport,
    judge: Judge,
    rules: GateRules,
    window: Window,
    baselines: Mapping[str, Baseline | None],
    *,
    again: Mapping[str, Sequence[str]],
    samples: int = 1,
) -> RunReport:
    """Return the report with only those drops left that hold against the judge's noise.

    Then every drop of the run is tested against the spread of repeated judgments, corrected for how many are tested (Holm).
    Where nothing was judged twice the deltas alone decide.

    Args:
        baselines: by agent; agents evaluated on synthetic conversations are compared with none.
        again: by agent, the dimensions to judge ``CONFIRMATIONS`` times more first; judgments that were made count, and are
            not paid again.
        samples: judgments per claim so far.
    """
    evaluations = {agent_id: agent.evaluation for agent_id, agent in report.agents.items()}
    expenses = list(report.expenses)
    for agent_id, names in again.items():
        judged = evaluate_stored(
            world, [agent_id], window, judge=judge, dimensions=names, samples=samples + CONFIRMATIONS
        )[0]
        known = evaluations[agent_id]
        evaluations[agent_id] = known.with_dimensions(
            {**known.dimensions, **{name: judged.dimensions[name] for name in names}}
        )
        expenses += expenses_of(agent_id, (judged.dimensions[name] for name in names), "confirmation")
    golden = {
        agent_id: None if evaluation.synthetic else baselines.get(agent_id)
        for agent_id, evaluation in evaluations.items()
    }
    compared = {
        agent_id: Compared(
            compare(
                agent_id,
                evaluation.dimensions,
                golden[agent_id],
                delta=rules.regression_delta,
                proposition_delta=rules.proposition_delta,
                min_coverage=rules.min_coverage,
                provenance=evaluation.provenance,
            ),
            evaluation.dimensions,
            golden[agent_id],
        )
        for agent_id, evaluation in evaluations.items()
    }
    confirmed = settled(compared)
    agents = {
        agent_id: judge_agent(evaluation, confirmed[agent_id], rules) for agent_id, evaluation in evaluations.items()
    }
    changed = report.model_copy(update={"agents": agents, "expenses": expenses})
    changed.exit_code = exit_code_of(changed.all_findings(), rules)
    return changed


def fallen_dimensions(report: RunReport) -> dict[str, list[str]]:
    """Return, by agent, the dimensions with a regression or a dropped proposition; synthetic agents have no baseline."""
    fallen = {
        agent_id: {item.dimension for item in (*agent.comparison.regressions, *agent.comparison.drops)}
        for agent_id, agent in report.agents.items()
        if not agent.evaluation.synthetic
    }
    return {
        agent_id: [name for name in report.agents[agent_id].evaluation.dimensions if name in names]
        for agent_id, names in fallen.items()
        if names
    }


def recorded_again(
    world: World, fallen: Mapping[str, Sequence[str]], judge: Judge, window: Window, *, samples: int = 1
) -> dict[str, list[str]]:
    """Return what of the fallen dimensions was recorded ``CONFIRMATIONS`` times more, as a live run that confirms records it.

    A replay that left these out would call a regression what the live run had found to be chance.
    """
    if not isinstance(judge, RecordedJudge):
        return {}

    def is_recorded(agent_id: str, dimension: str) -> bool:
        plan = plan_agent(world, agent_id, [dimension], window, samples=samples + CONFIRMATIONS)
        return bool(plan.requests) and all(judge.backend.find(request.key) for request in plan.requests)

    found = {agent_id: [name for name in names if is_recorded(agent_id, name)] for agent_id, names in fallen.items()}
    return {agent_id: names for agent_id, names in found.items() if names}
