"""What people's labels say, beside the scores: what they would give, and how far the judge can be believed."""

from collections.abc import Iterable

from persona_pipeline.baselines.models import DimensionComparison, People
from persona_pipeline.calibration.prediction import FEWEST_LABELS

NOBODY = "no person has labelled these judgments, so nobody knows how far it can be believed (persona-pipeline label)"


def estimate_text(people: People | None, *, short: bool = False) -> str:
    """Return what people would give, such as ``people 7.4 ± 0.5, 50 labels``; "" where that is not estimated.

    Args:
        short: ``7.4±0.5``.
    """
    if people is None or people.score is None or people.interval is None:
        return ""
    low, high = people.interval
    half = f"{(high - low) / 2:.1f}"
    return f"{people.score:.1f}±{half}" if short else f"people {people.score:.1f} ± {half}, {people.labels} labels"


def people_lines(compared: Iterable[DimensionComparison]) -> list[str]:
    """Return how far the judge can be believed on each dimension that was scored; one line where nobody labelled anything."""
    scored = [item for item in compared if item.current is not None]
    known = {item.dimension: item.people for item in scored if item.people is not None}
    if not known:
        return [NOBODY] if scored else []
    return [f"{dimension}: {_belief(people)}" for dimension, people in known.items()]


def _belief(people: People) -> str:
    if people.missing:
        return f"{people.missing} labels are missing of the {FEWEST_LABELS} that tell how far it can be believed"
    if people.rank is None or people.rank_interval is None:
        return f"no better than chance ({people.labels} labels): it gives everything alike, and its falls only warn"
    low, high = people.rank_interval
    rank = f"rank correlation with people {people.rank:.2f}, {low:.2f} to {high:.2f}, {people.labels} labels"
    if people.belief == "chance":
        return f"no better than chance ({rank}): its falls only warn"
    return f"can be believed ({rank})"
