"""Where no world is, each command says so, and touches nobody else's."""

from pathlib import Path

import pytest
import typer

import persona_pipeline as pp
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.settings import get_settings
from persona_pipeline.cli.app import app
from tests.support.command_line import Cli, in_process

FILE = "messages.jsonl"
# Every command that needs a world, as it is called.
IN_A_WORLD = (
    *("evaluate", "evaluate --estimate", "baseline", "report", "validate", "doctor --no-calls", "watch --once"),
    *("changes HEAD", "compare HEAD~1..HEAD", "bisect ann", f"ingest {FILE}", "collect --port 0", "forget --days 3"),
    *("forget --person ann", "migrate", "calibrate", "doctor --judge --no-calls", "view --port 0", "messages remove --agent ann"),
    *("propositions show ann --dimension adherence", "propositions test ann", "propositions draft ann"),
    *("personas draft ann --from-messages", f"personas import {FILE}", "personas export ann"),
    *("recordings sign", "recordings unused", "recordings rejudge", "labels list", "labels export", f"labels import {FILE}"),
    *("corrections serve --port 0", "corrections statistics", "corrections replay ann"),
    *("since 2026-06-01 ann", "facts ann", "interview ann --target bot --judge anthropic"),
    *("corrections config show ann", "corrections config set ann --shadow", "corrections config reset ann"),
)  # fmt: skip
# They begin a world, or need none.
ANYWHERE = {"init", "try", "schema", "label", "canary"}


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    run = in_process(tmp_path, monkeypatch, capsys)
    monkeypatch.delenv("PERSONA_ROOT")
    monkeypatch.setenv("PERSONA_RECORDINGS_SECRET", "long enough for a test, and nobody's")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    here = tmp_path / "elsewhere"
    here.mkdir()
    (here / FILE).write_text("", encoding="utf-8")
    monkeypatch.chdir(here)
    return run


def commands(group: object, path: tuple[str, ...] = ()) -> list[str]:
    inner = getattr(group, "commands", None)
    if inner is None:
        return [" ".join(path)]
    return [name for word, command in inner.items() for name in commands(command, (*path, word))]


def test_no_command_is_forgotten_here() -> None:
    known = commands(typer.main.get_command(app))
    named = {name for name in known for line in IN_A_WORLD if f"{line} ".startswith(f"{name} ")}
    assert {name for name in known if name not in named | ANYWHERE and not name.startswith("suite ")} == set()


@pytest.mark.parametrize("line", IN_A_WORLD)
def test_each_command_says_that_there_is_no_world_and_makes_nothing(line: str, cli: Cli, tmp_path: Path) -> None:
    done = cli(*line.split())
    said = done.stderr + (done.stdout if line.startswith("doctor") else "")
    assert done.returncode == 2
    assert str(tmp_path / "elsewhere") in said
    for part in ("no personas folder", "PERSONA_ROOT is not set", "persona-pipeline init", "persona-pipeline try"):
        assert part in said
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == [FILE]


def test_a_variable_that_points_to_no_world_and_the_top_of_a_world_are_named(
    cli: Cli, tmp_path: Path, small_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    get_settings.cache_clear()
    with pytest.raises(ConfigError, match="PERSONA_ROOT is not set"):
        pp.load_world()
    done = cli("evaluate", PERSONA_ROOT=str(tmp_path / "gone"))
    assert (done.returncode, f"PERSONA_ROOT is {tmp_path / 'gone'}" in done.stderr) == (2, True)
    done = cli("evaluate", cwd=small_root / "messages")
    assert (done.returncode, f"cd {small_root}" in done.stderr) == (2, True)


def test_a_suite_outside_a_world_reads_nothing_beside_its_own_folder(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = tmp_path / "suites" / "one.eval.yaml"
    (suite.parent / ".git").mkdir(parents=True)
    secret = tmp_path / "elsewhere" / "secret.jsonl"
    secret.write_text('{"id": "t", "output": "secret"}\n', encoding="utf-8")
    suite.write_text(
        "name: one\ndescription: One.\nexecution: {target: told}\n"
        "tests:\n- {id: t, input: hi, assert: [{type: contains, value: secret}]}\n",
        encoding="utf-8",
    )
    targets = "targets:\n- {name: told, provider: replay, path: ../elsewhere/secret.jsonl}\n"
    (suite.parent / "targets.yaml").write_text(targets, encoding="utf-8")
    done = cli("suite", "run", str(suite))
    assert done.returncode == 2
    assert "secret.jsonl" in done.stderr
