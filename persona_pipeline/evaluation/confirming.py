"""Live runs are noisy: what fell is judged again before it is called a regression, and small print is given for the rest."""

from collections.abc import Mapping

from persona_pipeline.baselines import Baseline, compare
from persona_pipeline.baselines.confirm import CONFIRMATIONS, Compared, settled
from persona_pipeline.evaluation.engine import evaluate_stored
from persona_pipeline.evaluation.gate import GateRules, exit_code_of, judge_agent
from persona_pipeline.evaluation.report import AgentReport, RunReport, expenses_of
from persona_pipeline.evaluation.results import AgentEvaluation
from persona_pipeline.judging.verdict import Judge
from persona_pipeline.scoring import overall_score
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
    samples: int = 1,
    rejudge: bool = True,
) -> RunReport:
    """Return the report with only those drops left that hold against the judge's noise.

    Dimensions with a drop are judged ``CONFIRMATIONS`` times more (judgments that were made count, and are not paid again); then
    every drop of the run is tested against the spread of repeated judgments, corrected for how many are tested (Holm). Where
    nothing was judged twice the deltas alone decide.

    Args:
        baselines: by agent; agents evaluated on synthetic conversations are compared with none.
        samples: judgments per claim so far.
        rejudge: False only tests what is there.
    """
    evaluations = {agent_id: agent.evaluation for agent_id, agent in report.agents.items()}
    expenses = list(report.expenses)
    if rejudge:
        for agent_id, agent in report.agents.items():
            suspects = _suspects(agent)
            if not suspects or agent.evaluation.synthetic:
                continue
            again = evaluate_stored(
                world, [agent_id], window, judge=judge, dimensions=suspects, samples=samples + CONFIRMATIONS
            )[0]
            evaluations[agent_id] = _with_dimensions(agent.evaluation, again, suspects)
            expenses += expenses_of(agent_id, (again.dimensions[name] for name in suspects), "confirmation")
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


def _suspects(agent: AgentReport) -> list[str]:
    """Dimensions with a regression or a dropped proposition."""
    fallen = {item.dimension for item in (*agent.comparison.regressions, *agent.comparison.drops)}
    return [name for name in agent.evaluation.dimensions if name in fallen]


def _with_dimensions(evaluation: AgentEvaluation, again: AgentEvaluation, names: list[str]) -> AgentEvaluation:
    dimensions = {**evaluation.dimensions, **{name: again.dimensions[name] for name in names}}
    overall = overall_score({name: item.score for name, item in dimensions.items()})
    return evaluation.model_copy(update={"dimensions": dimensions, "overall": overall})
