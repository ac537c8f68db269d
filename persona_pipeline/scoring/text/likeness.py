"""How alike agents sound: who took another's voice or lines, how near the voices of a channel have come, and where each stands."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import combinations
from statistics import fmean
from typing import Any

import numpy as np

from persona_pipeline.scoring.results import HIGHEST
from persona_pipeline.scoring.text.tokens import tokenize
from persona_pipeline.scoring.text.voices import VOICE, Nearness, Voices, nearness, text_vectors
from persona_pipeline.world.models import Message

# A line this long (in tokens) is not said twice by chance; so many of them, and this share of an agent's long lines, make a clone.
_LONG, FEWEST_LINES, CLONE_SHARE = 6, 2, 0.2
# Of a line's trigrams, this share in one line of the other makes it the other's line.
_SAME_LINE = 0.6
# Standard normal quantiles, of a mean over the others and of a pair. One intact channel of real dialogue in fifty has somebody
# whose mean is above the first; a clone in style must be more than half-way to the other, too.
STYLE_QUANTILE, MERGED_QUANTILE = 2.3, 3.0
# Messages of each speaker, now and before, without which nobody's style is named.
FEWEST_NOW, FEWEST_BEFORE = 40, 200
# Somebody with a voice nobody has is farther from its own too, but not on the way to another's.
HALF_WAY = 0.5
_SHOWN = 3
# Fewer messages of a second speaker leave a channel without numbers of its own.
_FEWEST_MESSAGES = 5
_DISTINCT, _MERGED = 1.2, 2.7

Trigrams = frozenset[tuple[str, str, str]]
Said = tuple[str, str, Trigrams]
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


def find_clones(said: Sequence[tuple[str, str]], history: Voices) -> list[VoiceFinding]:
    """Return who says lines that another said before.

    Args:
        said: (agent, text) of a channel and window, oldest first.
        history: what each agent said before the window.
    """
    earlier: dict[tuple[str, str, str], list[Said]] = {}
    for agent_id, texts in history.items():
        for text in texts:
            _remember(earlier, agent_id, text, _trigrams(text))
    long_lines: dict[str, int] = {}
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for agent_id, text in said:
        trigrams = _trigrams(text)
        if len(trigrams) >= _LONG - 2:
            long_lines[agent_id] = long_lines.get(agent_id, 0) + 1
            if (source := _source(earlier, agent_id, trigrams)) is not None:
                found.setdefault((agent_id, source[0]), []).append((text, source[1]))
        _remember(earlier, agent_id, text, trigrams)
    return [
        VoiceFinding(Likeness.CLONE, agent_id, other, len(lines) / long_lines[agent_id], tuple(lines[:_SHOWN]))
        for (agent_id, other), lines in found.items()
        if len(lines) >= FEWEST_LINES and len(lines) >= CLONE_SHARE * long_lines[agent_id]
    ]


def find_likeness(near: Nearness, current: Voices, history: Voices) -> list[VoiceFinding]:
    """Return who has gone over to another's voice, and which pairs have merged, from how near the voices have come.

    Nobody where there are fewer than 40 messages a speaker now or 200 before.
    """
    now = min((len(current[agent]) for pair in near.pairs for agent in pair), default=0)
    if now < FEWEST_NOW or near.messages_per_agent * near.n_references < FEWEST_BEFORE:
        return []
    nearest: dict[str, str] = {}
    for agent, other in sorted(near.toward, key=lambda pair: (-near.toward[pair].way, pair)):
        nearest.setdefault(agent, other)
    # Who has left its own voice is seen best against all the others together, and whose it has taken by who is nearest.
    lost = {agent: fmean(near.toward[pair].z for pair in near.toward if pair[0] == agent) for agent in nearest}
    best = {
        agent: (lost[agent], other)
        for agent, other in nearest.items()
        if lost[agent] > max(STYLE_QUANTILE, lost[other]) and near.toward[agent, other].way > HALF_WAY
    }
    findings = [
        VoiceFinding(Likeness.STYLE, agent, other, z, _side_by_side(current[agent], history[other]))
        for agent, (z, other) in sorted(best.items())
    ]
    changed = set(best)
    for (a, b), pair in near.pairs.items():
        if pair.z is not None and pair.z > MERGED_QUANTILE and not changed & {a, b}:
            lines = _side_by_side(current[a], current[b])
            findings.append(VoiceFinding(Likeness.MERGED, a, b, pair.z, lines))
    return findings


def _trigrams(text: str) -> Trigrams:
    tokens = tokenize(text)
    return frozenset(zip(tokens, tokens[1:], tokens[2:], strict=False))


def _remember(earlier: dict[tuple[str, str, str], list[Said]], agent_id: str, text: str, trigrams: Trigrams) -> None:
    if len(trigrams) >= _LONG - 2:
        for trigram in trigrams:
            earlier.setdefault(trigram, []).append((agent_id, text, trigrams))


def _source(
    earlier: Mapping[tuple[str, str, str], Sequence[Said]], agent_id: str, trigrams: Trigrams
) -> tuple[str, str] | None:
    """Return who said this line first, and how; None when nobody did, or the agent itself."""
    # A line that resembles this one by more than half shares one of its rarest trigrams unless it is very unlike.
    rarest = sorted(trigrams, key=lambda gram: (len(earlier.get(gram, ())), gram))[: max(1, len(trigrams) // 2 + 1)]
    for gram in rarest:
        for other, text, theirs in earlier.get(gram, ()):
            if len(trigrams & theirs) >= _SAME_LINE * max(len(trigrams), len(theirs)):
                return None if other == agent_id else (other, text)
    return None


def _side_by_side(ours: Sequence[str], theirs: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the lines of ours most like a line of theirs, beside it."""
    ours, theirs = [text for text in ours if text.strip()][-60:], [text for text in theirs if text.strip()][-240:]
    rows = text_vectors([*ours, *theirs], VOICE)
    alike = rows[: len(ours)] @ rows[len(ours) :].T
    order = np.argsort(-alike.max(axis=1), kind="stable")[:_SHOWN]
    return tuple((ours[index], theirs[int(alike[index].argmax())]) for index in order)


