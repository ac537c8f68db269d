"""Many agents in one process: judgments pooled, and what is broken about one agent stops no other."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from persona_pipeline.errors import Problem
from persona_pipeline.evaluation.history import HistoryValue, overall_history
from persona_pipeline.evaluation.pipeline import AgentResult, evaluate_scopes
from persona_pipeline.evaluation.report import AgentReport
from persona_pipeline.evaluation.request import EvaluationRequest
from persona_pipeline.evaluation.scope import resolve_scope
from persona_pipeline.judging.verdict import Judge
from persona_pipeline.world import World
from persona_pipeline.world.speakers import NameMatch, stored_names


@dataclass
class CohortResult:
    """Results and score histories of the agents that could be evaluated, and the problems of those that could not.

    Attributes:
        fail_on: see ``EvaluationRequest``.
        length: the window's length as it was asked for.
        names: how speakers and personas go together.
    """

    length: str
    fail_on: Sequence[str] | None = None
    results: dict[str, AgentResult] = field(default_factory=dict)
    histories: dict[str, list[HistoryValue]] = field(default_factory=dict)
    broken: dict[str, tuple[Problem, ...]] = field(default_factory=dict)
    names: NameMatch = field(default_factory=NameMatch)

    @property
    def reports(self) -> dict[str, AgentReport]:
        """The reports by agent."""
        return {agent_id: item.report for agent_id, item in self.results.items()}


def evaluate_cohort(world: World, judge: Judge, request: EvaluationRequest) -> CohortResult:
    """Evaluate agents, compare them with their baselines, and save both.

    With ``newest_window`` only the named dimensions are scored again, into the run that holds the others; an agent whose newest
    window has no whole run is evaluated whole.

    Raises:
        ConfigError: the request is not valid, or there is no message at all.
    """
    scope = resolve_scope(world, request)
    if scope.earlier:
        evaluate_scopes(world, scope.earlier, judge, request)
    done = evaluate_scopes(world, scope.agents, judge, request)
    result = CohortResult(
        request.window, request.fail_on, broken={**scope.broken, **done.broken}, names=stored_names(world)
    )
    for item in done.found:
        agent_id, window = item.plan.scope.agent_id, item.plan.scope.window
        result.results[agent_id] = item
        result.histories[agent_id] = overall_history(world.store, agent_id, until=window.end)
    return result
