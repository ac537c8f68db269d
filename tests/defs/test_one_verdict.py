"""Every reader of a run gives the verdict that the run was saved with, whatever became of it.

A week that held comes before each run: no reader may answer from it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.base.status import ACCEPTED, BROKEN, NOTHING, STATUSES, VERDICTS, Result, Status
from persona_pipeline.defs.agents import outcomes
from persona_pipeline.defs.agents import verdicts as checks
from persona_pipeline.defs.agents.specs import Specs, build_specs
from persona_pipeline.defs.agents.verdicts import AgentVerdict, agent_line, compared_lines, failure_of, overview
from persona_pipeline.defs.cohort import week_outcome
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.evaluation.run import run_evaluation
from persona_pipeline.guard.baselines.models import BaselineComparison, DimensionComparison
from persona_pipeline.guard.report import AgentEvaluation, AgentReport, Conclusion, Finding, RunReport
from persona_pipeline.judging.verdict import JudgeRequest, Unscored, Verdict
from persona_pipeline.reporting.notify import report_notice
from persona_pipeline.reporting.render import render
from persona_pipeline.reporting.view import ReportView
from persona_pipeline.testing.judges import ScriptedJudge
from persona_pipeline.testing.worlds import WorldBuilder
from persona_pipeline.viewer.runs import agent_page, everybody
from persona_pipeline.world import World
from persona_pipeline.world.propositions.models import ALL_DIMENSIONS
from tests.defs.support import Project
from tests.support.evaluating import stored_report
from tests.support.worlds import write_jsonl

AGENTS = ["ann", "bob"]
GOOD, BAD = "2026-03-08T23:00:00Z", "2026-03-15T23:00:00Z"
Answer = Callable[[JudgeRequest], Verdict | int]


def failing(share: int) -> Answer:
    """Return a judge's function that leaves one in so many of the claims without an answer."""
    asked: dict[str, int] = {}

    def answer(request: JudgeRequest) -> Verdict | int:
        place = asked.setdefault(request.proposition_id, len(asked))
        if place % share:
            return 8
        return Verdict(request.proposition_id, unscored=Unscored.API_ERROR, detail="the judge is down")

    return answer


def unrecorded(request: JudgeRequest) -> Verdict:
    return Verdict(request.proposition_id, unscored=Unscored.UNRECORDED, detail="nothing is recorded")


@dataclass(frozen=True)
class State:
    """What happens in the second week, and what every reader must say of it."""

    answer: Answer
    verdict: Result
    exit_code: int
    silent: bool = False
    rules: Mapping[str, Any] = field(default_factory=dict)


STATES = {
    "nothing judged": State(unrecorded, Result.CANNOT_TELL, 3),
    "part judged": State(failing(2), Result.CANNOT_TELL, 3),
    "judge down": State(failing(1), Result.CANNOT_TELL, 3),
    "nothing said": State(lambda _: 8, Result.CANNOT_TELL, 3, silent=True),
    # A drop of 0.3 is beyond the delta, and may be chance.
    "undecided": State(
        lambda request: 7 if request.proposition_id.endswith("-2") else 8,
        Result.CANNOT_TELL,
        3,
        rules={"regression_delta": 0.1, "undecided_delta": 0.1},
    ),
    "held": State(lambda _: 8, Result.HELD, 0),
    "fell": State(lambda _: 0, Result.FELL, 1),
}


def two_weeks(root: Path, state: State) -> WorldBuilder:
    builder = WorldBuilder(root).persona("ann", "Ann is dry and brief.").persona("bob", "Bob loves machines.")
    # Several claims a dimension: a part of them can be judged.
    for dimension in ("adherence", "fluency"):
        for number in range(3):
            builder.claim(dimension, f"{dimension}-{number}", f"{{{{agent_name}}}} has habit {number} of {dimension}")
    for week, day in (("first", 2), ("second", 9)):
        for number in range(4):
            for agent_id in AGENTS:
                if week == "first" or not (state.silent and agent_id == "ann"):
                    said = f"{agent_id} says thing {number} of the {week} week, about kettle {number}."
                    builder.say(agent_id, said, at=f"2026-03-{day + number:02}T09:{AGENTS.index(agent_id):02}:00Z")
    return builder


def evaluated(world: World, answer: Answer, as_of: str, **asked: Any) -> RunReport:
    request = EvaluationRequest(window="7d", as_of=datetime.fromisoformat(as_of), samples=3, **asked)
    return run_evaluation(world, ScriptedJudge(answer), request).report


@pytest.fixture(params=STATES)
def state(request: pytest.FixtureRequest) -> State:
    return STATES[request.param]


@pytest.fixture
def world(tmp_path: Path, database_url: str, state: State) -> Iterator[World]:
    opened = two_weeks(tmp_path / "world", state).open(database_url)
    yield opened
    opened.store.close()


@pytest.fixture
def report(world: World, state: State) -> RunReport:
    """The run as the command line has it: its verdict and exit code are what all others must say."""
    assert evaluated(world, lambda _: 8, GOOD, update_baseline=True).exit_code == 0
    return evaluated(world, state.answer, BAD, **state.rules)


def specs() -> Specs:
    return build_specs(Place())


