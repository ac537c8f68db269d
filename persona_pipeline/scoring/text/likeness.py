"""How alike agents sound: who took another's voice or lines, how near the voices of a channel have come, and where each stands."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import combinations
from statistics import NormalDist, fmean
from typing import Any

import numpy as np

from persona_pipeline.scoring.results import HIGHEST
from persona_pipeline.scoring.text.tokens import tokenize
from persona_pipeline.scoring.text.voices import VOICE, Nearness, Voices, nearness, text_vectors
from persona_pipeline.world.models import Message, grouped

# A line this long (in tokens) is not said twice by chance; so many of them, and this share of an agent's long lines, make a clone.
_LONG, FEWEST_LINES, CLONE_SHARE = 6, 2, 0.2
# Of a line's trigrams, this share in one line of the other makes it the other's line.
_SAME_LINE = 0.6
# Who has gone over to another's voice has left its own (z against all others, and against that one), has come nearer (z of the
# pair), and is most of the way there. Of their sum: two in a hundred intact channels of four have somebody beyond it.
STYLE_EVIDENCE, _WAY, _FARTHEST = 10.4, 4.0, 2.0
# A standard normal quantile, of a pair of four.
MERGED_QUANTILE = 3.0
# Messages of each speaker, now and before, without which nobody's style is named.
FEWEST_NOW, FEWEST_BEFORE = 40, 200
# Somebody with a voice nobody has is farther from its own too, but not on the way to another's.
HALF_WAY = 0.5
_SHOWN = 3
# So many others who say a line make it nobody's.
_OTHERS = 3
_EVERYBODY = ""
# A line of which this share of phrases stands in everyday language is nobody's: so is one in a hundred of real dialogue.
_EVERYDAY = 1 / 3
# Of more agents the voices are not compared outside their channels: every one of them needs 200 messages to be told from the rest.
MOST_VOICES = 12
# Fewer messages of a second speaker leave a channel without numbers of its own.
_FEWEST_MESSAGES = 5
_DISTINCT, _MERGED = 1.2, 2.7

Trigrams = frozenset[tuple[str, str, str]]
Spoken = tuple[str, str]
FrozenVoices = tuple[tuple[str, tuple[str, ...]], ...]


class Likeness(StrEnum):
    """How two agents are alike."""

    CLONE = "clone"
    STYLE = "style_clone"
    MERGED = "merged"


@dataclass(frozen=True)
class VoiceFinding:
    """One agent that speaks like another.

    Attributes:
        kind: ``clone``: it says the other's lines; ``style_clone``: it has gone over to the other's voice, while the other kept
            its own; ``merged``: the two have come to sound alike.
        agent_id, other: who, and like whom; of ``merged`` in alphabetical order.
        strength: of a clone, the share (0-1) of its lines of six words or more that are the other's; else a standard normal
            quantile.
        lines: the agent's lines, each beside the other's line that it resembles.
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
    """Return who says lines that another said first. It takes about as long as the lines are many.

    Args:
        said: (agent, text) of a window, oldest first; ``earlier``: of the time before.
        of: whom to look at; None: everybody.
        everyday: lines that are nobody's, as are those that three others say too. What an agent said in the first half of its
            own time before is its own, whoever said it first.
    """
    spoken, phrases = _everyday(tuple(everyday))
    lines = _Lines(phrases)
    watched = [(agent_id, text) for agent_id, text in said if of is None or agent_id in of]
    numbers = [lines.add(tokenize(text)) for _, text in watched]
    for tokens in spoken:
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


# The same thousands of lines stand beside every agent of a language.
@lru_cache(maxsize=2)
def _everyday(texts: tuple[str, ...]) -> tuple[Sequence[tuple[str, ...]], Trigrams]:
    """Return the tokens of everyday lines, and their phrases."""
    spoken = [tuple(tokenize(text)) for text in texts]
    # In scripts without spaces a token is a character, and three in a row are no phrase.
    grams = (gram for tokens in spoken for gram in _trigrams(tokens))
    return spoken, frozenset(gram for gram in grams if len("".join(gram)) > len(gram))


