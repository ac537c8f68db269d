"""The store away, the disk full, an output that is closed, and input that is no file: one line each, and nothing is lost unseen."""

import asyncio
import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from persona_pipeline.base.database.engine import Store
from persona_pipeline.cli import EXIT_MACHINE
from persona_pipeline.corrections import gate as gate_module
from persona_pipeline.corrections.configuration import write_config
from persona_pipeline.corrections.gate import ActionGate
from persona_pipeline.corrections.records import CheckRecord, Outcome, write_checks
from persona_pipeline.corrections.statistics import correction_statistics
from persona_pipeline.lab import first
from persona_pipeline.testing.worlds import WorldBuilder
from persona_pipeline.world import World
from tests.corrections.support import GATED, TextBackend, bypass_counts
from tests.support.command_line import in_process
from tests.support.worlds import write_jsonl
from tests.viewer.serving import client_of, viewing_app

LINE = {
    "id": "m1",
    "agent_id": "ann",
    "channel": "general",
    "text": "Hello there.",
    "created_at": "2026-03-01T09:00:00Z",
}


@pytest.fixture
def world(tmp_path: Path) -> World:
    built = WorldBuilder(tmp_path / "world").persona("ann", "Ann is calm.").claim("adherence", "calm", "Ann is calm")
    opened = built.say("ann", "Hello there.", channel="general").open()
    opened.sync()
    return opened


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_40_checks_whose_store_went_away_are_in_its_tables_afterwards(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(store: Store, records: Sequence[CheckRecord]) -> None:
        if next(away):
            raise OperationalError("INSERT", {}, Exception("the connection is closed"))
        write_checks(store, records)

    async def run() -> list[Outcome]:
        async with gate:
            return [(await gate.check("ann", "good 8", channel="general")).outcome for _ in range(4)]

    # A check that cannot be written with others is tried alone.
    away = iter([False, True, True, True, True, False])
    monkeypatch.setattr(gate_module, "write_checks", write)
    write_config(world.store, "ann", GATED)
    gate = ActionGate(world, TextBackend())
    assert asyncio.run(run()) == [Outcome.PASSED] * 4
    assert correction_statistics(world.store).total.checks == 2
    assert bypass_counts(world.store) == {"not_recorded": 2}


def test_41_a_thumb_on_a_full_disk_is_507_with_the_reason(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    client = client_of(viewing_app(world))
    monkeypatch.setattr(os, "fsync", full)
    answer = client.post("/thumb?id=m1", data={"thumb": "up", "seen": ""})
    assert (answer.status_code, "No space left on device" in answer.text) == (507, True)
    monkeypatch.setattr(os, "fsync", lambda _: os.open("/no/such/file", os.O_RDONLY))
    answer = client.post("/thumb?id=m1", data={"thumb": "up", "seen": ""})
    assert (answer.status_code, "No such file" in answer.text) == (500, True), "only a full disk is 507"
    monkeypatch.undo()
    assert client.post("/thumb?id=m1", data={"thumb": "up", "seen": ""}).status_code == 303


@pytest.mark.parametrize(
    "place", ["persona_pipeline.world.world.write_new", "persona_pipeline.world.settings.remember"]
)
def test_41_try_on_a_full_disk_leaves_nothing_in_the_way_of_the_next(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = in_process(tmp_path, monkeypatch, capsys)
    write_jsonl(tmp_path / "chats.jsonl", [LINE])
    with monkeypatch.context() as patched:
        patched.setattr(place, full)
        done = command("try", "chats.jsonl")
    assert (done.returncode, done.stderr.count("\n")) == (EXIT_MACHINE, 1), done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["chats.jsonl"]


def test_41_try_keeps_a_world_that_another_wrote_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_jsonl(tmp_path / "chats.jsonl", [LINE])
    theirs = tmp_path / "chats-world" / "persona.yaml"
    looked = first.first_look

    def slow(*given: Any, **options: Any) -> Any:
        theirs.parent.mkdir()
        theirs.write_text("window: 7d\n", encoding="utf-8")
        (theirs.parent / "README.md").write_text("Theirs.\n", encoding="utf-8")
        return looked(*given, **options)

    monkeypatch.setattr(first, "first_look", slow)
    done = in_process(tmp_path, monkeypatch, capsys)("try", "chats.jsonl")
    assert done.returncode == 2 and "exists already" in done.stderr
    assert sorted(path.name for path in theirs.parent.iterdir()) == ["README.md", "persona.yaml"]


@pytest.mark.parametrize("command", ["evaluate", "since 2026-03-01"])
def test_44_a_closed_output_is_one_line(
    command: str, world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = in_process(world.root, monkeypatch, capsys)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", None)
        done = run(*command.split())
    assert (done.returncode, done.stderr.count("\n")) == (EXIT_MACHINE, 1), done.stderr
    assert "standard output is closed" in done.stderr


@pytest.mark.parametrize("command", ["ingest", "try"])
@pytest.mark.parametrize("kind", ["many columns", "a pipe"])
def test_44_input_that_cannot_be_read_is_one_line_and_not_waited_for(
    command: str, kind: str, world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(world.root)
    path = world.root / "given.csv"
    if kind == "a pipe":
        os.mkfifo(path)
    else:
        rows: list[list[Any]] = [
            [*LINE, *(f"c{place}" for place in range(200_000))],
            [*LINE.values(), *["v"] * 200_000],
        ]
        path.write_text("".join(f"{','.join(row)}\n" for row in rows), encoding="utf-8")
    done = in_process(world.root, monkeypatch, capsys)(command, path.name)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith("given.csv: ")
