"""Convergence: do agents keep distinct voices in a group? 30 % vocabulary, 40 % judged distinctness, 30 % disagreement."""

import random
import string
from collections.abc import Mapping, Sequence
from itertools import count
from statistics import fmean

from persona_pipeline.judging.verdict import Verdict
from persona_pipeline.propositions.models import EVALUATION_WINDOW_DEFAULTS, PropositionSet
from persona_pipeline.scoring.aggregate import HIGHEST, weighted_mean
from persona_pipeline.scoring.case import AgentCase
from persona_pipeline.scoring.judged import JudgingContext, plan_judgments
from persona_pipeline.scoring.plan import DimensionPlan, Part, algorithmic_row, evaluation, judged_part, no_evidence
from persona_pipeline.scoring.results import DimensionEvaluation, PropositionResult
from persona_pipeline.scoring.text.agreement import agreement_ratio
from persona_pipeline.scoring.text.vocabulary import pairwise_similarity, vocabulary_stats
from persona_pipeline.world.models import Message, seed_from
from persona_pipeline.world.trajectory import Entry, Omission, Trajectory, message_entry, windowed

VOCABULARY_WEIGHT, DISTINCTNESS_WEIGHT, AGREEMENT_WEIGHT = 0.3, 0.4, 0.3


def plan_convergence(case: AgentCase, propositions: PropositionSet) -> DimensionPlan:
    """Plan convergence: the mean over the agent's channels with another speaker, weighted by its messages there."""
    channels = case.group_channels()
    if not channels:
        return no_evidence("convergence", propositions, "nobody else spoke in the agent's channels")
    weights = {channel: case.own_count(messages) for channel, messages in channels.items()}
    contexts = [
        _context(case, channel, messages, propositions, weights[channel]) for channel, messages in channels.items()
    ]
    plan = plan_judgments(
        propositions, contexts, agent_id=case.agent_id, persona=case.persona, samples=case.samples
    )

    def finish(verdicts: Sequence[Verdict]) -> DimensionEvaluation:
        judged = plan.collect(verdicts)
        by_channel = {channel: channel_statistics(messages) for channel, messages in channels.items()}
        vocabulary = _row("_vocabulary", "The speakers use words of their own", by_channel, weights, "diversity")
        agreement = _row("_agreement", "The speakers do not just agree", by_channel, weights, "disagreement")
        parts = [
            Part(vocabulary.score, VOCABULARY_WEIGHT),
            judged_part(judged, DISTINCTNESS_WEIGHT),
            Part(agreement.score, AGREEMENT_WEIGHT),
        ]
        own = [message.text for messages in channels.values() for message in messages if message.agent_id == case.agent_id]
        statistics = {"channels": by_channel, "vocabulary": vars(vocabulary_stats(own)) if own else {}}
        return evaluation("convergence", judged, [vocabulary, agreement], parts, statistics, propositions)

    return DimensionPlan(plan.requests, finish)


def channel_statistics(messages: Sequence[Message]) -> dict[str, float]:
    """Return a channel's mean pairwise vocabulary Jaccard (0-1), agreement ratio (0-1), and both as scores 0-9."""
    spoken: dict[str, list[str]] = {}
    for message in messages:
        spoken.setdefault(message.agent_id, []).append(message.text)
    similarity = fmean(pairwise_similarity(spoken).values())
    agreement = agreement_ratio([message.text for message in messages])
    return {
        "speakers": len(spoken),
        "messages": len(messages),
        "vocabulary_similarity": similarity,
        "agreement_ratio": agreement,
        "diversity": HIGHEST * (1 - similarity),
        "disagreement": HIGHEST * (1 - agreement),
    }


def anonymous_labels(messages: Sequence[Message], seed: int) -> dict[str, str]:
    """Return a label (``Speaker A``, ...) for every speaker, dealt by seed."""
    speakers = sorted({message.agent_id for message in messages})
    random.Random(seed).shuffle(speakers)
    return {speaker: f"Speaker {letter}" for speaker, letter in zip(speakers, _letters(), strict=False)}


def _letters():  # noqa: ANN202
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
    by_channel: Mapping[str, Mapping[str, float]],
    weights: Mapping[str, int],
    name: str,
) -> PropositionResult:
    score = weighted_mean((values[name], float(weights[channel])) for channel, values in by_channel.items())
    ratio = {"diversity": "vocabulary_similarity", "disagreement": "agreement_ratio"}[name]
    shown = ", ".join(f"#{channel} {values[ratio]:.2f}" for channel, values in by_channel.items())
    return algorithmic_row(row_id, claim, score, f"{ratio.replace('_', ' ')}: {shown}")
