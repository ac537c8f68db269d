"""Persona claims as asserts, against a small world."""

from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.guard.baselines.golden import load_baseline
from persona_pipeline.judging.verdict import JudgeRequest, Unscored
from persona_pipeline.suites import UngradedError
from persona_pipeline.suites.grading.results import Grade
from tests.conftest import PROJECT
from tests.suites.support import grade, judging

ANSWER = {
    "output_messages": [
        {"role": "assistant", "content": "The label printer is down again (I've named it Gary)."},
        {"role": "assistant", "content": "I'll figure it out before four."},
    ]
}


def propositions(
    folder: Path, root: Path, score: Any, answer: Any = ANSWER, **fields: Any
) -> tuple[Grade, list[JudgeRequest]]:
    item = {"type": "propositions", "agent": "pam", **fields}
    with judging(score=score, world_root=lambda: root) as (services, judge):
        return grade(folder, item, answer, services=services), judge.requests


def test_a_dimensions_score_becomes_a_share_of_nine(tmp_path: Path, sample_root: Path) -> None:
    found, asked = propositions(tmp_path, sample_root, lambda request: 6)
    assert 0 < found.score < 1
    assert found.details is not None
    assert found.details["score"] == pytest.approx(found.score * 9)
    assert asked[0].agent_id == "pam"
    assert asked[0].persona


def test_the_judge_sees_what_was_said_in_the_test_as_the_agents_own(tmp_path: Path, sample_root: Path) -> None:
    _, asked = propositions(tmp_path, sample_root, lambda request: 9)
    content = asked[0].trajectory.content()
    assert [entry["text"] for entry in content] == [message["content"] for message in ANSWER["output_messages"]]
    assert {entry["speaker"] for entry in content} == {"Pam Beesly"}


def test_only_some_claims(tmp_path: Path, sample_root: Path) -> None:
    _, every = propositions(tmp_path, sample_root, lambda request: 9)
    first = every[0].proposition_id
    _, asked = propositions(tmp_path, sample_root, lambda request: 9, only=[first])
    assert [request.proposition_id for request in asked] == [first]


def test_the_same_answer_asks_the_same_judgments(tmp_path: Path, sample_root: Path) -> None:
    keys = [[request.key for request in propositions(tmp_path, sample_root, lambda request: 9)[1]] for _ in range(2)]
    assert keys[0] == keys[1]


@pytest.mark.parametrize(
    ("fields", "score", "reason"),
    [
        ({}, lambda request: Unscored.TIMEOUT, "timeout"),
        ({}, lambda request: Unscored.UNRECORDED, "unrecorded"),
        ({}, lambda request: Unscored.NOT_APPLICABLE, "not_applicable"),
        ({"agent": "nobody"}, lambda request: 9, "invalid_configuration"),
        ({"only": ["no_such_claim"]}, lambda request: 9, "invalid_configuration"),
    ],
)
def test_what_cannot_be_judged_is_an_error(
    tmp_path: Path, sample_root: Path, fields: Any, score: Any, reason: str
) -> None:
    with pytest.raises(UngradedError) as raised:
        propositions(tmp_path, sample_root, score, **fields)
    assert raised.value.reason == reason


def test_one_claim_without_a_score_is_never_left_out(tmp_path: Path, sample_root: Path) -> None:
    _, asked = propositions(tmp_path, sample_root, lambda request: 9)
    worst = asked[-1].proposition_id
    with pytest.raises(UngradedError, match="refusal"):
        propositions(tmp_path, sample_root, lambda r: Unscored.REFUSAL if r.proposition_id == worst else 9)


def test_without_a_world_it_is_an_error(tmp_path: Path) -> None:
    with judging() as (services, _), pytest.raises(UngradedError, match="no_world"):
        grade(tmp_path, {"type": "propositions", "agent": "pam"}, ANSWER, services=services)


def drift(folder: Path, root: Path, score: Any, **fields: Any) -> Grade:
    with judging(score=score, world_root=lambda: root) as (services, _):
        return grade(folder, {"type": "persona_drift", "agent": "pam", **fields}, ANSWER, services=services)


def best(request: JudgeRequest) -> int:
    """The best raw score of a claim; an inverted one is best at 0."""
    from persona_pipeline.world.propositions.loading import load_proposition_set

    claims = load_proposition_set(PROJECT / "propositions", request.dimension, request.agent_id).propositions
    return 0 if next(claim for claim in claims if claim.id == request.proposition_id).inverted else 9


def test_only_an_answer_below_the_baseline_drifts(tmp_path: Path, sample_root: Path) -> None:
    assert drift(tmp_path, sample_root, best).score == 1
    found = drift(tmp_path, sample_root, lambda request: 9 - best(request))
    assert found.score == 0
    baseline = load_baseline(sample_root / "baselines/pam.json")
    assert f"baseline {baseline.dimensions['adherence']:.2f}" in found.misses[0]


def test_one_collapsed_claim_is_a_drift_although_the_mean_holds(tmp_path: Path, sample_root: Path) -> None:
    _, asked = propositions(tmp_path, sample_root, best)
    worst = asked[0].proposition_id

    def score(request: JudgeRequest) -> int:
        return 9 - best(request) if request.proposition_id == worst else best(request)

    assert drift(tmp_path, sample_root, score, delta=9).score == 0
    assert drift(tmp_path, sample_root, score, delta=9, proposition_delta=9).score == 1


def test_no_baseline_is_an_error_and_no_pass(tmp_path: Path, sample_root: Path) -> None:
    (sample_root / "baselines/pam.json").unlink()
    with pytest.raises(UngradedError, match="no_baseline"):
        drift(tmp_path, sample_root, best)
