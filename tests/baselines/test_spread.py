"""What golden files keep of how scores vary."""

from statistics import fmean, stdev

import pytest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.guard.baselines.golden import captured, find_baseline, save_baseline
from persona_pipeline.guard.baselines.statistics import (
    computed_moved,
    spread_of,
    summarised,
    variation_of,
)
from tests.baselines.worlds import NOW, Office, dimension

FIRST, SECOND = {"p": [8.0, 7.0, 8.0], "q": [5.0, 5.0, 0.0]}, {"p": [6.0, 6.0, 7.0], "q": [6.0, 5.0, 5.0]}


def test_several_windows_are_kept_as_means_and_spreads(tmp_path) -> None:
    windows = [{"adherence": dimension("adherence", samples)} for samples in (FIRST, SECOND)]
    save_baseline(tmp_path, captured("ann", windows, {"judge_model": "m"}, now=NOW))
    baseline = find_baseline(tmp_path, "ann")
    assert baseline
    assert baseline.proposition_scores["adherence"]["p"] == pytest.approx(fmean([23 / 3, 19 / 3]))
    assert baseline.dimensions["adherence"] == pytest.approx(fmean([(23 + 10) / 6, (19 + 16) / 6]))
    known = spread_of(baseline, "adherence")
    claim = known.claims["p"]
    assert (known.windows, claim.windows) == (2, 2)
    assert claim.between == pytest.approx(stdev([23 / 3, 19 / 3]), abs=1e-4)


def test_one_window_is_still_taken_as_it_was() -> None:
    office = Office(1)
    window = office.window()
    assert captured("ann", window, {}, now=NOW) == captured("ann", [window], {}, now=NOW)
    assert spread_of(captured("ann", window, {}, now=NOW), "adherence").between is None


def test_windows_of_other_claims_or_not_scored_in_full_do_not_count() -> None:
    other = dimension("adherence", FIRST, proposition_set_hash="older")
    half = dimension("adherence", FIRST, n_scored=1, n_expected=2)
    windows = [{"adherence": item} for item in (other, half, dimension("adherence", SECOND))]
    assert spread_of(captured("ann", windows, {}, now=NOW), "adherence").windows == 1


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ({"claims": {"p": {"windows": "many"}}}, "provenance of adherence: claims.p.windows"),
        ({"claims": {"p": {"windows": 1, "spreed": 1}}}, "claims.p.spreed"),
        (3, "not an object of counts and spreads"),
    ],
)
def test_a_spread_that_is_none_is_an_error(tmp_path, broken: dict, says: str) -> None:
    baseline = captured("ann", Office(1).window(), {}, now=NOW)
    baseline.provenance["dimensions"]["adherence"] = broken
    save_baseline(tmp_path, baseline)
    with pytest.raises(ConfigError, match=says):
        find_baseline(tmp_path, "ann")


@pytest.mark.parametrize(
    ("dimension_name", "said", "now", "moved"),
    [
        ("fluency", {"_ngram": 9.0}, {"_ngram": 4.0}, 0.4 * 5 / 0.8),
        ("fluency", {"_ngram": 9.0, "_catchphrase": 3.0}, {"_ngram": 4.0, "_catchphrase": 6.0}, 0.4 * 5 - 0.2 * 3),
        ("fluency", {"_ngram": 9.0, "_catchphrase": 0.0}, {"_ngram": 4.0}, 0.4 * 5 / 0.8),
        ("fluency", {"_catchphrase": 0.0}, {"_ngram": 4.0}, 0.0),
        ("fluency", {"_ngram": 9.0}, {"_ngram": 9.0 - 1e-4}, 0.0),
        ("fluency", {"_ngram": 9.0}, {"_ngram": 9.0 - 4e-4}, 2e-4),
        ("adherence", {"_ngram": 9.0}, {"_ngram": 4.0}, 0.0),
        ("own", {"_ngram": 9.0}, {"_ngram": 4.0}, 0.0),
    ],
)
def test_what_computed_parts_moved(dimension_name: str, said: dict, now: dict, moved: float) -> None:
    assert computed_moved(dimension_name, said, now) == pytest.approx(moved, abs=1e-12)


def test_windows_in_which_a_claim_has_no_score_are_passed_over() -> None:
    first, second = (dimension("adherence", samples) for samples in (FIRST, SECOND))
    del first.propositions["q"]
    first.propositions["p"].score = None
    found = summarised([first, second])
    assert found.claims == pytest.approx({"p": 19 / 3, "q": 16 / 3})
    assert (found.spread.claims["p"].windows, found.spread.claims["q"].windows, found.spread.windows) == (1, 1, 2)
    second.propositions["q"].score = None
    assert summarised([second]).claims.keys() == {"p"}
    unscored = second.model_copy(update={"score": None})
    for windows in ([], [unscored], [unscored, first], [first, unscored]):
        with pytest.raises(ValueError, match="each with a score"):
            summarised(windows)


def test_keys_of_older_golden_files_are_ignored() -> None:
    baseline = captured("ann", {"adherence": dimension("adherence", FIRST)}, {}, now=NOW)
    former = {"median": 8.0, "below": 0.3, "between_medians": 0.2, "below_medians": 0.1}
    claim = {"windows": 3, "between": 0.5, "samples": 9, "spread": 0.7, "degrees": 6, "outliers": 1, **former}
    baseline.provenance["dimensions"]["adherence"] = {"windows": 3, "between": 0.4, **former, "claims": {"p": claim}}
    found = spread_of(baseline, "adherence")
    assert (found.windows, found.between, found.claims["p"].between) == (3, 0.4, 0.5)
    assert [part.degrees for part in variation_of(baseline)] == [2, 2]
    assert [part.squares for part in variation_of(baseline)] == pytest.approx([0.32, 0.5])
