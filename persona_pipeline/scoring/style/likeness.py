"""Similarity of agents: the nearness of the voices of a channel, and agents that use another's voice or lines.

Nearness is the sum of two measures, each a mean over the channel's pairs, in standard deviations of blocks of the same speakers'
history that have the window's size: the current similarity of the two (cosine of TF-IDF), and their distance in a model that
distinguishes them (``speaker_scores``). A change of subject moves the measures in opposite directions, and merging moves both in
the same direction, so the sum finds more than either.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from itertools import combinations, permutations
from math import copysign, log, sqrt
from statistics import NormalDist, fmean
from typing import Any

import numpy as np

from persona_pipeline.scoring.style.rivals import (
    alike_members,
    gram_counts,
    speaker_scores,
    text_vectors,
    voice_similarity,
)
from persona_pipeline.scoring.text.tokens import UNKNOWN, language_of, tokenize
from persona_pipeline.world.models import Message, grouped

# Texts by speaker.
Voices = Mapping[str, Sequence[str]]

# Smaller blocks do not show a voice; larger ones add little and leave fewer blocks of a history.
FEWEST_MESSAGES, MOST_MESSAGES, FEWEST_BLOCKS = 3, 60, 3
# Two speakers less similar than this share of the lower self-similarity have not merged, even if they came nearer. One in a hundred
# stretches of 20 messages of a speaker is less similar to the next; chosen on half of the episodes and of the chats.
CLOSE = 0.6
# Most messages of history per speaker and for all speakers; parts of the cross-validation.
_MOST_HISTORY, _MOST_HISTORY_OF_ALL, _FOLDS = 1000, 4000, 10
# Prior variance of the sum of both measures, and its weight in blocks; few blocks shrink to it. Measured on real dialogue: pairs
# within a channel correlate at 0.4, the two measures at -0.1.
_PAIRS_CORRELATE, _PRIOR_BLOCKS = 0.4, 4


@dataclass(frozen=True)
class MeasuredBlocks:
    """Measures of blocks of messages.

    Attributes:
        alike: cosine similarity (0-1) of each pair of speakers (columns, in order of ``combinations``) in each block (rows).
        likeness: by block, speaker and other: similarity of the speaker's messages to the other's history.
    """

    alike: Any
    likeness: Any

    @property
    def margins(self) -> Any:
        """By block, speaker and other: similarity to the speaker's own history minus similarity to the other's."""
        return np.diagonal(self.likeness, axis1=1, axis2=2)[:, :, None] - self.likeness

    @property
    def apart(self) -> Any:
        """By block and pair: the mean of both margins."""
        first, second = np.triu_indices(self.likeness.shape[1], 1)
        return (self.margins[:, first, second] + self.margins[:, second, first]) / 2


def measure_blocks(
    history: Sequence[Sequence[str]], current: Sequence[Sequence[str]], size: int
) -> tuple[MeasuredBlocks, MeasuredBlocks, list[float]]:
    """Measure blocks of ``size`` messages of history and of new messages; the same number per speaker, oldest first.

    The third result is, by speaker, the similarity (0-1) of neighbouring blocks of its history.

    Raises:
        ValueError: no n-gram is in two messages of history.
    """
    speakers = len(history)
    said = [text for own in history for text in own]
    texts = [*said, *(text for own in current for text in own)]
    before, now = (
        places.reshape(speakers, -1, size).swapaxes(0, 1)
        for places in (np.arange(len(said)), np.arange(len(said), len(texts)))
    )
    # Neighbouring blocks share their subject, so cross-validation leaves out a stretch of blocks at once.
    part_of_block = np.arange(len(before)) * min(_FOLDS, len(before)) // len(before)
    parts = np.tile(np.repeat(part_of_block, size), speakers)
    counts = gram_counts(texts)
    scores = speaker_scores(counts, np.repeat(np.arange(speakers), len(history[0])), parts)
    holders, pairs = counts[: len(said)].count_nonzero(axis=0), np.triu_indices(speakers, 1)

    def alike(blocks: Any) -> Any:
        return np.array([alike_members(counts, len(said), holders, block) for block in blocks])

    measured = [MeasuredBlocks(alike(places)[:, *pairs], scores[places].mean(axis=2)) for places in (before, now)]
    halves = np.stack([before[:-1:2], before[1::2]], axis=2).reshape(-1, 2 * speakers, size)
    twos = alike(halves).mean(axis=0)
    return measured[0], measured[1], [float(twos[2 * place, 2 * place + 1]) for place in range(speakers)]


@dataclass(frozen=True)
class PairNearness:
    """Nearness of two speakers: current cosine similarity (0-1), and z, positive when they have come nearer.

    ``close``: they are similar enough, and use the same language, so that a positive z can mean merging.
    """

    similarity: float
    z: float | None = None
    close: bool = False


@dataclass(frozen=True)
class Approach:
    """Move of a speaker to another's voice. ``way``: 0 unchanged, 1 as similar to the other's history as the other was. ``z``: the
    shift of its messages from its own history to the other's, as a standard normal quantile.
    """

    way: float
    z: float


@dataclass(frozen=True)
class Nearness:
    """Nearness of the voices of a channel in a window.

    Attributes:
        similarity: mean cosine similarity of all pairs, 0-1; None below two speakers.
        z: positive when the voices have come nearer, as a standard normal quantile; None: see ``missing``.
        n_references: number of blocks of history in the comparison.
        messages_per_agent: messages of each speaker in every block.
        parts: z of each part of the window, oldest first; ``z`` is their mean.
        pairs: by sorted pair of speakers.
        toward: by (speaker, other), the move of the first to the second's voice.
    """

    similarity: float | None
    z: float | None = None
    n_references: int = 0
    messages_per_agent: int = 0
    parts: tuple[float, ...] = ()
    pairs: Mapping[tuple[str, str], PairNearness] = field(default_factory=dict)
    toward: Mapping[tuple[str, str], Approach] = field(default_factory=dict)
    missing: str | None = None


def nearness(current: Voices, history: Voices, *, size: int | None = None) -> Nearness:
    """Compare the speakers of a channel in a window with the same speakers before it.

    A window longer than ``size`` (by default 60 messages a speaker, or a third of the history if that is less) is compared in
    parts of this size.

    Args:
        current: each speaker's messages of the window, oldest first.
        history: each speaker's earlier messages, oldest first, of this and other channels.
    """
    spoken = {name: [text for text in texts if text.strip()] for name, texts in current.items()}
    names = sorted(name for name, texts in spoken.items() if texts)
    if len(names) < 2:
        return Nearness(None, missing="fewer than two speakers")
    earlier = {name: [text for text in history.get(name, ()) if text.strip()] for name in names}
    known = [name for name in names if len(earlier[name]) >= FEWEST_BLOCKS * FEWEST_MESSAGES]
    enough = [name for name in known if len(spoken[name]) >= FEWEST_MESSAGES]
    if len(enough) < 2:
        short = ", ".join(name for name in names if name not in enough)
        least = f"{FEWEST_MESSAGES} messages now and {FEWEST_BLOCKS * FEWEST_MESSAGES} before"
        return Nearness(_similarity(spoken, names), missing=f"{short}: fewer than {least}")
    count, available = (min(len(texts[name]) for name in enough) for texts in (spoken, earlier))
    size = min(size or MOST_MESSAGES, count, available // FEWEST_BLOCKS)
    blocks = min(available, _MOST_HISTORY, _MOST_HISTORY_OF_ALL // len(enough)) // size
    # Both end with the newest message.
    said = {name: spoken[name][-(count // size) * size :] for name in enough}
    try:
        known_lines = [earlier[name][-blocks * size :] for name in enough]
        before, now, alone = measure_blocks(known_lines, list(said.values()), size)
    except ValueError:
        return Nearness(_similarity(spoken, enough), missing="no two earlier messages have anything in common")
    languages = {name: language_of(texts) for name, texts in said.items()}
    own = dict(zip(enough, alone, strict=True))
    alike = zip(combinations(enough, 2), now.alike.mean(axis=0), strict=True)
    near = {pair for pair, value in alike if value >= CLOSE * min(own[name] for name in pair)}
    close = {(a, b) for a, b in near if len({languages[a], languages[b]} - {UNKNOWN}) < 2}
    return _compared(enough, before, now, size, close)


def _compared(
    names: Sequence[str], before: MeasuredBlocks, now: MeasuredBlocks, size: int, close: Collection[tuple[str, str]]
) -> Nearness:
    pairs = list(combinations(names, 2))
    nearer = [
        a - b
        for a, b in zip(_standardized(before.alike, now.alike), _standardized(before.apart, now.apart), strict=True)
    ]
    parts = _quantiles(nearer[0].mean(axis=1), nearer[1].mean(axis=1), _prior(len(pairs)))
    toward, was_like, is_like = {}, before.likeness.mean(axis=0), now.likeness.mean(axis=0)
    for a, b in permutations(range(len(names)), 2):
        margins = _standardized(before.margins[:, a, b : b + 1], now.margins[:, a, b : b + 1])
        lost = _quantiles(-margins[0][:, 0], -margins[1][:, 0], 1.0)
        apart = float(was_like[b, b] - was_like[a, b])
        way = float(is_like[a, b] - was_like[a, b]) / apart if apart > 0 else 0.0
        toward[names[a], names[b]] = Approach(way, fmean(lost))
    return Nearness(
        similarity=float(now.alike.mean()),
        z=fmean(parts),
        n_references=len(before.alike),
        messages_per_agent=size,
        parts=tuple(parts),
        pairs={
            pair: PairNearness(
                float(now.alike[:, index].mean()),
                fmean(_quantiles(nearer[0][:, index], nearer[1][:, index], _prior(1))),
                pair in close,
            )
            for index, pair in enumerate(pairs)
        },
        toward=toward,
    )


def _standardized(before: Any, now: Any) -> tuple[Any, Any]:
    """Return values (rows are blocks, columns pairs) in standard deviations of ``before``, pooled over the pairs."""
    mean, spread = before.mean(axis=0), sqrt(float(before.var(axis=0, ddof=1).mean())) or 1.0
    return (before - mean) / spread, (now - mean) / spread


def _prior(pairs: int) -> float:
    return 2 * (1 - 0.1) * (1 + (pairs - 1) * _PAIRS_CORRELATE) / pairs


def _quantiles(before: Any, now: Any, prior: float) -> list[float]:
    """Return the standard normal quantile of each new value, from its t with the variance of a new value."""
    degrees = _PRIOR_BLOCKS + len(before) - 1
    variance = (_PRIOR_BLOCKS * prior + (len(before) - 1) * float(before.var(ddof=1))) / degrees
    spread = sqrt(variance * (1 + 1 / len(before)))
    return [normal_quantile(float(value) / spread, degrees) for value in now]


def normal_quantile(t: float, degrees: float) -> float:
    """Return the standard normal quantile of a value of Student's t (Wallace, 1959; within 0.05 for five degrees and more)."""
    return copysign((8 * degrees + 1) / (8 * degrees + 3) * sqrt(degrees * log(1 + t * t / degrees)), t)


