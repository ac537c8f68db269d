"""What golden files keep of how scores vary."""

from statistics import fmean, stdev

import numpy as np
import pytest
from scipy import stats

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.guard.baselines.golden import captured, find_baseline, save_baseline
from persona_pipeline.guard.baselines.spread import (
    ClaimSpread,
    DimensionSpread,
    claim_level,
    claim_weights,
    computed_moved,
    dimension_level,
    golden_level,
    golden_weights,
    judged_share,
    score_margins,
    spread_of,
    summarised,
)
from persona_pipeline.scoring.results import PropositionResult, final_score
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
    assert (known.windows, claim.windows, claim.samples, claim.degrees, claim.weight) == (2, 2, 6, 4, 0.5)
    assert claim.between == pytest.approx(stdev([23 / 3, 19 / 3]), abs=1e-4)
    assert (claim.median, claim.between_medians) == (7.0, pytest.approx(stdev([8.0, 6.0]), abs=1e-4))
    outlier = known.claims["q"]
    assert (outlier.outliers, outlier.degrees) == (1, 3), "the verdict of 0 tells nothing of the judge"
    assert outlier.spread == pytest.approx((2 / 3 / 3) ** 0.5, abs=1e-4)


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


@pytest.mark.parametrize("inverted", [False, True])
@pytest.mark.parametrize("hard", [False, True])
def test_medians_and_spreads_stand_on_the_scale_of_the_score(inverted: bool, hard: bool) -> None:
    samples = [2.0, 3.0, 4.0, 3.0, 8.0]
    row = PropositionResult(
        id="p", claim="c", inverted=inverted, raw=fmean(samples), samples=samples,
        score=final_score(fmean(samples), inverted=inverted, hard=hard),
    )  # fmt: skip
    level = claim_level([row])
    assert level.median[0] == pytest.approx(final_score(3.0, inverted=inverted, hard=hard))
    assert level.judge.squares[0] == pytest.approx(2.0 * (0.8**2 if hard else 1))
    assert level.judge.outliers[0] == 1


def test_channels_are_judged_each_for_itself() -> None:
    parts = [
        {"part": part, "weight": 1.0, "raw": raw}
        for part in ("a", "b")
        for raw in ((9, 8, 9) if part == "a" else (1, 2, 1))
    ]
    row = PropositionResult(id="p", claim="c", raw=5.0, score=5.0, samples=[9, 8, 9, 1, 2, 1], parts=parts)
    level = claim_level([row])
    assert level.judge.squares[0] == pytest.approx(4 / 3)
    assert level.judge.degrees[0] == 4
    assert level.median[0] == pytest.approx(5.0)


def test_computed_parts_have_their_share_of_the_weight() -> None:
    item = dimension("fluency", FIRST)
    item.propositions["_ngram"] = PropositionResult(id="_ngram", claim="", algorithmic=True, score=9.0)
    assert claim_weights(item) == {"p": 0.25, "q": 0.25}
    baseline = captured("ann", {"fluency": item}, {}, now=NOW)
    assert golden_weights(baseline, "fluency", ["p", "q", "_ngram"]) == {"p": 0.25, "q": 0.25}
    older = baseline.model_copy(update={"provenance": {}})
    assert golden_weights(older, "fluency", ["p", "q", "_ngram"]) == {"p": 0.25, "q": 0.25}


def test_margins_are_of_the_judge() -> None:
    once = dimension("consistency", {"p": [8.0]})
    found = score_margins({"adherence": dimension("adherence", SECOND), "consistency": once})
    assert found.keys() == {"adherence"}
    both = score_margins({name: dimension(name, SECOND) for name in ("adherence", "consistency")})
    assert both["overall"] == pytest.approx(both["adherence"] / 2**0.5)


