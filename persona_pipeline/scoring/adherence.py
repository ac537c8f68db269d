"""Adherence: does the agent behave as its persona says? Judged on the window, or action by action.

Message scores also date the loss of character in a scripted conversation. It begins at the turn from which the scores lie
farthest below the threshold in total, over at least two messages.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from persona_pipeline.scoring.plan import (
    AgentCase,
    DimensionPlan,
    JudgingContext,
    judged_part,
    judged_plan,
    no_evidence,
)
from persona_pipeline.scoring.results import HIGHEST, DimensionEvaluation, weighted_mean
from persona_pipeline.world.models import Message, windowed
from persona_pipeline.world.propositions.models import ACTION_LEVEL_WINDOW_DEFAULTS, PropositionSet

MOST_ACTIONS = 20


def plan_adherence(case: AgentCase, propositions: PropositionSet) -> DimensionPlan:
    """Plan adherence: persona and trajectory, weighted mean of the propositions."""
    if not case.messages:
        return no_evidence(case, propositions, "the agent said nothing in the window")
    contexts = _actions(case, propositions) if propositions.level == "action" else [_window(case, propositions)]
    statistics = {"messages": len(case.messages), "level": propositions.level, "contexts": len(contexts)}
    return judged_plan(
        case, propositions, contexts, lambda judged: ((), [judged_part(judged)], statistics), persona=case.persona
    )


def _window(case: AgentCase, propositions: PropositionSet) -> JudgingContext:
    """The agent's own messages, or all messages of its channels."""
    messages = case.messages
    if propositions.target_type != "agent":
        said = (message for channel in case.channels.values() for message in channel)
        messages = sorted(said, key=lambda message: (message.created_at, message.id))
    entries = [case.entry(message) for message in messages]
    return JudgingContext(windowed(entries, *propositions.window()), {"agent_name": case.display_name})


def _actions(case: AgentCase, propositions: PropositionSet) -> list[JudgingContext]:
    """Up to 20 messages drawn by seed, each as the last message of its history."""
    count = min(MOST_ACTIONS, len(case.messages))
    chosen = random.Random(case.seed("actions")).sample(range(len(case.messages)), count)
    contexts = []
    first_n, last_n = propositions.window(ACTION_LEVEL_WINDOW_DEFAULTS)
    for index in sorted(chosen):
        action = case.messages[index]
        said = [case.entry(message) for message in _up_to(case, action, propositions)]
        # The action itself is always shown.
        trajectory = windowed(said, first_n, max(last_n, 1))
        # The action's text is in the transcript only, where it cannot pass for an instruction.
        number = len(trajectory.entries)
        variables = {"agent_name": case.display_name, "action": f"the message m{number}, the last one shown"}
        if action.channel is not None:
            variables["channel_name"] = action.channel
        if action.recipient is not None:
            variables["recipient_name"] = case.name_of(action.recipient)
        contexts.append(JudgingContext(trajectory, variables, part=action.id))
    return contexts


def _up_to(case: AgentCase, action: Message, propositions: PropositionSet) -> Sequence[Message]:
    """Return the messages up to and including an action: those of the agent, or of all speakers in its channel."""
    around = case.messages
    if propositions.target_type == "environment":
        own = [message for message in case.messages if message.conversation == action.conversation]
        around = own if action.channel is None else case.channels[action.channel]
    position = next(index for index, message in enumerate(around) if message.id == action.id)
    return around[: position + 1]


SHORTEST = 5
HELD = 2
THRESHOLD = 5.0


@dataclass(frozen=True)
class MessageValue:
    """A message of the agent. ``number``: its place in the conversation, from 1; ``value``: 0-9 (None: not judged)."""

    number: int
    value: float | None


def message_scores(evaluated: DimensionEvaluation) -> dict[str, float]:
    """Return the score (0-9) of each message that was judged alone (``level: action``): the claims' weighted mean."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in evaluated.propositions.values():
        for part in row.parts:
            if part.get("raw") is not None and row.weight > 0:
                raw = float(part["raw"])
                found.setdefault(str(part["part"]), []).append((HIGHEST - raw if row.inverted else raw, row.weight))
    return {message_id: weighted_mean(pairs) for message_id, pairs in found.items()}


def character_end(turns: Sequence[MessageValue]) -> tuple[int, bool]:
    """Return the turn from which on the agent is out of character for good and True; else the last turn and False.

    ``turns``: the judged turns of a conversation, at least 2.
    """
    # For each turn, the total distance of it and all later turns below the threshold.
    below = list(accumulate(THRESHOLD - (turn.value or 0.0) for turn in reversed(turns)))[HELD - 1 :][::-1]
    deepest = max(below)
    return (turns[below.index(deepest)].number, True) if deepest > 0 else (turns[-1].number, False)
