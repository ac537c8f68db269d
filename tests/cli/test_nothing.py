"""A command that looks at nothing is no pass: it ends with 3 and names what it looked for. A row for every command there is."""

import ast
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer

from persona_pipeline.cli.app import app
from persona_pipeline.testing.worlds import WorldBuilder
from tests.cli.test_interview import SCENES
from tests.support.command_line import Cli, Done, in_process
from tests.support.pull_requests import git

CLI = Path(__file__).parents[2] / "persona_pipeline" / "cli"


@dataclass(frozen=True)
class Nothing:
    """How a command ends that finds nothing to look at, and what it looked for."""

    arguments: str
    said: str
    code: int = 3


# Commands that make or serve something, or check what is always there: there is nothing that they could fail to find.
LOOK_FOR_NOTHING = {
    "init": "writes a world; with --messages it reads them as ingest does",
    "doctor": "the machine and the world are always there to be checked",
    "view": "serves a page",
    "migrate": "the store is always there",
    "schema": "writes files",
    "forget": "it takes away what is there, and 0 is a number of that",
    "personas import": "its files must exist",
    "personas export": "its agent must exist",
    "propositions show": "its claims must exist",
    "suite show": "its file must exist",
    "corrections serve": "serves until it is stopped",
    "corrections config show": "its agent must exist",
    "corrections config set": "its agent must exist",
    "corrections config reset": "its agent must exist",
}
# In a world in which bob said one thing and ann nothing, without labels, baselines and recordings.
ROWS = {
    "try": Nothing("try EMPTY.jsonl --format messages", "no message in"),
    "ingest": Nothing("ingest EMPTY.jsonl --format messages", "messages in"),
    "collect": Nothing("collect --explain EMPTY.jsonl", "spans in"),
    "validate": Nothing("validate FOLDER", "nothing to validate"),
    "evaluate": Nothing("evaluate --agents ann", "nothing to judge"),
    "baseline": Nothing("baseline --agents ann", "nothing to judge"),
    "interview": Nothing("interview ann --target bot --kind long", "no scene of these kinds"),
    "facts": Nothing("facts ann", "conversations of ann"),
    "report": Nothing("report", "holds no evaluation"),
    "compare": Nothing("compare HEAD --agents ann", "0 scenes"),
    "since": Nothing("since 2026-06-01 ann", "no message judged"),
    "bisect": Nothing("bisect ann --by evaluations", "evaluations of 'ann'"),
    "changes": Nothing("changes HEAD", "", 0),
    "calibrate": Nothing("calibrate", "labels of this world"),
    "watch": Nothing("watch --once", "messages after"),
    "personas draft": Nothing("personas draft ann --from-messages", "said nothing"),
    "suite validate": Nothing("suite validate FOLDER", "holds no suite"),
    "suite explain": Nothing("suite explain one.eval.yaml --test-id two", "no test of one"),
    "suite run": Nothing("suite run one.eval.yaml --test-id two", "no test of one"),
    "suite compare": Nothing("suite compare a.jsonl b.jsonl", "no test in common"),
    "suite import": Nothing("suite import none.yaml --from promptfoo", "test"),
    "labels list": Nothing("labels list", "labels"),
    "labels export": Nothing("labels export", "labels"),
    "labels import": Nothing("labels import EMPTY.jsonl", "labels in"),
    "propositions test": Nothing("propositions test ann", "said nothing"),
    "propositions draft": Nothing("propositions draft ann", "said nothing"),
    "corrections statistics": Nothing("corrections statistics", "messages of all"),
    "corrections replay": Nothing("corrections replay ann", "no stored message"),
    "messages remove": Nothing("messages remove --agent ann", "no message is meant"),
    "recordings sign": Nothing("recordings sign", "recordings"),
    "recordings unused": Nothing("recordings unused", "recordings"),
    "recordings rejudge": Nothing("recordings rejudge", "recordings"),
}  # fmt: skip


def commands(group: typer.Typer = app, before: str = "") -> Iterator[str]:
    for command in group.registered_commands:
        name = command.name or (command.callback.__name__ if command.callback else "")
        yield f"{before}{name}".replace("_", "-")
    for inner in group.registered_groups:
        assert inner.typer_instance is not None
        yield from commands(inner.typer_instance, f"{before}{inner.name} ")


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    builder = (
        WorldBuilder(tmp_path_factory.mktemp("quiet")).persona("ann", "Ann is dry.").persona("bob", "Bob is loud.")
    )
    root = builder.claim("adherence", "dry", "It is dry.").say("bob", "HELLO!", at="2026-06-01T09:00:00Z").root
    for name in ("EMPTY.jsonl", "a.jsonl", "b.jsonl"):
        (root / name).write_text("", encoding="utf-8")
    (root / "none.yaml").write_text("prompts: [hi]\nproviders: [echo]\ntests: []\n", encoding="utf-8")
    (root / "FOLDER").mkdir()
    (root / "interviews").mkdir()
    (root / "interviews" / "ann.yaml").write_text(SCENES, encoding="utf-8")
    suite = "tests:\n- {id: one, input: hi, assert: [{type: contains, value: hi}]}\n"
    (root / "one.eval.yaml").write_text(suite, encoding="utf-8")
    for command in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "a world")):
        git(root, *command)
    return root


@pytest.fixture
def cli(quiet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    root = Path(shutil.copytree(quiet, tmp_path / "world"))
    monkeypatch.chdir(root)
    for name, value in {"PERSONA_RECORDINGS_SECRET": "s" * 32, "ANTHROPIC_API_KEY": "x"}.items():
        monkeypatch.setenv(name, value)
    return in_process(root, monkeypatch, capsys)


def test_every_command_has_a_row() -> None:
    assert {*commands()} == {*ROWS, *LOOK_FOR_NOTHING} and not {*ROWS} & {*LOOK_FOR_NOTHING}
    assert all(LOOK_FOR_NOTHING.values())


@pytest.mark.parametrize("command", ROWS)
def test_nothing_looked_at_is_no_pass(command: str, cli: Cli) -> None:
    row = ROWS[command]
    done: Done = cli(*row.arguments.split())
    assert done.returncode == row.code, done.stderr
    assert row.said in done.stdout + done.stderr, done.stderr


def test_one_function_ends_every_command() -> None:
    ends = [
        f"{path.name}:{node.lineno}"
        for path in CLI.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in ("Exit", "exit") and path.name != "__init__.py"
    ]
    assert len(ends) == 1 and ends[0].startswith("running.py:")
