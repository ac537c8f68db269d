"""``label``: the queue in the terminal without a terminal, and the page as the command serves it."""

import json
import os
import re
import subprocess
import sys
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.settings import get_settings
from persona_pipeline.cli.app import app
from persona_pipeline.cli.labels import label_in_terminal
from persona_pipeline.guard.labels.files import load_labels
from persona_pipeline.guard.labels.session import Judgment, Labeller, Labelling
from tests.labels.judgments import judgment


@pytest.fixture
def root(sample_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERSONA_ROOT", str(sample_root))
    get_settings.cache_clear()
    return sample_root


def typed(*lines: str, options: tuple[str, ...] = ()) -> Result:
    words = ["label", "pam", "--dimension", "fluency,adherence", "--labeller", "ada", "--terminal", *options]
    return CliRunner().invoke(app, words, input="".join(f"{line}\n" for line in lines))


def claims(done: Result) -> list[str]:
    """The claims that were shown, in order."""
    return re.findall(r"does this hold, as it is written\?\n\n  (.*)", done.stdout)


def said(root: Path) -> list[tuple[int | None, str]]:
    labels = sorted(load_labels(root / "labels"), key=lambda label: label.note)
    return [(label.score, label.note) for label in labels]


def test_answers_are_kept_at_once_and_the_next_sitting_goes_on(root: Path) -> None:
    done = typed("7 a: keeps the joke", "n b", "s", "x", "10 c", "12345 c", "u", "u", "3 b", "q")
    assert done.exit_code == 0, done.exception
    assert said(root) == [(7, "a: keeps the joke"), (3, "b")]
    assert "claude (read for the sample world) said" in done.stdout
    assert done.stdout.count("taken back") == 2
    assert done.stdout.count("not kept: 'score': ") == 2
    one, two, three, four, *rest = claims(done)
    assert rest == [three, two, three], "what was taken back comes again"
    again = typed("5 z")
    assert again.exit_code == 0, "the end of the input ends it"
    assert claims(again) == [three, four]
    assert said(root) == [(7, "a: keeps the joke"), (3, "b"), (5, "z")]
    assert len({one, two, three, four}) == 4


def test_the_verdict_is_not_shown_before_the_answer(root: Path) -> None:
    shown = typed().stdout
    assert "Who the agent should be" in shown or "fluency: does this hold" in shown
    assert "claude" not in shown


def test_what_agents_say_moves_no_cursor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "\x1b[2J\x1b]0;owned\x07\u202ebad\ud800\x9b31m"
    plain = judgment(1, 5, "adherence", f"{words}\n{words}")
    request = replace(plain.request, claim=words.replace("\ud800", ""), persona=words)
    hostile = Judgment(request, plain.window, (replace(plain.verdicts[0], model=words),))
    answers = iter(["5"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(answers))
    label_in_terminal(Labelling(tmp_path, [hostile], Labeller("ada")))
    shown = capsys.readouterr().out
    assert shown.count("bad") == 5 and "all of it is labelled" in shown
    assert not set(shown) & set("\x1b\x07\u202e\ud800\x9b")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--labeller", "a b"), "'a b' cannot name a labeller"),
        (("--kind", "robot"), "--kind 'robot' is neither 'person' nor 'model'"),
    ],
)
def test_who_labels_is_checked_first(root: Path, options: tuple[str, ...], says: str) -> None:
    done = typed("5", options=options)
    assert isinstance(done.exception, ConfigError) and says in str(done.exception)
    assert not (root / "labels").exists()


def test_a_model_is_no_person_of_the_same_name(root: Path) -> None:
    assert typed("5", options=("--kind", "model")).exit_code == 0
    assert [label.labeller_kind for label in load_labels(root / "labels")] == ["model"]
    done = typed("5")
    assert "ada has labels as a model here" in str(done.exception)


def test_nothing_judged_is_said(small_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSONA_ROOT", str(small_root))
    get_settings.cache_clear()
    done = CliRunner().invoke(app, ["label", "--terminal", "--labeller", "ada"])
    assert "nothing of this is judged yet; run persona-pipeline evaluate" in str(done.exception)


@pytest.mark.enable_socket
def test_the_command_serves_the_page_on_this_machine(root: Path) -> None:
    command = [sys.executable, "-m", "persona_pipeline", "label", "--labeller", "ada"]
    environment = {**os.environ, "PERSONA_ROOT": str(root), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as running:
        try:
            assert running.stdout is not None
            found = re.fullmatch(r"Label at (http://127\.0\.0\.1:\d+/label/)\?key=(\S+)\n", running.stdout.readline())
            assert found is not None
            request = urllib.request.Request(f"{found[1]}api/state", headers={"Authorization": f"Bearer {found[2]}"})
            with urllib.request.urlopen(request, timeout=120) as response:
                state = json.load(response)
        finally:
            running.terminate()
    assert (state["labeller"], state["kind"]) == ("ada", "person")
    assert [item["judged"] for item in state["progress"]] == [90, 32, 36, 72, 54]
