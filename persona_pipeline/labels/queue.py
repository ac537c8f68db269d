"""In which order judgments are labelled: at random, so that what is labelled stands for all that was judged."""

from collections import defaultdict
from collections.abc import Iterable

from persona_pipeline.labels.judgment import Judgment
from persona_pipeline.labels.scale import BANDS
from persona_pipeline.propositions.dimensions import ALL_DIMENSIONS
from persona_pipeline.world.models import seed_from


def labelling_order(judgments: Iterable[Judgment], *, seed: int = 0) -> list[Judgment]:
    """Return the judgments in the order they are to be labelled: a dimension in turn, each in proportion to what the judge said.

    Within a dimension the order is random, stratified by the judge's score: whenever somebody stops, each band of the scale was
    labelled in proportion to its size, so that no weights are needed. Never by how far judges disagree. The same judgments and seed
    give the same order, whoever labels: what several people label overlaps, and their agreement can be told.
    """
    strata: dict[tuple[str, int | None], list[Judgment]] = defaultdict(list)
    for judgment in judgments:
        strata[judgment.dimension, _band(judgment)].append(judgment)
    by_dimension: dict[str, list[tuple[float, str, Judgment]]] = defaultdict(list)
    for (dimension, band), items in strata.items():
        drawn = sorted(items, key=lambda item: (seed_from(seed, item.key), item.key))
        start = seed_from(seed, dimension, band) / 2**64
        by_dimension[dimension] += [((place + start) / len(drawn), item.key, item) for place, item in enumerate(drawn)]
    turns = [
        (turn, ALL_DIMENSIONS.index(dimension), item)
        for dimension, places in by_dimension.items()
        for turn, (_, _, item) in enumerate(sorted(places, key=lambda place: place[:2]))
    ]
    return [item for _, _, item in sorted(turns, key=lambda turn: turn[:2])]


def _band(judgment: Judgment) -> int | None:
    score = judgment.score
    return None if score is None else next(band.last for band in BANDS if score <= band.last)
