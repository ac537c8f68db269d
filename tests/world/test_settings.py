"""``persona.yaml``: what it may say, what goes before it, and what it does to an evaluation wherever that is started."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

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


ACCEPTED = {"agent": "michael", "dimension": "adherence", "why": "he is retired"}
SUITE = "tests: [{id: t, input: '?', assert: [{type: contains, value: tea}]}]\n"


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


def test_validate_checks_it_and_whom_it_names(sample_root: Path, cli: Cli) -> None:
    write(sample_root, leave_out=["michale"], fail_on=["regressoin"], window="7 weeks", judge={"provider": "openia"})
    done = cli("validate")
    assert done.returncode == 2
    for said in ("'michael'", "'regression'", "'openai'", "persona.yaml:"):
        assert said in done.stderr + done.stdout, said
    # A reason may name a page.
    accepted = {**ACCEPTED, "until": TOMORROW, "why": "see https://example.com/42"}
    write(sample_root, window="3d", accepted_drops=[accepted])
    assert load_world_file(sample_root).accepted_drops[0].until == TODAY + timedelta(days=1)
    assert "persona.yaml" not in cli("validate", "personas").stderr


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
    def evaluated(*accepted: dict[str, str]) -> tuple[int, str, list[dict[str, Any]]]:
        write(sample_root, accepted_drops=[*accepted])
        done = cli("evaluate", "--agents", "michael", "--dimensions", "adherence")
        report = json.loads(done.stdout)
        return done.returncode, report["headline"], report["agents"]["michael"]["findings"]

    assert evaluated()[0] == 1
    code, headline, found = evaluated({**ACCEPTED, "until": TOMORROW})
    assert code == 0, [item["message"] for item in found]
    assert headline.startswith("1 accepted; ") and "; drops of michael may be accepted; " in headline
    assert {item["kind"] for item in found if item["dimension"] == "adherence"} == {"accepted"}
    said = f"accepted until {TOMORROW}: he is retired"
    assert all(said in item["message"] for item in found if item["kind"] == "accepted")
    code, _, found = evaluated({**ACCEPTED, "until": YESTERDAY})
    said = f"it was accepted until {YESTERDAY}, which has passed"
    assert code == 1 and any(said in item["message"] for item in found)
    # Of an accepted claim the dimension still fails.
    code, _, found = evaluated({**ACCEPTED, "until": TOMORROW, "claim": "michael-corporate-boilerplate"})
    accepted = {item["proposition_id"] for item in found if item["kind"] == "accepted"}
    assert code == 1 and accepted <= {"michael-corporate-boilerplate"}


def test_who_is_left_out_is_evaluated_only_by_name(sample_root: Path, cli: Cli) -> None:
    write(sample_root, leave_out=["michael"])
    fluency = ("evaluate", "--dimensions", "fluency")
    assert "michael" not in json.loads(cli(*fluency).stdout)["agents"]
    assert "michael" in json.loads(cli(*fluency, "--agents", "michael").stdout)["agents"]
    done = cli("watch", "--once")
    assert (done.returncode, "michael: followed" in done.stdout, "pam: followed" in done.stdout) == (0, False, True)


def committed(root: Path) -> None:
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "a world")


def test_a_pull_request_is_judged_by_the_settings_of_its_base_as_a_whole(sample_root: Path, cli: Cli) -> None:
    git(sample_root, "init", "--quiet")
    write(sample_root, regression_delta=1.0)
    committed(sample_root)
    write(sample_root, accepted_drops=[{**ACCEPTED, "until": TOMORROW}], regression_delta=9.0, proposition_delta=9.0)
    committed(sample_root)
    evaluate = ("evaluate", "--agents", "michael", "--dimensions", "adherence")
    assert cli(*evaluate).returncode == 0
    done = cli(*evaluate, "--against", "HEAD^1")
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
        assert request.fail_on == ["regression"]
        windows[name] = (request.window, opened.settings.judge_model)
    assert windows == {"one": ("3d", "model-of-one"), "two": ("5d", "model-of-two")}


def test_doctor_says_where_every_value_comes_from(sample_root: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    write(sample_root, samples=3, undecided_delta=4.0)
    monkeypatch.setenv("PERSONA_UNDECIDED_DELTA", "3")
    said = cli("doctor", "--no-calls", "--no-dagster").stdout
    for told in ("samples 3 (persona.yaml)", "undecided_delta 3.0 (PERSONA_UNDECIDED_DELTA)", "window 7d (default)"):
        assert told in re.sub(r"\s+", " ", said)


@pytest.mark.parametrize(
    ("command", "seam"),
    [
        (("recordings", "rejudge"), "judging.open.open_judge"),
        (("personas", "draft", "michael", "--from-messages"), "judging.open.open_judge"),
        (("bisect", "michael", "--live", "--max-usd", "1"), "judging.open.open_judge"),
        (("suite", "run", "a.eval.yaml"), "suites.running.opening.open_judge"),
        (("propositions", "test", "michael"), "judging.open.open_judge"),
        (("compare", "."), "lab.compare.compare.open_judge"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_a_command_that_asks_a_judge_asks_the_worlds(
    sample_root: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], seam: str
) -> None:
    write(sample_root, judge={"provider": "openai", "model": "gpt-5-mini"})
    monkeypatch.chdir(sample_root)
    Path("a.eval.yaml").write_text(SUITE, encoding="utf-8")
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
    committed(root)
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
    suite.write_text(SUITE, encoding="utf-8")
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
