"""Learns an agent's voice from its history, and how high the sum may rise while the agent is itself."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from persona_pipeline.scoring.text.tokens import tokenize
from persona_pipeline.scoring.voice_alarm.conversations import Conversations
from persona_pipeline.scoring.voice_alarm.features import COLUMNS, hashed, weighted
from persona_pipeline.scoring.voice_alarm.model import (
    VoiceKind,
    VoiceModel,
    VoiceProvenance,
    news,
    packed,
    unpacked,
    word_scores,
)
from persona_pipeline.world.models import Message, seed_from

FEWEST_OWN, FEWEST_OTHERS = 30, 30
MOST_OWN, MOST_OTHERS = 6000, 12_000
# Share of stretches of own messages that may raise an alarm, and their length.
FALSE_ALARMS, HORIZON = 0.05, 500
# C of the regression: softer than usual, since a message is short; measured on real dialogue.
_SOFTNESS = 0.1
_FOLDS, _DRAWS, _CAP = 5, 1000, 3.0
_WORDS, _STRETCH = 150, 20


def learn_voice(
    agent_id: str, messages: Sequence[Message], *, persona_hash: str = "", false_alarms: float = FALSE_ALARMS
) -> VoiceModel | None:
    """Learn an agent's voice from messages of everybody, oldest first; None with fewer than 30 of its own.

    Its own against the others' where they said at least 30, by logistic regression; else against its own history alone, by
    Cosine Delta. The threshold comes from its own messages, each judged by a model that did not see its conversation: sequences
    of 500 are drawn conversation by conversation, and as many as ``false_alarms`` says reach it.
    """
    own = [message for message in messages if message.agent_id == agent_id and message.text.strip()][-MOST_OWN:]
    others = [message for message in messages if message.agent_id != agent_id and message.text.strip()][-MOST_OTHERS:]
    if len(own) < FEWEST_OWN:
        return None
    groups = conversations(own)
    provenance = VoiceProvenance(
        agent_id=agent_id,
        persona_hash=persona_hash,
        first_message=own[0].id,
        last_message=own[-1].id,
        until=own[-1].created_at,
        messages=len(own),
        conversations=int(groups.max()) + 1,
        others=len(others),
        false_alarms=false_alarms,
        horizon=HORIZON,
    )
    learn = _log_odds if len(others) >= FEWEST_OTHERS else _delta
    return learn(own, others, groups, provenance)


def conversations(messages: Sequence[Message]) -> Any:
    """Return a number for each message, the same within a conversation: one place, no pause of an hour."""
    talks = Conversations()
    return np.array([talks.number(message) for message in messages])


def _log_odds(
    own: Sequence[Message], others: Sequence[Message], groups: Any, provenance: VoiceProvenance
) -> VoiceModel:
    from scipy import sparse
    from sklearn.linear_model import LogisticRegression

    texts = [message.text for message in (*own, *others)]
    holders = np.zeros(COLUMNS)
    for text in texts:
        for columns, _ in hashed(text):
            holders[np.unique(columns)] += 1
    # Rounded as they will be stored, so that a model read back gives the same numbers.
    frequencies = unpacked(packed(np.log((1 + len(texts)) / (1 + holders)) + 1))
    rows = [weighted(text, frequencies) for text in texts]
    starts = np.cumsum([0, *(len(columns) for columns, _ in rows)])
    matrix = sparse.csr_array(
        (
            np.concatenate([values for _, values in rows]),
            np.concatenate([columns for columns, _ in rows]).astype(np.int32),
            starts.astype(np.int32),
        ),
        shape=(len(texts), COLUMNS),
    )
    matrix.sum_duplicates()
    is_own = np.arange(len(texts)) < len(own)
    # Others' messages need no more than even folds: the threshold does not rest on them.
    fold = np.concatenate([_folds(groups, provenance.agent_id), np.arange(len(others)) % _FOLDS])
    scores = np.zeros(len(texts))
    models = []
    for number in range(_FOLDS):
        held_out = fold == number
        fitted = LogisticRegression(C=_SOFTNESS, class_weight="balanced", solver="liblinear", random_state=0)
        fitted.fit(matrix[~held_out], is_own[~held_out])
        scores[held_out] = fitted.decision_function(matrix[held_out])
        models.append(fitted)
    # All of them together are what is held against new messages; each saw four fifths, as in the held-out scores.
    weights = np.mean([fitted.coef_[0] for fitted in models], axis=0)
    bias = float(np.mean([fitted.intercept_[0] for fitted in models]))
    mine = scores[is_own]
    reference = float(mine.mean() + scores[~is_own].mean()) / 2
    cap = max(_CAP * float(mine.std()), float(mine.mean()) - reference)
    steps = np.clip(reference - mine, -cap, cap)
    return VoiceModel(
        kind=VoiceKind.LOG_ODDS,
        reference=reference,
        cap=cap,
        # One message alone is never a change of voice, however unlike the agent.
        threshold=max(_threshold(steps, groups, provenance), 2 * (float(mine.mean()) - reference)),
        own_mean=float(mine.mean()),
        own_sd=float(mine.std()),
        provenance=provenance,
        bias=bias,
        weights=packed(weights),
        inverse_frequencies=packed(frequencies),
    )


def _delta(own: Sequence[Message], _: Sequence[Message], groups: Any, provenance: VoiceProvenance) -> VoiceModel:
    texts = [message.text for message in own]
    stretch = min(_STRETCH, len(texts) // 3)
    fold = _folds(groups, provenance.agent_id)

    def learnt(chosen: Sequence[str]) -> tuple[tuple[str, ...], Any, Any, Any]:
        stretches = [tuple(chosen[start : start + stretch]) for start in range(0, len(chosen) - stretch + 1, stretch)]
        counted: dict[str, int] = {}
        for text in chosen:
            for token in tokenize(text):
                counted[token] = counted.get(token, 0) + 1
        words = tuple(sorted(counted, key=lambda word: (-counted[word], word))[:_WORDS])
        rates = np.array([word_scores(each, words, 0.0, 1.0) for each in stretches])
        # A word's usual rate is its mean over stretches; what is the agent's own is which words it uses more than most.
        spreads = np.sqrt(rates.var(axis=0) + 1e-4 / stretch)
        means = np.full(len(words), rates.mean())
        return words, means, spreads, (rates.mean(axis=0) - means) / spreads

    base = VoiceModel(
        kind=VoiceKind.DELTA,
        reference=0,
        cap=np.inf,
        threshold=np.inf,
        own_mean=0,
        own_sd=0,
        provenance=provenance,
        stretch=stretch,
    )

    def model(chosen: Sequence[str]) -> VoiceModel:
        words, means, spreads, centre = learnt(chosen)
        update = {"words": words, "means": tuple(means), "spreads": tuple(spreads), "centre": tuple(centre)}
        return base.model_copy(update=update)

    scores = np.zeros(len(texts))
    for number in range(_FOLDS):
        held_out = np.flatnonzero(fold == number)
        kept = [text for index, text in enumerate(texts) if fold[index] != number]
        fitted = model(kept)
        for place, index in enumerate(held_out):
            latest = tuple(texts[i] for i in held_out[max(0, place - stretch + 1) : place + 1])
            scores[index] = -fitted.distance(latest)
    spread = float(scores.std())
    # Nobody else to stand half-way to: a change counts from two standard deviations below its own mean.
    reference = float(scores.mean()) - spread
    cap = _CAP * spread
    steps = np.clip(reference - scores, -cap, cap)
    return model(texts).model_copy(
        update={
            "reference": reference,
            "cap": cap,
            "own_mean": float(scores.mean()),
            "own_sd": spread,
            "threshold": max(_threshold(steps, groups, provenance), 2 * spread),
        }
    )


def _folds(groups: Any, agent_id: str) -> Any:
    count = int(groups.max()) + 1
    order = np.random.default_rng(seed_from("voice folds", agent_id)).permutation(count)
    return (order % _FOLDS)[groups] if count >= _FOLDS else np.arange(len(groups)) * _FOLDS // len(groups)


def _threshold(steps: Any, groups: Any, provenance: VoiceProvenance) -> float:
    """Return the sum that ``false_alarms`` of the drawn sequences of ``horizon`` own messages reach."""
    steps = steps * [news(place) for place in places(groups)]
    generator = np.random.default_rng(seed_from("voice threshold", provenance.agent_id))
    blocks = [steps[groups == number] for number in range(int(groups.max()) + 1)]
    most = np.zeros(_DRAWS)
    total = np.zeros(_DRAWS)
    drawn = np.array([_drawn(blocks, generator, provenance.horizon) for _ in range(_DRAWS)])
    for column in drawn.T:
        total = np.maximum(0.0, total + column)
        most = np.maximum(most, total)
    return float(np.quantile(most, 1 - provenance.false_alarms))


def places(groups: Sequence[int]) -> list[int]:
    """Return for each message the how manieth of its conversation it is, from 1."""
    counts: dict[int, int] = {}
    found = []
    for group in groups:
        counts[group] = counts.get(group, 0) + 1
        found.append(counts[group])
    return found


def _drawn(blocks: Sequence[Any], generator: Any, length: int) -> Any:
    parts: list[Any] = []
    found = 0
    while found < length:
        block = blocks[int(generator.integers(len(blocks)))]
        parts.append(block)
        found += len(block)
    return np.concatenate(parts)[:length]
