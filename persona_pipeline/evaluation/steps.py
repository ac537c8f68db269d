"""One evaluation cut into steps that may run apart, on any host: each reads the store and writes it in one transaction."""

import uuid
from datetime import datetime

import sqlalchemy as sa

from persona_pipeline.baselines import Baseline, BaselineComparison
from persona_pipeline.errors import ConfigError
from persona_pipeline.evaluation.cases import plan_agent, resolve_window, run_identity
from persona_pipeline.evaluation.engine import evaluate_stored, expecting, report_agent
from persona_pipeline.evaluation.gate import GateRules
from persona_pipeline.evaluation.report import AgentReport, Finding
from persona_pipeline.evaluation.results import AgentEvaluation
from persona_pipeline.evaluation.saving import load_evaluation, save_evaluation
from persona_pipeline.judging.verdict import Judge
from persona_pipeline.propositions import ALL_DIMENSIONS
from persona_pipeline.store import tables, upsert
from persona_pipeline.world import World
from persona_pipeline.world.messages import messages_hash
from persona_pipeline.world.models import Message, Window

_WINDOWS, _COMPARISONS = tables.message_windows, tables.baseline_comparisons


def open_window(world: World, agent_id: str, window: str, as_of: datetime | None) -> tuple[Window, list[Message]]:
    """Fix the window an agent is evaluated on and return it with the agent's messages.

    Raises:
        ConfigError: there is no message at all, or the window is not valid.
    """
    span = resolve_window(world, window, as_of)
    messages = world.messages(span, agent_id=agent_id)
    row = {
        "agent_id": agent_id,
        "window_start": span.start,
        "window_end": span.end,
        "messages_hash": messages_hash(messages),
        "sample_size": len(messages),
    }
    with world.store.begin() as connection:
        upsert(world.store, connection, _WINDOWS, [row])
    return span, messages


def current_window(world: World, agent_id: str) -> Window:
    """Return the window that ``open_window`` fixed.

    Raises:
        ConfigError: none was.
    """
    with world.store.connect() as connection:
        row = connection.execute(sa.select(_WINDOWS).where(_WINDOWS.c.agent_id == agent_id)).one_or_none()
    if row is None:
        raise ConfigError(f"agent {agent_id!r} has no message window; materialize its messages first")
    return Window(end=row.window_end, start=row.window_start)


def score_dimension(world: World, agent_id: str, dimension: str, *, judge: Judge, samples: int = 1) -> AgentEvaluation:
    """Score one dimension of the agent's current window into its run, and return the run so far."""
    window = current_window(world, agent_id)
    return evaluate_stored(
        world, [agent_id], window, judge=judge, dimensions=[dimension], samples=samples, complete=False
    )[0]


def finish_run(world: World, agent_id: str, *, judge: Judge, samples: int = 1) -> AgentEvaluation:
    """Mark the run of the agent's current window as complete and return it.

    Raises:
        ConfigError: a dimension the agent has propositions of was not scored on what the window holds now.
    """
    plan = plan_agent(world, agent_id, [], current_window(world, agent_id), samples=samples)
    evaluation = load_evaluation(world.store, run_identity(plan, judge.name))
    if evaluation is None:
        raise ConfigError(f"agent {agent_id!r} has no scores for its current window; materialize them first")
    sets = tables.proposition_sets
    query = sa.select(sets.c.dimension).where(sets.c.agent_id == agent_id, sets.c.content.is_not(None))
    with world.store.connect() as connection:
        present = set(connection.execute(query).scalars())
    missing = sorted(present - set(evaluation.dimensions))
    if missing:
        names = ", ".join(f"{dimension}_scores" for dimension in missing)
        raise ConfigError(f"{agent_id}: not every dimension is scored on the current messages; materialize {names}")
    return save_evaluation(world.store, evaluation, gone=set(evaluation.dimensions) - present)


def compare_run(world: World, evaluation: AgentEvaluation, baseline: Baseline | None, rules: GateRules) -> AgentReport:
    """Compare a run with a baseline and save what was found."""
    report = report_agent(expecting(evaluation, baseline, ALL_DIMENSIONS), baseline, rules)
    row = {
        "evaluation_run_id": uuid.UUID(evaluation.run_id),
        "agent_id": evaluation.agent_id,
        "regressed": report.comparison.regressed,
        "comparison": report.comparison.model_dump(mode="json"),
        "findings": [finding.model_dump(mode="json") for finding in report.findings],
    }
    with world.store.begin() as connection:
        upsert(world.store, connection, _COMPARISONS, [row])
    return report


def load_comparison(world: World, run_id: str) -> tuple[BaselineComparison, list[Finding]] | None:
    """Return a saved comparison with its findings; None when the run was not compared."""
    query = sa.select(_COMPARISONS).where(_COMPARISONS.c.evaluation_run_id == uuid.UUID(run_id))
    with world.store.connect() as connection:
        row = connection.execute(query).one_or_none()
    if row is None:
        return None
    findings = [Finding.model_validate(finding) for finding in row.findings]
    return BaselineComparison.model_validate(row.comparison), findings
