"""One judgment as judge and labellers see it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean

from persona_pipeline.calibration.prediction import HIGHEST


@dataclass(frozen=True)
class Rated:
    """A judgment of a claim, with the judge's raw score (0-9, as the claim is written; None: not applicable) and its labels.

    Attributes:
        people: each person's score; None: not applicable. Empty: no person labelled it.
        models: models' labels, by name; they are shown and never calibrate.
    """

    key: str
    agent_id: str
    dimension: str
    proposition_id: str
    judge: float | None
    inverted: bool = False
    people: tuple[float | None, ...] = ()
    models: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def scores(self) -> list[float]:
        """People's scores, those left out who hold that the claim does not apply."""
        return [score for score in self.people if score is not None]

    @property
    def peoples(self) -> float | None:
        """Mean of people's scores; None where nobody labelled it or most hold that the claim does not apply."""
        return fmean(self.scores) if 2 * len(self.scores) > len(self.people) else None

    def oriented(self, score: float) -> float:
        """Return a raw score so that more is better: an inverted claim's turned round."""
        return HIGHEST - score if self.inverted else score


def by_dimension(rated: Iterable[Rated]) -> dict[str, list[Rated]]:
    """Return judgments by dimension, in their order."""
    found: dict[str, list[Rated]] = {}
    for item in rated:
        found.setdefault(item.dimension, []).append(item)
    return found
