"""Whether a threshold for a stated risk keeps it: realised share of good replies held, over splits of known and next ones.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/gate_replay.py [--splits 500] [--dialogue]

The gate's score is simulated as it comes to be: the weighted mean of eight claims, each 0-9 and whole, of a reply with a quality
of its own; bad replies lie so many points lower. *Kept* is the share of splits in which at most the stated share of the next
replies is held, as many of them as were known: the aim is .95 and more. A split without a threshold holds nothing; *if set* leaves
those out. *Long*: of all good replies there are. The rest are mean shares held, of the good ones and of bad ones. Each line is 500
splits: of a pool of twice as many replies (*pool*), of replies drawn anew (*anew*), or of a pool in which replies come in
conversations of five that are alike, split by reply or by conversation.

With --dialogue the repetition rule is measured too, on windows of public dialogue that have no message in common.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from persona_pipeline.corrections.replay.measured import Measured, is_touched, risk_threshold  # noqa: E402
from persona_pipeline.corrections.replay.models import Correction  # noqa: E402

WEIGHTS = np.array([1, 1, 1, 1, 2, 1, 0.5, 1.5])
GATE, REPETITION = Correction.ACTION_GATE, Correction.REPETITION_SUPPRESSION
# Points by which bad replies lie lower.
LOWER = {"slightly bad": 1.5, "bad": 3.0, "very bad": 4.5}
Split = Callable[[np.random.Generator, int], tuple[Sequence[Measured], Sequence[Measured]]]


def scores(generator: np.random.Generator, count: int, *, lower: float = 0.0, alike: float = 0.0) -> list[Measured]:
    """Return scored replies, in conversations of five with an effect of their own of so many points."""
    quality = 7.2 - lower + generator.normal(0, 1.0, count)
    quality += np.repeat(generator.normal(0, alike, -(-count // 5)), 5)[:count]
    claims = np.clip(np.rint(quality[:, None] + generator.normal(0, 1.3, (count, len(WEIGHTS)))), 0, 9)
    return [Measured(float(value), good=lower == 0) for value in claims @ WEIGHTS / WEIGHTS.sum()]


def anew(generator: np.random.Generator, known: int) -> tuple[list[Measured], list[Measured]]:
    return scores(generator, known), scores(generator, known)


def of_pool(pool: Sequence[Measured], block: int = 1) -> Split:
    """Return a way to split a pool into halves, by blocks of replies that stand together."""

    def split(generator: np.random.Generator, known: int) -> tuple[list[Measured], list[Measured]]:
        blocks = generator.permutation(2 * known // block)
        order = (blocks[:, None] * block + np.arange(block)).ravel()
        return [pool[place] for place in order[:known]], [pool[place] for place in order[known:]]

    return split


def share(correction: Correction, items: Sequence[Measured], threshold: float) -> float:
    return sum(is_touched(correction, item, threshold) for item in items) / len(items)


def realised(
    correction: Correction, split: Split, known: int, risk: float, splits: int, others: dict[str, list[Measured]]
) -> dict[str, float | None]:
    """Return kept shares, the mean share of good ones held, and that of each kind of others; None where no threshold was set."""
    generator = np.random.default_rng(7)
    shares, whole, gained = [], [], {name: [] for name in others}
    population = others.get("all good")
    for _ in range(splits):
        before, after = split(generator, known)
        threshold = risk_threshold(correction, before, risk).threshold
        if threshold is None:
            # Nothing is held then.
            continue
        shares.append(share(correction, after, threshold))
        whole.append(shares[-1] if population is None else share(correction, population, threshold))
        for name, items in others.items():
            gained[name].append(share(correction, items, threshold))
    if not shares:
        return {"kept": None}
    return {
        "set": len(shares) / splits,
        "kept": 1 - float(np.sum(np.array(shares) > risk + 1e-12)) / splits,
        "kept if set": float(np.mean(np.array(shares) <= risk + 1e-12)),
        "long run": 1 - float(np.sum(np.array(whole) > risk + 1e-12)) / splits,
        "good": float(np.mean(shares)),
        **{name: float(np.mean(values)) for name, values in gained.items() if name != "all good"},
    }


def show(label: str, known: int, risk: float, found: dict[str, float | None]) -> None:
    told = "no threshold: too few" if found["kept"] is None else "".join(f"{value:>9.3f}" for value in found.values())
    print(f"{label:<26}{known:>7}{risk:>7.0%}{told}", flush=True)


def gate(splits: int) -> None:
    generator = np.random.default_rng(11)
    others = {"all good": scores(generator, 5000)}
    others |= {name: scores(generator, 1000, lower=lower) for name, lower in LOWER.items()}
    columns = ("set", "kept", "if set", "long", "good", *(name.replace(" bad", "") for name in LOWER))
    print(f"{'The gate':<26}{'known':>7}{'risk':>7}" + "".join(f"{name:>9}" for name in columns))
    for known, risk in ((100, 0.05), (250, 0.02), (250, 0.05), (500, 0.02), (500, 0.05), (1000, 0.01), (1000, 0.02)):
        show("anew", known, risk, realised(GATE, anew, known, risk, splits, others))
        pool = scores(np.random.default_rng(3), 2 * known)
        show("pool", known, risk, realised(GATE, of_pool(pool), known, risk, splits, others))
    show("anew", 150, 0.02, realised(GATE, anew, 150, 0.02, 1, others))
    for alike in (0.5, 1.0, 2.0):
        pool = scores(np.random.default_rng(3), 1000, alike=alike)
        for label, block in (("by reply", 1), ("by conversation", 5)):
            rest = {key: items for key, items in others.items() if key != "all good"}
            found = realised(GATE, of_pool(pool, block), 500, 0.02, splits, rest)
            show(f"alike by {alike:g}, {label}", 500, 0.02, found)


def dialogue(splits: int) -> None:
    from benchmarks.dialogue import speakers, turns
    from persona_pipeline.scoring.text.repetition import find_repetition

    print(
        f"\n{'Repetition, public lines':<26}{'known':>7}{'risk':>7}"
        + "".join(f"{n:>9}" for n in ("set", "kept", "if set", "long", "good"))
    )
    windows: list[Measured] = []
    for speaker in speakers():
        said = [line.text for line in turns(speaker)]
        for start in range(0, len(said) - 4, 5):
            found = find_repetition(said[start : start + 5])
            windows.append(Measured(found.share, bool(found.reasons), good=True))
    for known, risk in ((250, 0.02), (500, 0.02), (500, 0.05), (1000, 0.05)):

        def split(generator: np.random.Generator, count: int) -> tuple[list[Measured], list[Measured]]:
            order = generator.permutation(len(windows))[: 2 * count]
            return [windows[place] for place in order[:count]], [windows[place] for place in order[count:]]

        show(f"{len(windows)} windows of five", known, risk, realised(REPETITION, split, known, risk, splits, {}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--splits", type=int, default=500)
    parser.add_argument("--dialogue", action="store_true")
    arguments = parser.parse_args()
    gate(arguments.splits)
    if arguments.dialogue:
        dialogue(arguments.splits)
