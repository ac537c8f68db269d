"""``persona.yaml``: what it may say, what goes before it, and what it does to an evaluation wherever that is started."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import dagster as dg
import pytest
import yaml
from pydantic import SecretStr

import persona_pipeline as pp
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.base.settings import Settings, get_settings
from persona_pipeline.cli.corrections import _backend
from persona_pipeline.defs.platform.resources import EvaluationSettings, WorldResource
from persona_pipeline.suites.grading.results import SuiteResult
from persona_pipeline.testing import ScriptedJudge
from persona_pipeline.testing.worlds import write_small_world
from persona_pipeline.world import World
from persona_pipeline.world.settings import load_world_file
from tests.support.command_line import Cli
from tests.support.pull_requests import git

TODAY = datetime.now(UTC).date()
TOMORROW, YESTERDAY = (str(TODAY + timedelta(days=days)) for days in (1, -1))


def write(root: Path, **said: Any) -> None:
    (root / "persona.yaml").write_text(yaml.safe_dump(said), encoding="utf-8")


def accepted(until: str, **more: str) -> list[dict[str, str]]:
    return [{"agent": "michael", "dimension": "adherence", "until": until, "why": "he is retired", **more}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("database_url: sqlite:///x", r"persona\.yaml:1:1: 'database_url' is no setting of a world.*environment"),
        ("judge: {provider: openai, base_url: x}", r"persona\.yaml:1:27: 'base_url'"),
        ("judge: {api_key: x}", r"persona\.yaml:1:9: 'api_key'"),
        ("judge: {key_env: SECRET}", "'key_env'"),
        ("alerts: ['https://hooks.example.com/x']", r"persona\.yaml:1:10: alerts\.0 is an address or a secret"),
        ("window: ${PERSONA_WINDOW}", "window is an address or a secret"),
        ("windows: 3d", r"persona\.yaml:1:1: unknown key 'windows'; did you mean 'window'"),
        ("samples: 0", r"persona\.yaml:1:10: samples"),
        ("threshold: 12", "threshold"),
        ("accepted_drops: [{agent: ann, dimension: adherence, until: soon, why: x}]", "until"),
        ("accepted_drops: [{agent: ann, dimension: adherence, until: 2026-01-01}]", "why is required"),
    ],
)
def test_what_it_may_not_say_is_refused_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "persona.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=said):
        load_world_file(tmp_path)


def test_a_reason_may_name_a_page(tmp_path: Path) -> None:
    write(tmp_path, accepted_drops=[{**accepted(TOMORROW)[0], "why": "see https://example.com/42"}])
    assert load_world_file(tmp_path).accepted_drops[0].until == TODAY + timedelta(days=1)


def test_validate_checks_it_and_whom_it_names(sample_root: Path, cli: Cli) -> None:
    write(sample_root, leave_out=["michale"], fail_on=["regressoin"], window="7 weeks", judge={"provider": "openia"})
    done = cli("validate")
    assert done.returncode == 2
    for said in ("'michael'", "'regression'", "'openai'", "persona.yaml:"):
        assert said in done.stderr + done.stdout, said
    write(sample_root, window="3d", accepted_drops=accepted(TOMORROW))
    assert "persona.yaml" not in cli("validate").stderr


def test_options_go_before_the_environment_that_before_the_file_and_that_before_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_small_world(tmp_path / "world")
    write(
        root, window="3d", samples=2, undecided_delta=4.0, min_coverage=0.5, judge={"provider": "openai", "model": "m"}
    )
    request = pp.load_world(root).settled(EvaluationRequest(samples=5))
    assert (request.window, request.samples, request.undecided_delta) == ("3d", 5, 4.0)
    assert (request.regression_delta, request.min_coverage, request.judge) == (1.0, 0.5, "openai")
    for name, value in {"UNDECIDED_DELTA": "3", "MIN_COVERAGE_LIVE": "0.9", "JUDGE": "recorded"}.items():
        monkeypatch.setenv(f"PERSONA_{name}", value)
    get_settings.cache_clear()
    world = pp.load_world(root)
    request = world.settled(EvaluationRequest())
    assert (request.undecided_delta, request.min_coverage, request.judge) == (3.0, None, "recorded")
    assert world.settings.judge_model == "m"
    get_settings.cache_clear()


def test_an_accepted_drop_is_said_and_fails_nothing_until_its_day_has_passed(sample_root: Path, cli: Cli) -> None:
    assert cli("evaluate", "--agents", "michael").returncode == 1
    write(sample_root, accepted_drops=accepted(TOMORROW))
    done = cli("evaluate", "--agents", "michael", "--dimensions", "adherence")
    found = json.loads(done.stdout)["agents"]["michael"]["findings"]
    assert done.returncode == 0, [item["message"] for item in found]
    assert (
        json.loads(done.stdout)["headline"]
        == "1 accepted; dwight, jim, pam left out; drops of michael may be accepted; consistency, fluency, convergence, "
        "ideas quantity not judged"
    )
    kinds = {item["kind"] for item in found if item["dimension"] == "adherence"}
    assert kinds == {"accepted"} and all(
        f"accepted until {TOMORROW}: he is retired" in item["message"] for item in found if item["kind"] == "accepted"
    )
    write(sample_root, accepted_drops=accepted(YESTERDAY))
    done = cli("evaluate", "--agents", "michael")
    assert done.returncode == 1 and f"it was accepted until {YESTERDAY}, which has passed" in done.stdout


def test_of_an_accepted_claim_the_dimension_still_fails(sample_root: Path, cli: Cli) -> None:
    write(sample_root, accepted_drops=accepted(TOMORROW, claim="michael-corporate-boilerplate"))
    done = cli("evaluate", "--agents", "michael", "--dimensions", "adherence")
    found = json.loads(done.stdout)["agents"]["michael"]["findings"]
    assert done.returncode == 1
    assert {item["proposition_id"] for item in found if item["kind"] == "accepted"} <= {"michael-corporate-boilerplate"}


def test_who_is_left_out_is_evaluated_only_by_name(sample_root: Path, cli: Cli) -> None:
    write(sample_root, leave_out=["michael"])
    assert "michael" not in json.loads(cli("evaluate").stdout)["agents"]
    assert "michael" in json.loads(cli("evaluate", "--agents", "michael").stdout)["agents"]
    done = cli("watch", "--once")
    assert (done.returncode, "michael: followed" in done.stdout, "pam: followed" in done.stdout) == (0, False, True)


def test_a_pull_request_is_judged_by_the_settings_of_its_base_as_a_whole(sample_root: Path, cli: Cli) -> None:
    git(sample_root, "init", "--quiet")
    write(sample_root, regression_delta=1.0)
    git(sample_root, "add", ".")
    git(sample_root, "commit", "--quiet", "--message", "base")
    write(sample_root, accepted_drops=accepted(TOMORROW), regression_delta=9.0, proposition_delta=9.0)
    git(sample_root, "add", ".")
    git(sample_root, "commit", "--quiet", "--message", "change")
    assert cli("evaluate", "--agents", "michael", "--dimensions", "adherence").returncode == 0
    done = cli("evaluate", "--agents", "michael", "--dimensions", "adherence", "--against", "HEAD^1")
    report = json.loads(done.stdout)
    assert done.returncode != 0 and report["provenance"]["regression_delta"] == 1.0
    assert any("only because of persona.yaml" in item["message"] for item in report["findings"])


def test_two_worlds_in_one_project_go_by_their_own(tmp_path: Path) -> None:
    windows = {}
    for name, window in (("one", "3d"), ("two", "5d")):
        root = write_small_world(tmp_path / name)
        write(root, window=window, judge={"model": f"model-of-{name}"}, fail_on=["regression"])
        opened = WorldResource(root=str(root)).open()
        request = EvaluationSettings().request(opened)
        windows[name] = (request.window, opened.settings.judge_model, request.fail_on)
    assert windows == {
        "one": ("3d", "model-of-one", ["regression"]),
        "two": ("5d", "model-of-two", ["regression"]),
    }
    assert dg  # what they run in


def test_doctor_says_where_every_value_comes_from(sample_root: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    write(sample_root, samples=3, undecided_delta=4.0)
    monkeypatch.setenv("PERSONA_UNDECIDED_DELTA", "3")
    said = cli("doctor", "--no-calls", "--no-dagster").stdout
    for told in ("samples 3 (persona.yaml)", "undecided_delta 3.0 (PERSONA_UNDECIDED_DELTA)", "window 7d (default)"):
        assert told in re.sub(r"\s+", " ", said)


@pytest.mark.parametrize(
    "command",
    [
        ("recordings", "rejudge"),
        ("personas", "draft", "michael", "--from-messages"),
        ("bisect", "michael", "--live", "--max-usd", "1"),
    ],
    ids=" ".join,
)
def test_a_command_that_needs_a_live_judge_asks_the_worlds(
    sample_root: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    write(sample_root, judge={"provider": "openai", "model": "gpt-5-mini"})
    opened: list[str] = []

    def open_judge(name: str, *_: object) -> None:
        opened.append(name)
        raise ConfigError("nobody is asked")

    monkeypatch.setattr("persona_pipeline.judging.open.open_judge", open_judge)
    done = cli(*command)
    assert (opened, done.returncode) == (["openai"], 2), done.stderr


@pytest.mark.parametrize(
    ("command", "seam"),
    [
        (("suite", "run", "a.eval.yaml"), "suites.running.opening.open_judge"),
        (("propositions", "test", "michael"), "judging.open.open_judge"),
        (("compare", "."), "lab.compare.compare.open_judge"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_command_that_may_ask_a_judge_asks_the_worlds(
    sample_root: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], seam: str
) -> None:
    write(sample_root, judge={"provider": "openai", "model": "gpt-5-mini"})
    suite = "tests: [{id: t, input: '?', assert: [{type: contains, value: tea}]}]\n"
    monkeypatch.chdir(sample_root)
    Path("a.eval.yaml").write_text(suite, encoding="utf-8")
    Path("targets.yaml").write_text("targets: [{name: default, provider: replay, path: a.json}]\n", encoding="utf-8")
    asked: list[str] = []

    def opened(name: str, *_: object, **__: object) -> None:
        asked.append(name)
        raise ConfigError("nobody is asked")

    monkeypatch.setattr(f"persona_pipeline.{seam}", opened)
    done = cli(*command)
    assert (asked, done.returncode) == (["openai"], 2), done.stderr


def test_claims_are_tested_and_falls_looked_for_on_the_worlds_windows(
    sample_root: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(sample_root, window="3d", regression_delta=0.5, proposition_delta=1.5)
    asked: list[Any] = []

    def taken(_: World, request: Any, *__: object) -> None:
        asked.append(request)
        raise ConfigError("seen")

    monkeypatch.setattr("persona_pipeline.lab.claims.trial.plan_trial", taken)
    monkeypatch.setattr("persona_pipeline.lab.bisect.bisect.bisect", taken)
    for more in ((), ("--window", "5d")):
        cli("propositions", "test", "michael", *more)
        cli("bisect", "michael", *more)
    # Claims are tested on the messages that the baseline was taken from, where nothing else is named.
    assert [item.window for item in asked] == [None, "3d", "5d", "5d"]
    assert {(item.regression_delta, item.proposition_delta) for item in asked[1::2]} == {(0.5, 1.5)}


@pytest.mark.parametrize("command", [("unused",), ("rejudge", "--size", "1")], ids=" ".join)
def test_recordings_are_replayed_as_the_world_is_evaluated(
    sample_root: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    write(sample_root, window="3d", samples=2)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    asked: list[EvaluationRequest] = []

    def run_evaluation(world: World, _: object, request: EvaluationRequest) -> None:
        asked.append(world.settled(request))

    monkeypatch.setattr("persona_pipeline.evaluation.run.run_evaluation", run_evaluation)
    cli("recordings", *command)
    cli("recordings", *command, "--window", "5d")
    assert [(item.window, item.samples) for item in asked] == [("3d", 2), ("5d", 2)]


def test_the_gate_of_a_world_asks_its_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    root = write_small_world(tmp_path / "world")
    write(root, judge={"provider": "openai", "model": "gpt-5-mini"})
    asked: list[Any] = []
    monkeypatch.setattr(
        "persona_pipeline.corrections.gate.open_judge",
        lambda name, world, options, *, settings, calling: asked.append((calling.name, settings.root)) or mock.Mock(),
    )
    world = pp.load_world(root)
    pp.open_gate(world)
    _backend(None, world)
    assert asked == [("openai:gpt-5-mini", root)] * 2


def test_a_run_against_a_commit_keeps_the_settings_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_small_world(tmp_path / "world")
    git(root, "init", "--quiet")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "base")
    judged: list[World] = []

    def run_evaluation(world: World, *_: object) -> None:
        judged.append(world)
        raise ConfigError("seen")

    monkeypatch.setattr("persona_pipeline.api.evaluating.run_evaluation", run_evaluation)
    world = World.open(root, settings=Settings(judge_model="gpt-5-mini", recordings_secret=SecretStr("s")))
    with pytest.raises(ConfigError, match="seen"):
        pp.evaluate(world, judge=ScriptedJudge(lambda request: 5), against="HEAD")
    (seen,) = judged
    assert (seen.settings.judge_model, seen.settings.signing_secret) == ("gpt-5-mini", b"s")


def test_a_suite_run_for_a_world_goes_by_the_worlds_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the environment has another world, the judge, the agent that is played and what is kept are the given one's."""
    other, root = write_small_world(tmp_path / "other"), write_small_world(tmp_path / "world")
    monkeypatch.setenv("PERSONA_ROOT", str(other))
    get_settings.cache_clear()
    agent = pp.load_world(root).agent_ids()[0]
    card = root / "personas" / f"{agent}.yaml"
    card.write_text(card.read_text(encoding="utf-8") + "\n# of the world that is given\n", encoding="utf-8")
    (other / "personas" / f"{agent}.yaml").unlink()
    write(root, judge={"provider": "openai", "model": "gpt-5-mini"})
    suite = tmp_path / "suites" / "a.eval.yaml"
    suite.parent.mkdir()
    suite.write_text("tests: [{id: t, input: '?', assert: [{type: contains, value: tea}]}]\n", encoding="utf-8")
    (suite.parent / "targets.yaml").write_text(
        f"targets: [{{name: default, provider: persona, agent: {agent}, model: claude-haiku-5-5}}]\n", encoding="utf-8"
    )
    ran: list[tuple[str | None, Path | None, Any]] = []

    def run(suites: Any, options: Any, *, targets: Any, judge: Any, **_: object) -> list[SuiteResult]:
        targets[0].open("default")
        ran.append((targets[0].grants.world, options.settings.state, judge.identity[0]))
        return [SuiteResult(suites[0].name, str(suites[0].path), [])]

    monkeypatch.setattr("persona_pipeline.api.suite_runs.run_suites", run)
    pp.run_suite(suite, world=World.open(root, settings=Settings(state=tmp_path / "state")))
    assert ran == [(root, tmp_path / "state", "openai:gpt-5-mini")]
