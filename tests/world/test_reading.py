"""Message files are read from where they were read last, whatever happened to them since."""

import csv
import io
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import sqlalchemy as sa

from persona_pipeline.base.database import tables
from persona_pipeline.world import World
from persona_pipeline.world.messages import mirroring
from persona_pipeline.world.messages.files import parse_message
from tests.support.forking import forked_python
from tests.support.worlds import ingest, write_yaml

COLUMNS: tuple[str, ...] = ("id", "agent_id", "channel", "text", "created_at")


def row(name: str, text: str = "Hi.", **more: str) -> dict[str, str]:
    return {"id": name, "agent_id": "ann", "channel": "c", "text": text, "created_at": "2026-03-10T12:00:00Z", **more}


def jsonl(rows: Sequence[dict[str, str]], *, header: bool = True) -> str:
    return "".join(json.dumps(item) + "\n" for item in rows)


def as_csv(rows: Sequence[dict[str, str]], *, header: bool = True) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(COLUMNS), lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A world of one agent without messages, on lots of three lines."""
    write_yaml(tmp_path / "personas/ann.yaml", {"display_name": "Ann", "persona": "Dry."})
    (tmp_path / "messages").mkdir()
    monkeypatch.setattr(mirroring, "BATCH_LINES", 3)
    opened = World.open(tmp_path)
    yield opened
    opened.store.close()


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of the lines that are parsed."""
    seen: list[str] = []

    def noting(value: dict[str, str]) -> object:
        seen.append(value["id"])
        return parse_message(value)

    monkeypatch.setattr(mirroring, "parse_message", noting)
    return seen


def texts(world: World) -> dict[str, str]:
    return {message.id: message.text for message in world.messages()}


def lines(world: World) -> dict[str, int]:
    found = sa.select(tables.run_messages.c.id, tables.run_messages.c.line)
    with world.store.connect() as connection:
        return dict(map(tuple, connection.execute(found)))


def read_afresh(world: World, name: str) -> tuple[dict[str, str], dict[str, int]]:
    """Return texts and lines as a new store has them."""
    fresh = World.open(world.root, f"sqlite:///{world.root}/{name}.db")
    fresh.mirror_messages()
    found = texts(fresh), lines(fresh)
    fresh.store.close()
    return found


