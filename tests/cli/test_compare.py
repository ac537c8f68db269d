"""``compare`` and ``bisect`` from the command line, on real repositories, stores and a judge behind a socket."""

import json
import random
from pathlib import Path

import pytest

from benchmarks.versions import AGENT, History, plant
from persona_pipeline.lab.results import CauseKind, ScoreChange, read_comparison
from persona_pipeline.reporting.comment import main as comment
from persona_pipeline.world.changes import ask_git
from tests.support.command_line import Cli, in_process
from tests.support.messages_server import MessagesServer


def begun(root: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    monkeypatch.setenv("PERSONA_ROOT", str(root))
    found = History(root, random.Random(0))
    (root / ".gitignore").write_text(".persona\n", "utf-8")
    found.commit("Begin")
    return found


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    return begun(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as monkeypatch:
        return begun(tmp_path_factory.mktemp("untouched"), monkeypatch).root


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    return in_process(None, monkeypatch, capsys)


def test_recorded_versions_and_the_comment(history: History, run: Cli, tmp_path: Path) -> None:
    plant(history, CauseKind.PERSONA, "")
    output = tmp_path / "comparison.json"
    code, out, _ = run("compare", "HEAD~1..HEAD", "--window", "all", "--output", str(output))
    assert (code, out) == (3, "")
    found = read_comparison(output.read_text("utf-8"), "x")
    item = found.agents[AGENT].dimensions["adherence"]
    # One window is one pair: the difference is said, and nothing is concluded from it.
    assert (item.scenes, item.low, item.moved) == (1, None, ScoreChange.OPEN)
    assert item.change is not None and item.change < -3
    assert found.agents[AGENT].persona_changed
    hostile = output.read_text("utf-8").replace("Ann shows habit 0", "<img src=x> [a](http://x) @all")
    output.write_text(hostile.replace('"stopped": "', '"stopped": "<b>'), "utf-8")
    written = tmp_path / "comment.md"
    assert comment([str(tmp_path / "none"), str(written), "--conclusion", "success", "--comparison", str(output)]) == 0
    text = written.read_text("utf-8")
    assert "### Compared with `HEAD~1" in text and "| `ann` | Adherence |" in text
    assert "<b>" not in text and "<img" not in text
    output.write_text("{}", "utf-8")
    assert comment([str(tmp_path / "none"), str(written), "--conclusion", "success", "--comparison", str(output)]) == 0
    assert "It could not be read" in written.read_text("utf-8")


def test_answers_and_judge_over_sockets(history: History, run: Cli, server: MessagesServer, tmp_path: Path) -> None:
    """A bot that answers, and a judge that is asked about it: estimate first, then within a budget, then from what is kept."""
    plant(history, CauseKind.PERSONA, "")
    (tmp_path / "bot.py").write_text(
        "def bot(messages):\n    return messages[-1]['content'] + ('FORGETS' in messages[0]['content'] and 'Eh.' or 'Yes.')\n"
    )
    (tmp_path / "targets.yaml").write_text("targets:\n- {name: bot, provider: 'python:bot:bot'}\n")
    text = f"compare HEAD~1..HEAD --target bot --scenes 2 --judge anthropic --agents {AGENT} --dimensions adherence"
    arguments = [*text.split(), "--format", "json", "--window", "all"]
    code, _, err = run(*arguments)
    assert (code, "--allow-code" in err) == (2, True)
    code, out, _ = run(*arguments, "--allow-code", "--estimate")
    assert (code, server.paid) == (0, 0)
    assert "at most 2 scenes an agent" in out and "4 answers: no price is known" in out
    code, out, _ = run(*arguments, "--allow-code", "--estimate", "--interview")
    # The first two kinds in turn, of two lines each, for both sides.
    assert (code, server.paid) == (0, 0) and "8 answers: no price is known" in out
    code, out, err = run(*arguments, "--allow-code", "--max-usd", "1")
    found = read_comparison(out, "x")
    claims = len(history.claims)
    assert found.usage.calls == server.paid == 4 * claims
    assert found.answers == 4 and found.answers_usd is None
    assert "at most 2 scenes an agent" in err
    assert found.agents[AGENT].dimensions["adherence"].scenes == 2
    assert run(*arguments, "--allow-code", "--max-usd", "1")[0] == code
    assert server.paid == 4 * claims
    code, out, _ = run(*arguments, "--allow-code", "--fresh", "--max-usd", "0.0001")
    assert (code, json.loads(out)["stopped"]) == (4, "the budget is spent")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["compare"], "nothing to compare"),
        (["compare", "HEAD", "--fail-on", "x"], "--fail-on"),
        (["compare", "nowhere..HEAD"], "no such commit"),
        (["compare", "HEAD", "--interview"], "--interview needs --target"),
        (["compare", "HEAD", "--target", "bot"], "no targets file"),
        (["compare", "HEAD", "--change", "0"], "--change"),
        (["compare", "--target", "a.."], "does not name two"),
        (["compare", "HEAD", "--suite", "x"], "--suite is gone; run the suite"),
        (["label"], "label is gone; label messages in the browser: run `persona-pipeline view`"),
        (["label", "pam", "--dimension", "adherence", "--newest", "--terminal"], "label is gone"),
        (["bisect", AGENT, "--claim", "c0"], "--claim needs --dimension"),
        (["bisect", AGENT, "--max-usd", "1"], "need --live"),
        (["bisect", AGENT, "--live"], "needs a budget"),
        (["bisect", AGENT, "--by", "x"], "--by"),
        (["bisect", "nobody"], "nobody"),
        (["bisect", AGENT, "--dimension", "adherence", "--claim", "x", "--window", "all"], "adherence/x is no claim"),
    ],
)
def test_what_does_not_go_is_said(
    untouched: Path, run: Cli, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.setenv("PERSONA_ROOT", str(untouched))
    code, _, err = run(*arguments)
    assert code == 2
    assert said in " ".join(err.split())


def test_bisect_names_the_line_and_says_what_more_would_cost(history: History, run: Cli) -> None:
    planted = plant(history, CauseKind.PERSONA, "")
    code, out, _ = run("bisect", AGENT, "--window", "all", "--good", "HEAD~1")
    assert code == 0
    assert planted.commit[:10] in out and f"cause: persona: {planted.names[0]}" in out
    assert "+ Ann FORGETS who she is." in out
    assert out.endswith("scored: 2 commits; 0 calls, $0.00\n")
    code, out, _ = run("bisect", AGENT, "--window", "all", "--good", "HEAD", "--json")
    assert (code, json.loads(out)["falls"]) == (0, [])


def test_bisect_says_that_it_cannot_tell(history: History, run: Cli) -> None:
    plant(history, CauseKind.PERSONA, "together")
    code, out, err = run("bisect", AGENT, "--window", "all", "--good", "HEAD~1")
    assert code == 3
    assert "cannot tell: messages and persona changed together" in out
    assert "it may be: messages, persona" in out
    assert "--live --max-usd N" in err


def test_what_was_said_is_the_cause_where_nothing_else_changed_in_git(
    sample_root: Path, run: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERSONA_ROOT", str(sample_root))
    monkeypatch.setenv("PERSONA_DATABASE_URL", f"sqlite:///{sample_root}/store.db")
    for words in (["init", "-q"], ["add", "personas", "propositions", "messages", "recordings", "baselines"]):
        ask_git(sample_root, *words)
    ask_git(sample_root, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", "A world")
    code, out, _ = run("bisect", "michael")
    assert code == 0
    assert "nothing changed in git" in out and "--by evaluations" in out
    for moment in ("2026-06-14T23:59:59Z", "2026-06-21T23:59:59Z"):
        run("evaluate", "--agents", "michael", "--dimensions", "adherence,fluency", "--as-of", moment)
    code, out, _ = run("bisect", "michael", "--json")
    found = json.loads(out)
    assert (code, found["source"], found["calls"]) == (0, "evaluations", 0)
    causes = {fall["dimension"]: fall["cause"]["kind"] for fall in found["falls"]}
    assert causes == dict.fromkeys(("adherence", "fluency"), CauseKind.MESSAGES)