def test_every_reader_says_what_the_run_says(world: World, report: RunReport, state: State) -> None:
    said = report.agents["ann"]
    assert (said.conclusion.verdict, report.exit_code) == (state.verdict, state.exit_code)
    word = state.verdict.status.word

    stored = stored_report(world, AGENTS)
    assert (stored.agents["ann"].conclusion, stored.exit_code) == (said.conclusion, state.exit_code)
    [line, _] = compared_lines(world)
    assert line.run_id == said.evaluation.run_id
    assert (line.conclusion, line.label) == (said.conclusion, word)
    assert agent_line(checks.newest_reports(["ann"], world)["ann"]).conclusion == said.conclusion

    known = specs()
    results = [
        gate.result(known, checks.newest_reports(["ann"], world)["ann"], line) for gate in checks.GATE if gate.blocking
    ]
    assert all(item.passed for item in results) is (state.exit_code == 0)
    assert (failure_of([line]) is None) is (state.exit_code == 0)
    with dg.DagsterInstance.ephemeral() as instance:
        everyone = checks.all_in_character(known, instance, world, None)
    assert everyone.passed is (state.verdict is Result.HELD)
    # Bob is judged alike in all states but the one in which only ann is silent.
    assert word in (everyone.description or "")
    assert (outcomes.in_character_outcome(line) is not None) is (state.verdict is Result.HELD)
    assert outcomes.verdict_outcome(said).metadata["verdict"] == word
    assert week_outcome(said).metadata["verdict"] == word

    page = agent_page(world, "ann")
    assert page is not None
    assert page["row"].conclusion == said.conclusion and page["run"].id == said.evaluation.run_id
    assert {row.agent_id: row.conclusion for row in everybody(world)["rows"]}["ann"] == said.conclusion
    assert (report_notice(report) is None) is (state.exit_code == 0)


def test_a_world_in_which_no_agent_was_evaluated_is_not_in_character(small_world: World) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        said = checks.all_in_character(specs(), instance, small_world, None)
    assert not said.passed and "in character" not in (said.description or "")


def test_a_new_week_of_which_nothing_is_recorded_fails_the_run(sample: Project) -> None:
    assert sample.evaluate("pam").success
    said = {"agent_id": "pam", "channel": "general", "text": "Something quite different."}
    later = [{"id": f"late-{n}", "created_at": f"2026-06-29T1{n}:00:00Z", **said} for n in range(5)]
    write_jsonl(sample.root / "messages" / "later.jsonl", later)
    result = sample.evaluate("pam")
    assert not result.success
    checked = {item.check_name: item.passed for item in result.get_asset_check_evaluations()}
    assert checked["full_coverage"] is False and checked["all_in_character"] is False
    assert not sample.evaluate("pam", ("in_character",)).success
    about = {"ops": {"regression_report": {"config": {"agents": ["pam"]}}}}
    assert not sample.materialize("regression_report", about).success


# What a dimension's comparison may be, as its type says.
DIMENSION_STATUSES = DimensionComparison.model_fields["status"].annotation.__args__  # type: ignore[union-attr]


def compared_as(name: str) -> RunReport:
    """Return a run in which the comparison of one dimension has a status."""
    status = STATUSES[name]
    score = None if name in ("unscored", "incomplete") else 5.0
    evaluation: dict[str, Any] = {"dimension": "fluency", "score": score}
    findings = []
    if status.exit_code:
        finding = Finding(
            kind="coverage", exit_code=status.exit_code, message=name, agent_id="ann", dimension="fluency"
        )
        findings = [finding]
    compared = DimensionComparison(dimension="fluency", status=name, baseline=6.0, current=score)  # type: ignore[arg-type]
    agent = AgentReport(
        evaluation=AgentEvaluation.model_validate(
            {
                "run_id": "r",
                "agent_id": "ann",
                "display_name": "Ann",
                "dimensions": {"fluency": evaluation},
                "window_end": BAD,
                "sample_size": 3,
            }
        ),
        comparison=BaselineComparison(agent_id="ann", dimensions={"fluency": compared}),
        findings=findings,
    )
    return RunReport(agents={"ann": agent}, exit_code=status.exit_code)


@pytest.mark.parametrize("name", DIMENSION_STATUSES)
def test_every_surface_shows_every_status_of_a_dimension(name: str) -> None:
    report, status = compared_as(name), STATUSES[name]
    [row] = ReportView(report).rows
    for form in ("json", "html", "markdown", "junit"):
        assert render(report, form)
    assert status.word in str(outcomes.verdict_outcome(report.agents["ann"]).metadata["comparison"])
    assert row.status.exit_code == status.exit_code
    junit = render(report, "junit")
    assert ("<failure" in junit, "<error" in junit) == (status.junit == "failure", status.junit == "error")
    assert (report_notice(report) is None) is (status.exit_code == 0)
    line = agent_line(report.agents["ann"])
    assert line.label in overview([line]) and (failure_of([line]) is None) is (status.exit_code == 0)


@pytest.mark.parametrize("status", VERDICTS, ids=lambda status: status.name)
def test_every_surface_shows_every_status_of_an_agent(status: Status) -> None:
    verdict = None if status in (NOTHING, BROKEN) else Result("held" if status is ACCEPTED else status.name)
    conclusion = Conclusion(verdict=verdict, accepted=status is ACCEPTED)
    line = AgentVerdict(agent_id="ann", conclusion=conclusion, broken=["x"] if status is BROKEN else [])
    assert line.label == status.word
    assert status.word in overview([line])
    if verdict is not None:
        assert conclusion.status is status


def test_no_two_statuses_look_alike() -> None:
    assert len({status.word for status in VERDICTS}) == len({status.icon for status in VERDICTS}) == len(VERDICTS)
    assert {*DIMENSION_STATUSES, *Result} <= STATUSES.keys()
    assert all(dimension in ALL_DIMENSIONS for dimension in ("adherence", "fluency"))