def _similarity(spoken: Voices, names: Sequence[str]) -> float:
    count = min(len(spoken[name]) for name in names)
    return fmean(voice_similarity({name: spoken[name][-count:] for name in names}).values())


# Lines of this length (in tokens) do not repeat by chance. A clone needs this number of them and this share of its long lines.
_LONG, FEWEST_LINES, CLONE_SHARE = 6, 2, 0.2
# A line that shares this fraction of its trigrams with a line of another agent counts as that agent's line.
_SAME_LINE = 0.6
# A style clone has left its own voice (z against all others, and against the other), has come nearer (z of the pair), and is most
# of the way there. In two of a hundred intact channels of four, the sum of a speaker exceeds this limit.
STYLE_EVIDENCE, _WAY, _FARTHEST = 10.4, 4.0, 2.0
# Standard normal quantile for a pair in a channel of four.
MERGED_QUANTILE = 3.0
# Minimum messages of each speaker, now and before, for findings of style.
FEWEST_NOW, FEWEST_BEFORE = 40, 200
# An agent with a new voice is also farther from its own, but not on the way to another's.
HALF_WAY = 0.5
# Lines shown with a finding; a line that this number of other agents say belongs to no agent.
_SHOWN, _OTHERS = 3, 3
_EVERYBODY = ""
# A line with this share of everyday phrases belongs to no agent: one in a hundred lines of real dialogue.
_EVERYDAY = 1 / 3
# Above this number, voices are compared only within channels: each agent needs 200 messages to be distinguished.
MOST_VOICES = 12

