"""What is known of an agent's voice: weights, reference and threshold, and what they were learnt from. Plain JSON."""

import base64
import itertools
import zlib
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Any, Literal

import numpy as np
import regex
from pydantic import BaseModel, ConfigDict

from persona_pipeline.scoring.text.tokens import tokenize
from persona_pipeline.scoring.text.voices import VOICE, grams, worth

# Half of them for characters, half for words.
COLUMNS = 1 << 16
_HALF = COLUMNS >> 1
_WORD = regex.compile(r"\w+|[^\w\s]+")


def hashed(text: str) -> list[tuple[Any, Any]]:
    """Return, of cased character 2-4-grams and of words and pairs of words, columns and 1 + ln of how often each stands there."""
    words = [word.lower() for word in _WORD.findall(text)]
    pairs = [f"{first} {second}" for first, second in itertools.pairwise(words)]
    return [_columns(Counter(grams(text, VOICE)), 0), _columns(Counter([*words, *pairs]), _HALF)]


def _columns(found: Counter[str], first: int) -> tuple[Any, Any]:
    marks = (zlib.crc32(gram.encode("utf-8", "surrogatepass")) for gram in found)
    columns = np.fromiter(marks, dtype=np.int64, count=len(found)) % _HALF + first
    return columns, 1 + np.log(np.fromiter(found.values(), dtype=float, count=len(found)))


def weighted(found: Sequence[tuple[Any, Any]], inverse_frequencies: Any) -> tuple[Any, Any]:
    """Return columns and values of the vector of a ``hashed`` message: characters and words each of length 1 before columns are
    added up."""
    parts = []
    for columns, values in found:
        values = values * inverse_frequencies[columns]
        length = float(np.linalg.norm(values))
        parts.append((columns, values / length if length else values))
    return np.concatenate([columns for columns, _ in parts]), np.concatenate([values for _, values in parts])


# The largest share of the threshold that one message adds.
_MOST_OF_THRESHOLD = 0.6


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
        examples: how many of its own it never said: its character card has them as examples.
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
    examples: int = 0
    version: Literal[2] = 2


class VoiceSide(BaseModel):
    """One of those whose voice might be taken for the agent's, and what a message says for it.

    Attributes:
        other: who; empty: anybody else, or, of an agent alone, not itself.
        reference: the difference of scores (own - other) below which a message speaks for a change.
        scale: from that difference to the log-odds that are added to the sum.
        cap: most that one message may add to the sum, or take from it.
        usual: mean of what the agent's own messages add (below 0).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    other: str
    reference: float
    scale: float
    cap: float
    usual: float

    def step(self, difference: float) -> float:
        """Return what a message with this difference of scores adds to the sum."""
        return min(self.cap, max(-self.cap, self.scale * (self.reference - difference)))


class VoiceModel(BaseModel):
    """A voice that messages can be held against.

    Attributes:
        threshold: the sum from which there is an alarm, whichever side's.
        sides: the other voices; each has a sum of its own.
        weights: base64 of 16-bit floats, sides x columns: own less the other's (``log_odds``); inverse_frequencies: by column.
        words, means, spreads, centre: of ``cosine_delta``: the agent's commonest words, how often each is used in stretches of
            ``stretch`` messages, and the mean of their z-scores.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: VoiceKind
    threshold: float
    sides: tuple[VoiceSide, ...]
    provenance: VoiceProvenance
    weights: str = ""
    inverse_frequencies: str = ""
    words: tuple[str, ...] = ()
    means: tuple[float, ...] = ()
    spreads: tuple[float, ...] = ()
    centre: tuple[float, ...] = ()
    stretch: int = 1

    def differences(self, text: str) -> Any:
        """Return how much more a message is the agent's own than each side's."""
        weights, frequencies = self._arrays
        columns, values = weighted(hashed(text), frequencies)
        return worth(text) * (weights[:, columns] @ values)

    def steps(self, texts: tuple[str, ...]) -> Any:
        """Return what the newest message of ``texts`` (its last ``stretch``, oldest first) adds to the sum of each side."""
        found = self.differences(texts[-1]) if self.kind is VoiceKind.LOG_ODDS else [-self.distance(texts)]
        steps = [side.step(float(value)) for side, value in zip(self.sides, found, strict=True)]
        # One message alone is never a change of voice, however unlike the agent.
        return np.minimum(steps, self.threshold * _MOST_OF_THRESHOLD)

    def distance(self, texts: tuple[str, ...]) -> float:
        """Return 1 - the cosine of a stretch's word z-scores with the agent's own, 0-2 (Cosine Delta: Smith and Aldridge, 2011)."""
        scores = word_scores(texts, self.words, np.array(self.means), np.array(self.spreads))
        centre = np.array(self.centre)
        lengths = float(np.linalg.norm(scores) * np.linalg.norm(centre))
        return 1 - float(scores @ centre) / lengths if lengths else 1.0

    @cached_property
    def _arrays(self) -> tuple[Any, Any]:
        return unpacked(self.weights).reshape(len(self.sides), -1), unpacked(self.inverse_frequencies)


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
    """Return an array as base64 of little-endian 16-bit floats, deflated."""
    return base64.b64encode(zlib.compress(np.asarray(values, dtype="<f2").tobytes(), 1)).decode("ascii")


def unpacked(text: str) -> Any:
    """Return the array of ``packed``, flat."""
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype="<f2").astype(np.float32)
