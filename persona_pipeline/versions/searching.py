"""Where in a history a score fell: by halves, over points some of which cannot be scored."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """Two points between which a score fell; ``unknown``: those in between, which cannot be scored."""

    good: int
    bad: int
    unknown: tuple[int, ...] = ()


def find_step(value: Callable[[int], float | None], good: int, bad: int) -> Step:
    """Return a step across the middle of two scores, with as few looks as halving takes where all points have one.

    Args:
        value: the score of a point; None where it has none. Those of ``good`` and ``bad`` are known.
    """
    first, last = value(good), value(bad)
    if first is None or last is None:
        raise ValueError("both ends must have a score")
    middle = (first + last) / 2
    while bad - good > 1:
        place = next((p for p in _from_the_middle(good, bad) if value(p) is not None), None)
        if place is None:
            return Step(good, bad, tuple(range(good + 1, bad)))
        score = value(place)
        good, bad = (good, place) if score is not None and score <= middle else (place, bad)
    return Step(good, bad)


def _from_the_middle(good: int, bad: int) -> list[int]:
    middle = (good + bad) // 2
    return sorted(range(good + 1, bad), key=lambda place: abs(place - middle))