class _Lines:
    """Lines, and who said the like of each, in the order in which they did. ``phrases``: of everyday language."""

    def __init__(self, phrases: Trigrams) -> None:
        self._phrases = phrases
        self._numbers: dict[tuple[str, ...], int] = {}
        self._trigrams: list[Trigrams] = []
        self._holding: dict[tuple[str, str, str], list[int]] = {}
        self._said: list[dict[str, str]] = []
        self._like: dict[tuple[str, ...], list[int]] = {}
        self._habits: set[tuple[int, str]] = set()

    def add(self, tokens: Sequence[str]) -> int | None:
        """Return the number of a line; None: it is too short to be anybody's."""
        trigrams = _trigrams(tokens)
        if len(trigrams) < _LONG - 2:
            return None
        number = self._numbers.setdefault(tuple(tokens), len(self._said))
        if number == len(self._said):
            self._trigrams.append(trigrams)
            is_everyday = len(trigrams & self._phrases) >= _EVERYDAY * len(trigrams)
            self._said.append({_EVERYBODY: ""} if is_everyday else {})
            for trigram in trigrams:
                self._holding.setdefault(trigram, []).append(number)
        return number

    def hear(self, agent_id: str, text: str, tokens: tuple[str, ...], *, habit: bool = False) -> None:
        """Note of every line that resembles a text that an agent said it."""
        if tokens not in self._like:
            self._like[tokens] = self._resembling(tokens)
        for number in self._like[tokens]:
            self._said[number].setdefault(agent_id, text)
            if habit:
                self._habits.add((number, agent_id))

    def _resembling(self, tokens: tuple[str, ...]) -> list[int]:
        trigrams = _trigrams(tokens)
        if self._holding.keys().isdisjoint(trigrams):
            return []
        # What resembles it lacks at most so many of its trigrams, so it holds one of any so many and one more.
        spare = int(len(trigrams) * (1 - _SAME_LINE))
        rarest = sorted(trigrams, key=lambda gram: len(self._holding.get(gram, ())))[: spare + 1]
        if len(trigrams) < _LONG - 2 or not self._holding.get(rarest[-1]):
            return []
        numbers: set[int] = set()
        for gram in rarest:
            if gram in self._holding:
                # What has become nobody's need not be looked at again.
                self._holding[gram] = [n for n in self._holding[gram] if len(self._said[n]) <= _OTHERS]
                numbers.update(self._holding[gram])
        return [
            number
            for number in numbers
            if len(trigrams & self._trigrams[number]) >= _SAME_LINE * max(len(trigrams), len(self._trigrams[number]))
        ]

    def first(self, number: int, agent_id: str) -> tuple[str, str] | None:
        """Return who said the like of a line first, and how; None: the agent itself, which may have long said it, or nobody."""
        said = self._said[number]
        if _EVERYBODY in said or len(said) > _OTHERS or (number, agent_id) in self._habits:
            return None
        other, text = next(iter(said.items()))
        return None if other == agent_id else (other, text)


def find_likeness(near: Nearness, current: Voices, history: Voices) -> list[VoiceFinding]:
    """Return who has gone over to another's voice, and which pairs have merged, from how near the voices have come.

    Nobody where there are fewer than 40 messages a speaker now or 200 before.
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
    """Return the quantile that as many of a larger group reach by chance as of four reach this one."""
    return -NormalDist().inv_cdf(NormalDist().cdf(-of_four) * min(1.0, share))


def _trigrams(tokens: Sequence[str]) -> Trigrams:
    return frozenset(zip(tokens, tokens[1:], tokens[2:], strict=False))


def _side_by_side(ours: Sequence[str], theirs: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the lines of ours most like a line of theirs, beside it."""
    ours, theirs = [text for text in ours if text.strip()][-60:], [text for text in theirs if text.strip()][-240:]
    rows = text_vectors([*ours, *theirs], VOICE)
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
    """Return by agent whose lines it says, and who else's voice it has come to have, in whatever channels they speak.

    Args:
        said: messages of a window, oldest first; ``earlier``: of the windows before.
        fleet: agents who are held against each other. Of anybody else the lines count for whom they share a channel with.
        of: whom to look at; the fleet's voices are compared where at most 12 have said enough.
        everyday: lines that are nobody's.
        voiced: whose voices are compared; None: the fleet's.
    """
    in_channel: dict[str | None, set[str]] = {}
    for message in (*earlier, *said):
        in_channel.setdefault(message.channel, set()).add(message.agent_id)
    met: dict[str, set[str]] = {agent_id: set() for agent_id in of}
    for channel, people in in_channel.items():
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


