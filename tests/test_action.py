"""The composite actions: their shell steps run as on a runner, on a world that a stranger may have written."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pytest_httpserver import HTTPServer

from persona_pipeline.guard.report import RunReport
from persona_pipeline.reporting.render import json_text
from tests.support.github import Runner, load, step, steps

PROJECT = Path(__file__).parents[1]
EVALUATE, COMMENT = PROJECT / "action.yml", PROJECT / ".github" / "actions" / "comment" / "action.yml"
BEFORE_THE_DRIFT = "2026-06-14T23:59:59Z"
# Modules that Python would find in the checkout before its own, were it to look there.
SHADOWS = ("json.py", "venv/__main__.py", "persona_pipeline/__init__.py", "dagster/__init__.py", "sitecustomize.py")


def git(root: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)


@pytest.fixture
def runner(tmp_path: Path, sample_root: Path) -> Runner:
    """A checkout with a world in a folder of it, and the package installed as the step before does it."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    shutil.move(sample_root, checkout / "world")
    git(checkout, "init", "--quiet")
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "--message", "before")
    made = Runner(tmp_path / "runner", checkout)
    (made.temp / "persona-pipeline").symlink_to(Path(sys.executable).parents[1])
    return made


@pytest.mark.parametrize(
    ("event", "judge", "code"),
    [
        ("pull_request", "recorded", 0),
        ("push", "anthropic", 0),
        ("schedule", "anthropic", 0),
        ("pull_request", "anthropic", 2),
        ("pull_request_target", "recorded", 2),
    ],
)
def test_a_strangers_change_spends_nothing_and_meets_no_secret(
    tmp_path: Path, event: str, judge: str, code: int
) -> None:
    done = Runner(tmp_path / "runner", tmp_path, event=event).run(EVALUATE, "Who may judge", judge=judge)
    assert done.returncode == code and ("::error::" in done.stdout) is bool(code)


@pytest.mark.parametrize("action", [EVALUATE, COMMENT], ids=lambda path: path.parent.name)
def test_what_is_installed_is_the_commit_of_the_action(tmp_path: Path, action: Path) -> None:
    """A stand-in for Python notes what it is asked: nothing is fetched."""
    programs = tmp_path / "programs"
    programs.mkdir()
    asked = tmp_path / "asked.txt"
    note = f'#!/bin/sh\necho "$(basename "$0") $*" >> {asked}\n'
    pip = "$RUNNER_TEMP/persona-pipeline/bin/pip"
    (programs / "python").write_text(
        f'{note}mkdir -p "$(dirname {pip})"\ncp "{programs}/pip" "{pip}"\n', encoding="utf-8"
    )
    (programs / "pip").write_text(note, encoding="utf-8")
    for program in programs.iterdir():
        program.chmod(0o755)
    done = Runner(tmp_path / "runner", tmp_path).run(action, "Install", str(programs))
    assert done.returncode == 0, done.stderr
    venv, locked, package = asked.read_text(encoding="utf-8").splitlines()
    assert venv.startswith("python -I -m venv ")
    assert "--require-hashes" in locked and Path(locked.split()[-1]).resolve() == PROJECT / "requirements.lock"
    assert "--no-deps" in package and Path(package.split()[-1]).resolve() == PROJECT


