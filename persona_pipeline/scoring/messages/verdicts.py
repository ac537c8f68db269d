"""Verdicts on messages: the share in character with its interval, the date of a change, and a sentence that reports them.

Messages of a conversation are not independent of each other, so intervals and tests use whole conversations.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, Field

from persona_pipeline.base.shares import FEWEST_CONVERSATIONS, LEAST_OUT, Counts, Share, share_of_counts
from persona_pipeline.judging.verdict import Unscored, Usage
from persona_pipeline.world.models import grouped, seed_from

# Thresholds for a reported change: p below, difference of shares and messages on each side at least. The worse side also needs
# ``LEAST_OUT`` messages out of character.
MOST_P, LEAST_DIFFERENCE, FEWEST_ON_A_SIDE = 0.01, 0.2, 5
# A date within this number of messages is printed without its uncertainty.
EXACT = 5
MOST_MESSAGES = 2000
# With this number of conversations or more, permuting them alone can show p < .01.
ENOUGH_CONVERSATIONS = 12
_BLOCK = 3
# 999 permutations, in rounds: most tests without a change end after the first.
_ROUNDS, _A_ROUND = 9, 111
# Below this share in character a window does not represent the character and is not a baseline.
LOWEST_SHARE = 0.8


class Role(StrEnum):
    """Whether a message is in character."""

    IN = "in"
    OUT = "out"
    UNCLEAR = "unclear"


class MessageVerdict(BaseModel, extra="forbid", frozen=True):
    """The judge's verdict on a message of an agent.

    Attributes:
        message: its id. ``said_at``: UTC.
        conversation: its place and start; messages of a conversation are not independent of each other.
        claims: ids of the broken claims; empty if the message contradicts only facts of the persona.
        quote: the decisive words, verbatim. ``reason``: the judge's reason, at most 15 words.
    """

    message: str
    conversation: str
    said_at: datetime
    verdict: Role
    claims: tuple[str, ...] = ()
    quote: str = ""
    reason: str = ""


class SaidLine(BaseModel, extra="forbid", frozen=True):
    """A message that a report shows next to another.

    Attributes:
        speaker: id of its speaker. ``quote``: its text, at most 500 characters.
    """

    message_id: str
    speaker: str
    quote: str


class WorstMessage(BaseModel, extra="forbid", frozen=True):
    """A message out of character, with its context for a reviewer.

    Attributes:
        answered: the last message of another speaker before it in its conversation; None: it began the conversation.
        example: an earlier message of the agent in character; None: not available.
    """

    verdict: MessageVerdict
    answered: SaidLine | None = None
    example: SaidLine | None = None


def in_order(verdicts: Sequence[MessageVerdict]) -> list[MessageVerdict]:
    """Return verdicts in the order of their messages."""
    return sorted(verdicts, key=lambda item: (item.said_at, item.message))


@dataclass(frozen=True)
class ShareChange:
    """A change of the share in character at a moment.

    Attributes:
        since: UTC time of the first message after the change. ``message``: its id.
        before, after: number of messages in character, and total number of messages.
        give_or_take: uncertainty of the date in messages, in both directions; nine in ten dates are within it.
        p: p-value of the permutation test, 0-1.
    """

    since: datetime
    message: str
    before: tuple[int, int]
    after: tuple[int, int]
    give_or_take: int
    p: float

    @property
    def is_drift(self) -> bool:
        """Whether fewer messages are in character after the change. False: the agent came back."""
        return self.after[0] / self.after[1] < self.before[0] / self.before[1]


def share_in_character(verdicts: Sequence[MessageVerdict]) -> Share:
    """Return the share of messages in character."""
    return share_of_counts(counts_by_conversation(verdicts))


def counts_by_conversation(verdicts: Sequence[MessageVerdict]) -> list[Counts]:
    """Return the numbers of messages in, out and unclear for each conversation, in order of their first message."""
    talks = grouped(in_order(verdicts), lambda item: item.conversation).values()
    roles = (Counter(item.verdict for item in talk) for talk in talks)
    return [(count[Role.IN], count[Role.OUT], count[Role.UNCLEAR]) for count in roles]


def since_when(verdicts: Sequence[MessageVerdict]) -> ShareChange | None:
    """Return the most likely date of a change of the share in character, None without a significant change.

    The test uses the newest 2,000 messages with a verdict in or out. From 12 conversations on it permutes whole conversations.
    With fewer, even with one, it also permutes blocks of three messages within each conversation: only a change in the middle of a
    conversation is then significant. The function returns None if the share moves in the same direction within the other
    conversations, because the agent then fades in each of them.
    """
    import numpy as np

    dated = [item for item in in_order(verdicts) if item.verdict is not Role.UNCLEAR][-MOST_MESSAGES:]
    values = np.array([item.verdict is Role.IN for item in dated], dtype=np.int32)
    if len(values) < 2 * FEWEST_ON_A_SIDE or values.all() or not values.any():
        return None
    likelihoods = _likelihoods(values)
    split = int(likelihoods.argmax()) + 1
    before, after = values[:split], values[split:]
    difference = float(after.mean() - before.mean())
    if min(len(before), len(after)) < FEWEST_ON_A_SIDE or abs(difference) < LEAST_DIFFERENCE - 1e-9:
        return None
    worse = after if difference < 0 else before
    # With few messages the judge may misread one or two of them.
    if (worse == 0).sum() < LEAST_OUT:
        return None
    numbers: dict[str, int] = {}
    talks = np.array([numbers.setdefault(item.conversation, len(numbers)) for item in dated])
    few = len(numbers) < ENOUGH_CONVERSATIONS
    if few and _moves_within(values, talks, int(talks[split])) * difference > 0:
        return None
    p = _p_of(values, talks, within=few)
    if p >= MOST_P:
        return None
    return ShareChange(
        since=dated[split].said_at,
        message=dated[split].message,
        before=(int(before.sum()), len(before)),
        after=(int(after.sum()), len(after)),
        give_or_take=_give_or_take(likelihoods),
        p=p,
    )


def _likelihoods(values: Any) -> Any:
    """Return the log likelihood (nats) of two constant shares, for a split after each message except the last.

    Args:
        values: 0 or 1, messages in the last dimension.
    """
    import numpy as np

    number = values.shape[-1]
    counts = np.arange(number + 1)
    surprise = counts * np.log(np.maximum(counts, 1))
    inside = values.cumsum(axis=-1)
    first, total, size = inside[..., :-1], inside[..., -1:], counts[1:-1]
    last, rest = total - first, number - size
    both = surprise[first] + surprise[size - first] + surprise[last] + surprise[rest - last]
    return both - surprise[size] - surprise[rest]


def _p_of(values: Any, talks: Any, *, within: bool) -> float:
    """Return the share of permutations with a best split as good as the observed one, which counts too; 1 from ``MOST_P`` on.

    Each permutation shuffles the conversations; ``within``: also blocks of messages in each conversation.
    """
    import numpy as np

    generator = np.random.default_rng(seed_from("since when", *values.tolist(), *talks.tolist()))
    blocks = talks * len(values) + (_places(talks) // _BLOCK if within else 0)
    names, blocks = np.unique(blocks, return_inverse=True)
    owners = names // len(values)
    limit, reached = float(_likelihoods(values).max()) - 1e-9, 1
    for _ in range(_ROUNDS):
        order = generator.random((_A_ROUND, int(talks.max()) + 1)).argsort(axis=1)
        keys = order[:, owners] + generator.random((_A_ROUND, len(names)))
        # 16-bit numbers sort fastest; the sort is stable, so messages of a block keep their order.
        places = keys.argsort(axis=1).argsort(axis=1).astype(np.int16)
        permuted = values[places[:, blocks].argsort(axis=1, kind="stable")]
        reached += int((_likelihoods(permuted).max(axis=1) >= limit).sum())
        if reached >= MOST_P * (_ROUNDS * _A_ROUND + 1):
            return 1.0
    return reached / (_ROUNDS * _A_ROUND + 1)


def _places(talks: Any) -> Any:
    """Return the place of each message in its conversation, from 0."""
    import numpy as np

    order = talks.argsort(kind="stable")
    sizes = np.bincount(talks)
    places = np.empty_like(talks)
    places[order] = np.arange(len(talks)) - np.repeat(sizes.cumsum() - sizes, sizes)
    return places


def _moves_within(values: Any, talks: Any, left_out: int) -> int:
    """Return 1 if the share rises within conversations, -1 if it decreases, 0 if neither is significant (z of 1.64)."""
    import numpy as np

    moved, variance = 0.0, 0.0
    for talk in set(talks.tolist()) - {left_out}:
        own = values[talks == talk]
        if len(own) > 1:
            places, off = np.arange(len(own)) - (len(own) - 1) / 2, own - own.mean()
            moved += float(places @ off)
            variance += float((places @ places) * (off @ off)) / (len(own) - 1)
    return int(math.copysign(1, moved)) if moved**2 > 1.64**2 * variance else 0


def _give_or_take(likelihoods: Any) -> int:
    """Return the distance from the best split, in messages, that contains 95 % of the likelihood.

    The likelihood treats messages as independent; if they cluster, about nine in ten dates are within this distance.
    """
    import numpy as np

    weights = np.exp(likelihoods - likelihoods.max())
    distances = abs(np.arange(len(likelihoods)) - int(likelihoods.argmax()))
    within = np.bincount(distances, weights).cumsum()
    return int(np.searchsorted(within, 0.95 * within[-1]))


def sentence(name: str, share: Share, change: ShareChange | None = None, *, not_judged: int = 0) -> str:
    """Return a sentence about an agent: the date of its drift, else its share of messages in character. Times are UTC."""
    if change is not None and change.is_drift:
        (good, n), (good_before, n_before) = change.after, change.before
        off = f", give or take {change.give_or_take} messages" if change.give_or_take > EXACT else ""
        return (
            f"{name} has been out of character since {change.since:%Y-%m-%d %H:%M} UTC (message {change.message}{off}): "
            f"{n - good} of {n} messages, before {n_before - good_before} of {n_before}."
        )
    rest = [f"{n} {what}" for n, what in ((share.n_unclear, "unclear"), (not_judged, "not judged")) if n]
    total = share.n_in + share.n_out
    if not total:
        return ", ".join([f"{name}: no message judged in or out of character", *rest])
    if share.conversations < FEWEST_CONVERSATIONS:
        number = "one conversation" if share.conversations == 1 else f"{share.conversations} conversations"
        rest.append(f"{number} only")
    interval = f"(95 %, {100 * share.low:.0f}-{100 * share.high:.0f})"
    return ", ".join([f"{name}: {share.n_in} of {total} messages in character {interval}", *rest])


@dataclass(frozen=True)
class MessageAgreement:
    """Agreement of people with the judge on messages.

    Attributes:
        agreed: number of messages with the same verdict. ``compared``: number that both call in or out of character.
    """

    agreed: int
    compared: int

    def __str__(self) -> str:
        return f"people agree on {self.agreed} of {self.compared}"


def agreement_of(judged: Mapping[str, Role], labelled: Mapping[str, Role]) -> MessageAgreement | None:
    """Return the agreement of people with a judge; None if no message has a clear verdict of both.

    Args:
        judged, labelled: verdicts of the judge and of people, by message.
    """
    pairs = [(role, labelled[message]) for message, role in judged.items() if message in labelled]
    decided = [pair for pair in pairs if Role.UNCLEAR not in pair]
    return MessageAgreement(sum(a is b for a, b in decided), len(decided)) if decided else None


class MessageVerdicts(BaseModel, extra="forbid"):
    """Verdicts on the messages of an agent in a window, in order of time.

    Attributes:
        unscored: number of messages without a verdict, by reason. ``detail``: the first failure in one line.
        left_out: number of older messages that were not judged.
        share: in character, with its interval. ``change``: the last change of the share up to the end of the window, even in an
            earlier window; None: no significant change.
        agreement: of people with the judge; None: no message has a label.
        worst: at most five messages out of character, see ``worst_messages``.
        model: the judge's model. ``prompt_version``: of the question.
        usage: tokens and price of the calls of this run.
    """

    agent_id: str
    verdicts: list[MessageVerdict] = Field(default_factory=list)
    unscored: dict[str, int] = Field(default_factory=dict)
    detail: str = ""
    left_out: int = 0
    share: Share = Share(0, 0, 0, 0, None, 0.0, 1.0)
    change: ShareChange | None = None
    agreement: MessageAgreement | None = Field(default=None, exclude_if=lambda agreement: agreement is None)
    worst: list[WorstMessage] = Field(default_factory=list[WorstMessage])
    model: str | None = None
    prompt_version: str | None = None
    usage: Usage = Field(default_factory=Usage)

    @property
    def judged_by(self) -> tuple[str | None, str | None]:
        """Model and version of the question. Verdicts of two judges are not compared."""
        return self.model, self.prompt_version

    @property
    def is_answered(self) -> bool:
        """Whether a judge was asked. Recordings of earlier releases lack these answers and are still valid."""
        return bool(self.verdicts) or set(self.unscored) != {Unscored.UNRECORDED.value}

    @property
    def drift(self) -> ShareChange | None:
        """The change since which the agent is out of character; None without a dated drift."""
        return self.change if self.change and self.change.is_drift else None

    @property
    def is_low(self) -> bool:
        """Whether the share in character is below 80 %."""
        return self.share.share is not None and self.share.share < LOWEST_SHARE

    def text(self, name: str) -> str:
        """Return the sentence about an agent with that name."""
        return sentence(name, self.share, self.change, not_judged=sum(self.unscored.values()))

    def dated(self, series: Sequence[MessageVerdict], labelled: Mapping[str, Role] | None = None) -> "MessageVerdicts":
        """Return the verdicts with the last change in a longer series that ends with them, and the agreement.

        Args:
            labelled: verdicts of people, by message.
        """
        agreement = agreement_of({item.message: item.verdict for item in self.verdicts}, labelled or {})
        return self.model_copy(update={"change": last_change(series), "agreement": agreement})


def last_change(series: Sequence[MessageVerdict]) -> ShareChange | None:
    """Return the last change of the share in character: after a drift and its correction, the correction."""
    rest, found = in_order(series), None
    while change := since_when(rest):
        found = change
        rest = [item for item in rest if _place(item) >= (change.since, change.message)]
    return found


def _place(item: MessageVerdict) -> tuple[datetime, str]:
    return item.said_at, item.message


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
        claims: by id of the broken claim, most messages first; "": the message breaks only facts of the persona. The total
            is that of all messages, and a message that breaks two claims counts for both.
        places: by channel or conversation, in order of time.
        parts: by position in the conversation, early to late. The first message with a verdict has number 1.
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
