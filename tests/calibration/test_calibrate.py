"""From what judge and labellers say to what is printed of it."""

import random
from collections.abc import Callable

import pytest

from persona_pipeline.guard.calibration.calibrate import Calibration, DimensionCalibration, Rated, calibrate_dimension
from persona_pipeline.reporting.pages.instruments import calibration_page
from persona_pipeline.reporting.terminal import page_text


def rated(count: int, *, off: int = 0, claim: str = "kind", second: bool = False) -> list[Rated]:
    """Judgments that people put where the judge puts them, ``off`` points lower."""
    found = []
    for number in range(count):
        score = float(number % 10)
        low = max(score - off, 0.0)
        people = (low, min(low + 1, 9.0)) if second else (low,)
        found.append(Rated(f"{claim}-{number}", "ann", "adherence", claim, score, people=people))
    return found


def calibrated(items: list[Rated]) -> DimensionCalibration:
    return calibrate_dimension(("judge", "1"), "adherence", items, people=["eva"])


@pytest.mark.parametrize(("count", "belief", "missing"), [(49, "unknown", 1), (50, "believed", 0)])
def test_below_fifty_labels_a_judge_is_not_known(count: int, belief: str, missing: int) -> None:
    unlabelled = [Rated(f"u{n}", "ann", "adherence", "kind", float(n % 10)) for n in range(100)]
    found = calibrated([*rated(count, off=1), *unlabelled])
    assert (found.judged, found.labelled, found.belief, found.missing) == (count + 100, count, belief, missing)
    assert (f"{missing} labels are missing of 50" in page_text(calibration_page(Calibration(dimensions=[found])))) == (
        missing > 0
    )


def test_a_judge_that_gives_everything_alike_is_no_better_than_chance() -> None:
    items = [Rated(str(n), "ann", "adherence", "kind", 7.0, people=(float(n % 10),)) for n in range(60)]
    found = calibrated(items)
    assert (found.belief, found.rank.value) == ("chance", None)
    assert "no better than chance" in page_text(calibration_page(Calibration(dimensions=[found])))


def dice(turned: bool, people: float, chance: random.Random) -> float:
    return chance.choice((0, 1, 2) if turned else (7, 8, 9))


def usual(turned: bool, people: float, chance: random.Random) -> float:
    return (1.0 if turned else 8.0) + chance.choice((-1, 0, 1))


def noisy(turned: bool, people: float, chance: random.Random) -> float:
    return min(max(round(people + chance.gauss(0, 2.5)), 0), 9)


def lenient(turned: bool, people: float, chance: random.Random) -> float:
    true = people if turned else 9 - (9 - people) / 2
    return min(max(round(true + chance.gauss(0, 1)), 0), 9)


@pytest.mark.parametrize(
    ("judge", "least", "most"),
    [(dice, 0, 3), (usual, 0, 3), (noisy, 45, 50), (lenient, 45, 50)],
)
@pytest.mark.parametrize("claims", [5, 20])
def test_a_judge_that_never_reads_is_not_believed_and_a_poor_one_that_reads_is(
    judge: Callable[[bool, float, random.Random], float], least: int, most: int, claims: int
) -> None:
    """Fifty worlds of 60 labels; claims that are turned round are low for people and judge alike."""
    chance, believed = random.Random(20261123), 0
    for _ in range(50):
        items = []
        for number in range(60):
            claim = number % claims
            turned = claim % 2 == 1
            people = min(max(round(chance.gauss(2.0 if turned else 7.0, 2.3)), 0), 9)
            given = judge(turned, people, chance)
            items.append(Rated(str(number), "ann", "adherence", str(claim), given, turned, people=(float(people),)))
        believed += calibrated(items).belief == "believed"
    assert least <= believed <= most


def test_labels_that_are_all_of_other_claims_tell_nothing() -> None:
    items = [Rated(str(n), "ann", "adherence", str(n), float(n % 10), people=(float(n % 10),)) for n in range(60)]
    assert calibrated(items).belief == "unknown"


def test_what_does_not_apply_is_left_out() -> None:
    items = [
        *rated(10),
        Rated("a", "ann", "adherence", "kind", None, people=(None,)),
        Rated("b", "ann", "adherence", "kind", None, people=(4.0,)),
        Rated("c", "ann", "adherence", "kind", 4.0, people=(None, None, 3.0)),
        # Two of three say that it applies.
        Rated("d", "ann", "adherence", "kind", 4.0, people=(None, 4.0, 6.0)),
    ]
    assert calibrated(items).bias.n == 11


def test_inverted_claims_are_not_turned_for_the_agreement() -> None:
    items = [Rated(str(n), "ann", "adherence", "rude", 2.0, inverted=True, people=(1.0,)) for n in range(60)]
    found = calibrated(items)
    assert found.bias.value == pytest.approx(1.0)
