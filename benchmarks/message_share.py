"""The share in character on messages whose truth is known: how often its interval holds, and how often a date is right.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/message_share.py [coverage] [dates] [false] [--runs 400] [--seed 1]

Readers are stand-ins that call a message in character that is not, and the reverse, in 0, 5 or 15 % of messages. Conversations
of an agent differ: the share of each is drawn from a beta distribution with the correlation ``rho`` (beta-binomial). The worlds:

    helpdesk   conversations of 2 to 4 messages, rho .1
    role-play  chats of 20 to 60 messages, rho .1
    office     channels of 1 to 40 messages, most of them short, rho .2

**coverage**: share of windows whose 95 % interval holds the share that the reader gives in the long run, the same for the share
that is true, and the median width in points. A window has 60 to 200 messages, that of role-play 5 to 12 chats, of ``few`` 1 to 4.

**dates**: the share in character is .98 over 60 to 200 messages, and 20, 40 or 80 points lower over 30 to 100 more. ``found``:
share of agents that have a date. ``within 5``: share of agents, and of dates, with a date within 5 messages of the truth.
``as said``: share of dates that are as near as the sentence says, 5 messages or "give or take". ``exact``: of dates without
"give or take", the share within 5 messages, and their number.

**false**: share of agents that have a date though nothing changed, at a share of .98, .9 and .6, with 90 to 300 messages;
with rho of the world, and of .5. ``fading``: the share falls within each conversation to 37 % of its first value after 20 or 60
messages; ``sticky``: a message repeats the verdict of the one before it in .8 of the cases.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import betaincinv
from scipy.stats import binomtest

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from persona_pipeline.scoring.messages.verdicts import MessageVerdict, Role, share_in_character, since_when

ERRORS = (0.0, 0.05, 0.15)
SHARES = (0.98, 0.9, 0.6)
FALLS = (0.2, 0.4, 0.8)
START = datetime(2026, 6, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Setting:
    """A world: how long conversations are, and how they differ.

    Attributes:
        length: draws the number of messages of a conversation.
        rho: correlation of two messages of one conversation, 0-1.
        fading: messages after which the share of a conversation is at 37 % of its first value; 0: it does not fade.
        sticky: probability that a message repeats the verdict before it.
    """

    length: Callable[[np.random.Generator], int]
    rho: float
    fading: int = 0
    sticky: float = 0.0


WORLDS = {
    "helpdesk": Setting(lambda dice: int(dice.integers(2, 5)), 0.1),
    "role-play": Setting(lambda dice: int(dice.integers(20, 61)), 0.1),
    "office": Setting(lambda dice: min(int(dice.geometric(0.15)), 40), 0.2),
}


def sizes(dice: np.random.Generator, world: Setting, number: int) -> list[int]:
    """Return the lengths of conversations with this number of messages in all; the last one is cut."""
    found: list[int] = []
    while sum(found) < number:
        found.append(min(world.length(dice), number - sum(found)))
    return found


def shares(share: float, rho: float, quantiles: np.ndarray) -> np.ndarray:
    """Return the share of each conversation at its quantile of the beta distribution."""
    scale = (1 - rho) / rho
    return betaincinv(share * scale, (1 - share) * scale, quantiles)


def read(
    dice: np.random.Generator, world: Setting, lengths: list[int], after: int, levels: tuple[float, float], error: float
) -> list[MessageVerdict]:
    """Return what a reader says of an agent whose share is the second level in the last ``after`` messages."""
    talks = np.repeat(np.arange(len(lengths)), lengths)
    places = np.concatenate([np.arange(length) for length in lengths])
    quantiles = dice.random(len(lengths))
    first, last = (shares(level, world.rho, quantiles)[talks] for level in levels)
    share = np.where(np.arange(len(talks)) < len(talks) - after, first, last)
    if world.fading:
        share = share * np.exp(-places / world.fading)
    inside = dice.random(len(talks)) < share
    for number in np.flatnonzero((dice.random(len(talks)) < world.sticky) & (places > 0)):
        inside[number] = inside[number - 1]
    called = inside ^ (dice.random(len(talks)) < error)
    return [
        MessageVerdict(
            message=str(number),
            conversation=str(talk),
            said_at=START + timedelta(minutes=number),
            verdict=Role.IN if good else Role.OUT,
        )
        for number, (talk, good) in enumerate(zip(talks.tolist(), called.tolist(), strict=True))
    ]


def rate(hits: int, runs: int) -> str:
    """Return a share with Wilson's 95 % interval."""
    if not runs:
        return "-"
    low, high = binomtest(hits, runs).proportion_ci(method="wilson")
    return f"{hits / runs:.3f} ({low:.3f}-{high:.3f})"