Trigrams = frozenset[tuple[str, str, str]]
Spoken = tuple[str, str]


class Likeness(StrEnum):
    """Kinds of similarity of two agents."""

    CLONE = "clone"
    STYLE = "style_clone"
    MERGED = "merged"


@dataclass(frozen=True)
class VoiceFinding:
    """An agent that speaks like another.

    Attributes:
        kind: ``clone``: it says the other's lines; ``style_clone``: it has taken the other's voice, while the other kept its own;
            ``merged``: the two voices have become similar.
        agent_id, other: the agent and the one it resembles; alphabetical for ``merged``.
        strength: for a clone, the share (0-1) of its lines of six words or more that are the other's; else a standard normal
            quantile.
        lines: pairs of the agent's line and the other's similar line.
    """

    kind: Likeness
    agent_id: str
    other: str
    strength: float
    lines: tuple[tuple[str, str], ...] = ()


def find_clones(
    said: Sequence[Spoken],
    earlier: Sequence[Spoken] = (),
    *,
    of: Collection[str] | None = None,
    everyday: Sequence[str] = (),
) -> list[VoiceFinding]:
    """Return agents that say lines another agent said first. Time is about linear in the number of lines.

    Args:
        said: (agent, text) of a window, oldest first; ``earlier``: the same before the window.
        of: agents to check; None: all.
        everyday: lines that belong to no agent, like lines that three others say too. Lines in the first half of an agent's
            ``earlier`` messages belong to that agent, even if another agent said them first.
    """
    spoken, phrases = _everyday(tuple(everyday))
    lines = _Lines(phrases)
    watched = [(agent_id, text) for agent_id, text in said if of is None or agent_id in of]
    numbers = [lines.add(tokenize(text)) for _, text in watched]
    for tokens, trigrams in spoken:
        # Most have nothing in common with any line.
        if not lines.holding.keys().isdisjoint(trigrams):
            lines.hear(_EVERYBODY, "", tokens)
    halves, heard = Counter(agent_id for agent_id, _ in earlier), Counter[str]()
    for agent_id, text in (*earlier, *said):
        heard[agent_id] += 1
        lines.hear(agent_id, text, tuple(tokenize(text)), habit=heard[agent_id] * 2 <= halves[agent_id])
    long_lines = Counter(agent_id for (agent_id, _), number in zip(watched, numbers, strict=True) if number is not None)
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for (agent_id, text), number in zip(watched, numbers, strict=True):
        if number is not None and (source := lines.first(number, agent_id)) is not None:
            found.setdefault((agent_id, source[0]), []).append((text, source[1]))
    return [
        VoiceFinding(Likeness.CLONE, agent_id, other, len(copied) / long_lines[agent_id], tuple(copied[:_SHOWN]))
        for (agent_id, other), copied in found.items()
        if len(copied) >= FEWEST_LINES and len(copied) >= CLONE_SHARE * long_lines[agent_id]
    ]