@pytest.mark.slow
def test_a_world_in_a_folder_is_evaluated_and_what_changed_is_named(runner: Runner, tmp_path: Path) -> None:
    world = runner.workspace / "world"
    for name in SHADOWS:
        (runner.workspace / name).parent.mkdir(exist_ok=True)
        (runner.workspace / name).write_text(f"open({str(tmp_path / 'shadowed')!r}, 'w')", encoding="utf-8")
    path = next((world / "recordings" / "jim").rglob("*.jsonl"))
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    collapsed = [{**line, "score": None if line["score"] is None else 0} for line in lines]
    path.write_text("".join(json.dumps(line) + "\n" for line in collapsed), encoding="utf-8")
    git(runner.workspace, "add", ".")
    git(runner.workspace, "commit", "--quiet", "--message", "after")

    done = runner.run(EVALUATE, "Validate", root="world")
    assert done.returncode == 2 and "jim.json: says" in done.stdout + done.stderr, "its baseline says other than that"
    done = runner.run(EVALUATE, "Evaluate", root="world", agents="jim, pam", as_of=BEFORE_THE_DRIFT)
    assert done.returncode == 1, done.stdout[-2000:] + done.stderr[-2000:]
    assert runner.run(EVALUATE, "Summary", root="world").returncode == 0
    reports = runner.temp / "persona-report"
    assert {file.name for file in reports.iterdir()} == {"comment.md", "junit.xml", "report.html", "report.json"}
    report = json.loads((reports / "report.json").read_text(encoding="utf-8"))
    assert set(report["agents"]) == {"jim", "pam"} and report["exit_code"] == 1
    assert report["provenance"]["against"]["base"] == "HEAD^1"
    assert "1 in character, 1 drifted" in runner.summary and "edited: `jim/" in runner.summary
    assert not (tmp_path / "shadowed").exists(), "code of the checkout was executed"
    config = json.loads((runner.temp / "persona-evaluation.json").read_text(encoding="utf-8"))
    assert "fail_on" not in config["ops"]["regression_report"]["config"]


def test_without_history_the_summary_says_so(runner: Runner) -> None:
    assert runner.run(EVALUATE, "Summary", root="world").returncode == 0
    assert "fetch-depth: 0" in runner.summary


def test_who_is_named_hears_that_an_evaluation_left_no_report(runner: Runner, httpserver: HTTPServer) -> None:
    httpserver.expect_request("/hook", method="POST").respond_with_data("ok")
    (runner.workspace / "world" / "persona.yaml").write_text("alerts: [team]\n", encoding="utf-8")
    runner.environment = {"PERSONA_ALERT_WEBHOOK_TEAM": httpserver.url_for("/hook")}
    done = runner.run(EVALUATE, "Notify", root="world", notify="team")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    [(request, _)] = httpserver.log
    assert "it ended without a report" in json.loads(request.data)["text"]
    assert runner.run(EVALUATE, "Notify", root="world", notify="nobody").returncode == 2


def test_the_comment_is_rendered_by_what_is_trusted(runner: Runner) -> None:
    (runner.temp / "persona-report").mkdir()
    (runner.temp / "persona-report" / "report.json").write_text(json_text(RunReport()), encoding="utf-8")
    runner.contexts = {
        "github.event.workflow_run.head_sha": "HEAD",
        "github.event.workflow_run.conclusion": "failure",
    }
    runner.event = "workflow_run"
    assert runner.run(COMMENT, "Where this may run").returncode == 0
    done = runner.run(COMMENT, "Render the comment", root="world")
    assert done.returncode == 0, done.stderr
    assert "Do not trust the report" in (runner.temp / "comment.md").read_text(encoding="utf-8")
    runner.event = "pull_request"
    assert runner.run(COMMENT, "Where this may run").returncode == 2


def test_action_and_workflow_comment_alike() -> None:
    workflow = PROJECT / ".github" / "workflows" / "persona-comment.yml"
    scripts = [step(path, "Post or update")["with"]["script"] for path in (COMMENT, workflow)]
    assert scripts[0] == scripts[1]
    for name in ("Fetch the report", "Fetch the commit that was evaluated"):
        own, other = step(COMMENT, name), step(workflow, name)
        assert own.get("run") == other.get("run") and own.get("uses") == other.get("uses")


@pytest.mark.parametrize("action", [EVALUATE, COMMENT], ids=lambda path: path.parent.name)
def test_nothing_that_is_given_is_put_into_a_shell_as_text(action: Path) -> None:
    for item in steps(action):
        assert "${{" not in item.get("run", "") and "${{" not in item.get("with", {}).get("script", "")
        assert "uses" in item or item["shell"] == "bash"
    assert load(action)["runs"]["using"] == "composite"
