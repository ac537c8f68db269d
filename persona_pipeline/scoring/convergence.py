"""Distinct voices in a group: 30 % vocabulary, 40 % judged distinctness, 30 % disagreement; and who took another's voice."""

import random
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import count
from statistics import fmean
from typing import Any

import numpy as np

from persona_pipeline.judging.verdict import Unscored, Verdict
from persona_pipeline.scoring.judged import JudgingContext, plan_judgments
from persona_pipeline.scoring.plan import (
    AgentCase,
    DimensionPlan,
    Part,
    algorithmic_row,
    evaluation,
    judged_part,
    no_evidence,
)
from persona_pipeline.scoring.results import HIGHEST, DimensionEvaluation, PropositionResult, weighted_mean
from persona_pipeline.scoring.text.agreement import AgreementLexicon, agreement_ratio, no_lexicon, unread_language
from persona_pipeline.scoring.text.nearness import Nearness, nearness
from persona_pipeline.scoring.text.tokens import sampled_similarity, tokenize, vocabulary_stats
from persona_pipeline.scoring.text.voices import VOICE, Voices, text_vectors
from persona_pipeline.world.models import Entry, Message, Omission, Trajectory, message_entry, seed_from, windowed
from persona_pipeline.world.propositions.dimensions import CONVERGENCE
from persona_pipeline.world.propositions.models import EVALUATION_WINDOW_DEFAULTS, PropositionSet

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


# Fewer messages of a second speaker leave a channel without numbers of its own.
_FEWEST_MESSAGES = 5
_DISTINCT, _MERGED = 1.2, 2.7


def plan_convergence(case: AgentCase, propositions: PropositionSet) -> DimensionPlan:
    """Plan convergence: the mean over the agent's channels with another speaker, weighted by its messages there."""
    channels = case.group_channels()
    if not channels:
        return no_evidence("convergence", propositions, "nobody else spoke in the agent's channels")
    weights = {channel: case.own_count(messages) for channel, messages in channels.items()}
    contexts = [
        _context(case, channel, messages, propositions, weights[channel]) for channel, messages in channels.items()
    ]
    # Whatever the file says: this dimension is judged without the persona.
    plan = plan_judgments(propositions, contexts, agent_id=case.agent_id, samples=case.samples_of(propositions))

    def finish(verdicts: Sequence[Verdict]) -> DimensionEvaluation:
        judged = plan.collect(verdicts)
        by_channel = {channel: channel_statistics(messages, case.lexicon) for channel, messages in channels.items()}
        for channel, found in voice_statistics(channels, case.earlier_texts()).items():
            by_channel[channel] |= found
        vocabulary = _row("_vocabulary", "The speakers use words of their own", by_channel, weights, "diversity")
        agreement = _row("_agreement", "The speakers do not just agree", by_channel, weights, "disagreement")
        parts = [
            Part(vocabulary.score, CONVERGENCE.parts["_vocabulary"]),
            judged_part(judged, CONVERGENCE.judged_weight),
            Part(agreement.score, CONVERGENCE.parts["_agreement"]),
        ]
        own = [
            message.text for messages in channels.values() for message in messages if message.agent_id == case.agent_id
        ]
        statistics = {"channels": by_channel, "vocabulary": vars(vocabulary_stats(own)) if own else {}}
        return evaluation("convergence", judged, [vocabulary, agreement], parts, statistics, propositions)

    return DimensionPlan(plan.requests, finish)


def channel_statistics(messages: Sequence[Message], lexicon: AgreementLexicon | None = None) -> dict[str, Any]:
    """Return a channel's mean pairwise vocabulary Jaccard (0-1), agreement ratio (0-1), and both as scores 0-9.

    Without a lexicon of its language there is no agreement ratio: ``unread_language`` names it.
    """
    return dict(_channel_statistics(tuple((message.agent_id, message.text) for message in messages), lexicon))


@lru_cache(maxsize=64)
def _channel_statistics(messages: tuple[tuple[str, str], ...], lexicon: AgreementLexicon | None) -> dict[str, Any]:
    # Everybody in a channel asks for the same numbers, here and below.
    spoken: dict[str, list[str]] = {}
    for agent_id, text in messages:
        spoken.setdefault(agent_id, []).append(text)
    similarity = sampled_similarity(spoken) or 0.0
    texts = [text for _, text in messages]
    agreed: dict[str, Any] = {"unread_language": unread_language(texts, lexicon)}
    if agreed["unread_language"] is None:
        agreement = agreement_ratio(texts, lexicon)
        agreed = {"agreement_ratio": agreement, "disagreement": HIGHEST * (1 - agreement)}
    return {
        "speakers": len(spoken),
        "messages": len(messages),
        "vocabulary_similarity": similarity,
        "diversity": HIGHEST * (1 - similarity),
        **agreed,
    }


