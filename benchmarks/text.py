"""Measures of text.

**messages**

Measures of text: how their time grows with the number of messages, and what they see when voices merge.

    python benchmarks/text.py messages [sizes]          # such as 1000 10000 100000

Corpora are generated from a seed; the voices are the sample world's.

**hostile**

Fits how the time of every stage grows with the length of hostile texts, to a megabyte.

    .venv/bin/python benchmarks/text.py hostile [--longest 1000000] [--stage NAME]

Prints the worst exponent of each stage and the text it comes from; exits with 1 when one is above 1.2. A stage on a kind of text is
left out above the length at which it takes longer than two minutes.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from statistics import fmean

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from persona_pipeline.scoring.style.likeness import nearness
from persona_pipeline.scoring.text.agreement import agreement_ratio
from persona_pipeline.scoring.text.repetition import mean_share, message_shares
from persona_pipeline.scoring.text.tokens import (
    corpus_repetition,
    extract_ngrams,
    maximal_repeated,
    overlap,
    pairwise_similarity,
)
from tests.trust_boundary.growth import HOSTILE, STAGES, Growth, growth

SIZES = (1_000, 2_000, 5_000, 10_000, 20_000)
WORDS = [f"w{index}" for index in range(2000)]
WEIGHTS = [1 / rank for rank in range(1, len(WORDS) + 1)]


def natural(count: int, opener: str = "") -> list[str]:
    generator = random.Random(count)
    return [opener + " ".join(generator.choices(WORDS, WEIGHTS, k=generator.randrange(5, 25))) for _ in range(count)]


def templates(count: int) -> list[str]:
    generator = random.Random(count)
    slots = WORDS[:20]
    pick = generator.choice
    return [
        f"Hey {pick(slots)} just wanted to {pick(slots)} about the {pick(slots)} and the new {pick(WORDS)}"
        for _ in range(count)
    ]


def by_definition(messages: Sequence[str], n: int) -> float:
    grams = [extract_ngrams(message, n) for message in messages]
    values = [overlap(a, b) for a, b in combinations(grams, 2)]
    return sum(values) / len(values)


def seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def text_growth() -> None:
    sizes = [int(argument) for argument in sys.argv[1:]] or SIZES
    print(f"Seconds by number of messages{'':<15}" + "".join(f"{size:>9,}" for size in sizes))
    rows: dict[str, Callable[[int], Callable[[], object]]] = {
        "corpus_repetition, natural": lambda size: lambda: corpus_repetition(natural(size), 3),
        "corpus_repetition, one opener in all": lambda size: (
            lambda: corpus_repetition(natural(size, "Hey everyone just wanted to say "), 3)
        ),
        "corpus_repetition, template of 8,000 forms": lambda size: lambda: corpus_repetition(templates(size), 3),
        "cross_message_share, natural": lambda size: lambda: mean_share(message_shares(natural(size), 3)),
        "maximal_repeated, natural": lambda size: lambda: maximal_repeated(natural(size), 3),
        "agreement_ratio, natural": lambda size: lambda: agreement_ratio(natural(size)),
    }
    corpus_repetition(natural(200, "a b c "), 3)
    for name, prepare in rows.items():
        print(f"{name:<44}" + "".join(f"{seconds(prepare(size)):>9.2f}" for size in sizes))
    print(f"{'all pairs, as the definition says':<44}{seconds(lambda: by_definition(natural(1000), 3)):>9.2f}")


def voices() -> None:
    """Merge the sample world's voices step by step: a share of the messages changes hands by lot, none stands twice."""
    said: dict[str, list[str]] = {}
    for path in sorted((PROJECT / "messages").glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if row["created_at"] < "2026-06-15":
                said.setdefault(row["agent_id"], []).append(row["text"])
    agents = sorted(agent for agent, messages in said.items() if len(messages) >= 20)
    references = {agent: said[agent][::2] for agent in agents}
    count = min(len(said[agent]) // 2 for agent in agents) // 3
    print(f"\nVoices of {', '.join(agents)}, {count} messages each, means of 50 draws")
    print(f"{'changed hands':<16}{'vocabulary Jaccard':>20}{'voice similarity':>18}{'z':>8}")
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        found = []
        for seed in range(50):
            generator = random.Random(seed)
            mixed = {agent: generator.sample(said[agent][1::2], count) for agent in agents}
            swap(mixed, share, generator)
            voice = nearness(mixed, references)
            words = pairwise_similarity(mixed).values()
            found.append((fmean(words), voice.similarity or 0.0, voice.z or 0.0))
        jaccard, similarity, z = (sum(column) / len(found) for column in zip(*found, strict=True))
        print(f"{share:<16.0%}{jaccard:>20.3f}{similarity:>18.3f}{z:>8.1f}")


def swap(messages: dict[str, list[str]], share: float, generator: random.Random) -> None:
    """Shuffle a share of all messages among their places."""
    places = [(agent, index) for agent, own in messages.items() for index in range(len(own))]
    chosen = generator.sample(places, round(share * len(places)))
    texts = [messages[agent][index] for agent, index in chosen]
    generator.shuffle(texts)
    for (agent, index), text in zip(chosen, texts, strict=True):
        messages[agent][index] = text


def run_messages() -> None:
    text_growth()
    voices()


MOST = 1.2
PATIENCE_SECONDS = 120.0
# Below, the clock says more of other processes than of the text.
NOTHING_SECONDS = 0.25


def measured(stage: str, kind: str, longest: int) -> Growth:
    """Return the growth over three lengths, each four times the one before."""
    short = growth(stage, kind, (longest // 16,), tries=2)
    lengths = [longest // 16, longest // 4]
    if short.seconds[0][1] * 256 < PATIENCE_SECONDS:
        lengths.append(longest)
    return growth(stage, kind, lengths, tries=1 if len(lengths) == 2 else 2)


def run_hostile() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--longest", type=int, default=1_000_000)
    parser.add_argument("--stage", choices=list(STAGES))
    arguments = parser.parse_args()
    failed = False
    print(f"{'stage':<18}{'worst exponent':>15}  {'of text':<18}{'longest':>10}{'slowest':>10}  of text")
    for stage in [arguments.stage] if arguments.stage else STAGES:
        found = [measured(stage, kind, arguments.longest) for kind in HOSTILE]
        told = [item for item in found if item.seconds[-1][1] > NOTHING_SECONDS]
        slowest = max(found, key=lambda item: item.seconds[-1][1])
        worst = max(told, key=lambda item: item.exponent, default=None)
        exponent = "-" if worst is None else f"{worst.exponent:.2f}"
        kind, length = ("", "") if worst is None else (worst.kind, f"{worst.seconds[-1][0]:,}")
        print(
            f"{stage:<18}{exponent:>15}  {kind:<18}{length:>10}{slowest.seconds[-1][1]:>8.2f} s  {slowest.kind}",
            flush=True,
        )
        failed |= worst is not None and worst.exponent > MOST
    return int(failed)


COMMANDS = {"messages": run_messages, "hostile": run_hostile}


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit(f"{__doc__}\nname one of {', '.join(COMMANDS)}")
    sys.exit(COMMANDS[sys.argv.pop(1)]())
