"""A persona that is still the text of a new world: no way into the product asks a judge about it, and none is green."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

import persona_pipeline as pp
from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.cli.world.checking import check_paths
from persona_pipeline.evaluation.folder import folder_inputs
from persona_pipeline.evaluation.read import WorldReader
from persona_pipeline.evaluation.run import evaluate, run_evaluation
from persona_pipeline.lab.bisect.history import state_of
from persona_pipeline.lab.compare.compare import Contest, compare_versions, scenes_of
from persona_pipeline.lab.interview import InterviewRequest, hold_interview
from persona_pipeline.lab.results import ComparisonRequest
from persona_pipeline.lab.since import compare_since
from persona_pipeline.lab.versions import KnownJudge, Version
from persona_pipeline.testing import ScriptedJudge, WorldBuilder
from persona_pipeline.world import World
from persona_pipeline.world.models import Window
from tests.defs.support import Project, judged_by

TEXTS = {
    "init": "Say here who Bob is, how it writes, and what it never does.",
    "try": "Bob writes in the language en. Describe how Bob writes: who it is, and what it never does.",
}
REFUSED = r"personas/bob\.yaml: persona is still the text of a new world"


@pytest.fixture
def judge() -> ScriptedJudge:
    return ScriptedJudge(lambda _: 9, live=True)


@pytest.fixture(params=TEXTS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    builder = WorldBuilder(tmp_path / "world").persona("ann", "Ann is dry.").persona("bob", TEXTS[request.param])
    builder.claim("adherence", "dry", "{{agent_name}} is dry").claim("fluency", "varied", "{{agent_name}} varies")
    for number in range(12):
        for agent_id in ("ann", "bob"):
            builder.say(agent_id, f"{agent_id} says thing {number}.", at=f"2026-03-{2 + number:02}T09:00:00Z")
    opened = builder.open()
    yield opened
    opened.store.close()


def since(world: World, judge: ScriptedJudge) -> object:
    return compare_since(world, judge, datetime(2026, 3, 8, tzinfo=UTC), EvaluationRequest(confirm=False))


def compare(world: World, judge: ScriptedJudge) -> object:
    side, request = Version("now", world.root), ComparisonRequest()
    contest = Contest(world, (side, side), judge)
    return compare_versions(contest, scenes_of(contest, request), request)


def interview(world: World, judge: ScriptedJudge) -> object:
    # There is no target: nothing is asked of one either.
    return hold_interview(world, InterviewRequest("bob"), [], judge, None)  # pyright: ignore[reportArgumentType]


STRICT: dict[str, Callable[[World, ScriptedJudge], object]] = {
    "evaluate": lambda world, judge: pp.evaluate(world, judge=judge),
    "one dimension": lambda world, judge: pp.evaluate(world, judge=judge, dimensions=["adherence"]),
    "take_baselines": lambda world, judge: pp.take_baselines(world, judge=judge),
    "since": since,
    "compare": compare,
    "interview": interview,
}


@pytest.mark.parametrize("way", STRICT)
def test_it_is_refused_before_a_judge_is_asked(way: str, world: World, judge: ScriptedJudge) -> None:
    with pytest.raises(ConfigError, match=REFUSED):
        STRICT[way](world, judge)
    assert judge.asked == []


def test_it_stops_only_its_own_agent(world: World, judge: ScriptedJudge) -> None:
    assert set(pp.evaluate(world, judge=judge, agents=["ann"]).report.agents) == {"ann"}
    run = run_evaluation(world, judge, EvaluationRequest(), strict=False)
    assert set(run.runs) == {"ann"} and "text of a new world" in str(run.broken["bob"][0])
    assert {request.agent_id for request in judge.asked} == {"ann"}


def test_a_replay_of_it_costs_nothing_and_is_not_green(world: World) -> None:
    assert pp.evaluate(world, judge="recorded").exit_code == 3


def test_bisect_reads_what_is_recorded_of_it(world: World) -> None:
    agent, judge = Version("now", world.root).agent("bob", ["adherence"]), KnownJudge(WorldReader(world).known)
    end = datetime(2026, 3, 20, tzinfo=UTC)
    state = state_of("now", agent, folder_inputs(world.root, end), Window(end), judge)
    assert state.value("adherence") is None and state.unanswered("adherence")


def test_strict_or_not_a_broken_agent_is_known_before_a_judge_is_asked(world: World, judge: ScriptedJudge) -> None:
    request = EvaluationRequest(agents=["ann"], dimensions=["fluency"])
    snapshot = WorldReader(world).snapshot(world.settled(request), judge)
    snapshot = replace(snapshot, inputs=replace(snapshot.inputs, invalid={"ann": (Problem("is not valid"),)}))
    request = request.model_copy(update={"newest_window": True})
    with pytest.raises(ConfigError, match="is not valid"):
        evaluate(snapshot, judge, request)
    assert [*evaluate(snapshot, judge, request, strict=False).broken] == ["ann"] and judge.asked == []


def test_dagster_keeps_it_apart(world: World, judge: ScriptedJudge) -> None:
    with dg.DagsterInstance.ephemeral() as instance, judged_by(judge):
        project = Project(world.root, instance)
        alone, together = project.evaluate("bob"), project.evaluate_all()
        job = project.run("persona_regression")
        judged = instance.event_log_storage.get_materialized_partitions(dg.AssetKey("verdicts"))
    for result in (alone, together, job):
        [failure] = [event.step_failure_data for event in result.all_events if event.is_step_failure]
        assert not result.success and "text of a new world" in failure.error_display_string
    assert judged == {"ann"} and {request.agent_id for request in judge.asked} == {"ann"}


def test_validate_warns_of_it_with_its_line(world: World) -> None:
    path = world.root / "personas" / "bob.yaml"
    checked = check_paths(sorted(path.parent.glob("*.yaml")))
    line = next(
        at for at, text in enumerate(path.read_text("utf-8").splitlines(), 1) if "Bob" in text and "how" in text
    )
    (warning,) = checked.warnings
    assert (warning.path, warning.line, checked.problems) == (str(path), line, [])
    assert "describe who this is" in warning.message
