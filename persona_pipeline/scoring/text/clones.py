"""Agents that speak like another: its very lines, its style, or two that have come together; with lines side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

import numpy as np

from persona_pipeline.scoring.text.nearness import Nearness
from persona_pipeline.scoring.text.tokens import tokenize
from persona_pipeline.scoring.text.voices import VOICE, Voices, text_vectors

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

Trigrams = frozenset[tuple[str, str, str]]


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
    earlier: dict[tuple[str, str, str], list[tuple[str, str, Trigrams]]] = {}
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


def _remember(
    earlier: dict[tuple[str, str, str], list[tuple[str, str, Trigrams]]], agent_id: str, text: str, trigrams: Trigrams
) -> None:
    if len(trigrams) >= _LONG - 2:
        for trigram in trigrams:
            earlier.setdefault(trigram, []).append((agent_id, text, trigrams))


def _source(
    earlier: Mapping[tuple[str, str, str], Sequence[tuple[str, str, Trigrams]]], agent_id: str, trigrams: Trigrams
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
