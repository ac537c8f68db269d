"""People's labels in a world: what they change in every evaluation, and a judge that is another one."""

import json
import random
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.people import DRIFTS, anchors
from persona_pipeline.base.errors import ConfigError, NothingError
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.cli.app import app
from persona_pipeline.evaluation import calibrate
from persona_pipeline.evaluation.calibrate import Judgment, calibrate_world, judged_population, plan_canaries
from persona_pipeline.evaluation.read import WorldReader
from persona_pipeline.evaluation.run import run_evaluation
from persona_pipeline.guard.baselines.golden import BASELINES, find_baseline, save_baseline
from persona_pipeline.guard.calibration.judge_change import (
    CHANGES,
    JudgeName,
    judge_change,
    load_judge_changes,
    save_judge_changes,
)
from persona_pipeline.guard.labels.files import LABELS, Label, LabellerKind, label_of, write_label_files
from persona_pipeline.guard.report import RunReport
from persona_pipeline.judging.cache import note_ability
from persona_pipeline.judging.open import open_judge
from persona_pipeline.reporting.markdown import render_comment
from persona_pipeline.reporting.render import render
from persona_pipeline.world import World
from persona_pipeline.world.models import Window
from persona_pipeline.world.propositions.loading import PROPOSITIONS, find_proposition_set
from tests.support.messages_server import Call, MessagesServer, Reply, message, verdicts
from tests.support.reports import report_text

SAME = DRIFTS[0]
Answer = Callable[[float], int | None]
BELIEVES: Answer = lambda score: min(9, max(0, round(score) - 1))  # noqa: E731


