"""A made-up world of messages in order of time to measure on: short answers in short conversations with customers.

It is made of invented words, each agent with its own: how often it uses which common words, what it talks about, how long and how
it writes. A conversation has a subject of its own and is more or less wordy, and that drifts slowly.
"""

from datetime import UTC, datetime, timedelta

import numpy as np

from persona_pipeline.world.models import Message

FIRST_DAY = datetime(2026, 1, 5, 9, tzinfo=UTC)
Generator = np.random.Generator


ONSETS = ("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "st", "tr")
SYLLABLES = [onset + vowel + end for onset in ONSETS for vowel in "aeiou" for end in ("", "n", "r", "l")]
COMMON, TOPICS, TOPIC_WORDS, OWN_WORDS = 400, 40, 60, 120


# Words of a message, and messages of the agent in a conversation.
WORDS, MESSAGES = 12, 8


def _words(generator: Generator, count: int) -> np.ndarray:
    return np.array(
        ["".join(generator.choice(SYLLABLES, generator.integers(1, 4))) for _ in range(count)], dtype=object
    )


def _zipf(generator: Generator, count: int, spread: float) -> np.ndarray:
    weights = (1 / (np.arange(count) + 2)) * np.exp(spread * generator.standard_normal(count))
    return weights / weights.sum()


class _Voice:
    def __init__(self, generator: Generator, common: np.ndarray) -> None:
        self.generator, self.common = generator, common
        self.rates, self.own = _zipf(generator, len(common), 0.7), _words(generator, OWN_WORDS)
        self.own_rates = _zipf(generator, OWN_WORDS, 0.5)
        self.length = WORDS * float(np.exp(0.3 * generator.standard_normal()))
        self.capital, self.mark, self.comma = generator.random(3) * (0.9, 0.5, 0.1) + (0.1, 0.02, 0.02)
        # See below.
        for _ in range(12):
            generator.choice(common, generator.integers(3, 8))
        _zipf(generator, 12, 0.3)

    def message(self, topic: np.ndarray, topic_rates: np.ndarray, wordy: float, mood: float) -> str:
        g = self.generator
        count = 1 + g.poisson(self.length * wordy * np.exp(0.4 * g.standard_normal()))
        kinds = g.random(count)
        words = np.where(
            kinds < 0.65,
            g.choice(self.common, count, p=self.rates),
            np.where(kinds < 0.9, g.choice(topic, count, p=topic_rates), g.choice(self.own, count, p=self.own_rates)),
        )
        text = " ".join(
            f"{word}," if odd < self.comma else word for word, odd in zip(words, g.random(count), strict=True)
        )
        text += "!" if g.random() < self.mark * mood else "."
        # Draws of what other worlds had, so that this one stays what was measured.
        g.random(2)
        return text[:1].upper() + text[1:] if g.random() < self.capital else text


def made(seed: int, own: int, others: int = 3) -> list[Message]:
    """Return a world of some agents until the first, ``ann``, has said so much."""
    g = np.random.default_rng(seed)
    common = _words(g, COMMON)
    topics = [_words(g, TOPIC_WORDS) for _ in range(TOPICS)]
    names = ["ann", *(f"other{n}" for n in range(others))]
    voices = {name: _Voice(g, common) for name in names}
    said: list[Message] = []
    at, drift, conversation, count = FIRST_DAY, 0.0, 0, 0
    while count < own:
        drift = 0.95 * drift + 0.05 * g.standard_normal()
        conversation += 1
        at += timedelta(hours=float(3 + g.exponential(6)))
        topic, rates = topics[int(g.zipf(1.3)) % TOPICS], _zipf(g, TOPIC_WORDS, 1.0)
        wordy, mood = float(np.exp(drift + 0.25 * g.standard_normal())), float(np.exp(0.3 * g.standard_normal()))
        speakers = ["ann", names[1 + int(g.integers(others))]]
        for turn in range(2 * max(1, int(g.poisson(MESSAGES)))):
            name = speakers[turn % 2]
            at += timedelta(minutes=float(g.exponential(2)))
            text = voices[name].message(topic, rates, wordy, mood)
            said.append(Message(f"m{len(said)}", name, text, at, f"c{conversation}"))
            count += name == "ann"
    return said
