"""Adherence: does the agent behave as its persona says? Judged on the window, or action by action.

Judged message by message it also says from which message on the character is lost in a scripted conversation: from there on all
that follows, taken together, lies farthest below the threshold, and at least two messages do.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from persona_pipeline.scoring.plan import (
    AgentCase,
    Composed,
    DimensionPlan,
    JudgedPropositions,
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
        return no_evidence("adherence", propositions, "the agent said nothing in the window")
    contexts = _actions(case, propositions) if propositions.level == "action" else [_window(case, propositions)]

    def composed(judged: JudgedPropositions) -> Composed:
        statistics = {"messages": len(case.messages), "level": propositions.level, "contexts": len(contexts)}
        return (), [judged_part(judged)], statistics

    return judged_plan(case, propositions, contexts, composed, persona=case.persona)


def _window(case: AgentCase, propositions: PropositionSet) -> JudgingContext:
    """The agent's own messages, or everything said in its channels."""
    messages = case.messages
    if propositions.target_type != "agent":
        said = (message for channel in case.channels.values() for message in channel)
        messages = sorted(said, key=lambda message: (message.created_at, message.id))
    entries = [case.entry(message) for message in messages]
    return JudgingContext(windowed(entries, *propositions.window()), {"agent_name": case.display_name})


def _actions(case: AgentCase, propositions: PropositionSet) -> list[JudgingContext]:
    """Up to 20 messages drawn by seed, each at the end of what was said before it."""
    count = min(MOST_ACTIONS, len(case.messages))
    chosen = random.Random(case.seed("actions")).sample(range(len(case.messages)), count)
    contexts = []
    first_n, last_n = propositions.window(ACTION_LEVEL_WINDOW_DEFAULTS)
    for index in sorted(chosen):
        action = case.messages[index]
        said = [case.entry(message) for message in _up_to(case, action, propositions)]
        # The action itself is always shown.
        trajectory = windowed(said, first_n, max(last_n, 1))
        # The action's own words stand in the transcript alone, where they cannot pass for an instruction.
        number = len(trajectory.entries)
        variables = {"agent_name": case.display_name, "action": f"the message m{number}, the last one shown"}
        if action.channel is not None:
            variables["channel_name"] = action.channel
        if action.recipient is not None:
            variables["recipient_name"] = case.name_of(action.recipient)
        contexts.append(JudgingContext(trajectory, variables, part=action.id))
    return contexts


def _up_to(case: AgentCase, action: Message, propositions: PropositionSet) -> Sequence[Message]:
    """Return what was said before an action and the action itself, last: by the agent, or by everybody in its channel."""
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
    """One message of the agent: ``number`` counts its messages in the conversation from 1; ``value``: 0-9 (None: not judged)."""

    number: int
    value: float | None


def message_scores(evaluated: DimensionEvaluation) -> dict[str, float]:
    """Return the score (0-9) of each message that was judged by itself (``level: action``): the claims' weighted mean."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in evaluated.propositions.values():
        for part in row.parts:
            if part.get("raw") is not None and row.weight > 0:
                raw = float(part["raw"])
                found.setdefault(str(part["part"]), []).append((HIGHEST - raw if row.inverted else raw, row.weight))
    return {message_id: weighted_mean(pairs) for message_id, pairs in found.items()}


def character_end(turns: Sequence[MessageValue]) -> tuple[int, bool]:
    """Return the turn from which on the character is lost for good, and whether it is; the last turn where it is not.

    ``turns``: the judged ones of one conversation, at least 2.
    """
    # How far below the threshold all that follows lies, from each turn on.
    below = list(accumulate(THRESHOLD - (turn.value or 0.0) for turn in reversed(turns)))[HELD - 1 :][::-1]
    deepest = max(below)
    return (turns[below.index(deepest)].number, True) if deepest > 0 else (turns[-1].number, False)
