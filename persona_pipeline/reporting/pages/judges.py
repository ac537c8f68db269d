"""How far a judge can be believed, and whether it changed, in plain words."""

from collections.abc import Iterator, Sequence

from persona_pipeline.guard.baselines.models import FEWEST_LABELS
from persona_pipeline.guard.calibration.calibrate import Agreement, Calibration, ClaimCalibration, DimensionCalibration
from persona_pipeline.guard.calibration.judge_change import JudgeChange
from persona_pipeline.reporting.page import Block, Facts, Item, Items, Page, Section, Span
from persona_pipeline.reporting.text import one_line
from persona_pipeline.reporting.view import NOBODY, measured

_MOST_CLAIMS, _MOST_STALE = 12, 5
_BELIEFS = {
    "believed": "can be believed: better than chance, as far as people go",
    "chance": "no better than chance: what falls here only warns",
    "unknown": "not known how far it can be believed",
}


def calibration_page(calibration: Calibration) -> Page:
    """Return every judge on every dimension, each figure with its 95 % interval."""
    sections = [Section("", [*_dimension(item), Item("")]) for item in calibration.dimensions]
    rest = []
    if not any(item.people for item in calibration.dimensions):
        rest.append(Item(NOBODY, kind="judge"))
    if calibration.stale:
        rest.append(Item(f"{len(calibration.stale)} labels are stale and were not used:"))
        rest += [Item([Span(text, limit=200)], 1) for text in calibration.stale[:_MOST_STALE]]
    return Page("Calibration", sections=[*sections, Section("", [Items(rest)])])


def judge_change_page(change: JudgeChange) -> Page:
    """Return what comparing two judges found."""
    labelled = f"{change.labelled} labelled by people"
    facts = [
        ("points (now - before)", measured(change.points, signed=True)),
        ("rank correlation of the two", measured(change.alike)),
    ]
    if change.labelled:
        facts.append(("rank correlation with people, before", measured(change.rank_before)))
        facts.append(("rank correlation with people, now", measured(change.rank_now)))
    facts += [(f"{item.dimension}, points", measured(item.points, signed=True)) for item in change.dimensions]
    said = "the judge has not changed as far as these judgments tell; runs are compared as before"
    if change.changed:
        said = f"the judge changed, not the agents: {'; '.join(change.reasons)}"
    first = Item(f"{change.before} against {change.now}: {change.anchors} judgments made by both, {labelled}")
    return Page("Two judges", sections=[Section("", [first, Facts(facts, 1), Item(said)])])


def _dimension(item: DimensionCalibration) -> Iterator[Block]:
    judge = f"{one_line(item.judge_model, 60)} (prompt {one_line(item.prompt_version, 40)})"
    yield Item(f"{item.dimension}, judged by {judge}: {item.judged} judgments, {item.labelled} labelled by people")
    if item.people:
        yield Item(_BELIEFS[item.belief], 1)
        yield Facts(list(_peoples(item)), 1)
        yield from _claims(item.claims)
    for name, found in item.models.items():
        yield Item(
            f"with the model {one_line(name, 40)}, which counts for nothing: rank correlation {measured(found.rank)}, "
            f"points {measured(found.bias, signed=True)}, {found.n} labels",
            1,
        )


def _peoples(item: DimensionCalibration) -> Iterator[tuple[str, str]]:
    found = item.agreement
    yield "labelled by", ", ".join(one_line(name, 40) for name in item.people)
    yield "rank correlation with people", measured(found.rank)
    yield "weighted kappa", measured(found.kappa)
    yield "points the judge gives more", measured(found.bias, signed=True)
    among = f"rank correlation {measured(item.ceiling_rank)}, kappa {measured(item.ceiling_kappa)}"
    yield "people among themselves", among if item.ceiling_rank.n else "nothing was labelled by two people"
    if told := _not_applicable(found):
        yield "not applicable", told
    if item.missing:
        yield "what people would give", f"{item.missing} labels are missing of {FEWEST_LABELS}"
    elif item.judge_mean is not None:
        yield "what people would give", f"{measured(item.people_mean)}, where the judge gives {item.judge_mean:.2f}"
    yield "to halve these intervals", f"{found.to_halve} labels more"


def _not_applicable(found: Agreement) -> str:
    counts = {"both": found.neither, "people alone": found.only_judge, "the judge alone": found.only_other}
    return ", ".join(f"{who} {count}" for who, count in counts.items() if count)


def _claims(claims: Sequence[ClaimCalibration]) -> Iterator[Block]:
    if rewrite := [claim for claim in claims if claim.rewrite]:
        yield Item("rewrite these claims:", 1)
        yield Items([Item(str(claim.rewrite), 2, one_line(claim.proposition_id, 60)) for claim in rewrite])
    yield Item("by claim (labels, rank correlation, points the judge gives more, how far apart):", 1)
    for claim in claims[:_MOST_CLAIMS]:
        apart = "–" if claim.apart is None else f"{claim.apart:.1f}"
        rank, bias = measured(claim.agreement.rank), measured(claim.agreement.bias, signed=True)
        numbers = f"{claim.agreement.n:>4}  {rank:<24}{bias:<28}{apart}"
        yield Item([Span(f"{one_line(claim.proposition_id, 40):<42}{numbers}", "fixed")], 2)
    if len(claims) > _MOST_CLAIMS:
        yield Item(f"and {len(claims) - _MOST_CLAIMS} more; --format json names all", 2)
