"""What is known of an agent's voice: weights, reference and threshold, and what they were learnt from. Plain JSON."""

import base64
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from persona_pipeline.scoring.text.tokens import tokenize
from persona_pipeline.scoring.voice_alarm.features import weighted

# Of two messages of one conversation; measured on real dialogue.
_CORRELATION = 0.03


class VoiceKind(StrEnum):
    """How a voice is told: against other agents' voices, or, where there are none, against its own history alone."""

    LOG_ODDS = "log_odds"
    DELTA = "cosine_delta"


class VoiceProvenance(BaseModel):
    """What a voice was learnt from.

    Attributes:
        persona_hash: of the persona it belongs to; another persona is another voice.
        first_message, last_message: ids of the agent's own messages; until: when the last was sent.
        messages, conversations: of the agent's own; others: messages of other agents.
        false_alarms, horizon: share (0-1) of stretches of ``horizon`` own messages that raise an alarm.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    agent_id: str
    persona_hash: str
    first_message: str
    last_message: str
    until: datetime
    messages: int
    conversations: int
    others: int
    false_alarms: float
    horizon: int
    version: int = 1


class VoiceModel(BaseModel):
    """A voice that messages can be held against.

    Attributes:
        reference: the log-odds half-way between the agent's own messages and the others'; a message below it speaks for a change.
        cap: most that one message may add to the sum, or take from it.
        threshold: the sum from which there is an alarm.
        own_mean, own_sd: of the log-odds of held-out own messages.
        weights, inverse_frequencies: base64 of 16-bit floats by column (``log_odds``).
        words, means, spreads, centre: of ``cosine_delta``: the agent's commonest words, how often each is used in stretches of
            ``stretch`` messages, and the mean of their z-scores.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: VoiceKind
    reference: float
    cap: float
    threshold: float
    own_mean: float
    own_sd: float
    provenance: VoiceProvenance
    bias: float = 0.0
    weights: str = ""
    inverse_frequencies: str = ""
    words: tuple[str, ...] = ()
    means: tuple[float, ...] = ()
    spreads: tuple[float, ...] = ()
    centre: tuple[float, ...] = ()
    stretch: int = 1

    def log_odds(self, text: str) -> float:
        """Return how much more a message is the agent's own than anybody else's."""
        weights, frequencies = self._arrays
        columns, values = weighted(text, frequencies)
        return float(weights[columns] @ values) + self.bias

    def step(self, texts: tuple[str, ...], place: int = 1) -> float:
        """Return what the newest message of ``texts`` (its last ``stretch``, oldest first) adds to the sum.

        ``place``: the how manieth of its conversation it is (``news``).
        """
        score = self.log_odds(texts[-1]) if self.kind is VoiceKind.LOG_ODDS else -self.distance(texts)
        return min(self.cap, max(-self.cap, self.reference - score)) * news(place)

    def distance(self, texts: tuple[str, ...]) -> float:
        """Return 1 - the cosine of a stretch's word z-scores with the agent's own, 0-2 (Cosine Delta: Smith and Aldridge, 2011)."""
        scores = word_scores(texts, self.words, np.array(self.means), np.array(self.spreads))
        centre = np.array(self.centre)
        lengths = float(np.linalg.norm(scores) * np.linalg.norm(centre))
        return 1 - float(scores @ centre) / lengths if lengths else 1.0

    @cached_property
    def _arrays(self) -> tuple[Any, Any]:
        return unpacked(self.weights), unpacked(self.inverse_frequencies)


def news(place: int) -> float:
    """Return how much the message at a place (from 1) of a conversation adds to what those before it said of the voice, 0-1.

    Messages of one conversation share its subject and mood, so that n of them count as n / (1 + (n - 1) r), with r = 0.03.
    """

    def worth(count: int) -> float:
        return count / (1 + (count - 1) * _CORRELATION)

    return worth(place) - worth(place - 1)


def word_scores(texts: tuple[str, ...], words: tuple[str, ...], means: Any, spreads: Any) -> Any:
    """Return how unusually often each word stands in some texts, in standard deviations."""
    tokens = [token for text in texts for token in tokenize(text)]
    places = {word: place for place, word in enumerate(words)}
    counts = np.zeros(len(words))
    for token in tokens:
        if token in places:
            counts[places[token]] += 1
    return (counts / max(len(tokens), 1) - means) / spreads


def packed(values: Any) -> str:
    """Return an array as base64 of little-endian 16-bit floats."""
    return base64.b64encode(np.asarray(values, dtype="<f2").tobytes()).decode("ascii")


def unpacked(text: str) -> Any:
    """Return the array of ``packed``."""
    return np.frombuffer(base64.b64decode(text), dtype="<f2").astype(float)
