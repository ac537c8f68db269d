"""``interview`` from the command line, with a bot and a judge behind a socket."""

import json
import re
from functools import partial
from pathlib import Path

import pytest

from persona_pipeline.lab.interview import Interview, baseline_file
from persona_pipeline.testing import WorldBuilder
from tests.support.command_line import Cli, in_process
from tests.support.messages_server import ANSWER, Call, MessagesServer, Reply, message

# Long answers of the judge's server would be read for nothing.
SCENES = "scenes:\n" + "".join(
    f"- {{id: s-{n}, kind: {'pressure' if n > 3 else 'meta'}, turns: [Who are you?, Say it again.]}}\n"
    for n in range(6)
)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    WorldBuilder(tmp_path).persona("ann", "Ann is dry.").claim("adherence", "dry", "{{agent_name}} is dry")
    (tmp_path / "interviews").mkdir()
    (tmp_path / "interviews" / "ann.yaml").write_text(SCENES, "utf-8")
    (tmp_path / "clibot.py").write_text(
        "def bot(messages, attempt, test):\n    return f'{test.id} {len(messages)} {attempt} dry'\n"
    )
    (tmp_path / "targets.yaml").write_text("targets:\n- {name: bot, provider: 'python:clibot:bot'}\n")
    monkeypatch.setenv("PERSONA_ROOT", str(tmp_path))
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    return partial(in_process(None, monkeypatch, capsys), "interview")


def test_priced_kept_as_a_baseline_and_held_against_it(root: Path, run: Cli, server: MessagesServer) -> None:
    arguments = ["ann", "--target", "bot", "--allow-code", "--sessions", "2", "--judge", "anthropic", "--max-usd", "1"]
    code, out, _ = run(*arguments, "--estimate")
    assert (code, server.paid) == (0, 0)
    assert "6 scenes, asked in 2 sessions: 24 answers and 12 judgments" in out and "no price is known" in out
    code, out, err = run(*arguments, "--record")
    assert (code, server.paid) == (3, 12) and "--baseline keeps an interview" in err
    assert "cannot be told" in out and list((root / "recordings").rglob("*.jsonl"))
    # Finished: the next one asks the bot again; what it says is word by word the same, and is judged already.
    code, _, err = run(*arguments, "--baseline")
    assert (code, server.paid) == (0, 12) and "baseline written" in err and "goes on" not in err
    known = Interview.model_validate_json(baseline_file(root, "ann").read_text("utf-8"))
    assert known.whole and known.answers == 24 and known.models == ("claude-haiku-5-5",)
    code, out, _ = run(*arguments, "--format", "json")
    found = Interview.model_validate_json(out)
    assert (code, found.exit_code, found.baseline) == (0, 0, known.taken_at)
    report = root / "report.html"
    assert run(*arguments, "--format", "html", "--output", str(report))[0] == 0
    assert "Interview of" in report.read_text("utf-8")
    # Recorded judgments hold it without a judge, as long as the bot says the same.
    code, out, _ = run(*arguments[:6], "--judge", "recorded", "--format", "json")
    assert (code, json.loads(out)["usage"]["calls"], server.paid) == (0, 0, 12)


def test_the_bill_for_long_answers_is_in_the_estimate(root: Path, run: Cli, server: MessagesServer) -> None:
    (root / "targets.yaml").write_text("targets:\n- {name: bot, provider: anthropic, model: claude-haiku-5-5}\n")
    turns = ", ".join(["Who are you?"] * 8)
    (root / "interviews" / "ann.yaml").write_text(f"scenes:\n- {{id: s, kind: long, turns: [{turns}]}}\n", "utf-8")

    def reply(call: Call) -> Reply:
        return ANSWER if "tool_result" in call.raw.decode() else message("word " * 280, model=call.body["model"])

    arguments = ["ann", "--target", "bot", "--allow-targets", "--judge", "anthropic", "--max-usd", "1"]
    server.handler = reply
    _, estimated, _ = run(*arguments, "--estimate")
    _, out, _ = run(*arguments, "--format", "json")
    usual, long = map(float, re.findall(r"answers: about \$([0-9.]+), \$([0-9.]+) if they are long", estimated)[0])
    found = Interview.model_validate_json(out)
    assert found.answers_usd is not None and usual < found.answers_usd <= long


def test_a_target_that_is_not_allowed_is_named_with_the_remedy(root: Path, run: Cli, server: MessagesServer) -> None:
    (root / "targets.yaml").write_text("targets:\n- {name: bot, provider: anthropic, model: claude-haiku-5-5}\n")
    arguments = ["ann", "--target", "bot", "--judge", "anthropic", "--max-usd", "1"]
    code, out, _ = run(*arguments)
    assert (code, server.paid) == (3, 0)
    assert "answers did not come: target_not_allowed; pass --allow-targets" in out


def test_what_does_not_go_is_said(root: Path, run: Cli) -> None:
    for arguments, said in {
        "ann": "--target",
        "bob --target bot": "bob",
        "ann --target bot": "--allow-code",
        "ann --target robot --allow-code": "robot",
        "ann --target bot --format x": "--format",
        "ann --target bot --kind menace": "menace",
        "ann --target bot --change 0": "--change",
        "ann --target bot --allow-code --record": "--record needs a live judge",
    }.items():
        code, _, err = run(*arguments.split())
        assert code == 2 and said in " ".join(err.split()), arguments
