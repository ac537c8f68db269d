"""People's numbers where they were wrong once: ranks with two peaks, a census, and what older runs say of people."""

from typing import Any

import numpy as np
import pytest

from benchmarks.people import RATINGS, holds
from persona_pipeline.guard.baselines.models import Measure, People
from persona_pipeline.guard.calibration.calibrate import Calibration, Rated, calibrate_dimension
from persona_pipeline.guard.calibration.known import PeoplesLabels
from persona_pipeline.guard.calibration.measures import spearman
from persona_pipeline.reporting.pages.instruments import calibration_page
from persona_pipeline.reporting.terminal import page_text
from tests.baselines.worlds import dimension


@pytest.mark.parametrize("ratings", [name for name in RATINGS if "peaks" in name])
def test_rank_intervals_hold_where_ratings_have_two_peaks(ratings: str) -> None:
    generator = np.random.default_rng(3)
    judge, people = RATINGS[ratings](generator, 50_000)
    true = spearman(judge.tolist(), people.tolist()).value
    assert true is not None
    hits = 0
    for _ in range(150):
        drawn = generator.integers(0, len(judge), 50)
        hits += holds(spearman(judge[drawn].tolist(), people[drawn].tolist()), true)
    assert hits >= 134


def test_everything_labelled_is_a_census_and_enough() -> None:
    items = [Rated(str(n), "ann", "adherence", "kind", float(n % 10), people=(float(n % 10),)) for n in range(24)]
    found = calibrate_dimension(("judge", "1"), "adherence", items, people=["eva"])
    assert (found.is_census, found.missing, found.belief) == (True, 0, "believed")
    text = page_text(calibration_page(Calibration(dimensions=[found])))
    assert "everything that was judged is labelled" in text
    sample = calibrate_dimension(("judge", "1"), "adherence", [*items, Rated("x", "ann", "adherence", "kind", 4.0)])
    assert (sample.is_census, sample.missing, sample.belief) == (False, 26, "unknown")


@pytest.mark.parametrize("count", [1, 6, 24])
def test_a_census_is_enough_whatever_its_size_and_with_claims_that_do_not_apply(count: int) -> None:
    items = [Rated(str(n), "ann", "adherence", "kind", float(n % 10), people=(float(n % 10),)) for n in range(count)]
    items.append(Rated("n/a", "ann", "adherence", "kind", 5.0, people=(None,)))
    found = calibrate_dimension(("judge", "1"), "adherence", items, people=["eva"])
    assert (found.is_census, found.missing, found.labelled, found.judged) == (True, 0, count, count + 1)
    text = page_text(calibration_page(Calibration(dimensions=[found])))
    assert "too few labels" not in text and "labels are missing" not in text
    one_more = calibrate_dimension(("judge", "1"), "adherence", [*items, Rated("x", "ann", "adherence", "kind", 4.0)])
    assert not one_more.is_census and one_more.missing == 50 - count


@pytest.mark.parametrize(("count", "missing"), [(49, 1), (50, 0)])
def test_fifty_labels_of_other_judgments_say_what_a_judge_is_worth(count: int, missing: int) -> None:
    items = [
        Rated(str(n), "ann", "adherence", "kind", float(n % 10), people=(max(n % 10 - 1.0, 0.0),)) for n in range(count)
    ]
    labels = PeoplesLabels("labels", [("judge", "1", "adherence", items)])
    found = labels.of(("judge", "1"), dimension("adherence", {"p": [6.0], "q": [5.0]}))
    assert found is not None and (found.labels, found.missing, found.complete) == (count, missing, False)
    assert found.belief == ("unknown" if missing else "believed")
    assert found.rank is not None and found.rank_interval is not None
    assert found.rank_interval[0] <= found.rank <= found.rank_interval[1]
    assert found.bias.value == pytest.approx(0.9, abs=0.01) and found.bias.n == count
    assert labels.of(("another", "1"), dimension("adherence", {"p": [6.0]})) == People(belief="unknown", missing=50)


EARLIER: list[dict[str, Any]] = [
    {"score": 6.1, "interval": [5.2, 7.0], "as_far": 2, "slope": {"value": 0.5, "low": 0.4, "high": 0.6, "n": 60}},
    {"delta": -4.0, "delta_interval": [-5.0, -3.0]},
    {"score": None, "interval": None, "as_far": None, "delta": None, "delta_interval": None},
]


@pytest.mark.parametrize("earlier", EARLIER)
def test_a_run_of_an_earlier_release_is_read_without_what_people_would_give(earlier: dict[str, Any]) -> None:
    told = {"belief": "believed", "labels": 60, "rank": 0.7, "bias": {"value": 1.0, "low": 0.5, "high": 1.5, "n": 60}}
    found = People.model_validate(told | earlier)
    bias = Measure(value=1.0, low=0.5, high=1.5, n=60)
    assert found == People(belief="believed", labels=60, rank=0.7, bias=bias)
    assert not set(earlier) & set(found.model_dump())
