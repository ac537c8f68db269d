"""A calibration in plain words."""

from collections.abc import Iterator, Mapping, Sequence

from persona_pipeline.calibration.calibrate import Agreement, Calibration, ClaimCalibration, DimensionCalibration
from persona_pipeline.calibration.judge_change import JudgeChange
from persona_pipeline.calibration.measures import Measure
from persona_pipeline.calibration.prediction import FEWEST_LABELS
from persona_pipeline.reporting.people import NOBODY
from persona_pipeline.reporting.text import one_line

MOST_CLAIMS, MOST_STALE = 12, 5
_BELIEFS = {
    "believed": "can be believed: better than chance, as far as people go",
    "chance": "no better than chance: what falls here only warns",
    "unknown": "not known how far it can be believed",
}


def calibration_text(calibration: Calibration) -> str:
    """Return every judge on every dimension, each figure with its 95 % interval, ending in a new line."""
    lines = [line for item in calibration.dimensions for line in (*_dimension(item), "")]
    if not any(item.people for item in calibration.dimensions):
        lines.append(f"judge: {NOBODY}")
    if calibration.stale:
        lines.append(f"{len(calibration.stale)} labels are stale and were not used:")
        lines += [f"  {one_line(text, 200)}" for text in calibration.stale[:MOST_STALE]]
    return "\n".join(lines).rstrip("\n") + "\n"


def change_text(change: JudgeChange) -> str:
    """Return what comparing two judges found, ending in a new line."""
    lines = [
        f"{change.before} against {change.now}: {change.anchors} judgments made by both, {change.labelled} labelled by people",
        f"  {'points (now - before)':<34}{measured(change.points, signed=True)}",
        f"  {'rank correlation of the two':<34}{measured(change.alike)}",
    ]
    if change.labelled:
        lines.append(f"  {'rank correlation with people, before':<38}{measured(change.rank_before)}")
        lines.append(f"  {'rank correlation with people, now':<38}{measured(change.rank_now)}")
    lines += [f"  {f'{item.dimension}, points':<34}{measured(item.points, signed=True)}" for item in change.dimensions]
    if change.changed:
        lines.append(f"the judge changed, not the agents: {'; '.join(change.reasons)}")
    else:
        lines.append("the judge has not changed as far as these judgments tell; runs are compared as before")
    return "\n".join(lines) + "\n"


def measured(measure: Measure, *, signed: bool = False) -> str:
    """Return a number with its interval, such as ``0.53 (0.31 to 0.70)``."""
    if measure.value is None:
        return f"none (from {measure.n})"
    form = "+.2f" if signed else ".2f"
    if measure.low is None or measure.high is None:
        return format(measure.value, form)
    return f"{measure.value:{form}} ({measure.low:{form}} to {measure.high:{form}})"


def _dimension(item: DimensionCalibration) -> Iterator[str]:
    judge = f"{one_line(item.judge_model, 60)} (prompt {one_line(item.prompt_version, 40)})"
    yield f"{item.dimension}, judged by {judge}: {item.judged} judgments, {item.labelled} labelled by people"
    if item.people:
        yield from _peoples(item)
    for name, found in item.models.items():
        yield (
            f"  with the model {one_line(name, 40)}, which counts for nothing: rank correlation {measured(found.rank)}, "
            f"points {measured(found.bias, signed=True)}, {found.n} labels"
        )


def _peoples(item: DimensionCalibration) -> Iterator[str]:
    found = item.agreement
    yield f"  {_BELIEFS[item.belief]}"
    yield f"  {'labelled by':<34}{', '.join(one_line(name, 40) for name in item.people)}"
    yield f"  {'rank correlation with people':<34}{measured(found.rank)}"
    yield f"  {'weighted kappa':<34}{measured(found.kappa)}"
    yield f"  {'points the judge gives more':<34}{measured(found.bias, signed=True)}"
    if item.ceiling_rank.n:
        among = f"rank correlation {measured(item.ceiling_rank)}, kappa {measured(item.ceiling_kappa)}"
        yield f"  {'people among themselves':<34}{among}"
    else:
        yield f"  {'people among themselves':<34}nothing was labelled by two people"
    if told := _not_applicable(found):
        yield f"  {'not applicable':<34}{told}"
    if item.missing:
        yield f"  {'what people would give':<34}{item.missing} labels are missing of {FEWEST_LABELS}"
    elif item.judge_mean is not None:
        yield f"  {'what people would give':<34}{measured(item.people_mean)}, where the judge gives {item.judge_mean:.2f}"
    yield f"  {'to halve these intervals':<34}{found.to_halve} labels more"
    yield from _claims(item.claims)


def _not_applicable(found: Agreement) -> str:
    counts: Mapping[str, int] = {
        "both": found.neither,
        "people alone": found.only_judge,
        "the judge alone": found.only_other,
    }
    return ", ".join(f"{who} {count}" for who, count in counts.items() if count)


def _claims(claims: Sequence[ClaimCalibration]) -> Iterator[str]:
    if rewrite := [claim for claim in claims if claim.rewrite]:
        yield "  rewrite these claims:"
        yield from (f"    {one_line(claim.proposition_id, 60)}: {claim.rewrite}" for claim in rewrite)
    yield "  by claim (labels, rank correlation, points the judge gives more, how far apart):"
    for claim in claims[:MOST_CLAIMS]:
        apart = "–" if claim.apart is None else f"{claim.apart:.1f}"
        yield (
            f"    {one_line(claim.proposition_id, 40):<42}{claim.agreement.n:>4}  {measured(claim.agreement.rank):<24}"
            f"{measured(claim.agreement.bias, signed=True):<28}{apart}"
        )
    if len(claims) > MOST_CLAIMS:
        yield f"    and {len(claims) - MOST_CLAIMS} more; --format json names all"
