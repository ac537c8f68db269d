"""Consistency: does the agent still sound like itself? Compares earlier and current excerpts, without the persona."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from persona_pipeline.scoring.plan import (
    AgentCase,
    DimensionPlan,
    JudgingContext,
    judged_part,
    judged_plan,
    no_evidence,
)
from persona_pipeline.world.models import Entry, Message, grouped, message_entry, windowed
from persona_pipeline.world.propositions.models import PropositionSet

MOST_PAIRS = 10
EXCERPT_LENGTH = 5
SPEAKER = "Speaker A"
Pair = tuple[Sequence[Message], Sequence[Message]]


def plan_consistency(case: AgentCase, propositions: PropositionSet) -> DimensionPlan:
    """Plan consistency: up to 10 pairs in one trajectory, weighted mean of the propositions."""
    pairs = excerpt_pairs(case)
    if not pairs:
        return no_evidence(case, propositions, "there are no earlier messages to compare with")
    entries = _entries(case, pairs)
    context = JudgingContext(windowed(entries, *propositions.window()), {"agent_name": SPEAKER})
    statistics = {
        "pairs": len(pairs),
        "messages": len(entries),
        "pairs_across_conversations": sum(earlier[0].conversation != now[0].conversation for earlier, now in pairs),
        "conversations": compared_conversations(pairs),
    }
    # This dimension is judged without the persona, even if the file includes it.
    return judged_plan(case, propositions, [context], lambda judged: ((), [judged_part(judged)], statistics))


def excerpt_pairs(case: AgentCase) -> list[Pair]:
    """Return up to 10 pairs (earlier, current) of excerpts: up to 5 consecutive messages of a conversation.

    Each current excerpt is paired with an earlier excerpt of the same conversation, or of others if the agent did not speak there
    before. Earlier excerpts are drawn by seed and repeat after all are used. Others of the same kind (direct, channel) come first.
    """
    generator = random.Random(case.seed("pairs"))
    earlier, current = _excerpts(case.earlier), _excerpts(case.messages)
    pairs: list[Pair] = []
    # New conversations draw last, so that the pairs of the others do not depend on them.
    for conversation in sorted(current, key=lambda name: (name not in earlier, name)):
        excerpts = earlier.get(conversation) or _standing_in(conversation, earlier)
        partners: list[Sequence[Message]] = []
        for excerpt in current[conversation] if excerpts else ():
            if not partners:
                partners = generator.sample(excerpts, len(excerpts))
            pairs.append((partners.pop(), excerpt))
    if len(pairs) > MOST_PAIRS:
        pairs = [pairs[index] for index in sorted(generator.sample(range(len(pairs)), MOST_PAIRS))]
    return pairs


def compared_conversations(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    """Return the compared conversations with their number of pairs, pairs within one conversation first."""
    found = Counter((earlier[0].conversation, now[0].conversation) for earlier, now in pairs)
    ordered = sorted(found.items(), key=lambda item: (item[0][0] != item[0][1], item[0]))
    return [{"earlier": earlier, "now": now, "pairs": count} for (earlier, now), count in ordered]


def _standing_in(conversation: str, earlier: Mapping[str, list[Sequence[Message]]]) -> list[Sequence[Message]]:
    alike = [name for name in sorted(earlier) if name[0] == conversation[0]]
    return [excerpt for name in alike or sorted(earlier) for excerpt in earlier[name]]


def _excerpts(messages: Sequence[Message]) -> dict[str, list[Sequence[Message]]]:
    conversations = grouped(messages, lambda message: message.conversation)
    return {
        conversation: [said[start : start + EXCERPT_LENGTH] for start in range(0, len(said), EXCERPT_LENGTH)]
        for conversation, said in conversations.items()
    }


def _entries(case: AgentCase, pairs: Sequence[Pair]) -> list[Entry]:
    return [
        message_entry(message, SPEAKER, recipient=message.recipient and "Speaker B", part=f"pair {number}, {when}")
        for number, pair in enumerate(pairs, start=1)
        for when, excerpt in zip(("earlier", "now"), pair, strict=True)
        for message in excerpt
    ]
