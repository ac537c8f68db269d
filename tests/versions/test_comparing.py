"""Two versions of a world, scene by scene, with a judge that says what it is told to."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.versions import contest_of, world_of
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.judging.verdict import JudgeRequest, Unscored, Usage, Verdict
from persona_pipeline.lab.answering import Answering
from persona_pipeline.lab.compare.compare import (
    Contest,
    compare_versions,
    estimate_comparison,
    moments,
    scenes_of,
)
from persona_pipeline.lab.results import ComparisonRequest, ScoreChange, VersionComparison, read_comparison
from persona_pipeline.lab.versions import Version, open_versions, split_versions
from persona_pipeline.reporting.pages.versions import comparison_page
from persona_pipeline.reporting.terminal import page_text
from persona_pipeline.suites.running.plan import Targets
from persona_pipeline.testing import ScriptedJudge, WorldBuilder
from persona_pipeline.world import World
from tests.world.test_changes import git

WEEKS = 18


@pytest.fixture
def builder(tmp_path: Path) -> WorldBuilder:
    """Ann speaks every week; her persona is committed, then edited."""
    builder = WorldBuilder(tmp_path / "world").persona("ann", "Ann is dry.").persona("bob", "Bob is loud.")
    for name in ("dry", "brief"):
        builder.claim("adherence", name, f"{{{{agent_name}}}} is {name}")
    builder.claim("fluency", "varied", "{{agent_name}} varies")
    for week in range(WEEKS):
        builder.say("ann", f"Week {week}.", at=f"2026-{3 + week // 4:02}-{1 + 7 * (week % 4):02}T09:00:00Z")
    git(builder.root, "init", "-q")
    commit(builder.root)
    return builder


def commit(root: Path) -> None:
    git(root, "add", "-A")
    git(root, "commit", "-q", "--allow-empty", "-m", "x")


@contextmanager
def contest(world: World, judge: ScriptedJudge, before: str = "HEAD", after: str = "") -> Iterator[Contest]:
    with open_versions(world.root, before, after) as sides:
        yield Contest(world, sides, judge)


def compared(
    world: World, answer: Callable[[JudgeRequest], Verdict | int], *, live: bool = True, **asked: object
) -> tuple[VersionComparison, ScriptedJudge]:
    judge = ScriptedJudge(answer, live=live)
    request = ComparisonRequest(**asked)  # pyright: ignore[reportArgumentType]
    with contest(world, judge) as found:
        return compare_versions(found, scenes_of(found, request), request), judge


def by_persona(request: JudgeRequest) -> int:
    noise = random.Random(request.key).choice((0, 0, 1))
    return 8 - noise - (3 if "rude" in (request.persona or "") else 0)


def test_a_worse_persona_is_found_and_what_cannot_have_changed_is_never_asked(builder: WorldBuilder) -> None:
    builder.persona("ann", "Ann is rude.")
    found, judge = compared(builder.open(), by_persona, agents=["ann"])
    agent = found.agents["ann"]
    assert agent.persona_changed
    adherence, fluency = agent.dimensions["adherence"], agent.dimensions["fluency"]
    assert adherence.moved is ScoreChange.FELL
    assert adherence.low is not None and adherence.high is not None
    assert adherence.low < -3 < adherence.high < 0
    assert {item.id for item in agent.moved} <= {"dry", "brief"}
    assert fluency.asked_alike and fluency.moved is ScoreChange.SAME
    assert {request.dimension for request in judge.asked} == {"adherence"}
    assert found.stopped == "all is decided"
    assert agent.scenes < WEEKS
    assert found.exit_code == 1
    assert read_comparison(found.model_dump_json(), "x") == found


def test_what_stays_open_after_all_scenes_is_not_green(builder: WorldBuilder) -> None:
    builder.persona("ann", "Ann is rude.")
    found, _ = compared(builder.open(), lambda item: random.Random(item.key).randrange(10), agents=["ann"])
    assert found.agents["ann"].dimensions["adherence"].moved is ScoreChange.OPEN
    assert (found.fell, found.exit_code) == ([], 3)


def test_an_estimate_leaves_out_what_cannot_have_changed(builder: WorldBuilder) -> None:
    builder.persona("ann", "Ann is rude.")
    judge = ScriptedJudge(lambda item: random.Random(item.key).randrange(10), live=True)
    request = ComparisonRequest(agents=["ann"])
    with contest(builder.open(), judge) as found:
        scenes = scenes_of(found, request)
        told = estimate_comparison(found, scenes, request, None)
        compare_versions(found, scenes, request)
    assert f"\n{len(judge.asked)} calls to " in told


def test_the_same_version_twice_costs_nothing(builder: WorldBuilder) -> None:
    found, judge = compared(builder.open(), by_persona, agents=["ann"])
    assert judge.asked == []
    assert found.exit_code == 0
    assert {item.moved for agent in found.agents.values() for item in agent.dimensions.values()} == {ScoreChange.SAME}


def test_an_edited_claim_is_compared_and_the_others_are_not(builder: WorldBuilder) -> None:
    path = builder.root / "propositions" / "adherence" / "_default.yaml"
    path.write_text(path.read_text("utf-8").replace("is brief", "is never wrong"), "utf-8")
    found, _ = compared(
        builder.open(), lambda item: 2 if "wrong" in item.claim else 8, agents=["ann"], dimensions=["adherence"]
    )
    agent = found.agents["ann"]
    assert agent.dimensions["adherence"].moved is ScoreChange.FELL
    (claim,) = (*agent.moved, *agent.suspects)
    assert (claim.id, claim.edited, claim.difference.change) == ("brief", True, -6.0)


def unrecorded(request: JudgeRequest) -> Verdict:
    return Verdict(request.proposition_id, unscored=Unscored.UNRECORDED)


@pytest.mark.parametrize(
    ("answer", "left_out", "exit_code"),
    [
        pytest.param(unrecorded, WEEKS, 3, id="nothing is recorded"),
        pytest.param(
            lambda item: unrecorded(item) if "rude" in (item.persona or "") else 8, 0, 3, id="one side is not recorded"
        ),
        pytest.param(
            lambda item: unrecorded(item) if item.trajectory.entries[0].text > "Week 8" else by_persona(item),
            2,
            1,
            id="some scenes are not recorded at all",
        ),
    ],
)
def test_what_is_not_recorded_is_said(
    builder: WorldBuilder, answer: Callable[[JudgeRequest], Verdict | int], left_out: int, exit_code: int
) -> None:
    builder.persona("ann", "Ann is rude.")
    found, _ = compared(builder.open(), answer, live=False, agents=["ann"], dimensions=["adherence"])
    assert (found.agents["ann"].left_out, found.exit_code) == (left_out, exit_code)


def test_half_a_scene_is_no_pair_when_money_runs_out(builder: WorldBuilder) -> None:
    builder.persona("ann", "Ann is rude.")
    asked = []

    def answer(request: JudgeRequest) -> Verdict:
        asked.append(request)
        if len(asked) > 6:
            return Verdict(request.proposition_id, unscored=Unscored.BUDGET)
        return Verdict(request.proposition_id, score=5, usage=Usage(calls=1, usd=0.01))

    found, _ = compared(builder.open(), answer, agents=["ann"], dimensions=["adherence"])
    assert found.exit_code == 4
    assert found.agents["ann"].dimensions["adherence"].scenes == 1
    assert found.usage.calls == 6
    assert found.usd == pytest.approx(0.06)


def test_what_one_version_alone_has_is_named_and_unknown_agents_are_refused(builder: WorldBuilder) -> None:
    builder.persona("cat", "A cat.").claim("adherence", "new", "{{agent_name}} is new")
    found, _ = compared(builder.open(), lambda item: 8)
    assert found.only_after == ("cat",) and found.agents["ann"].only_after == ("adherence/new",)
    assert not [item for item in found.agents["ann"].claims if item.id == "new"]
    with pytest.raises(ConfigError, match="cat: not in both versions"):
        compared(builder.open(), lambda item: 8, agents=["cat"])


def test_what_is_wrong_in_a_commit_is_said_of_the_commit(builder: WorldBuilder) -> None:
    path = builder.root / "personas" / "ann.yaml"
    kept = path.read_text("utf-8")
    path.write_text("persona: 1\n", "utf-8")
    commit(builder.root)
    path.write_text(kept, "utf-8")
    with pytest.raises(ConfigError, match=r"HEAD:personas/ann\.yaml"):
        compared(builder.open(), lambda item: 8)


@pytest.mark.parametrize(
    ("text", "sides"),
    [
        ("main..HEAD", ("main", "HEAD")),
        ("main..", ("main", "HEAD")),
        ("main", ("main", "")),
        ("main...topic", ("main...topic", "topic")),
    ],
)
def test_versions_are_named_as_git_does(text: str, sides: tuple[str, str]) -> None:
    assert split_versions(text) == sides


def test_three_dots_compare_with_where_the_two_parted(builder: WorldBuilder) -> None:
    git(builder.root, "branch", "topic")
    builder.persona("bob", "Bob is gone.")
    commit(builder.root)
    with open_versions(builder.root, "HEAD...topic", "topic") as (before, after):
        assert before.revision is not None and after.revision is not None
        assert before.revision.id == after.revision.id


def test_two_folders_are_compared_and_one_without_personas_is_refused(builder: WorldBuilder, tmp_path: Path) -> None:
    other = WorldBuilder(tmp_path / "other").persona("ann", "Ann is rude.")
    other.claim("adherence", "dry", "{{agent_name}} is dry")
    judge = ScriptedJudge(by_persona, live=True)
    request = ComparisonRequest(dimensions=["adherence"])
    with contest(builder.open(), judge, str(builder.root), str(other.root)) as opened:
        found = compare_versions(opened, scenes_of(opened, request), request)
    assert found.fell[0] == "ann/adherence"
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="is no world"), contest(builder.open(), judge, str(tmp_path / "empty")):
        pass


@pytest.mark.parametrize(("drop", "moved", "code"), [(0.0, ScoreChange.SAME, 0), (2.0, ScoreChange.FELL, 1)])
def test_answers_of_both_are_judged_until_it_is_decided(
    tmp_path: Path, drop: float, moved: ScoreChange, code: int
) -> None:
    world, request = world_of(tmp_path, 4), ComparisonRequest(agents=["ann"], dimensions=["adherence"], scenes=80)
    opened, counted = contest_of(world, 3, 0.3, drop, 4)
    found = compare_versions(opened, {"ann": moments(world, "ann", request)}, request)
    item = found.agents["ann"].dimensions["adherence"]
    assert (item.moved, found.exit_code, found.stopped) == (moved, code, "all is decided")
    assert found.answers == 2 * found.agents["ann"].scenes < 80
    assert counted["judged"] == 4 * found.answers


def test_scenes_of_one_conversation_count_once(tmp_path: Path) -> None:
    """Ann is worse in each of twenty answers, in four conversations: four differences, which chance explains."""
    builder = WorldBuilder(tmp_path).persona("ann", "Ann.").persona("bob", "Bob.").claim("adherence", "dry", "Is dry")
    for day in range(1, 5):
        for minute in range(20):
            builder.say("ann" if minute % 2 else "bob", f"{day}, {minute}.", at=f"2026-03-0{day}T09:{minute:02}:00Z")
    world = builder.open()
    world.sync()
    request = ComparisonRequest(agents=["ann"], dimensions=["adherence"], scenes=20, window="30d")
    scenes = moments(world, "ann", request)
    assert [len({scene.conversation for scene in scenes[start : start + 5]}) for start in range(0, 20, 5)] == [1] * 4
    said = iter(range(100))
    targets = Targets.of({"before": lambda _: f"Yes {next(said)}.", "after": lambda _: f"No {next(said)}."})
    judge = ScriptedJudge(lambda item: 8 if "Yes" in item.trajectory.entries[-1].text else 5, live=True)
    asks = Answering((targets.open("before"), targets.open("after")))
    sides = (Version("before", world.root), Version("after", world.root))
    found = compare_versions(Contest(world, sides, judge, asks), {"ann": scenes}, request)
    agent = found.agents["ann"]
    assert (agent.scenes, agent.conversations, agent.dimensions["adherence"].scenes) == (20, 4, 20)
    assert (agent.dimensions["adherence"].moved, agent.dimensions["adherence"].change) == (ScoreChange.OPEN, -3.0)
    assert "which count as 4 conversations" in page_text(comparison_page(found))
    apart = {"ann": moments(world, "ann", replace(request, scenes=3))}
    assert len({scene.conversation for scene in apart["ann"]}) == 3


def test_neighbouring_windows_count_once(builder: WorldBuilder) -> None:
    builder.persona("ann", "Ann is rude.")
    found, _ = compared(builder.open(), by_persona, agents=["ann"], dimensions=["adherence"], live=False)
    agent = found.agents["ann"]
    assert (agent.scenes, agent.conversations) == (WEEKS, WEEKS // 2)


def test_answers_that_were_given_before_are_no_new_evidence(tmp_path: Path) -> None:
    """Two bots that always say the same: one noisy judgment of each must not be counted forty times."""
    world, request = world_of(tmp_path, 2), ComparisonRequest(agents=["ann"], dimensions=["adherence"], scenes=40)
    targets = Targets.of({"before": lambda prompt: "Yes.", "after": lambda prompt: "No."})
    answering = Answering((targets.open("before"), targets.open("after")))
    judge = ScriptedJudge(lambda item: 8 if item.trajectory.entries[0].text == "Yes." else 7, live=True)
    sides = (Version("before", world.root), Version("after", world.root))
    scenes = {"ann": moments(world, "ann", request)}
    found = compare_versions(Contest(world, sides, judge, answering), scenes, request)
    agent = found.agents["ann"]
    assert (agent.scenes, agent.repeated, agent.dimensions["adherence"].scenes) == (40, 39, 1)
    assert agent.dimensions["adherence"].moved is ScoreChange.OPEN