def voice_statistics(
    channels: Mapping[str, Sequence[Message]], history: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, Any]]:
    """Return of each channel how near its voices have come (``voices``), ``diversity`` read off that, and ``findings``.

    Channels with too little text for numbers of their own are pooled with the agent's others. Without history there is no
    ``diversity`` here: nothing says how near the voices were.
    """
    known = _frozen(history)
    spoken = {channel: by_speaker(messages) for channel, messages in channels.items()}
    pooled = by_speaker([message for messages in channels.values() for message in messages])
    found: dict[str, dict[str, Any]] = {}
    for channel, messages in channels.items():
        enough = sum(len(texts) >= _FEWEST_MESSAGES for texts in spoken[channel].values()) > 1
        current = spoken[channel] if enough else pooled
        near = _nearness(_frozen(current), known)
        said = tuple((message.agent_id, message.text) for message in messages)
        findings = [*_clones(said, known), *find_likeness(near, current, history)]
        plain = {key: value for key, value in vars(near).items() if key not in ("pairs", "toward", "parts")}
        pairs = [{"a": a, "b": b, **vars(pair)} for (a, b), pair in near.pairs.items()]
        found[channel] = {
            "voices": {**plain, "pairs": pairs, "pooled": not enough},
            "findings": [{**vars(item), "lines": [list(lines) for lines in item.lines]} for item in findings],
        }
        if near.z is not None:
            found[channel]["diversity"] = nearness_score(near.z)
    return found


def nearness_score(z: float) -> float:
    """Return the 0-9 score of how near voices have come: 9 up to z = 1.2, 0 from z = 2.7, linear between.

    A fall of 3.33, which is 1.0 of the dimension, takes z = 1.76: at most one intact window of real dialogue in fifty.
    """
    return HIGHEST * min(1.0, max(0.0, (_MERGED - z) / (_MERGED - _DISTINCT)))


def by_speaker(messages: Sequence[Message]) -> dict[str, list[str]]:
    """Return each speaker's texts, in order."""
    spoken: dict[str, list[str]] = {}
    for message in messages:
        spoken.setdefault(message.agent_id, []).append(message.text)
    return spoken


def _frozen(voices: Voices) -> FrozenVoices:
    return tuple((name, tuple(texts)) for name, texts in sorted(voices.items()))


# Everybody in a channel asks for the same numbers, here and below.
@lru_cache(maxsize=64)
def _nearness(current: FrozenVoices, history: FrozenVoices) -> Nearness:
    return nearness(dict(current), dict(history))


@lru_cache(maxsize=64)
def _clones(said: tuple[tuple[str, str], ...], history: FrozenVoices) -> tuple[VoiceFinding, ...]:
    return tuple(find_clones(said, dict(history)))


def voice_convergence(current: Voices, references: Sequence[Voices]) -> Nearness:
    """Compare how alike agents sound in one channel and window with how alike the same agents sound in ``references``.

    References are the same agents' messages elsewhere, oldest first; all of them together are the history (``nearness``).
    """
    history: dict[str, list[str]] = {}
    for reference in references:
        for name, texts in reference.items():
            history.setdefault(name, []).extend(texts)
    return nearness(current, history)


@dataclass(frozen=True)
class VoicePoint:
    """Where an agent stands on the voice map; only distances between points mean something."""

    agent_id: str
    x: float
    y: float


def voice_similarity(agents: Voices) -> dict[tuple[str, str], float]:
    """Return the cosine similarity (0-1) of each two agents' voices, keyed by the sorted pair of names.

    Agents without text are left out.
    """
    names = _speaking(agents)
    if len(names) < 2:
        return {}
    matrix = _cosine(agents, names)
    return {(names[i], names[j]): float(matrix[i, j]) for i, j in combinations(range(len(names)), 2)}


def voice_map(agents: Voices) -> list[VoicePoint]:
    """Return the agents on a plane, near ones alike: classical scaling (Torgerson, 1952) of cosine distances.

    Deterministic: on each axis the point farthest from the middle is on the positive side. Fewer than two
    agents with text stand in the middle.
    """
    names = _speaking(agents)
    if len(names) < 2:
        return [VoicePoint(name, 0.0, 0.0) for name in names]
    squared = np.clip(2 - 2 * _cosine(agents, names), 0, None)
    centring = np.eye(len(names)) - 1 / len(names)
    values, axes = np.linalg.eigh(-0.5 * centring @ squared @ centring)
    points = axes[:, ::-1][:, :2] * np.sqrt(np.clip(values[::-1][:2], 0, None))
    for axis in range(points.shape[1]):
        column = points[:, axis]
        # Rounded, so that two points equally far out do not swap with the last bit of a platform's LAPACK.
        farthest = int(np.argmax(np.round(np.abs(column), 9)))
        if column[farthest] < 0:
            points[:, axis] = -column
    return [VoicePoint(name, float(x), float(y)) for name, (x, y) in zip(names, points, strict=True)]


def _speaking(agents: Voices) -> list[str]:
    return [name for name in sorted(agents) if any(message.strip() for message in agents[name])]


def _cosine(agents: Voices, names: Sequence[str]) -> Any:
    rows = text_vectors([f" {chr(10).join(agents[name])} " for name in names], VOICE)
    return np.clip((rows @ rows.T).astype(float), 0.0, 1.0)
