"""Many agents in one process: judgments pooled, and what is broken about one agent stops no other."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from persona_pipeline.baselines import find_baseline
from persona_pipeline.errors import ConfigError, Problem
from persona_pipeline.evaluation import steps
from persona_pipeline.evaluation.cases import resolve_window
from persona_pipeline.evaluation.engine import evaluate_stored
from persona_pipeline.evaluation.gate import GateRules
from persona_pipeline.evaluation.history import HistoryValue, overall_history
from persona_pipeline.evaluation.report import AgentReport
from persona_pipeline.evaluation.results import AgentEvaluation
from persona_pipeline.evaluation.syncing import sync_propositions
from persona_pipeline.judging.verdict import Judge
from persona_pipeline.propositions import ALL_DIMENSIONS, PropositionSet, stored_proposition_set
from persona_pipeline.world import World
from persona_pipeline.world.models import Message, Persona, Window


@dataclass(frozen=True)
class AgentInputs:
    """What an agent was evaluated on.

    Attributes:
        propositions: hash and merged set (None: it has none) by dimension.
        length: the window's length as it was asked for.
    """

    persona: Persona
    propositions: dict[str, tuple[str, PropositionSet | None]]
    length: str
    window: Window
    messages: list[Message]


@dataclass
class CohortResult:
    """Reports and score histories of the agents that could be evaluated, and the problems of those that could not."""

    inputs: dict[str, AgentInputs] = field(default_factory=dict)
    reports: dict[str, AgentReport] = field(default_factory=dict)
    histories: dict[str, list[HistoryValue]] = field(default_factory=dict)
    broken: dict[str, tuple[Problem, ...]] = field(default_factory=dict)


def evaluate_cohort(
    world: World,
    agent_ids: Sequence[str],
    *,
    judge: Judge,
    rules: GateRules,
    dimensions: Sequence[str] | None = None,
    window: str = "7d",
    as_of: datetime | None = None,
    samples: int = 1,
) -> CohortResult:
    """Evaluate agents, compare them with their baselines, and save both.

    Messages must be in the store; personas and propositions are brought there.

    Args:
        dimensions: None: all, on the window that ends at ``as_of``. Else only these, on the window each agent was last
            evaluated on, into the run that holds its other dimensions; none at all compares that run again.

    Raises:
        ConfigError: the window is not valid, or there is no message at all.
    """
    result = CohortResult()
    if dimensions is None:
        resolve_window(world, window, as_of)
    for agent_id in agent_ids:
        try:
            persona = world.sync_persona(agent_id)
            propositions = {name: _sync(world, agent_id, name) for name in dimensions or ALL_DIMENSIONS}
            if dimensions is None:
                span, messages = steps.open_window(world, agent_id, window, as_of)
            else:
                span = steps.current_window(world, agent_id)
                messages = world.messages(span, agent_id=agent_id)
            result.inputs[agent_id] = AgentInputs(persona, propositions, window, span, messages)
        except ConfigError as error:
            result.broken[agent_id] = error.problems
    evaluations = _evaluations(world, result, judge, dimensions, samples)
    for agent_id in list(result.inputs):
        try:
            evaluation = evaluations.get(agent_id)
            if dimensions is not None or evaluation is None:
                evaluation = steps.finish_run(world, agent_id, judge=judge, samples=samples)
            baseline = find_baseline(world.root, agent_id)
            result.reports[agent_id] = steps.compare_run(world, evaluation, baseline, rules)
            result.histories[agent_id] = overall_history(world.store, agent_id, until=evaluation.window_end)
        except ConfigError as error:
            result.broken[agent_id] = error.problems
    return result


def _evaluations(
    world: World, result: CohortResult, judge: Judge, dimensions: Sequence[str] | None, samples: int
) -> dict[str, AgentEvaluation]:
    if dimensions is not None and not dimensions:
        return {}
    by_window: dict[Window, list[str]] = defaultdict(list)
    for agent_id, inputs in result.inputs.items():
        by_window[inputs.window].append(agent_id)
    return {
        evaluation.agent_id: evaluation
        for span, agent_ids in by_window.items()
        for evaluation in evaluate_stored(
            world,
            agent_ids,
            span,
            judge=judge,
            dimensions=ALL_DIMENSIONS if dimensions is None else dimensions,
            samples=samples,
            complete=dimensions is None,
        )
    }


def _sync(world: World, agent_id: str, dimension: str) -> tuple[str, PropositionSet | None]:
    version = sync_propositions(world, agent_id, dimension)
    return version, stored_proposition_set(world.store, agent_id, dimension)