def as_statistics(findings: Iterable[VoiceFinding], names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return findings as plain JSON, with what the two are called."""
    return [
        {
            **vars(item),
            "lines": [*map(list, item.lines)],
            "names": {a: names.get(a, a) for a in (item.agent_id, item.other)},
        }
        for item in findings
    ]


def voice_statistics(
    channels: Mapping[str, Sequence[Message]],
    history: Mapping[str, Sequence[str]],
    names: Mapping[str, str] | None = None,
) -> dict[str, dict[str, Any]]:
    """Return of each channel how near its voices have come (``voices``), ``diversity`` read off that, and ``findings`` of style.

    Channels with too little text for numbers of their own are pooled with the agent's others. Without history there is no
    ``diversity`` here: nothing says how near the voices were.
    """
    known = _frozen(history)
    spoken = {channel: by_speaker(messages) for channel, messages in channels.items()}
    pooled = by_speaker([message for messages in channels.values() for message in messages])
    found: dict[str, dict[str, Any]] = {}
    for channel in channels:
        enough = sum(len(texts) >= _FEWEST_MESSAGES for texts in spoken[channel].values()) > 1
        current = spoken[channel] if enough else pooled
        near = _nearness(_frozen(current), known)
        plain = {key: value for key, value in vars(near).items() if key not in ("pairs", "toward", "parts")}
        pairs = [{"a": a, "b": b, **vars(pair)} for (a, b), pair in near.pairs.items()]
        found[channel] = {
            "voices": {**plain, "pairs": pairs, "pooled": not enough},
            "findings": as_statistics(find_likeness(near, current, history), names or {}),
        }
        if near.z is not None:
            is_close = any(pair.close for pair in near.pairs.values())
            found[channel]["diversity"] = nearness_score(near.z) if is_close else HIGHEST
    return found


def nearness_score(z: float) -> float:
    """Return the 0-9 score of how near voices have come: 9 up to z = 1.2, 0 from z = 2.7, linear between.

    A fall of 3.33, which is 1.0 of the dimension, takes z = 1.76: at most one intact window of real dialogue in fifty.
    """
    return HIGHEST * min(1.0, max(0.0, (_MERGED - z) / (_MERGED - _DISTINCT)))


def by_speaker(messages: Iterable[Message]) -> dict[str, list[str]]:
    """Return each speaker's texts, in order."""
    spoken = grouped(messages, lambda message: message.agent_id)
    return {agent_id: [message.text for message in own] for agent_id, own in spoken.items()}


def _frozen(voices: Voices) -> FrozenVoices:
    return tuple((name, tuple(texts)) for name, texts in sorted(voices.items()))


# Everybody in a channel asks for the same numbers.
@lru_cache(maxsize=64)
def _nearness(current: FrozenVoices, history: FrozenVoices) -> Nearness:
    return nearness(dict(current), dict(history))


def voice_similarity(agents: Voices) -> dict[tuple[str, str], float]:
    """Return the cosine similarity (0-1) of each two agents' voices, keyed by the sorted pair of names.

    Agents without text are left out.
    """
    names = _speaking(agents)
    if len(names) < 2:
        return {}
    matrix = _cosine(agents, names)
    return {(names[i], names[j]): float(matrix[i, j]) for i, j in combinations(range(len(names)), 2)}


def _speaking(agents: Voices) -> list[str]:
    return [name for name in sorted(agents) if any(message.strip() for message in agents[name])]


def _cosine(agents: Voices, names: Sequence[str]) -> Any:
    rows = text_vectors([f" {chr(10).join(agents[name])} " for name in names], VOICE)
    return np.clip((rows @ rows.T).astype(float), 0.0, 1.0)
