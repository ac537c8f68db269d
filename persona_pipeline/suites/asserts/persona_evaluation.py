"""Persona claims on an answer: the project's evaluation, applied to the answer of a test."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from persona_pipeline.base.calls import run_async
from persona_pipeline.base.errors import ConfigError, did_you_mean
from persona_pipeline.guard.baselines.golden import BASELINES, find_baseline
from persona_pipeline.guard.baselines.models import BaselineComparison
from persona_pipeline.guard.baselines.regression import Rules, compare
from persona_pipeline.judging.verdict import Answer, Question
from persona_pipeline.scoring.messages.reading import Character, read_messages, readings_of
from persona_pipeline.scoring.messages.verdicts import MessageVerdicts
from persona_pipeline.scoring.plan import AgentCase, scorers
from persona_pipeline.scoring.results import DimensionEvaluation
from persona_pipeline.suites.answering.output import Output
from persona_pipeline.suites.format.text import content_texts
from persona_pipeline.suites.grading.base import Context
from persona_pipeline.suites.grading.results import UngradedError
from persona_pipeline.world.models import Message, Persona, Window
from persona_pipeline.world.personas import load_persona
from persona_pipeline.world.propositions.loading import PROPOSITIONS, load_proposition_set
from persona_pipeline.world.propositions.models import ADHERENCE, PropositionSet

CHANNEL = "conversation"
# Messages of a test have no time; a fixed one keeps judgments equal between runs.
_START = datetime(2000, 1, 1, tzinfo=UTC)


def evaluate_output(
    output: Output,
    context: Context,
    agent_id: str,
    dimension: str,
    *,
    only: Sequence[str] | None = None,
    **instead: Any,
) -> DimensionEvaluation:
    """Return one dimension of an agent, judged on the target's messages.

    ``only``: ids of the propositions to judge; None: all. ``instead``: fields of the proposition set to replace, such as
    ``level="action"``.
    """
    persona, propositions = _character(context, agent_id, dimension, only)
    propositions = replace(propositions, **instead)
    messages = conversation(output, context, agent_id)
    own = [message for message in messages if message.agent_id == agent_id]
    if not own:
        raise UngradedError("no_evidence", f"there is no message of {agent_id} to judge")
    case = AgentCase(
        agent_id=agent_id,
        display_name=persona.display_name,
        persona=persona.persona,
        window=Window(end=messages[-1].created_at),
        messages=own,
        channels={CHANNEL: messages},
        names={agent_id: persona.display_name},
    )
    plan = scorers()[dimension](case, propositions)
    verdicts = context.judge.verdicts(plan.requests, context.time_left()) if plan.requests else []
    found = plan.finish(verdicts)
    for item in found.failures.values():
        raise _unanswered(context, item.unscored, item.detail)
    return found


def read_output(output: Output, context: Context, agent_id: str) -> MessageVerdicts:
    """Return the judge's verdict on each message of an agent in what the target said."""
    persona, claims = _character(context, agent_id, ADHERENCE.name)
    shown = persona.persona if claims.include_personas else None
    messages = conversation(output, context, agent_id)
    character = Character(agent_id, persona.display_name, shown, claims.about_messages().propositions)
    asked = readings_of(character, messages, len(messages))
    if not asked[0]:
        raise UngradedError("no_evidence", f"there is no message of {agent_id} to judge")

    async def ask(questions: Sequence[Question]) -> list[Answer]:
        return context.judge.answers(questions, context.time_left())

    (found,) = run_async(read_messages([asked], ask))
    for reason in found.unscored:
        raise _unanswered(context, reason, found.detail)
    return found


def _character(
    context: Context, agent_id: str, dimension: str, only: Sequence[str] | None = None
) -> tuple[Persona, PropositionSet]:
    """Return an agent's persona and its claims in a dimension. ``only``: ids of the claims to keep."""
    root = _world_root(context)
    try:
        return load_persona(root, agent_id), _chosen(
            load_proposition_set(root / PROPOSITIONS, dimension, agent_id), only
        )
    except ConfigError as error:
        raise UngradedError("invalid_configuration", str(error)) from error


def _unanswered(context: Context, reason: str | None, detail: str) -> UngradedError:
    remedy = "" if context.judge.judge.live else "; run the suite with --judge anthropic --record"
    return UngradedError(reason or "invalid_output", f"{detail}{remedy}")


def compare_output(
    output: Output,
    context: Context,
    agent_id: str,
    dimensions: Sequence[str],
    *,
    delta: float,
    proposition_delta: float,
) -> BaselineComparison:
    """Compare dimensions of an agent, judged on the target's messages, with its baseline."""
    try:
        baseline = find_baseline(_world_root(context) / BASELINES, agent_id)
    except ConfigError as error:
        raise UngradedError("invalid_configuration", str(error)) from error
    if baseline is None:
        said = f"{agent_id} has no baseline; run persona-pipeline evaluate --update-baseline"
        raise UngradedError("no_baseline", said)
    missing = [name for name in dimensions if name not in baseline.dimensions]
    if missing:
        raise UngradedError("no_baseline", f"the baseline of {agent_id} has no {', '.join(missing)}")
    evaluations = {name: evaluate_output(output, context, agent_id, name) for name in dimensions}
    return compare(agent_id, evaluations, baseline, Rules(delta, proposition_delta))


def conversation(output: Output, context: Context, agent_id: str) -> list[Message]:
    """Return the messages of a test, in order: those of users, and the target's under the agent's id."""
    said: list[tuple[str, str]] = []
    for message in (*context.test.input_messages, *output.messages):
        if message["role"] in ("user", "assistant"):
            speaker = agent_id if message["role"] == "assistant" else str(message.get("name") or "user")
            said += [(speaker, text) for text in content_texts(message.get("content"))]
    return [
        Message(f"{context.test.id}-{index}", speaker, text, _START + timedelta(seconds=index), channel=CHANNEL)
        for index, (speaker, text) in enumerate(said)
        if text.strip()
    ]


def _world_root(context: Context) -> Path:
    if context.services.world_root is None:
        raise UngradedError("no_world", "persona asserts need a world; set PERSONA_ROOT")
    return context.services.world_root()


def _chosen(propositions: PropositionSet, only: Sequence[str] | None) -> PropositionSet:
    if only is None:
        return propositions
    known = [item.id for item in propositions.propositions]
    for name in only:
        if name not in known:
            raise ConfigError(f"{propositions.dimension} has no proposition {name!r}{did_you_mean(name, known)}")
    return replace(propositions, propositions=tuple(item for item in propositions.propositions if item.id in only))
