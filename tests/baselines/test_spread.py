"""What golden files keep of how scores vary."""

from statistics import fmean, stdev

import pytest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.guard.baselines.golden import captured, find_baseline, save_baseline
from persona_pipeline.guard.baselines.spread import (
    claim_level,
    claim_weights,
    golden_weights,
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