TEN = [row(f"m{n}", f"Text {n}, said.\nTwice.") for n in range(10)]
ENDINGS = {"jsonl": jsonl, "csv": as_csv}
CHANGES: dict[str, tuple[Callable[[str, Callable[..., str]], str], list[str] | None]] = {
    # What a file becomes, and which ids are parsed then; None: all that is in it.
    "appended": (lambda text, dump: text + dump([row("x"), row("y")], header=False), ["x", "y"]),
    "nothing": (lambda text, dump: text, []),
    "edited": (lambda text, dump: text.replace("Text 3", "Test 3"), None),
    "truncated": (lambda text, dump: dump(TEN[:4]), None),
    "a line less": (lambda text, dump: dump([*TEN[:2], *TEN[3:]]), None),
    "a line put first": (lambda text, dump: dump([row("x"), *TEN]), None),
    "emptied": (lambda text, dump: dump([]), None),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_file_is_read_on_or_anew(world: World, parsed: list[str], ending: str) -> None:
    path, dump = world.root / f"messages/all.{ending}", ENDINGS[ending]
    for name, (change, again) in CHANGES.items():
        path.write_text(dump(TEN), encoding="utf-8")
        assert world.mirror_messages().problems == []
        parsed.clear()
        path.write_text(change(dump(TEN), dump), encoding="utf-8")
        assert world.mirror_messages().problems == [], name
        stored, expected = texts(world), again
        # A table is always read from its start.
        if again is None or (again and ending == "csv"):
            expected = parsed[:]
            assert len(set(parsed)) == len(parsed) == len(stored), name
        assert (name, parsed) == (name, expected)
        path.write_text(change(dump(TEN), dump), encoding="utf-8")
        assert (stored, lines(world)) == read_afresh(world, f"{ending}-{name.replace(' ', '-')}"), name


@pytest.mark.parametrize("ending", ENDINGS)
def test_half_a_last_line_waits_for_its_other_half(world: World, parsed: list[str], ending: str) -> None:
    whole = ENDINGS[ending]([*TEN[:2], row("x", 'Half "of it,\nand the rest.'), row("y")])
    path = world.root / f"messages/all.{ending}"
    data = whole.encode()
    start = whole.index("Half")
    for cut in (start + 2, start + 14, len(data) - 30, len(data) - 1):
        path.write_bytes(data[:cut])
        problems = world.mirror_messages().problems
        assert len(problems) <= 1
        assert world.mirror_messages().problems == problems, "an unchanged file still has its problem"
        assert texts(world).get("x", 'Half "of it,\nand the rest.') == 'Half "of it,\nand the rest.'
    path.write_bytes(data)
    assert world.mirror_messages().problems == []
    assert list(texts(world)) == ["m0", "m1", "x", "y"]
    assert parsed.count("m0") == (1 if ending == "jsonl" else 5)


def test_a_line_that_grows_after_it_was_whole_is_read_again(world: World) -> None:
    path = world.root / "messages/all.csv"
    path.write_text("id,agent_id,channel,created_at,text\nm0,ann,c,2026-03-10T12:00:00Z,Half", encoding="utf-8")
    world.mirror_messages()
    assert texts(world) == {"m0": "Half"}
    path.write_text(path.read_text(encoding="utf-8") + " and half\n", encoding="utf-8")
    world.mirror_messages()
    assert texts(world) == {"m0": "Half and half"}


def test_an_id_that_is_taken_is_named_wherever_it_stood_before(world: World) -> None:
    path = world.root / "messages/all.jsonl"
    path.write_text(jsonl([*TEN, row("m1", "Mine."), row("m9", "Text 9, said.\nTwice.")]), encoding="utf-8")
    first = "messages/all.jsonl:11: id 'm1' is taken by line 2; give this message its own"
    assert [str(problem) for problem in world.mirror_messages().problems] == [first]
    path.write_text(path.read_text(encoding="utf-8") + jsonl([row("m2", "Mine."), row("z")]), encoding="utf-8")
    second = "messages/all.jsonl:13: id 'm2' is taken by line 3; give this message its own"
    assert [str(problem) for problem in world.mirror_messages().problems] == [first, second]
    assert texts(world)["m1"] == TEN[1]["text"]
    path.write_text(jsonl([row("m1", "Mine."), *TEN[2:]]), encoding="utf-8")
    assert world.mirror_messages().problems == []
    assert texts(world)["m1"] == "Mine."


def test_problems_are_named_up_to_a_thousand_a_file(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirroring, "_MOST_PROBLEMS", 4)
    path = world.root / "messages/all.jsonl"
    path.write_text("{\n" * 10 + jsonl([row("a")]), encoding="utf-8")
    for _ in range(2):
        result = world.mirror_messages()
        assert ([problem.line for problem in result.problems], result.unnamed) == ([1, 2, 3, 4], 6)
    assert list(texts(world)) == ["a"]


def test_a_file_that_becomes_unreadable_keeps_what_was_read(world: World) -> None:
    path = world.root / "messages/all.jsonl"
    path.write_text(jsonl(TEN[:2]), encoding="utf-8")
    world.mirror_messages()
    path.write_bytes(path.read_bytes() + b'{"id": "\xe9"}\n')
    (problem,) = world.mirror_messages().problems
    assert "is not UTF-8" in problem.message
    assert list(texts(world)) == ["m0", "m1"]
    path.write_text(jsonl(TEN[:3]), encoding="utf-8")
    assert world.mirror_messages().problems == []
    assert list(texts(world)) == ["m0", "m1", "m2"]


KILLED = """
import os, signal, sys
from persona_pipeline.world import World
from persona_pipeline.world.messages import mirroring
mirroring.BATCH_LINES = 3
count, real = 0, getattr(mirroring, sys.argv[2])
def dying(*args, **values):
    global count
    count += 1
    done = real(*args, **values)
    if count == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    return done
setattr(mirroring, sys.argv[2], dying)
World.open(sys.argv[1]).mirror_messages()
"""


@pytest.mark.parametrize(("where", "time"), [("write_batch", 3), ("_note", 2), ("remove_unread", 1)])
def test_who_is_killed_while_reading_loses_and_doubles_nothing(world: World, where: str, time: int) -> None:
    path = world.root / "messages/all.jsonl"
    path.write_text(jsonl([row("gone"), *TEN]), encoding="utf-8")
    world.mirror_messages()
    path.write_text(jsonl([*TEN, *(row(f"n{n}") for n in range(10))]), encoding="utf-8")
    command = [forked_python(), "-c", KILLED, str(world.root), where, str(time)]
    done = subprocess.run(command, env={**os.environ, "PERSONA_ROOT": ""}, check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert world.mirror_messages().problems == []
    assert (texts(world), lines(world)) == read_afresh(world, "killed")


def test_lots_are_bounded_by_lines_and_by_characters(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    real = mirroring.write_batch

    def noting(connection: object, batch: Sequence[object], reading: object) -> object:
        sizes.append(len(batch))
        return real(connection, batch, reading)  # pyright: ignore

    monkeypatch.setattr(mirroring, "write_batch", noting)
    path = world.root / "messages/all.jsonl"
    path.write_text(jsonl(TEN), encoding="utf-8")
    world.mirror_messages()
    assert sizes == [3, 3, 3, 1]
    sizes.clear()
    monkeypatch.setattr(mirroring, "_BATCH_CHARACTERS", 10)
    ingest(world, path)
    assert sizes == [1] * 10


def test_what_moves_between_files_that_stay_is_kept(world: World) -> None:
    one, two = (world.root / f"messages/{name}.jsonl" for name in ("one", "two"))
    one.write_text(jsonl(TEN[:5]), encoding="utf-8")
    two.write_text(jsonl([*TEN[3:5], *TEN[5:]]), encoding="utf-8")
    world.mirror_messages()
    for first, second in ((TEN[:2], TEN[2:]), (TEN[:9], TEN[9:]), ([], TEN), (TEN, TEN)):
        one.write_text(jsonl(first), encoding="utf-8")
        two.write_text(jsonl(second), encoding="utf-8")
        assert world.mirror_messages().problems == []
        assert list(texts(world)) == [item["id"] for item in TEN]
        assert not world.unread_messages().gone
    # The copy in the other file, which does not change, takes their place.
    one.write_text(jsonl(TEN[:2]), encoding="utf-8")
    assert world.mirror_messages().problems == []
    assert list(texts(world)) == [item["id"] for item in TEN]
    one.unlink()
    world.mirror_messages()
    assert list(texts(world)) == [item["id"] for item in TEN]
    two.unlink()
    world.mirror_messages()
    assert texts(world) == {}


def test_a_copy_of_a_file_that_was_read_is_known_by_its_content(world: World, parsed: list[str]) -> None:
    path = world.root / "messages/all.jsonl"
    path.write_text(jsonl(TEN), encoding="utf-8")
    (world.root / "messages/broken.jsonl").write_bytes(b"\xff")
    (world.root / "messages/half.jsonl").write_text('{"id": "', encoding="utf-8")
    assert len(world.mirror_messages().problems) == 2
    assert not world.unread_messages()
    for file in world.message_files():
        content = file.read_bytes()
        file.unlink()
        # As another host has it, from its own checkout.
        file.write_bytes(content)
        os.utime(file, (1, 1))
    assert not world.unread_messages()
    parsed.clear()
    assert len(world.mirror_messages().problems) == 2
    assert parsed == []
    path.write_text(path.read_text(encoding="utf-8").replace("Text 3", "Test 3"), encoding="utf-8")
    assert [*world.unread_messages().files] == ["messages/all.jsonl"]
