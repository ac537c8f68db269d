"""Distinct voices in a group: 30 % vocabulary, 40 % judged distinctness, 30 % disagreement; agents that use another's voice."""

import random
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import count
from typing import Any

from persona_pipeline.judging.verdict import Unscored
from persona_pipeline.scoring.plan import (
    AgentCase,
    Composed,
    DimensionPlan,
    JudgedPropositions,
    JudgingContext,
    Part,
    judged_part,
    judged_plan,
    no_evidence,
)
from persona_pipeline.scoring.results import HIGHEST, PropositionResult, algorithmic_row, weighted_mean
from persona_pipeline.scoring.style.likeness import Nearness, VoiceFinding, Voices, by_speaker, find_likeness, nearness
from persona_pipeline.scoring.text.agreement import (
    AgreementLexicon,
    agreement_ratio,
    no_lexicon,
    often_missed,
    unread_language,
)
from persona_pipeline.scoring.text.tokens import languages_of, sampled_similarity, vocabulary_stats
from persona_pipeline.world.models import Entry, Message, Omission, Trajectory, message_entry, seed_from, windowed
from persona_pipeline.world.propositions.models import CONVERGENCE, PropositionSet

# A channel needs this many messages of two speakers for separate statistics.
_FEWEST_MESSAGES = 5
_DISTINCT, _MERGED = 1.2, 2.7

FrozenVoices = tuple[tuple[str, tuple[str, ...]], ...]


def plan_convergence(case: AgentCase, propositions: PropositionSet) -> DimensionPlan:
    """Plan convergence: the mean over the agent's channels with another speaker, weighted by its messages there."""
    channels = case.group_channels()
    if not channels:
        alone = {"findings": found} if (found := as_statistics(case.alike, case.names)) else {}
        return no_evidence(case, propositions, "nobody else spoke in the agent's channels", alone)
    weights = {channel: case.own_count(messages) for channel, messages in channels.items()}
    contexts = [
        _context(case, channel, messages, propositions, weights[channel]) for channel, messages in channels.items()
    ]

    def composed(judged: JudgedPropositions) -> Composed:
        voices = voice_statistics(channels, case.history, case.names)
        by_channel = {
            channel: channel_statistics(tuple(messages), case.lexicon) | voices[channel]
            for channel, messages in channels.items()
        }
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
        vocabulary_of = vars(vocabulary_stats(own)) if own else {}
        alike = as_statistics(case.alike, case.names)
        statistics = {"channels": by_channel, "findings": alike, "vocabulary": vocabulary_of}
        return [vocabulary, agreement], parts, statistics

    # This dimension is judged without the persona, even if the file includes it.
    return judged_plan(case, propositions, contexts, composed)


# All agents of a channel need the same numbers, here and below.
@lru_cache(maxsize=64)
def channel_statistics(messages: tuple[Message, ...], lexicon: AgreementLexicon | None) -> dict[str, Any]:
    """Return a channel's mean pairwise vocabulary Jaccard (0-1), agreement ratio (0-1), and both as scores 0-9.

    ``languages``: of the channel. If one has no lexicon, ``unread_language`` names it and the agreement ratio is missing.
    """
    spoken = by_speaker(messages)
    similarity = sampled_similarity(spoken) or 0.0
    texts = [message.text for message in messages]
    agreed: dict[str, Any] = {"unread_language": unread_language(texts, lexicon)}
    if agreed["unread_language"] is None:
        agreement = agreement_ratio(texts, lexicon)
        agreed = {"agreement_ratio": agreement, "disagreement": HIGHEST * (1 - agreement)}
    return {
        "speakers": len(spoken),
        "messages": len(messages),
        "languages": languages_of(texts),
        "vocabulary_similarity": similarity,
        "diversity": HIGHEST * (1 - similarity),
        **agreed,
    }


def voice_statistics(
    channels: Mapping[str, Sequence[Message]],
    history: Mapping[str, Sequence[str]],
    names: Mapping[str, str] | None = None,
) -> dict[str, dict[str, Any]]:
    """Return for each channel the nearness of its voices (``voices``), the ``diversity`` score of it, and style ``findings``.

    Channels with too little text for separate statistics are pooled with the agent's others. Without history ``diversity`` is
    missing, because the earlier nearness is unknown.
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


def as_statistics(findings: Iterable[VoiceFinding], names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return findings as plain JSON, with the names of both agents."""
    return [
        {
            **vars(item),
            "lines": [*map(list, item.lines)],
            "names": {a: names.get(a, a) for a in (item.agent_id, item.other)},
        }
        for item in findings
    ]


def nearness_score(z: float) -> float:
    """Return the 0-9 score of the nearness of voices: 9 up to z = 1.2, 0 from z = 2.7, linear between.

    A drop of 3.33, which is 1.0 of the dimension, needs z = 1.76: at most one in fifty intact windows of real dialogue reach it.
    """
    return HIGHEST * min(1.0, max(0.0, (_MERGED - z) / (_MERGED - _DISTINCT)))


def _frozen(voices: Voices) -> FrozenVoices:
    return tuple((name, tuple(texts)) for name, texts in sorted(voices.items()))


# All agents of a channel need the same numbers.
@lru_cache(maxsize=64)
def _nearness(current: FrozenVoices, history: FrozenVoices) -> Nearness:
    return nearness(dict(current), dict(history))


def anonymous_labels(messages: Sequence[Message], seed: int) -> dict[str, str]:
    """Return a label (``Speaker A``, ...) for every speaker, assigned by seed."""
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
    # The seed depends on the channel, not the agent: all its agents are judged on one transcript, cached once.
    seed = seed_from("convergence", channel, *(message.id for message in messages))
    labels = anonymous_labels(messages, seed)
    shown = windowed([message_entry(m, labels[m.agent_id]) for m in messages], *propositions.window())
    entries: list[Entry] = list(shown.entries)
    random.Random(seed + 1).shuffle(entries)
    omitted = tuple(item for item in shown.items if isinstance(item, Omission))
    variables = {"agent_name": labels[case.agent_id], "channel_name": channel}
    return JudgingContext(Trajectory((*entries, *omitted)), variables, part=channel, weight=float(weight))


def _row(
    row_id: str, claim: str, by_channel: Mapping[str, Mapping[str, Any]], weights: Mapping[str, int], name: str
) -> PropositionResult:
    read = {channel: values for channel, values in by_channel.items() if name in values}
    unread = sorted({no_lexicon(values["unread_language"]) for values in by_channel.values() if name not in values})
    if not read:
        return algorithmic_row(row_id, claim, None, "; ".join(unread), Unscored.NOT_APPLICABLE)
    score = weighted_mean((values[name], float(weights[channel])) for channel, values in read.items())
    ratio = {"diversity": "vocabulary_similarity", "disagreement": "agreement_ratio"}[name]
    shown = ", ".join([*(f"#{channel} {values[ratio]:.2f}" for channel, values in read.items()), *unread])
    reasoning = f"{ratio.replace('_', ' ')}: {shown}"
    if name == "disagreement":
        languages = sorted({language for values in read.values() for language in values["languages"]})
        reasoning = "; ".join([reasoning, *often_missed(languages)])
    z = {channel: values.get("voices", {}).get("z") for channel, values in by_channel.items()}
    if name == "diversity" and any(value is not None for value in z.values()):
        nearer = ", ".join(f"#{channel} {value:+.1f}" for channel, value in z.items() if value is not None)
        reasoning = f"nearer than before, in standard deviations: {nearer}; {reasoning}"
    return algorithmic_row(row_id, claim, score, reasoning)
