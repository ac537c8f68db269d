"""The calibration of a world's judges: all they judged, beside what people labelled of it."""

from collections.abc import Sequence

from persona_pipeline.calibration.calibrate import Calibration, calibrate_dimension
from persona_pipeline.calibration.labelled import Usable, ballots, by_dimension, rated_by_judge, usable
from persona_pipeline.evaluation.people import labels_hash, rated_labels
from persona_pipeline.evaluation.population import judged_population
from persona_pipeline.evaluation.request import select_dimensions
from persona_pipeline.evaluation.verdicts import KnownVerdicts
from persona_pipeline.labels import LABELS, load_labels
from persona_pipeline.world import World


def calibrate_world(world: World, dimensions: Sequence[str] | None = None) -> Calibration:
    """Return how far each judge can be believed on each dimension; nobody is asked.

    Raises:
        ConfigError: labels, recordings or the world's files are not valid, or a dimension is unknown.
    """
    chosen = select_dimensions(dimensions)
    labels = [label for label in load_labels(world.root / LABELS) if label.dimension in chosen]
    known = KnownVerdicts.of(world)
    used = usable(world.root, labels, is_judged=known.knows)
    judgments = [item.judged for item in judged_population(world, dimensions=dimensions, known=known)]
    rated = rated_by_judge(world.root, judgments, ballots(used.labels))
    # What was labelled and lies farther back than the windows that are looked at.
    for judge, own in rated_labels(world, known, used).items():
        held = {item.key for item in rated.get(judge, ())}
        rated.setdefault(judge, []).extend(item for item in own if item.key not in held)
    people = _people(used)
    return Calibration(
        dimensions=[
            calibrate_dimension(judge, name, found[name], people=people.get(name, ()))
            for judge, found in ((judge, by_dimension(items)) for judge, items in sorted(rated.items()))
            for name in chosen
            if name in found
        ],
        labels_hash=labels_hash(used),
        stale=list(used.stale),
    )


def _people(used: Usable) -> dict[str, list[str]]:
    found: dict[str, set[str]] = {}
    for label in used.labels:
        if label.is_persons:
            found.setdefault(label.dimension, set()).add(label.labeller)
    return {dimension: sorted(names) for dimension, names in found.items()}