# All agents of a language use the same thousands of lines.
@lru_cache(maxsize=2)
def _everyday(texts: tuple[str, ...]) -> tuple[Sequence[tuple[tuple[str, ...], Trigrams]], Trigrams]:
    """Return everyday lines, each as its tokens and trigrams, and their phrases."""
    spoken = [(tokens, _trigrams(tokens)) for tokens in (tuple(tokenize(text)) for text in texts)]
    # In scripts without spaces a token is a character, and three in a row do not make a phrase.
    grams = (gram for _, trigrams in spoken for gram in trigrams)
    return spoken, frozenset(gram for gram in grams if len("".join(gram)) > len(gram))


class _Lines:
    """Lines, each with the agents that said a similar line, in order of time. ``phrases``: of everyday language."""

    def __init__(self, phrases: Trigrams) -> None:
        self._phrases = phrases
        self._numbers: dict[tuple[str, ...], int] = {}
        self._trigrams: list[Trigrams] = []
        self.holding: dict[tuple[str, str, str], list[int]] = {}
        self._said: list[dict[str, str]] = []
        self._like: dict[tuple[str, ...], list[int]] = {}
        self._habits: set[tuple[int, str]] = set()

    def add(self, tokens: Sequence[str]) -> int | None:
        """Return the number of a line; None: it is too short to belong to an agent."""
        trigrams = _trigrams(tokens)
        if len(trigrams) < _LONG - 2:
            return None
        number = self._numbers.setdefault(tuple(tokens), len(self._said))
        if number == len(self._said):
            self._trigrams.append(trigrams)
            is_everyday = len(trigrams & self._phrases) >= _EVERYDAY * len(trigrams)
            self._said.append({_EVERYBODY: ""} if is_everyday else {})
            for trigram in trigrams:
                self.holding.setdefault(trigram, []).append(number)
        return number

    def hear(self, agent_id: str, text: str, tokens: tuple[str, ...], *, habit: bool = False) -> None:
        """Record that an agent said the lines that resemble a text."""
        if tokens not in self._like:
            self._like[tokens] = self._resembling(tokens)
        for number in self._like[tokens]:
            self._said[number].setdefault(agent_id, text)
            if habit:
                self._habits.add((number, agent_id))

    def _resembling(self, tokens: tuple[str, ...]) -> list[int]:
        trigrams = _trigrams(tokens)
        # A similar line lacks at most ``spare`` of the trigrams, so it has one of any ``spare + 1``.
        spare = int(len(trigrams) * (1 - _SAME_LINE))
        rarest = sorted(trigrams, key=lambda gram: len(self.holding.get(gram, ())))[: spare + 1]
        if len(trigrams) < _LONG - 2 or not self.holding.get(rarest[-1]):
            return []
        numbers: set[int] = set()
        for gram in rarest:
            if gram in self.holding:
                # Skip lines that already belong to no agent.
                self.holding[gram] = [n for n in self.holding[gram] if len(self._said[n]) <= _OTHERS]
                numbers.update(self.holding[gram])
        return [
            number
            for number in numbers
            if len(trigrams & self._trigrams[number]) >= _SAME_LINE * max(len(trigrams), len(self._trigrams[number]))
        ]

    def first(self, number: int, agent_id: str) -> tuple[str, str] | None:
        """Return the agent that first said a similar line, and its text; None: the line is its own or belongs to no agent."""
        said = self._said[number]
        if _EVERYBODY in said or len(said) > _OTHERS or (number, agent_id) in self._habits:
            return None
        other, text = next(iter(said.items()))
        return None if other == agent_id else (other, text)