def test_nothing_scored_is_no_baseline() -> None:
    with pytest.raises(ValueError, match="at least one window"):
        summarised([])


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ({"claims": {"p": {"windows": "many"}}}, "provenance of adherence: claims.p.windows"),
        ({"claims": {"p": {"windows": 1, "spreed": 1}}}, "claims.p.spreed"),
        ({"samples": 2, "spread": 3}, "not an object of counts and spreads"),
    ],
)
def test_a_spread_that_is_none_is_an_error(tmp_path, broken: dict, says: str) -> None:
    baseline = captured("ann", Office(1).window(), {}, now=NOW)
    baseline.provenance["dimensions"]["adherence"] = broken
    save_baseline(tmp_path, baseline)
    with pytest.raises(ConfigError, match=says):
        find_baseline(tmp_path, "ann")


def test_weights_leave_out_what_is_computed_or_unscored() -> None:
    item = dimension("fluency", FIRST)
    item.propositions["p"].weight = 3.0
    assert claim_weights(item) == pytest.approx({"p": 0.75, "q": 0.25})
    item.propositions["_ngram"] = PropositionResult(id="_ngram", claim="", algorithmic=True, score=None, unscored="few")
    assert claim_weights(item) == pytest.approx({"p": 0.75, "q": 0.25}), "a part without a score weighs nothing"
    item.propositions["_ngram"].score = 0.0
    item.propositions["_catchphrase"] = PropositionResult(id="_catchphrase", claim="", algorithmic=True, score=5.0)
    assert judged_share(item) == pytest.approx(0.4)
    assert claim_weights(item) == pytest.approx({"p": 0.3, "q": 0.1})
    item.propositions["q"].score = None
    assert claim_weights(item) == pytest.approx({"p": 0.4})
    item.propositions["p"].weight = 0.0
    assert claim_weights(item) == {"p": 0.0}


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


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({"samples": 3, "spread": {"p": 0.5}}, {"p": (3, 0.5, 2)}),
        ({"samples": 2, "spread": {"p": 0.5}}, {"p": (2, 0.5, 1)}),
        ({"samples": 1, "spread": {"p": 0.5}}, {"p": (1, None, 0)}),
        ({"samples": 4}, {"p": (4, None, 0), "q": (4, None, 0)}),
        ({"samples": None}, {"p": (1, None, 0), "q": (1, None, 0)}),
        ({}, {"p": (1, None, 0), "q": (1, None, 0)}),
    ],
)
def test_what_older_files_say_of_a_spread(known: dict, expected: dict) -> None:
    baseline = captured("ann", {"adherence": dimension("adherence", FIRST)}, {}, now=NOW)
    baseline.provenance["dimensions"]["adherence"] = known
    found = spread_of(baseline, "adherence").claims
    assert {key: (item.samples, item.spread, item.degrees) for key, item in found.items()} == expected


def test_the_median_of_a_dimension_is_that_of_its_claims() -> None:
    item = dimension("adherence", {"p": [9.0, 9.0, 3.0], "q": [5.0, 5.0, 5.0], "r": [4.0]})
    # Of p two of three say 9 where the mean says 7: a third of two points more.
    assert dimension_level([item]).median[0] == pytest.approx((item.score or 0.0) + 2 / 3)
    assert dimension_level([dimension("adherence", {"p": [0.0] * 3, "q": [5.0] * 3})]).median[0] == 2.5
    once = dimension("adherence", {"p": [9.0], "q": [5.0]})
    assert np.isnan(dimension_level([once]).median[0])
    none = item.model_copy(update={"score": None})
    assert dimension_level([none]).windows[0] == 0
    assert dimension_level([none, item]).windows[0] == 1


def test_windows_in_which_a_claim_has_no_score_are_passed_over() -> None:
    first, second = (dimension("adherence", samples) for samples in (FIRST, SECOND))
    del first.propositions["q"]
    first.propositions["p"].score = None
    found = summarised([first, second])
    assert found.claims == pytest.approx({"p": 19 / 3, "q": 16 / 3})
    assert (found.spread.claims["p"].windows, found.spread.claims["q"].windows, found.spread.windows) == (1, 1, 2)
    second.propositions["q"].score = None
    assert summarised([second]).claims.keys() == {"p"}
    assert claim_level([second.propositions["q"]]).windows[0] == 0
    unscored = second.model_copy(update={"score": None})
    for windows in ([unscored], [unscored, first], [first, unscored]):
        with pytest.raises(ValueError, match="each with a score"):
            summarised(windows)