def voice_statistics(
    channels: Mapping[str, Sequence[Message]], history: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, Any]]:
    """Return of each channel how near its voices have come (``voices``), ``diversity`` read off that, and ``findings``.

    Channels with too little text for numbers of their own are pooled with the agent's others. Without history there is no
    ``diversity`` here: nothing says how near the voices were.
    """
    known = tuple((name, tuple(texts)) for name, texts in sorted(history.items()))
    spoken = {channel: by_speaker(messages) for channel, messages in channels.items()}
    pooled = by_speaker([message for messages in channels.values() for message in messages])
    found: dict[str, dict[str, Any]] = {}
    for channel, messages in channels.items():
        enough = sum(len(texts) >= _FEWEST_MESSAGES for texts in spoken[channel].values()) > 1
        current = spoken[channel] if enough else pooled
        near = _nearness(tuple((name, tuple(texts)) for name, texts in sorted(current.items())), known)
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


@lru_cache(maxsize=64)
def _nearness(
    current: tuple[tuple[str, tuple[str, ...]], ...], history: tuple[tuple[str, tuple[str, ...]], ...]
) -> Nearness:
    return nearness(dict(current), dict(history))


@lru_cache(maxsize=64)
def _clones(
    said: tuple[tuple[str, str], ...], history: tuple[tuple[str, tuple[str, ...]], ...]
) -> tuple[VoiceFinding, ...]:
    return tuple(find_clones(said, dict(history)))


def anonymous_labels(messages: Sequence[Message], seed: int) -> dict[str, str]:
    """Return a label (``Speaker A``, ...) for every speaker, dealt by seed."""
    speakers = sorted({message.agent_id for message in messages})
    random.Random(seed).shuffle(speakers)
    return {speaker: f"Speaker {letter}" for speaker, letter in zip(speakers, _letters(), strict=False)}


def _letters() -> Iterator[str]:
    yield from string.ascii_uppercase
    for number in count(1):
        yield from (f"{letter}{number}" for letter in string.ascii_uppercase)


def _context(
    case: AgentCase, channel: str, messages: Sequence[Message], propositions: PropositionSet, weight: int
) -> JudgingContext:
    # The seed knows the channel, not the agent: everybody in it is judged on the same transcript, cached once.
    seed = seed_from("convergence", channel, *(message.id for message in messages))
    labels = anonymous_labels(messages, seed)
    first_n, last_n = propositions.window(EVALUATION_WINDOW_DEFAULTS)
    shown = windowed([message_entry(m, labels[m.agent_id]) for m in messages], first_n, last_n)
    entries: list[Entry] = list(shown.entries)
    random.Random(seed + 1).shuffle(entries)
    omitted = tuple(item for item in shown.items if isinstance(item, Omission))
    variables = {"agent_name": labels[case.agent_id], "channel_name": channel}
    return JudgingContext(Trajectory((*entries, *omitted)), variables, part=channel, weight=float(weight))


def _row(
    row_id: str,
    claim: str,
    by_channel: Mapping[str, Mapping[str, Any]],
    weights: Mapping[str, int],
    name: str,
) -> PropositionResult:
    read = {channel: values for channel, values in by_channel.items() if name in values}
    unread = sorted({no_lexicon(values["unread_language"]) for values in by_channel.values() if name not in values})
    if not read:
        return algorithmic_row(row_id, claim, None, "; ".join(unread), Unscored.NOT_APPLICABLE)
    score = weighted_mean((values[name], float(weights[channel])) for channel, values in read.items())
    ratio = {"diversity": "vocabulary_similarity", "disagreement": "agreement_ratio"}[name]
    shown = ", ".join([*(f"#{channel} {values[ratio]:.2f}" for channel, values in read.items()), *unread])
    reasoning = f"{ratio.replace('_', ' ')}: {shown}"
    z = {channel: values.get("voices", {}).get("z") for channel, values in by_channel.items()}
    if name == "diversity" and any(value is not None for value in z.values()):
        nearer = ", ".join(f"#{channel} {value:+.1f}" for channel, value in z.items() if value is not None)
        reasoning = f"nearer than before, in standard deviations: {nearer}; {reasoning}"
    return algorithmic_row(row_id, claim, score, reasoning)
