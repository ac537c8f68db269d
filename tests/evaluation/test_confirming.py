"""Live runs: what fell by chance is not a regression, what really fell is."""

from collections.abc import Callable

import pytest

from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.evaluation.run import run_evaluation
from persona_pipeline.judging.verdict import JudgeRequest
from persona_pipeline.testing.judges import ScriptedJudge
from persona_pipeline.world import World
from tests.support.worlds import write_yaml


@pytest.fixture
def world(small_world: World) -> World:
    """Ann has four claims of adherence and a baseline of about 8."""
    claims = [{"id": f"p{n}", "claim": f"{{{{agent_name}}}} is dry in way {n}"} for n in range(4)]
    write_yaml(small_world.root / "propositions/adherence/ann.yaml", {"dimension": "adherence", "propositions": claims})
    return small_world


def run(world: World, answer: Callable[[JudgeRequest], int], **options):
    judge = ScriptedJudge(answer, live=True)
    settings = {"agents": ["ann"], "dimensions": ["adherence"], **options}
    return judge, run_evaluation(world, judge, EvaluationRequest(**settings))


def steady(request: JudgeRequest) -> int:
    return 8 if request.sample % 2 else 7


def test_one_unlucky_judgment_is_no_regression(world: World) -> None:
    run(world, steady, samples=4, update_baseline=True)

    def unlucky(request: JudgeRequest) -> int:
        return 1 if request.proposition_id == "p2" and request.sample == 0 else steady(request)

    judge, done = run(world, unlucky)
    assert {request.sample for request in judge.asked} == {0, 1, 2, 3, 4, 5}, "what fell is judged five times more"
    assert done.report.exit_code == 0
    _, hasty = run(world, unlucky, confirm=False)
    assert hasty.report.exit_code == 1


def test_a_claim_that_collapsed_stays_a_regression(world: World) -> None:
    run(world, steady, samples=4, update_baseline=True)
    _, done = run(world, lambda request: 0 if request.proposition_id == "p2" else steady(request))
    assert done.report.exit_code == 1
    assert [drop.proposition_id for drop in done.report.agents["ann"].comparison.drops] == ["p2"]


def test_nothing_is_judged_again_when_nothing_fell(world: World) -> None:
    run(world, steady, samples=2, update_baseline=True)
    judge, done = run(world, steady, samples=2)
    assert max(request.sample for request in judge.asked) == 1
    assert done.report.exit_code == 0


def test_a_recorded_judge_is_never_confirmed(world: World) -> None:
    run(world, steady, update_baseline=True)
    judge = ScriptedJudge(lambda request: 0)
    done = run_evaluation(world, judge, EvaluationRequest(agents=["ann"], dimensions=["adherence"]))
    assert {request.sample for request in judge.asked} == {0}
    assert done.report.exit_code == 1