def windows(dice: np.random.Generator, name: str) -> tuple[Setting, list[int]]:
    """Return a world and the lengths of the conversations of one window."""
    if name in ("role-play", "few"):
        chats = dice.integers(5, 13) if name == "role-play" else dice.integers(1, 5)
        return WORLDS["role-play"], [WORLDS["role-play"].length(dice) for _ in range(chats)]
    return WORLDS[name], sizes(dice, WORLDS[name], int(dice.integers(60, 201)))


def coverage(runs: int, seed: int) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each world, true share and reader."""
    yield "world", "true share", "reader's errors", "holds the reader's share", "holds the true share", "width"
    for name in (*WORLDS, "few"):
        for share in SHARES:
            for error in ERRORS:
                dice = np.random.default_rng([seed, *name.encode(), round(100 * share), round(100 * error)])
                given = share * (1 - error) + (1 - share) * error
                found = []
                for _ in range(runs):
                    world, lengths = windows(dice, name)
                    found.append(share_in_character(read(dice, world, lengths, 0, (share, share), error)))
                held = [sum(item.low <= level <= item.high for item in found) for level in (given, share)]
                width = np.median([100 * (item.high - item.low) for item in found])
                yield name, share, error, rate(held[0], runs), f"{held[1] / runs:.2f}", f"{width:.0f}"


def dates(runs: int, seed: int) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each world, fall and reader."""
    yield "world", "fall", "reader's errors", "found", "within 5", "dates within 5", "as said", "exact"
    for name, world in WORLDS.items():
        for fall in FALLS:
            for error in ERRORS:
                dice = np.random.default_rng([seed, *name.encode(), round(100 * fall), round(100 * error)])
                found: list[tuple[int, int]] = []
                for _ in range(runs):
                    before, after = int(dice.integers(60, 201)), int(dice.integers(30, 101))
                    levels = 0.98, 0.98 - fall
                    change = since_when(read(dice, world, sizes(dice, world, before + after), after, levels, error))
                    if change is not None and change.is_drift:
                        found.append((abs(change.before[1] - before), change.give_or_take))
                near = sum(off <= 5 for off, _ in found)
                said = sum(off <= max(5, most) for off, most in found)
                exact = [off <= 5 for off, most in found if most <= 5]
                cells = (
                    f"{hits / total:.2f}" if total else "-" for hits, total in ((near, len(found)), (said, len(found)))
                )
                of_exact = f"{sum(exact) / len(exact):.2f} of {len(exact)}" if exact else "-"
                yield name, f"{100 * fall:.0f}", error, rate(len(found), runs), rate(near, runs), *cells, of_exact


def false(runs: int, seed: int) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each world, and for what is done to it."""
    yield "world", "conversations", *(f"share {share}" for share in SHARES)
    for name, world in WORLDS.items():
        kinds = {
            f"rho {world.rho}": world,
            "rho 0.5": replace(world, rho=0.5),
            "fading, 60": replace(world, fading=60),
            "fading, 20": replace(world, fading=20),
            "sticky": replace(world, sticky=0.8),
        }
        for kind, changed in kinds.items():
            cells: list[str] = []
            for share in SHARES:
                dice = np.random.default_rng([seed, *name.encode(), *kind.encode(), round(100 * share)])
                hits = 0
                for _ in range(runs):
                    lengths = sizes(dice, changed, int(dice.integers(90, 301)))
                    verdicts = read(dice, changed, lengths, 0, (share, share), float(dice.choice(ERRORS)))
                    hits += since_when(verdicts) is not None
                cells.append(rate(hits, runs))
            yield name, kind, *cells


TABLES = {"coverage": coverage, "dates": dates, "false": false}


def print_tables(
    about: str | None, tables: Mapping[str, Callable[[int, int], Iterable[Sequence[Any]]]], runs: int
) -> None:
    """Print the tables that the command line asks for, by default all; each is made from a number of runs and a seed."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", default=[*tables], help=", ".join(tables))
    parser.add_argument("--runs", type=int, default=runs)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    for table in chosen.tables:
        print(f"\n{table}, {chosen.runs} runs a row, seed {chosen.seed}\n")
        for number, row in enumerate(tables[table](chosen.runs, chosen.seed)):
            print("| " + " | ".join(map(str, row)) + " |", flush=True)
            if not number:
                print("|---" * len(row) + "|")


if __name__ == "__main__":
    print_tables(__doc__, TABLES, 400)
