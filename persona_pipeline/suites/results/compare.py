"""Two runs of one suite side by side: paired by test, with an interval for the difference."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from persona_pipeline.suites.results.intervals import mean_interval, sign_test

WIN = 0.1


@dataclass(frozen=True)
class Pair:
    """One test in both runs; scores 0-1, None where a run has none."""

    id: str
    a: float | None
    b: float | None
    verdict_a: str
    verdict_b: str

    @property
    def delta(self) -> float | None:
        """B minus A."""
        return None if self.a is None or self.b is None else self.b - self.a


@dataclass(frozen=True)
class Comparison:
    """B against A.

    Attributes:
        pairs: tests that both runs have; ``only_a`` and ``only_b`` name the others.
        threshold: difference from which a test is won or lost.
    """

    pairs: Sequence[Pair]
    only_a: Sequence[str] = ()
    only_b: Sequence[str] = ()
    threshold: float = WIN

    @property
    def scored(self) -> list[Pair]:
        """Pairs with a score on both sides."""
        return [pair for pair in self.pairs if pair.delta is not None]

    @property
    def unscored(self) -> list[Pair]:
        return [pair for pair in self.pairs if pair.delta is None]

    @property
    def deltas(self) -> list[float]:
        return [pair.delta for pair in self.pairs if pair.delta is not None]

    @property
    def mean(self) -> float | None:
        """Mean difference B - A, None without pairs."""
        return math.fsum(self.deltas) / len(self.deltas) if self.deltas else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % t interval of the mean difference over paired tests, cut to [-1, 1]; None below two pairs."""
        if len(self.deltas) < 2:
            return None
        _, low, high, _ = mean_interval(self.deltas)
        return max(-1.0, low), min(1.0, high)

    @property
    def wins(self) -> int:
        return sum(delta >= max(1e-9, self.threshold - 1e-9) for delta in self.deltas)

    @property
    def losses(self) -> int:
        return sum(delta <= min(-1e-9, -self.threshold + 1e-9) for delta in self.deltas)

    @property
    def sign_p(self) -> float | None:
        """Two-sided p of the exact sign test over won and lost tests, None when there are none."""
        return sign_test(self.wins, self.losses)

    @property
    def worse(self) -> bool:
        """Whether B's mean is below A's."""
        return self.mean is not None and self.mean < -1e-9

    @property
    def surely_worse(self) -> bool:
        """Whether the whole interval lies below 0."""
        return self.interval is not None and self.interval[1] < 0

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain JSON."""
        interval = self.interval
        return {
            "summary": {
                "pairs": len(self.deltas),
                "mean_delta": self.mean,
                "ci95": None if interval is None else list(interval),
                "wins": self.wins,
                "losses": self.losses,
                "ties": len(self.deltas) - self.wins - self.losses,
                "sign_test_p": self.sign_p,
                "threshold": self.threshold,
                "unscored": len(self.unscored),
            },
            "only_a": list(self.only_a),
            "only_b": list(self.only_b),
            "tests": [{**vars(pair), "delta": pair.delta} for pair in self.pairs],
        }


def compare_rows(
    a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]], *, threshold: float = WIN
) -> Comparison:
    """Compare the rows of two runs, paired by id.

    Args:
        threshold: difference from which a test counts as won or lost, 0-1.
    """
    first = {row["id"]: row for row in a}
    second = {row["id"]: row for row in b}
    pairs = [
        Pair(key, row.get("score"), second[key].get("score"), str(row["verdict"]), str(second[key]["verdict"]))
        for key, row in first.items()
        if key in second
    ]
    return Comparison(
        pairs,
        [key for key in first if key not in second],
        [key for key in second if key not in first],
        threshold,
    )