@pytest.mark.parametrize(
    ("samples", "raw", "spread_kept", "count", "degrees"),
    [
        ([], 5.0, 0.5, 1, 0),
        ([5.0, 6.0, 7.0], None, 0.5, 3, 2),
        ([5.0, 6.0], None, None, 2, 0),
        ([7.0], 7.0, None, 1, 0),
    ],
)
def test_a_row_without_its_judgments_keeps_what_it_says(
    samples: list, raw: float | None, spread_kept: float | None, count: int, degrees: int
) -> None:
    level = claim_level([PropositionResult(id="p", claim="c", raw=raw, samples=samples, score=5.0, spread=spread_kept)])
    assert (level.count[0], level.judge.degrees[0]) == (count, degrees)
    assert level.judge.squares[0] == pytest.approx(degrees * 0.25)
    assert np.isnan(level.median[0])


def test_a_margin_is_the_error_of_a_mean() -> None:
    item = dimension("adherence", {"p": [8.0, 6.0], "q": [5.0, 5.0, 2.0]})
    variance = (2.0 + 6.0) / 3
    error = (0.25 * variance / 2 + 0.25 * variance / 3) ** 0.5
    margin = float(stats.t.ppf(0.975, 3)) * error
    alike = dimension("fluency", {"p": [8.0, 8.0]})
    least = float(stats.t.ppf(0.975, 1)) * (1 / 12 / 2) ** 0.5
    assert score_margins({"adherence": item}) == pytest.approx({"adherence": margin, "overall": margin})
    ideas, gone = dimension("ideas_quantity", {"p": [1.0]}), dimension("consistency", {"p": [1.0]})
    found = score_margins(
        {
            "adherence": item,
            "fluency": alike,
            "ideas_quantity": ideas,
            "consistency": gone.model_copy(update={"score": None}),
        }
    )
    assert found == pytest.approx({"adherence": margin, "fluency": least, "overall": (margin**2 + least**2) ** 0.5 / 2})
    assert "overall" not in score_margins({"ideas_quantity": ideas})


def test_a_golden_level_is_what_the_file_says() -> None:
    known = ClaimSpread(windows=3, samples=9, spread=0.5, degrees=6, outliers=1, between=0.4, below=0.3, median=7.0)
    level = golden_level(6.5, known)
    found = [
        float(part[0]) for part in (level.mean, level.median, level.windows, level.between, level.below, level.count)
    ]
    assert found == pytest.approx([6.5, 7.0, 3, 0.16, 0.09, 9])
    judge = level.judge
    parts = (judge.squares, judge.degrees, judge.outliers, judge.all_squares, judge.all_degrees)
    assert [float(part[0]) for part in parts] == pytest.approx([1.5, 6, 1, 1.5, 6])
    assert golden_level(6.5, ClaimSpread(degrees=6)).judge.degrees[0] == 0, (
        "without a spread nothing is known of the judge"
    )
    whole = golden_level(6.5, DimensionSpread(windows=0))
    assert (whole.windows[0], whole.count[0]) == (1, 1)


def test_what_a_golden_claim_weighed() -> None:
    baseline = captured("ann", {"fluency": dimension("fluency", FIRST)}, {}, now=NOW)
    assert golden_weights(baseline, "fluency", ["p", "q"]) == {"p": 0.5, "q": 0.5}
    assert golden_weights(baseline, "fluency", ["p", "new", "_ngram"]) == pytest.approx({"p": 0.5, "new": 0.25})
    assert golden_weights(baseline, "own", ["a", "b"]) == {"a": 0.5, "b": 0.5}
    assert golden_weights(baseline, "fluency", ["_ngram"]) == {}