def find_likeness(near: Nearness, current: Voices, history: Voices) -> list[VoiceFinding]:
    """Return the agents that have taken another's voice, and the merged pairs, from the nearness of voices.

    Empty with fewer than 40 current or 200 earlier messages a speaker.
    """
    now = min((len(current[agent]) for pair in near.pairs for agent in pair), default=0)
    if now < FEWEST_NOW or near.messages_per_agent * near.n_references < FEWEST_BEFORE:
        return []
    agents = sorted({agent for agent, _ in near.toward})
    pairs = {**near.pairs, **{(b, a): pair for (a, b), pair in near.pairs.items()}}
    lost = {agent: fmean(near.toward[pair].z for pair in near.toward if pair[0] == agent) for agent in agents}
    gone = {
        (agent, other): lost[agent] + found.z + (pairs[agent, other].z or 0.0) + _WAY * min(found.way, _FARTHEST)
        for (agent, other), found in near.toward.items()
        if found.way > HALF_WAY and lost[agent] > lost[other] and pairs[agent, other].close
    }
    style = STYLE_EVIDENCE * _quantile(MERGED_QUANTILE, 4 / len(agents)) / MERGED_QUANTILE
    best: dict[str, tuple[float, str]] = {}
    for agent, other in sorted(gone, key=lambda pair: (-gone[pair], pair)):
        if gone[agent, other] > style:
            best.setdefault(agent, (lost[agent], other))
    findings = [
        VoiceFinding(Likeness.STYLE, agent, other, z, _side_by_side(current[agent], history[other]))
        for agent, (z, other) in sorted(best.items())
    ]
    changed, merged = set(best), _quantile(MERGED_QUANTILE, 6 / len(near.pairs))
    for (a, b), pair in near.pairs.items():
        if pair.close and (pair.z or 0.0) > merged and not changed & {a, b}:
            lines = _side_by_side(current[a], current[b])
            findings.append(VoiceFinding(Likeness.MERGED, a, b, pair.z or 0.0, lines))
    return findings


