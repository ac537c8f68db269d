"""How sure means and counts are: intervals of means, the sign test, means by weight; how long characters last."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

# Two-sided 95 % quantiles of Student's t for 1 to 29 degrees of freedom; 1.96 beyond.
T_95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131,
    2.12, 2.11, 2.101, 2.093, 2.086, 2.08, 2.074, 2.069, 2.064, 2.06, 2.056, 2.052, 2.048, 2.045,
)  # fmt: skip


def t_quantile(degrees: int) -> float:
    """Return the two-sided 95 % quantile of Student's t. ``degrees`` >= 1."""
    return T_95[degrees - 1] if degrees <= len(T_95) else 1.96


def mean_interval(values: Sequence[float]) -> tuple[float, float, float, float]:
    """Return mean, lower and upper end of its 95 % t interval, and standard deviation (n - 1) of at least two values."""
    mean = math.fsum(values) / len(values)
    spread = statistics.stdev(values)
    half = t_quantile(len(values) - 1) * spread / math.sqrt(len(values))
    return mean, mean - half, mean + half, spread


def sign_test(wins: int, losses: int) -> float | None:
    """Return the two-sided p of the exact sign test, None without a win or a loss."""
    n = wins + losses
    if n == 0:
        return None
    return min(1.0, 2 * sum(math.comb(n, k) for k in range(min(wins, losses) + 1)) / 2**n)


def weighted_mean(pairs: Iterable[tuple[float, float]]) -> float:
    """Return sum(score * weight) / sum(weight) of (score, weight) pairs, 0 when the weights add up to 0."""
    total = weights = 0.0
    for score, weight in pairs:
        total += score * weight
        weights += weight
    return total / weights if weights else 0.0


def half_lives(conversations: Iterable[tuple[str, Sequence[float | None]]]) -> dict[str, Mapping[str, Any]]:
    """Return how long each character lasts over all its conversations (``scoring.fading``), as plain JSON.

    Args:
        conversations: whose it was, and the score (0-9; None: not judged) of each of its messages.
    """
    from persona_pipeline.scoring.fading import FEWEST_CONVERSATIONS, SHORTEST, MessageValue, fading

    found: dict[str, dict[str, list[MessageValue]]] = {}
    for name, scores in conversations:
        own = found.setdefault(name, {})
        own[str(len(own))] = [MessageValue(number, score) for number, score in enumerate(scores, start=1)]
    told: dict[str, Mapping[str, Any]] = {}
    for name, held in found.items():
        all_of_it = fading(held)
        if all_of_it is None:
            seen = (
                f"{len(held)} conversations: at least {FEWEST_CONVERSATIONS} of {SHORTEST} judged messages are needed"
            )
            told[name] = {"conversations": len(held), "half_life": None, "text": seen}
        else:
            told[name] = {**asdict(all_of_it), "text": all_of_it.text}
    return told
