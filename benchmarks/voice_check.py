"""The check that labels of a voice train: how well it tells, and how often the error it states is its error.

    python benchmarks/signals.py check
    python benchmarks/voice_check.py tune      on worlds that no figure is from

A world is what sounds like an agent and what does not. So many labels are drawn, the check is learnt from them, and what was not
labelled tells how often it is truly wrong. Raters: *by lot*; *extremes*: only the half that a model of all messages is surest of;
*complaints*: what is off four times as often as what is on; *swipes*: pairs, one label in ten wrong.
"""

import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import numpy as np
import yaml

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

import chats
import dialogue

from persona_pipeline.guard.labels.check import NoCheck, VoiceCheck, learn_check
from persona_pipeline.guard.labels.voice import MarkSource, VoiceLabel, voice_label
from persona_pipeline.world.models import Message

START = datetime(2026, 1, 5, 9, tzinfo=UTC)
LINES = PROJECT / "benchmarks" / "everyday"
MOST = 600
Said = list[tuple[Message, bool]]


def told(texts: Sequence[str], where: str, together: int) -> list[Message]:
    """Return texts as messages, so many a conversation."""
    return [
        Message(
            f"{where}-{n}", "agent", text, START + timedelta(days=n // together, minutes=n), f"{where} {n // together}"
        )
        for n, text in enumerate(texts)
    ]


def support(language: str) -> Said:
    """A support voice of the language, against the stock language it might turn into."""
    known = yaml.safe_load((LINES / f"{language}.yaml").read_text(encoding="utf-8"))
    stock = [*known["assistant"], *known["courtesies"], *known["corporate"]]
    random.Random(language).shuffle(stock)
    return [*((m, True) for m in told(known["voice"], "own", 8)), *((m, False) for m in told(stock, "stock", 4))]


def speakers(own: str, other: str) -> Said:
    """A speaker of the series, against another; longer lines only, since a "Yeah." is nobody's."""
    found: Said = []
    for name in (own, other):
        lines = [line for line in dialogue.turns(name) if len(line.text) >= 40]
        messages = dialogue.as_messages(lines)
        found += [(m, name == own) for m in messages[: MOST // 2]]
    return found


def strangers(seed: int) -> Said:
    """Somebody who chats with strangers, against the strangers."""
    by_who: dict[str, list[Message]] = {}
    for message in chats.chat():
        if len(message.text) >= 20:
            by_who.setdefault(message.agent_id, []).append(message)
    names = sorted(by_who, key=lambda name: -len(by_who[name]))
    own = by_who[names[seed]][: MOST // 2]
    rest = [m for n, name in enumerate(names) if n != seed for m in by_who[name][:3]]
    return [*((m, True) for m in own), *((m, False) for m in random.Random(seed).sample(rest, MOST // 2))]


WORLDS = {
    "series: Dwight, another is Jim": lambda: speakers("Dwight", "Jim"),
    "support voice, de": lambda: support("de"),
    "support voice, ja": lambda: support("ja"),
    "support voice, en": lambda: support("en"),
    "support voice, ar": lambda: support("ar"),
    "chats: one, others are strangers": lambda: strangers(0),
}
TUNED_ON = {
    "series: Angela, another is Kevin": lambda: speakers("Angela", "Kevin"),
    "series: Pam, another is Oscar": lambda: speakers("Pam", "Oscar"),
    "support voice, fr": lambda: support("fr"),
    "support voice, nl": lambda: support("nl"),
    "chats: another": lambda: strangers(3),
}


def labels(said: Said, source: MarkSource = MarkSource.PERSON, chosen: str = "random") -> list[VoiceLabel]:
    return [
        voice_label(
            m if m.agent_id == "agent" else Message(m.id, "agent", m.text, m.created_at, m.channel),
            on,
            "ada",
            source,
            chosen=chosen,
        )
        for m, on in said
    ]


@cache
def obvious(name: str) -> tuple[float, ...]:
    """Return how sure a model of all messages is of each."""
    said = everything(name)
    found = learn_check(tuple(labels(said)))
    assert isinstance(found, VoiceCheck)
    return tuple(abs(found.score(m.text) - 0.5) for m, _ in said)


@cache
def everything(name: str) -> Said:
    return {**WORLDS, **TUNED_ON}[name]()


def drawn(name: str, raters: str, count: int, generator: np.random.Generator) -> tuple[list[VoiceLabel], Said]:
    """Return labels, and what was not labelled."""
    said = everything(name)
    chance = np.ones(len(said))
    if raters == "extremes":
        sure = np.array(obvious(name))
        chance = (sure >= np.median(sure)).astype(float)
    if raters == "complaints":
        chance = np.array([1.0 if on else 4.0 for _, on in said])
    places = generator.choice(len(said), count, replace=False, p=chance / chance.sum())
    chosen = set(places.tolist())
    rated = [said[n] for n in places]
    if raters == "swipes":
        rated = [(m, on if generator.random() > 0.1 else not on) for m, on in rated]
    source = {"complaints": MarkSource.THUMBS, "swipes": MarkSource.SWIPE}.get(raters, MarkSource.PERSON)
    return labels(rated, source, "random" if raters == "by lot" else "given"), [
        item for n, item in enumerate(said) if n not in chosen
    ]


@dataclass
class Found:
    """Of the draws of a cell: AUC, true and stated rates, and how many intervals held them."""

    aucs: list[float]
    rates: list[tuple[float, float]]
    widths: list[float]
    held: np.ndarray
    refused: int = 0


def cell(name: str, raters: str, count: int, draws: int) -> Found:
    generator = np.random.default_rng([len(name), count, len(raters)])
    found = Found([], [], [], np.zeros(3, dtype=int))
    for _ in range(draws):
        given, left = drawn(name, raters, count, generator)
        check = learn_check(tuple(given))
        learn_check.cache_clear()
        if isinstance(check, NoCheck):
            found.refused += 1
            continue
        scores = np.array([check.score(m.text) for m, _ in left])
        on = np.array([kind for _, kind in left])
        true = float((scores[on] < 0.5).mean()), float((scores[~on] >= 0.5).mean())
        error = check.error(scores.tolist())
        found.aucs.append(float((scores[on][:, None] > scores[~on]).mean()))
        found.rates.append(true)
        found.widths.append(float(np.mean([high - low for low, high in (error.false_off, error.false_on)])))
        held = [
            low - 1e-9 <= rate <= high + 1e-9
            for rate, (low, high) in zip(true, (error.false_off, error.false_on), strict=True)
        ]
        # A window in which three of ten messages are off.
        window = [*generator.choice(scores[on], 28), *generator.choice(scores[~on], 12)]
        low, high = error.share_off(int(np.sum(np.array(window) < 0.5)), 40)
        found.held += [*held, low <= 0.3 <= high]
    return found


def report(worlds: Sequence[str], cells: Sequence[tuple[str, int]], draws: int) -> None:
    print(
        "\n| world | raters | labels | AUC mean, lowest | false off | false on | width | covers off | on | share | refused |"
    )
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|", flush=True)
    for name in worlds:
        for raters, count in cells:
            found = cell(name, raters, count, draws)
            n = len(found.aucs)
            if not n:
                print(f"| {name} | {raters} | {count} | refused {found.refused} |", flush=True)
                continue
            false_off, false_on = np.mean(found.rates, axis=0)
            covers = " | ".join(f"{hits / n:.3f}" for hits in found.held)
            aucs = f"{np.mean(found.aucs):.3f}, {min(found.aucs):.3f}"
            rates = f"{false_off:.3f} | {false_on:.3f} | {np.mean(found.widths):.2f}"
            print(f"| {name} | {raters} | {count} | {aucs} | {rates} | {covers} | {found.refused} |", flush=True)


CELLS = (("by lot", 64), ("extremes", 64), ("complaints", 128), ("swipes", 256))

if __name__ == "__main__":
    tune = sys.argv[1:2] == ["tune"]
    report(list(TUNED_ON if tune else WORLDS), CELLS, int(sys.argv[-1]) if sys.argv[-1].isdigit() else 300)
