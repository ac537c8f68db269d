"""Every case of the shared conformance file, run against the functions that others rely on by name."""

import json
import re
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.corrections.records import Action, decide
from persona_pipeline.guard.baselines.regression import Rules, compare
from persona_pipeline.guard.baselines.statistics import cohens_d, welch
from persona_pipeline.scoring.results import final_score
from persona_pipeline.scoring.text.agreement import agreement_ratio
from persona_pipeline.scoring.text.tokens import (
    corpus_repetition,
    extract_ngrams,
    overlap,
    pairwise_similarity,
    vocabulary_stats,
)
from persona_pipeline.world.models import parse_window, window_indices
from persona_pipeline.world.propositions.loading import load_proposition_set
from persona_pipeline.world.propositions.models import (
    ACTION_LEVEL_WINDOW_DEFAULTS,
    EVALUATION_WINDOW_DEFAULTS,
    PropositionSet,
    fill_template,
)
from tests.baselines.test_regression import evaluated, golden

CASES = json.loads((Path(__file__).parent / "persona.json").read_text(encoding="utf-8"))
FIELD_NAMES = {"avg_sentence_length": "average_sentence_length"}


def snake(name: str) -> str:
    """The case file's camelCase as our name."""
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return FIELD_NAMES.get(plain, plain)


def ngram_extract(given: dict[str, Any], _: Path) -> Any:
    return extract_ngrams(given["text"], given["n"])


def ngram_overlap(given: dict[str, Any], _: Path) -> Any:
    return overlap(given["a"], given["b"])


def ngram_corpus_repetition(given: dict[str, Any], _: Path) -> Any:
    return corpus_repetition(given["messages"], given["n"])


def text_vocabulary_stats(given: dict[str, Any], _: Path) -> Any:
    return asdict(vocabulary_stats(given["messages"]))


def text_pairwise_similarity(given: dict[str, Any], _: Path) -> Any:
    return {"-".join(pair): value for pair, value in pairwise_similarity(given["agents"]).items()}


def loader_template(given: dict[str, Any], _: Path) -> Any:
    return fill_template(given["text"], given["variables"])


def loader_merge(given: dict[str, Any], folder: Path) -> Any:
    dimension = folder / given["dimension"]
    dimension.mkdir()
    if given["default_yaml"] is not None:
        (dimension / "_default.yaml").write_text(given["default_yaml"], encoding="utf-8")
    if given["agent_yaml"] is not None:
        name = f"{given['agent_id'] or 'bob'}.{given['agent_file_ext']}"
        (dimension / name).write_text(given["agent_yaml"], encoding="utf-8")
    loaded = load_proposition_set(folder, given["dimension"], given["agent_id"])
    return plain(loaded, given["variables"])


def plain(propositions: PropositionSet, variables: dict[str, str]) -> dict[str, Any]:
    """A set as the case file writes it: claims filled in, without the key `level` of our own."""
    data = propositions.to_dict()
    assert data.pop("level") == "evaluation"
    for proposition in data["propositions"]:
        proposition["claim"] = fill_template(proposition["claim"], variables)
    return data


def score_invert(given: dict[str, Any], _: Path) -> Any:
    return final_score(given["raw"], inverted=given["inverted"], hard=False)


def score_hard(given: dict[str, Any], _: Path) -> Any:
    return final_score(given["score"], inverted=False, hard=given["hard"])


def score_invert_then_hard(given: dict[str, Any], _: Path) -> Any:
    return final_score(given["raw"], inverted=given["inverted"], hard=given["hard"])


def harness_parse_window(given: dict[str, Any], _: Path) -> Any:
    return {"hours": parse_window(given["window"]) / timedelta(hours=1)}


def regression_detect(given: dict[str, Any], _: Path) -> Any:
    now = {name: evaluated(score) for name, score in given["current"].items()}
    found = compare("ann", now, golden(given["baseline"]), Rules(regression_delta=given["delta"])).regressions
    return [regression.model_dump(include={"dimension", "baseline", "current", "delta"}) for regression in found]


def stats_welch(given: dict[str, Any], _: Path) -> Any:
    return asdict(welch(given["a"], given["b"]))


def stats_cohens_d(given: dict[str, Any], _: Path) -> Any:
    return cohens_d(given["a"], given["b"])


def window_apply(given: dict[str, Any], _: Path) -> Any:
    return window_indices(given["length"], given["first_n"], given["last_n"])


def agreement(given: dict[str, Any], _: Path) -> Any:
    ratio = agreement_ratio(given["messages_oldest_first"][-given["window"] :])
    return {"ratio": ratio, "fires": ratio > given["threshold"]}


def spec_gate(given: dict[str, Any], _: Path) -> Any:
    names = {Action.COMMIT: "commit", Action.RETRY: "feedback_retry", Action.FORCE: "force_through"}
    if "judge" in given:
        assert given["judge"] == "timeout_after_5s"
        return {"action": names[decide(None, given["threshold"], attempt=1, max_attempts=2)]}
    action = decide(
        given["score"],
        given["threshold"],
        attempt=given["retries_used"] + 1,
        max_attempts=given["max_correction_attempts"],
    )
    return {"action": names[action]}


def spec_window_defaults(given: dict[str, Any], _: Path) -> Any:
    defaults = {"action": ACTION_LEVEL_WINDOW_DEFAULTS, "evaluation": EVALUATION_WINDOW_DEFAULTS}
    empty = PropositionSet("adherence", (), first_n=given["first_n"], last_n=given["last_n"])
    first_n, last_n = empty.window(defaults[given["context"]])
    return {"first_n": first_n, "last_n": last_n}


AREAS: dict[str, Callable[[dict[str, Any], Path], Any]] = {
    "agreement.ratio": agreement,
    "harness.parse_window": harness_parse_window,
    "loader.merge": loader_merge,
    "loader.template": loader_template,
    "ngram.corpus_repetition": ngram_corpus_repetition,
    "ngram.extract": ngram_extract,
    "ngram.overlap": ngram_overlap,
    "regression.detect": regression_detect,
    "score.hard": score_hard,
    "score.invert": score_invert,
    "score.invert_then_hard": score_invert_then_hard,
    "spec.gate": spec_gate,
    "spec.window_defaults": spec_window_defaults,
    "stats.cohens_d": stats_cohens_d,
    "stats.welch": stats_welch,
    "text.pairwise_similarity": text_pairwise_similarity,
    "text.vocabulary_stats": text_vocabulary_stats,
    "window.apply": window_apply,
}


def approximate(value: Any, tolerance: float) -> Any:
    if isinstance(value, dict):
        return {snake(key) if "-" not in key else key: approximate(item, tolerance) for key, item in value.items()}
    if isinstance(value, list):
        return [approximate(item, tolerance) for item in value]
    if isinstance(value, float | int) and not isinstance(value, bool):
        return pytest.approx(value, abs=tolerance, rel=tolerance)
    return value


@pytest.mark.parametrize("case", CASES, ids=[f"{case['area']}: {case['case']}" for case in CASES])
def test_case(case: dict[str, Any], tmp_path: Path) -> None:
    run = AREAS[case["area"]]
    if case["expected"] == {"$error": True}:
        with pytest.raises(ConfigError):
            run(case["input"], tmp_path)
        return
    assert run(case["input"], tmp_path) == approximate(case["expected"], case.get("tolerance", 0))


def test_every_area_of_the_file_is_run() -> None:
    assert len(CASES) == 85
    assert {case["area"] for case in CASES} == set(AREAS)