def _quantile(of_four: float, share: float) -> float:
    """Return the quantile with the same false alarms in a larger group as ``of_four`` in a group of four."""
    return -NormalDist().inv_cdf(NormalDist().cdf(-of_four) * min(1.0, share))


def _trigrams(tokens: Sequence[str]) -> Trigrams:
    return frozenset(zip(tokens, tokens[1:], tokens[2:], strict=False))


def _side_by_side(ours: Sequence[str], theirs: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the lines of ours most similar to a line of theirs, each paired with it."""
    ours, theirs = [text for text in ours if text.strip()][-60:], [text for text in theirs if text.strip()][-240:]
    rows = text_vectors([*ours, *theirs])
    alike = rows[: len(ours)] @ rows[len(ours) :].T
    order = np.argsort(-alike.max(axis=1), kind="stable")[:_SHOWN]
    return tuple((ours[index], theirs[int(alike[index].argmax())]) for index in order)


def fleet_likeness(
    said: Sequence[Message],
    earlier: Sequence[Message],
    fleet: Collection[str],
    *,
    of: Collection[str],
    everyday: Sequence[str] = (),
    voiced: Collection[str] | None = None,
) -> dict[str, list[VoiceFinding]]:
    """Return by agent the findings that it uses another's lines or voice, across all channels.

    Args:
        said: messages of a window, oldest first; ``earlier``: of the windows before.
        fleet: agents to compare with each other. Lines of other agents count only for agents in the same channel.
        of: agents to check; the fleet's voices are compared if at most 12 agents have enough messages.
        everyday: lines that belong to no agent.
        voiced: agents whose voices are compared; None: the fleet.
    """
    met: dict[str, set[str]] = {agent_id: set() for agent_id in of}
    for channel, messages in grouped((*earlier, *said), lambda message: message.channel).items():
        people = {message.agent_id for message in messages}
        for agent_id in people & met.keys() if channel is not None else ():
            met[agent_id] |= people
    current, history = by_speaker(said), by_speaker(earlier)
    spoken, before = ([(item.agent_id, item.text) for item in messages] for messages in (said, earlier))
    findings = find_clones(spoken, before, of=of, everyday=everyday)
    enough = [
        name
        for name in sorted({*(fleet if voiced is None else voiced)} & current.keys() & history.keys())
        if len(current[name]) >= FEWEST_NOW and len(history[name]) >= FEWEST_BEFORE
    ]
    if len(enough) <= MOST_VOICES:
        now, past = ({name: texts[name] for name in enough} for texts in (current, history))
        findings += find_likeness(nearness(now, past), now, past)
    found: dict[str, list[VoiceFinding]] = {agent_id: [] for agent_id in of}
    for item in findings:
        for agent_id in (item.agent_id, item.other) if item.kind is Likeness.MERGED else (item.agent_id,):
            if agent_id in found and (item.other in fleet or item.other in met[agent_id]):
                found[agent_id].append(item)
    return found


def by_speaker(messages: Iterable[Message]) -> dict[str, list[str]]:
    """Return each speaker's texts, in order."""
    spoken = grouped(messages, lambda message: message.agent_id)
    return {agent_id: [message.text for message in own] for agent_id, own in spoken.items()}
