"""How often judges that never read pass the check by anchors, judges that read do, and how soon a silent upgrade is found.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/anchors.py [passes] [upgrade] [--runs 300] [--seed 1]

Anchors are drawn as in a run (20) and by ``doctor --judge`` (40) from the worlds:

    cast      four characters, told apart at once
    house     four support voices of one house, who write alike
    alone     one agent
    labelled  two agents, whose messages people labelled: 40 in, 12 out
    quiet     two agents with 10 messages each

The judges:

    dice      in or out by a coin
    constant  in for everything
    usual     each agent's usual verdict: in for some, out for others
    claims    the same, with another one now and then
    tone      in where the text has a friendly tone, whoever is said to have written it
    5, 10, 15 %: reads, and is wrong in so many of a hundred

**passes**: share of draws in which a judge passes. **upgrade**: a judge that repeats itself but for 0, 2, 5 or 10 % of its answers
is replaced after 0, 1, 4 or 12 runs by one that answers two of 20 anchors otherwise; ``found``: within 4 runs; ``steady``: share of
judges that are called changed within 52 runs although nothing changed.
"""

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(PROJECT), str(PROJECT / "benchmarks")]

from message_share import print_tables, rate

from persona_pipeline.guard.anchors import AnchorAnswers, AnchoredAgent, check_of, has_changed
from persona_pipeline.guard.drawing import draw_anchors
from persona_pipeline.guard.labels.messages import MarkSource, MessageLabel, message_label
from persona_pipeline.scoring.messages.reading import Character
from persona_pipeline.scoring.messages.verdicts import Role
from persona_pipeline.world.models import Message

Said = tuple[dict[str, Character], dict[str, list[str]], list[MessageLabel]]
Judge = Callable[[random.Random, str, str, Role], Role]
DAY = date(2026, 6, 1)
FRIENDLY = "glad"
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def lines(dice: random.Random, words: list[str], number: int) -> list[str]:
    """Return messages of ten words of a speaker's own; half of them have a friendly tone."""
    texts = (" ".join(dice.choices(words, k=10)) for _ in range(number))
    return [f"{text} {FRIENDLY if dice.random() < 0.5 else 'sure'} {place}" for place, text in enumerate(texts)]


def world(dice: random.Random, kind: str) -> Said:
    """Return characters, what they said, and labels of people."""
    agents = {"alone": 1, "labelled": 2, "quiet": 2}.get(kind, 4)
    number = 10 if kind == "quiet" else 60
    shared = words_of(dice)
    own = {f"agent-{place}": shared if kind == "house" else words_of(dice) for place in range(agents)}
    said = {name: lines(dice, words, number) for name, words in own.items()}
    characters = {name: Character(name, name, f"{name} says {' '.join(words[:9])}.") for name, words in own.items()}
    labels = list[MessageLabel]()
    if kind == "labelled":
        for name, texts in said.items():
            for place, text in enumerate([*texts[:20], *lines(dice, words_of(dice), 6)]):
                moment = datetime(2026, 6, 1, tzinfo=UTC)
                spoken = Message(f"{name}-{place}", name, text, moment, channel="general")
                labels.append(message_label(spoken, Role.IN if place < 20 else Role.OUT, "eva", MarkSource.PERSON))
    return characters, said, labels


def words_of(dice: random.Random) -> list[str]:
    """Return a vocabulary of forty words."""
    return ["".join(dice.choices(LETTERS, k=dice.randint(3, 8))) for _ in range(40)]


def coin(dice: random.Random, *_: object) -> Role:
    return dice.choice((Role.IN, Role.OUT))


def constant(*_: object) -> Role:
    return Role.IN


def usual(_: random.Random, agent_id: str, *__: object) -> Role:
    return Role.IN if sum(map(ord, agent_id)) % 2 else Role.OUT


def claims(dice: random.Random, agent_id: str, *_: object) -> Role:
    """Return an agent's usual verdict, another one now and then."""
    return usual(dice, agent_id) if dice.random() < 0.9 else coin(dice)


def tone(_: random.Random, __: str, text: str, ___: Role) -> Role:
    return Role.IN if FRIENDLY in text or "." in text else Role.OUT


def reader(errors: float) -> Judge:
    def read(dice: random.Random, _: str, __: str, known: Role) -> Role:
        return known if dice.random() >= errors else Role.OUT if known is Role.IN else Role.IN

    return read


JUDGES: dict[str, Judge] = {
    "dice": coin,
    "constant": constant,
    "usual": usual,
    "claims": claims,
    "tone": tone,
    "5 %": reader(0.05),
    "10 %": reader(0.1),
    "15 %": reader(0.15),
}
WORLDS = ("cast", "house", "alone", "labelled", "quiet")


def asked(dice: random.Random, agents: list[AnchoredAgent], judge: Judge) -> AnchorAnswers:
    """Return what a judge says of anchors."""
    right = {
        key: judge(dice, agent.agent_id, anchor.text, anchor.verdict) is anchor.verdict
        for agent in agents
        for key, anchor in agent.by_key.items()
    }
    return AnchorAnswers(day=DAY, right=right)


def passes(runs: int, seed: int) -> Iterator[tuple[str, ...]]:
    """Yield a row for each judge and number of anchors; all judges are asked about the same draws."""
    yield "judge", "asked", *WORLDS
    hits = Counter[tuple[str, int, str]]()
    for size in (20, 40):
        for kind in WORLDS:
            dice = random.Random(f"{seed} {kind} {size}")
            for _ in range(runs):
                agents = draw_anchors(*world(dice, kind), size)
                for name, judge in JUDGES.items():
                    hits[name, size, kind] += check_of(asked(dice, agents, judge)).passed is True
    for name in JUDGES:
        for size in (20, 40):
            yield name, str(size), *(rate(hits[name, size, kind], runs) for kind in WORLDS)


def upgrade(runs: int, seed: int) -> Iterator[tuple[str, ...]]:
    """Yield a row for each share of answers in which a judge differs from itself."""
    yield "differs from itself", *(f"found, after {before} runs" for before in (0, 1, 4, 12)), "steady, 52 runs"
    keys = [str(number) for number in range(20)]

    def answers(dice: random.Random, noise: float, day: int, wrong: set[str]) -> AnchorAnswers:
        right = {key: (key not in wrong) != (dice.random() < noise) for key in keys}
        return AnchorAnswers(day=DAY + timedelta(days=day), right=right)

    for noise in (0.0, 0.02, 0.05, 0.1):
        cells = []
        for before in (0, 1, 4, 12, None):
            dice, hits = random.Random(f"{seed} {noise} {before}"), 0
            for _ in range(runs):
                wrong = set(dice.sample(keys, 1))
                taken = answers(dice, noise, 0, wrong).again(answers(dice, noise, 0, wrong))
                done = list[AnchorAnswers]()
                changed = wrong ^ set(dice.sample(keys, 2))
                last = 52 if before is None else before + 4
                for run in range(1, last + 1):
                    now = answers(dice, noise, 7 * run, wrong if before is None or run <= before else changed)
                    if has_changed(now, taken, done) and (before is None or run > before):
                        hits += 1
                        break
                    done.append(now)
            cells.append(rate(hits, runs))
        yield f"{noise:.0%}", *cells


TABLES = {"passes": passes, "upgrade": upgrade}


if __name__ == "__main__":
    print_tables(__doc__, TABLES, 300)
