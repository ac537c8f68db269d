"""Which messages are out of character: the claims they break, their places, and early or late in the conversation."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from persona_pipeline.scoring.messages.verdicts import MessageVerdict, Role, in_order
from persona_pipeline.world.models import grouped

# Last message of each part of a conversation, counted among the messages of the agent; the last part has no end.
PARTS = {5: "1-5", 20: "6-20"}
LAST_PART = "21+"


@dataclass(frozen=True)
class KindCount:
    """The number of messages out of character, among all messages of a kind that are in or out of character."""

    out: int
    total: int


@dataclass(frozen=True)
class KindCounts:
    """The messages of an agent by kind. Unclear messages count in no kind.

    Attributes:
        claims: by id of the broken claim, most messages first; "": the message breaks no claim, but facts of the persona. The
            total is that of all messages, and a message that breaks two claims counts for both.
        places: by channel or conversation, in order of time.
        parts: by place in the conversation, early to late. The first message with a verdict has number 1.
    """

    claims: dict[str, KindCount]
    places: dict[str, KindCount]
    parts: dict[str, KindCount]


def count_kinds(verdicts: Sequence[MessageVerdict]) -> KindCounts:
    """Return the counts by kind of the messages of one agent."""
    talks = grouped(in_order(verdicts), lambda item: item.conversation).values()
    numbered = [(number, item) for talk in talks for number, item in enumerate(talk, start=1)]
    decided = [(number, item) for number, item in numbered if item.verdict is not Role.UNCLEAR]
    out = [item for _, item in decided if item.verdict is Role.OUT]
    broken = Counter(claim for item in out for claim in {*item.claims} or {""})
    ranked = sorted(broken.items(), key=lambda pair: (-pair[1], pair[0]))
    return KindCounts(
        claims={claim: KindCount(count, len(decided)) for claim, count in ranked},
        places=_counts((item.conversation.rpartition(" ")[0], item.verdict) for _, item in decided),
        parts=_counts((_part(number), item.verdict) for number, item in sorted(decided, key=lambda pair: pair[0])),
    )


def _part(number: int) -> str:
    return next((part for last, part in PARTS.items() if number <= last), LAST_PART)


def _counts(messages: Iterable[tuple[str, Role]]) -> dict[str, KindCount]:
    kinds = grouped(messages, lambda pair: pair[0])
    return {kind: KindCount(sum(role is Role.OUT for _, role in own), len(own)) for kind, own in kinds.items()}
