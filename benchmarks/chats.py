"""Messages in order of time to measure on: a television series, strangers who chat, and three worlds that are made up.

``series`` is benchmarks/dialogue.py. ``chat`` are 7,168 conversations of people who chatted with changing strangers, in the wheel
of chitchat-dataset 0.9.0 (MIT), downloaded when a benchmark runs; nothing of it is kept in the project.

The others are made of invented words, each agent with its own: how often it uses which common words, what it talks about, how long
and how it writes. A conversation has a subject of its own and is more or less wordy, and that drifts slowly. ``tickets``: short
answers in short conversations with customers. ``tutor``: long ones that begin and end with stock phrases, as assistants do.
``play``: long conversations in which every message begins with what the character does.
"""

import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import dialogue
import numpy as np

from persona_pipeline.world.models import Message

PACKAGE = "chitchat-dataset==0.9.0"
FIRST_DAY = datetime(2026, 1, 5, 9, tzinfo=UTC)
Generator = np.random.Generator


@cache
def chat() -> tuple[Message, ...]:
    """Return what people said to strangers, in order of time."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--no-deps", "--quiet", "--disable-pip-version-check", "--dest", folder]
        subprocess.run([sys.executable, "-m", "pip", "download", *options, PACKAGE], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as opened:
            talks = json.loads(opened.read("chitchat_dataset/dataset.json"))
    said = [
        Message(f"{name}-{turn}-{n}", item["sender"], item["text"], datetime.fromisoformat(item["timestamp"]), name)
        for name, talk in talks.items()
        for turn, items in enumerate(talk["messages"])
        for n, item in enumerate(items)
        if item["text"].strip()
    ]
    return tuple(sorted(said, key=lambda message: (message.created_at, message.id)))


@cache
def series() -> tuple[Message, ...]:
    """Return the lines of the twelve who say most."""
    chosen = [line for line in dialogue.lines() if line.speaker in dialogue.speakers() and line.text.strip()]
    return tuple(dialogue.as_messages(chosen))


ONSETS = ("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "st", "tr")
SYLLABLES = [onset + vowel + end for onset in ONSETS for vowel in "aeiou" for end in ("", "n", "r", "l")]
COMMON, TOPICS, TOPIC_WORDS, OWN_WORDS = 400, 40, 60, 120


@dataclass(frozen=True)
class Genre:
    """How agents of a made-up world write: words a message, messages of the agent a conversation, stock phrases, frames."""

    words: float
    messages: int
    stock: float = 0.0
    frames: float = 0.0


GENRES: Mapping[str, Genre] = {
    "tickets": Genre(words=12, messages=8),
    "tutor": Genre(words=70, messages=15, stock=0.8),
    "play": Genre(words=30, messages=60, frames=0.9),
}


def _words(generator: Generator, count: int) -> np.ndarray:
    return np.array(
        ["".join(generator.choice(SYLLABLES, generator.integers(1, 4))) for _ in range(count)], dtype=object
    )


def _zipf(generator: Generator, count: int, spread: float) -> np.ndarray:
    weights = (1 / (np.arange(count) + 2)) * np.exp(spread * generator.standard_normal(count))
    return weights / weights.sum()


class _Voice:
    def __init__(self, generator: Generator, common: np.ndarray, genre: Genre) -> None:
        self.generator, self.common, self.genre = generator, common, genre
        self.rates, self.own = _zipf(generator, len(common), 0.7), _words(generator, OWN_WORDS)
        self.own_rates = _zipf(generator, OWN_WORDS, 0.5)
        self.length = genre.words * float(np.exp(0.3 * generator.standard_normal()))
        self.capital, self.mark, self.comma = generator.random(3) * (0.9, 0.5, 0.1) + (0.1, 0.02, 0.02)
        self.stock = [" ".join(generator.choice(common, generator.integers(3, 8))) for _ in range(12)]
        self.stock_rates = _zipf(generator, 12, 0.3)

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
        if g.random() < self.genre.stock:
            first, last = g.choice(len(self.stock), 2, p=self.stock_rates)
            text = f"{self.stock[first]}! {text} {self.stock[last]}?"
        if g.random() < self.genre.frames:
            text = f"*{self.stock[int(g.choice(len(self.stock), p=self.stock_rates))]}* {text}"
        return text[:1].upper() + text[1:] if g.random() < self.capital else text


def made(genre: Genre, seed: int, own: int, others: int = 3) -> list[Message]:
    """Return a world of some agents until the first, ``ann``, has said so much."""
    g = np.random.default_rng(seed)
    common = _words(g, COMMON)
    topics = [_words(g, TOPIC_WORDS) for _ in range(TOPICS)]
    names = ["ann", *(f"other{n}" for n in range(others))]
    voices = {name: _Voice(g, common, genre) for name in names}
    said: list[Message] = []
    at, drift, conversation, count = FIRST_DAY, 0.0, 0, 0
    while count < own:
        drift = 0.95 * drift + 0.05 * g.standard_normal()
        conversation += 1
        at += timedelta(hours=float(3 + g.exponential(6)))
        topic, rates = topics[int(g.zipf(1.3)) % TOPICS], _zipf(g, TOPIC_WORDS, 1.0)
        wordy, mood = float(np.exp(drift + 0.25 * g.standard_normal())), float(np.exp(0.3 * g.standard_normal()))
        speakers = ["ann", names[1 + int(g.integers(others))]]
        for turn in range(2 * max(1, int(g.poisson(genre.messages)))):
            name = speakers[turn % 2]
            at += timedelta(minutes=float(g.exponential(2)))
            text = voices[name].message(topic, rates, wordy, mood)
            said.append(Message(f"m{len(said)}", name, text, at, f"c{conversation}"))
            count += name == "ann"
    return said


def drawn(world: str, runs: int, own: int, seed: int) -> list[tuple[str, list[Message]]]:
    """Return so many agents, each with a stretch of messages of everybody in which it says exactly so many, where there are such.

    Of the real worlds stretches begin anywhere and may overlap; of the made-up ones each is a world of its own.
    """
    generator = np.random.default_rng([seed, own, len(world)])
    if world in GENRES:
        return [("ann", made(GENRES[world], seed * 10_000 + run, own)) for run in range(runs)]
    messages = series() if world == "series" else chat()
    places: dict[str, list[int]] = {}
    for place, message in enumerate(messages):
        places.setdefault(message.agent_id, []).append(place)
    usable = sorted(name for name, own_places in places.items() if len(own_places) >= own)
    found = []
    for run in range(runs):
        name = usable[run % len(usable)]
        start = int(generator.integers(len(places[name]) - own + 1))
        found.append((name, list(messages[places[name][start] : places[name][start + own - 1] + 1])))
    return found