@pytest.fixture
def world(sample_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("PERSONA_ROOT", str(sample_root))
    opened = World.open()
    yield opened
    opened.store.close()


def score_of(item: Judgment) -> float | None:
    """Mean raw score of a judgment, 0-9; None: no judge gave one."""
    scores = [verdict.score for verdict in item.verdicts if verdict.score is not None]
    return fmean(scores) if scores else None


def label(world: World, answer: Answer, count: int, *, kind: LabellerKind = LabellerKind.PERSON) -> None:
    """Label judgments of adherence, spread over all there are."""
    judgments = sorted(judged_population(world, dimensions=["adherence"]), key=lambda item: item.key)
    labels = [
        label_of(item.request, answer(score_of(item) or 0.0), labeller="eva", kind=kind)
        for item in judgments
        if score_of(item) is not None
    ]
    write_label_files(Label, world.root / LABELS, labels[:count])


def evaluated(world: World, **asked: object) -> RunReport:
    request = EvaluationRequest(dimensions=["adherence"], **asked)  # pyright: ignore[reportArgumentType]
    return run_evaluation(world, open_judge("recorded", world), request).report


def kinds(report: RunReport) -> set[str]:
    return {finding.kind for finding in report.all_findings()}


def test_without_labels_a_report_says_so_once(world: World) -> None:
    report = evaluated(world)
    assert "regression" in kinds(report) or "proposition_drop" in kinds(report)
    for text in (report_text(report), render_comment(report), render(report, "html")):
        assert text.count("not validated: 0 human labels") == 1
    assert "calibration" in kinds(evaluated(world, require_calibration=True))
    assert evaluated(world, require_calibration=True).exit_code == 1, "it fell, calibrated or not"
    assert evaluated(world, agents=["pam"], require_calibration=True).exit_code == 3


def test_a_model_that_labels_calibrates_nothing(world: World) -> None:
    label(world, BELIEVES, 80, kind=LabellerKind.MODEL)
    assert all(item.people is None for item in evaluated(world).agents["michael"].comparison.dimensions.values())
    (found,) = calibrate_world(world, ["adherence"]).dimensions
    assert (found.labelled, found.people) == (0, [])


def test_too_few_labels_say_how_many_are_missing(world: World) -> None:
    label(world, BELIEVES, 20)
    people = evaluated(world).agents["michael"].comparison.dimensions["adherence"].people
    assert people is not None
    assert (people.belief, people.labels, people.missing) == ("unknown", 20, 30)


def test_reports_say_how_far_a_believed_judge_agrees_with_people(world: World) -> None:
    label(world, BELIEVES, 80)
    report = evaluated(world, require_calibration=True)
    assert report.exit_code == 1
    people = report.agents["michael"].comparison.dimensions["adherence"].people
    assert people is not None and people.rank is not None
    assert (people.belief, people.labels, people.missing) == ("believed", 80, 0)
    data = json.loads(render(report, "json"))
    told = data["agents"]["michael"]["comparison"]["dimensions"]["adherence"]["people"]
    assert (told["rank"], told["bias"]["n"]) == (people.rank, 80)
    for text in (report_text(report, verbose=True), render_comment(report).replace("\\", ""), render(report, "html")):
        assert f"rank correlation with people {people.rank:.2f}" in text


def test_what_fell_by_a_judge_no_better_than_chance_cannot_be_told(world: World) -> None:
    assert evaluated(world).exit_code == 1
    dice = random.Random(1)
    label(world, lambda score: dice.randrange(10), 80)
    report = evaluated(world)
    assert (report.exit_code, "doubted" in kinds(report)) == (3, True)
    assert report.agents["michael"].conclusion.verdict == report.conclusion.verdict == "cannot_tell"
    assert not report.agents["michael"].comparison.regressed
    assert "no better than chance" in report_text(report)
    assert evaluated(world, only_fail_on=["doubted"]).exit_code == 3
    assert evaluated(world, only_fail_on=["regression"]).exit_code == 0
    assert evaluated(world, require_calibration=True).exit_code == 3


def test_a_judge_that_doctor_found_unable_gives_no_coverage_and_no_baseline(world: World) -> None:
    run = evaluated(world).agents["pam"].evaluation.provenance
    note_ability(world.store, run["judge_models"], run["prompt_version"], able=False)
    (world.root / "baselines" / "pam.json").unlink()
    report = evaluated(world, update_baseline=True)
    assert (report.exit_code, "judge_health" in kinds(report)) == (3, True)
    assert not (world.root / "baselines" / "pam.json").exists()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[MessagesServer]:
    with MessagesServer() as running:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", running.url)
        yield running


def call(*arguments: str) -> tuple[int, str]:
    told = CliRunner().invoke(app, list(arguments))
    if isinstance(told.exception, NothingError):
        return told.exception.exit_code, told.output
    assert told.exception is None or isinstance(told.exception, SystemExit), told.exception
    return told.exit_code, told.output


def other_judge(world: World, points: int) -> Callable[[Call], Reply]:
    """A judge that gives each claim what it was given so far, and so many points more where more is better."""
    scores: dict[str, list[float]] = {}
    inverted: set[str] = set()
    for item in judged_population(world):
        claims = find_proposition_set(world.root / PROPOSITIONS, item.dimension, item.request.agent_id)
        assert claims is not None
        inverted |= {
            item.request.claim for p in claims.propositions if p.inverted and p.id == item.request.proposition_id
        }
        scores.setdefault(item.request.claim, []).append(score_of(item) or 0.0)

    def score(claim: str) -> int:
        middle = sum(scores[claim]) / len(scores[claim])
        return min(9, max(0, round(middle + (-points if claim in inverted else points))))

    return lambda call: message(json.dumps(verdicts(call.body, score)))


def test_another_judge_is_not_compared_until_it_was_measured(world: World, server: MessagesServer) -> None:
    server.handler = other_judge(world, -2)
    asked = (
        "evaluate",
        "--agents",
        "jim,pam",
        "--dimensions",
        "adherence",
        "--judge",
        "anthropic",
        "--no-confirm",
        "--fresh",
    )
    code, text = call(*asked)
    assert (code, "other_judge" in text, "persona-pipeline canary" in text) == (3, True, True), text[:600] + text[-900:]
    code, text = call("canary", "--estimate")
    assert (code, "80 judgments are made again" in text, "$" in text) == (0, True, True)
    assert not (world.root / CHANGES).exists()
    code, text = call("canary", "--anchors", "100")
    assert (code, "the judge changed, not the agents" in text) == (1, True), text
    assert re.search(r"\n\d+ judge calls, \$\d", text), "it says what it paid"
    (change,) = load_judge_changes(world.root / CHANGES)
    points = change.shift("adherence")
    assert points is not None and points.value is not None and -3 < points.value < -1
    code, text = call(*asked)
    assert (code, "judge_changed" in text, "other_judge" in text) == (0, True, False), text
    assert "the baseline is moved by that" in text


def test_a_judge_that_judges_alike_is_compared_as_before(world: World) -> None:
    baseline = find_baseline(world.root / BASELINES, "pam")
    assert baseline is not None
    known = baseline.provenance["dimensions"]["adherence"]
    now = JudgeName(model=known["judge_model"], prompt_version=known["prompt_version"])
    before = JudgeName(model="earlier", prompt_version="1")
    for item in baseline.provenance["dimensions"].values():
        item.update(judge_model="earlier", prompt_version="1")
    save_baseline(world.root / BASELINES, baseline)
    assert "other_judge" in kinds(evaluated(world, agents=["pam"]))
    generator = np.random.default_rng(1)
    save_judge_changes(world.root / CHANGES, [judge_change(before, now, anchors(generator, 80, SAME, True))])
    report = evaluated(world, agents=["pam"])
    assert (report.exit_code, kinds(report)) == (0, set())
    assert any("they do not differ" in warning for warning in report.agents["pam"].comparison.warnings)


def test_there_is_nothing_to_ask_where_the_judge_is_the_same(world: World) -> None:
    for path in (world.root / "baselines").iterdir():
        path.unlink()
    code, text = call("canary")
    assert code == 3, text
    with pytest.raises(ConfigError, match="those that are known were made by: claude"):
        plan_canaries(world, JudgeName(model="now", prompt_version="1"), before="nobody")


def test_calibrate_prints_and_exits(world: World) -> None:
    code, text = call("calibrate")
    assert (code, "not validated: 0 human labels" in text) == (3, True), "no labels are no proof"
    assert call("calibrate", "--require-calibration")[0] == 3
    dice = random.Random(1)
    label(world, lambda score: dice.randrange(10), 80)
    code, text = call("calibrate", "--dimension", "adherence", "--format", "json")
    (item,) = json.loads(text)["dimensions"]
    assert (code, item["belief"], item["labelled"]) == (1, "chance", 80)


def test_labels_of_an_agent_whose_files_are_broken_cost_nobody_else_anything(world: World) -> None:
    label(world, BELIEVES, 80)
    (world.root / "propositions" / "adherence" / "dwight.yaml").write_text("nonsense: 1\n", encoding="utf-8")
    ((*_, rated),) = WorldReader(world).trust().labels.rated
    assert 0 < sum(item.peoples is not None for item in rated) < 80


def test_people_far_from_the_judge_are_a_finding_with_its_interval(world: World) -> None:
    label(world, lambda score: max(0, round(score / 2)), 80)
    report = evaluated(world)
    found = [item for item in report.all_findings() if item.kind == "people"]
    assert found and all(item.exit_code == 0 for item in found)
    for finding in found:
        people = report.agents[finding.agent_id or ""].comparison.dimensions["adherence"].people
        assert people is not None
        bias = people.bias
        assert bias.value is not None and bias.low is not None and bias.high is not None and bias.value >= 2
        told = f"differs from people by {bias.value:+.1f} points ({bias.low:+.1f} to {bias.high:+.1f}) on 80 judgments"
        assert told in finding.message
        assert finding.command == "persona-pipeline view"
        assert told in json.dumps(json.loads(render(report, "json")))
        for text in (
            report_text(report, verbose=True),
            render_comment(report).replace("\\", ""),
            render(report, "html"),
        ):
            assert told in unescape(text)
    assert evaluated(world, agents=["pam"], only_fail_on=["people"]).exit_code == 3


@pytest.mark.parametrize(
    ("first_week", "known", "weeks"),
    [
        pytest.param(None, [], [0], id="nobody spoke"),
        pytest.param(-2, [], [0, -1, -2], id="since it spoke first"),
        pytest.param(-2, [-1, 3], [3, 2, 1, 0, -1, -2], id="evaluated on a later one"),
        pytest.param(
            -90, [-80], [*range(0, -25, -1), -80], id="what it was evaluated on goes before how far it goes back"
        ),
        pytest.param(
            -90, [*range(-40, -70, -1)], [0, *range(-40, -65, -1)], id="evaluated more often than is looked at"
        ),
    ],
)
def test_an_agents_windows_are_the_newest_26_and_those_it_was_evaluated_on(
    first_week: int | None, known: list[int], weeks: list[int]
) -> None:
    def week(number: int) -> Window:
        return Window.ending(datetime(2026, 6, 1, tzinfo=UTC) + timedelta(weeks=number), timedelta(weeks=1))

    first = None if first_week is None else week(first_week).end
    assert calibrate._windows(week(0), [week(number) for number in known], first) == [week(n) for n in weeks]
