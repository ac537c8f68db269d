"""People's labels in a world: what they change in every evaluation, and a judge that is another one."""

import json
from collections.abc import Callable
from datetime import date
from statistics import fmean

import pytest

from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.base.settings import get_settings
from persona_pipeline.evaluation.calibrate import calibrate_world
from persona_pipeline.evaluation.read import WorldReader
from persona_pipeline.evaluation.run import run_evaluation
from persona_pipeline.guard.anchors import AnchorAnswers, AnchorRound
from persona_pipeline.guard.baselines.golden import BASELINES, find_baseline, save_baseline
from persona_pipeline.guard.labels.files import LABELS, LabellerKind
from persona_pipeline.guard.labels.messages import MarkSource, message_label, write_message_labels
from persona_pipeline.guard.report import RunReport
from persona_pipeline.judging.open import open_judge
from persona_pipeline.scoring.messages.verdicts import Role
from persona_pipeline.world import World
from tests.support.command_line import Cli
from tests.support.judged import Judgment, judged_population
from tests.support.labels import label_of, write_labels
from tests.support.messages_server import Call, MessagesServer, Reply, message
from tests.support.reports import report_text

Answer = Callable[[float], int | None]
BELIEVES: Answer = lambda score: min(9, max(0, round(score) - 1))  # noqa: E731


@pytest.fixture
def world(sample_world: World) -> World:
    return sample_world


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
    write_labels(world.root / LABELS, labels[:count])


def evaluated(world: World, **asked: object) -> RunReport:
    request = EvaluationRequest(dimensions=["adherence"], **asked)  # pyright: ignore[reportArgumentType]
    return run_evaluation(world, open_judge("recorded", world), request).report


def kinds(report: RunReport) -> set[str]:
    return {finding.kind for finding in report.all_findings()}


def test_required_labels_are_missing_until_people_gave_them(world: World) -> None:
    assert "calibration" in kinds(evaluated(world, require_calibration=True))
    assert evaluated(world, require_calibration=True).exit_code == 1, "it fell, calibrated or not"
    assert evaluated(world, agents=["pam"], require_calibration=True).exit_code == 3
    label(world, BELIEVES, 80, kind=LabellerKind.MODEL)
    assert evaluated(world, agents=["pam"], require_calibration=True).exit_code == 3, (
        "a model's labels count for nothing"
    )
    assert calibrate_world(world, ["adherence"]).dimensions == []
    label(world, BELIEVES, 80)
    assert "calibration" not in kinds(evaluated(world, agents=["pam"], require_calibration=True))


def test_what_a_judge_that_failed_its_check_says_cannot_be_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert evaluated(world).exit_code == 1
    failed = AnchorAnswers(day=date(2026, 6, 21), right={str(n): n < 10 for n in range(20)})
    monkeypatch.setattr(AnchorRound, "answers", lambda *_: failed)
    monkeypatch.setenv("PERSONA_ANCHORS", "20")
    get_settings.cache_clear()
    report = evaluated(World(world.root, world.store))
    assert (report.exit_code, {"doubted", "judge_health"} <= kinds(report)) == (3, True)
    assert report.agents["michael"].conclusion.verdict == report.conclusion.verdict == "cannot_tell"
    assert not report.agents["michael"].comparison.regressed
    assert "judge failed its check: 10 of 20" in report_text(report)


def test_a_baseline_of_another_judge_is_not_compared_and_its_own_windows_are_named(world: World) -> None:
    baseline = find_baseline(world.root / BASELINES, "pam")
    assert baseline is not None
    for item in baseline.provenance["dimensions"].values():
        item.update(judge_model="earlier", prompt_version="1")
    save_baseline(world.root / BASELINES, baseline)
    report = evaluated(world, agents=["pam"])
    [found] = [item for item in report.all_findings() if item.kind == "other_judge"]
    assert (report.exit_code, report.agents["pam"].conclusion.verdict) == (3, "cannot_tell")
    end = baseline.provenance["dimensions"]["adherence"]["window_end"]
    assert found.command == f"persona-pipeline baseline --agents pam --as-of {end} --windows 1"
    assert "judged by earlier (prompt 1) and this run by claude" in found.message


