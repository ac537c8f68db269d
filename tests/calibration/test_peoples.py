"""People's numbers where they were wrong once: ranks with two peaks, and what older runs say of people."""

from typing import Any

import numpy as np
import pytest

from benchmarks.people import RATINGS, holds
from persona_pipeline.guard.baselines.models import Measure, People
from persona_pipeline.guard.calibration.calibrate import Rated
from persona_pipeline.guard.calibration.known import PeoplesLabels
from persona_pipeline.guard.calibration.measures import spearman


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


@pytest.mark.parametrize(("count", "missing"), [(49, 1), (50, 0)])
def test_fifty_labels_of_other_judgments_say_what_a_judge_is_worth(count: int, missing: int) -> None:
    items = [
        Rated(str(n), "ann", "adherence", "kind", float(n % 10), people=(max(n % 10 - 1.0, 0.0),)) for n in range(count)
    ]
    labels = PeoplesLabels([("judge", "1", "adherence", items)])
    found = labels.of(("judge", "1"), "adherence")
    assert found is not None and (found.labels, found.missing) == (count, missing)
    assert found.belief == ("unknown" if missing else "believed")
    assert found.rank is not None and found.rank_interval is not None
    assert found.rank_interval[0] <= found.rank <= found.rank_interval[1]
    assert found.bias.value == pytest.approx(0.9, abs=0.01) and found.bias.n == count
    assert labels.of(("another", "1"), "adherence") == People(belief="unknown", missing=50)


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
