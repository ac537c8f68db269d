"""How sure means and counts are: intervals of means, the sign test, means by weight; how long characters last."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any


def mean_interval(values: Sequence[float]) -> tuple[float, float, float, float]:
    """Return mean, lower and upper end of its 95 % t interval, and standard deviation (n - 1) of at least two values."""
    from scipy.special import stdtrit

    mean = math.fsum(values) / len(values)
    spread = statistics.stdev(values)
    # To three digits, as the tables of AgentV and its cases have it.
    half = round(float(stdtrit(len(values) - 1, 0.975)), 3) * spread / math.sqrt(len(values))
    return mean, mean - half, mean + half, spread


def sign_test(wins: int, losses: int) -> float | None:
    """Return the two-sided p of the exact sign test, None without a win or a loss."""
    from scipy.special import bdtr

    return min(1.0, 2 * float(bdtr(min(wins, losses), wins + losses, 0.5))) if wins + losses else None


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
