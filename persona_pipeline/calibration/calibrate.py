"""From rated judgments to a calibration: arithmetic alone, no files."""

from collections.abc import Iterable, Sequence
from itertools import combinations
from statistics import fmean

from persona_pipeline.calibration.measures import (
    Measure,
    between_people,
    bias,
    labels_to_halve,
    spearman,
    weighted_kappa,
)
from persona_pipeline.calibration.models import Agreement, ClaimCalibration, DimensionCalibration
from persona_pipeline.calibration.prediction import FEWEST_LABELS, peoples_mean
from persona_pipeline.calibration.rated import Rated

# A claim is judged by its labels from so many on, and read otherwise from so many points on.
FEWEST_OF_A_CLAIM = 5
FAR_APART = 2.0


def agreement(pairs: Iterable[tuple[float | None, float | None]]) -> Agreement:
    """Return how a judge (first) agrees with somebody (second); None stands for not applicable."""
    every = list(pairs)
    both = [(a, b) for a, b in every if a is not None and b is not None]
    first, second = [a for a, _ in both], [b for _, b in both]
    return Agreement(
        rank=spearman(first, second),
        kappa=weighted_kappa(first, second),
        bias=bias(first, second),
        only_judge=sum(a is not None and b is None for a, b in every),
        only_other=sum(a is None and b is not None for a, b in every),
        neither=sum(a is None and b is None for a, b in every),
        to_halve=labels_to_halve(len(both)),
    )


def calibrate_dimension(
    judge: tuple[str, str], dimension: str, rated: Sequence[Rated], *, people: Sequence[str] = ()
) -> DimensionCalibration:
    """Return one judge's calibration on one dimension.

    Args:
        judge: its model and prompt version.
        rated: all it judged there, labelled or not.
        people: names of those who labelled.
    """
    labelled = [item for item in rated if item.people]
    both = [item for item in labelled if item.judge is not None and item.peoples is not None]
    scored = [item for item in rated if item.judge is not None]
    ceiling_rank, ceiling_kappa = between_people([item.scores for item in labelled])
    oriented = [item.oriented(item.judge) for item in scored if item.judge is not None]
    wanted = [None if item.peoples is None else item.oriented(item.peoples) for item in scored]
    return DimensionCalibration(
        dimension=dimension,
        judge_model=judge[0],
        prompt_version=judge[1],
        judged=len(scored),
        labelled=len(both),
        people=sorted(people),
        agreement=agreement((item.judge, item.peoples) for item in labelled),
        ceiling_rank=ceiling_rank,
        ceiling_kappa=ceiling_kappa,
        claims=_claims(labelled),
        judge_mean=fmean(oriented) if oriented else None,
        people_mean=peoples_mean(oriented, wanted) if len(both) >= FEWEST_LABELS else Measure(n=len(both)),
        models={
            name: agreement((item.judge, item.models[name]) for item in rated if name in item.models)
            for name in sorted({name for item in rated for name in item.models})
        },
    )


def _claims(labelled: Sequence[Rated]) -> list[ClaimCalibration]:
    """Return the claims that people labelled, those that judge and people read most unlike first."""
    found: dict[str, list[Rated]] = {}
    for item in labelled:
        found.setdefault(item.proposition_id, []).append(item)
    claims = [_claim(name, own) for name, own in found.items()]
    return sorted(claims, key=lambda claim: (not claim.rewrite, -(claim.apart or 0.0), claim.proposition_id))


def _claim(name: str, own: Sequence[Rated]) -> ClaimCalibration:
    distances = [abs(i.judge - i.peoples) for i in own if i.judge is not None and i.peoples is not None]
    between = [abs(a - b) for item in own for a, b in combinations(item.scores, 2)]
    applicable = [item for item in own if item.judge is not None and item.people and item.peoples is None]
    apart = fmean(distances) if distances else None
    people_apart = fmean(between) if between else None
    reasons = []
    if people_apart is not None and len(between) >= FEWEST_OF_A_CLAIM and people_apart >= FAR_APART:
        reasons.append(f"people differ among themselves by {people_apart:.1f} points")
    if apart is not None and len(distances) >= FEWEST_OF_A_CLAIM and apart >= FAR_APART:
        reasons.append(f"judge and people differ by {apart:.1f} points")
    if len(own) >= FEWEST_OF_A_CLAIM and 2 * len(applicable) >= len(own):
        reasons.append("people hold that it does not apply where the judge scores it")
    return ClaimCalibration(
        proposition_id=name,
        agreement=agreement((item.judge, item.peoples) for item in own),
        apart=apart,
        people_apart=people_apart,
        rewrite="; ".join(reasons),
    )