def test_calibrate_prints_and_exits(world: World, cli: Cli) -> None:
    bare = cli("calibrate")
    assert bare.returncode == cli("calibrate", "--require-calibration").returncode == 3, "no labels are no proof"
    assert "No person has labelled anything" in bare.stdout + bare.stderr
    label(world, lambda score: max(0, round(score) - 2), 80)
    done = cli("calibrate", "--dimension", "adherence", "--format", "json")
    (item,) = json.loads(done.stdout)["dimensions"]
    assert (done.returncode, item["labelled"], item["people"]) == (0, 80, ["eva"])
    assert -3 < item["bias"]["value"] < 3 and item["with_ten_more"] < item["bias"]["high"] - item["bias"]["low"]
    told = cli("calibrate", "--require-calibration")
    assert told.returncode == 0
    assert "labelled by this person: eva" in told.stdout and "ten more labels" in told.stdout


def test_calibrate_compares_verdicts_on_messages_with_people(
    world: World, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERSONA_MESSAGE_VERDICTS", "400")
    get_settings.cache_clear()
    again = World(world.root, world.store)
    read = evaluated(again).agents["michael"].evaluation.messages
    assert read is not None
    said = {item.id: item for item in again.messages(agent_id="michael")}
    labels = [
        message_label(said[item.message], Role.IN if number < 2 else Role.OUT, "eva", MarkSource.PERSON)
        for number, item in enumerate(read.verdicts[:10])
    ]
    write_message_labels(world.root / LABELS, labels)
    (found,) = calibrate_world(again).messages
    assert (found.compared, found.agreed, found.false_alarms, found.kept_in) == (10, 8, 2, 2)
    assert (found.misses, found.put_out, found.people) == (0, 8, ["eva"])
    assert found.share.low is not None and found.share.high is not None
    assert found.with_ten_more < found.share.high - found.share.low
    assert "8 of 10" in cli("calibrate").stdout


@pytest.mark.parametrize("spelling", ["canary --anchors 100", "doctor --reading --no-calls --no-dagster"])
def test_former_spellings_run_the_check_of_the_judge_and_say_so(cli: Cli, spelling: str) -> None:
    done = cli(*spelling.split())
    text = (done.stdout + done.stderr).lower()
    assert done.returncode == 0 and " is now " in text and "judge not checked" in text


@pytest.mark.parametrize(("wrong", "code"), [(0, 0), (11, 0), (12, 3)])
def test_doctor_asks_forty_and_wants_29(world: World, cli: Cli, server: MessagesServer, wrong: int, code: int) -> None:
    left, agents = [wrong], WorldReader(world).newest_anchors(40)

    def answer(asked: Call) -> Reply:
        body = json.dumps(asked.body)
        [agent] = [item for item in agents if (item.persona or "")[:30] in body]
        known = {item.text: item.verdict.value for item in agent.anchors}
        said, why = [], []
        for entry in (entry for talk in json.loads(asked.evidence) for entry in talk["entries"]):
            left[0] -= 1
            role = known[entry["text"]] if left[0] < 0 else {"in": "out", "out": "in"}[known[entry["text"]]]
            said.append({"id": entry["id"], "verdict": role})
            why.append({"id": entry["id"], "claims": [], "quote": entry["text"][:20], "reason": "other"})
        return message(json.dumps({"verdicts": said, "why": why}))

    server.handler = answer
    done = cli("doctor", "--judge", "--no-calls", "--no-dagster")
    assert done.returncode == code, done.stdout
    assert f"{40 - wrong} of 40" in done.stdout


def test_labels_of_an_agent_whose_files_are_broken_cost_nobody_else_anything(world: World) -> None:
    label(world, BELIEVES, 80)
    (world.root / "propositions" / "adherence" / "dwight.yaml").write_text("nonsense: 1\n", encoding="utf-8")
    (found,) = calibrate_world(world, ["adherence"]).dimensions
    assert 0 < found.labelled < 80
