"""A project that tests its agents with the plugin, run as its owner runs it: a process, its output, its exit code."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE

PROJECT = Path(__file__).parents[2]
STATES = {
    "test_pam_sounds_like_pam": "PASSED",
    "test_michael_sounds_like_michael": "FAILED",
    "test_it_was_better_before": "PASSED",
    "test_michael_has_not_fallen": "FAILED",
    "test_jim_was_judged_twice": "UNSCORED",
    "test_scores_in_a_test": "PASSED",
    "test_a_score_that_is_not_there": "UNSCORED",
    "says-it-is-the-van": "PASSED",
    "says-when-it-comes": "FAILED",
    "is-helpful": "UNSCORED",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sample") / "project"
    shutil.copytree(Path(__file__).parent / "project", folder)
    for name in ("personas", "propositions", "messages", "recordings", "baselines"):
        shutil.copytree(PROJECT / name, folder / "world" / name)
    return folder


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # Whatever else is installed stays out of it.
    plugins = ["-p", "persona_pipeline.pytest_plugin", "-p", "xdist", "-p", "no:cacheprovider"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, *arguments],
        cwd=project,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
    )


def states(output: str) -> dict[str, str]:
    """The state of each test by name, from verbose lines: ``[gw0] [ 50%] PASSED <id>``."""
    known = {"PASSED", "FAILED", "UNSCORED"}
    found = {}
    for line in output.splitlines():
        words = line.split()
        ids = [word for word in words if "::" in word]
        state = known & {*words}
        if ids and state and line.startswith("[gw"):
            found[ids[0].rpartition("::")[2]] = state.pop()
    return found


def test_what_passes_fails_and_is_unscored_whichever_worker_runs_it(project: Path) -> None:
    done = run(project, "-v", "-n", "2")
    assert states(done.stdout) == STATES, done.stdout + done.stderr
    assert done.returncode == 1
    assert "3 failed, 4 passed, 3 unscored" in done.stdout.splitlines()[-1]
    # Claim, quote, and the line of the transcript it stands in.
    for said in (
        "Michael Scott falls back on corporate boilerplate",
        'quote: "I completely understand your perspective."',
        "messages/direct.jsonl:38: to Dwight Schrute 2026-06-16 16:28Z Michael Scott: Great question, Dwight. I completely",
        "to judge and record it: pytest --persona-judge anthropic --persona-record",
        "line 1: assistant: Later today, I promise.",
    ):
        assert said in done.stdout, said
    assert "Traceback" not in done.stdout + done.stderr
