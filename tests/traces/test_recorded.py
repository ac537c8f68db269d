"""What real packages exported: every line is stored as it was said."""

import json
import random
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

from persona_pipeline.importing.run import ImportOptions, import_messages
from persona_pipeline.importing.traces.calls import piece_of
from persona_pipeline.importing.traces.messages import keep_pieces
from persona_pipeline.importing.traces.otlp import JSON, read_request
from persona_pipeline.testing.worlds import WorldBuilder
from persona_pipeline.world import World

RECORDED = Path(__file__).parent / "recorded"
NAMES = sorted(path.stem for path in RECORDED.glob("*.jsonl"))
Lines = dict[str | None, list[tuple[str, str]]]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> World:
    builder = WorldBuilder(tmp_path_factory.mktemp("world"))
    return builder.persona("ann", "Ann is dry.").persona("bob", "Bob purrs.").open()


def by_channel(lines: Iterable[tuple[str | None, str, str]]) -> Lines:
    found: Lines = defaultdict(list)
    for channel, speaker, text in lines:
        found[channel].append((speaker, text))
    return found


def said(name: str) -> Lines:
    return by_channel(map(tuple, json.loads((RECORDED / f"{name}.said.json").read_text(encoding="utf-8"))))


def stored(world: World) -> Lines:
    return by_channel((message.channel, message.agent_id, message.text) for message in world.messages())


@pytest.mark.parametrize("name", NAMES)
def test_a_file_says_what_was_said(world: World, name: str) -> None:
    imported = import_messages(world, [RECORDED / f"{name}.jsonl"], ImportOptions())
    assert imported.result.problems == []
    assert stored(world) == said(name)


@pytest.mark.parametrize("name", NAMES)
def test_so_do_its_spans_one_by_one_twice_and_in_any_order(world: World, name: str) -> None:
    lines = (RECORDED / f"{name}.jsonl").read_bytes().splitlines()
    pieces = [piece for line in lines for item in read_request(line, JSON) if (piece := piece_of(item))]
    twice = pieces * 2
    random.Random(1).shuffle(twice)
    for at in range(0, len(twice), 5):
        keep_pieces(world, twice[at : at + 5])
    assert stored(world) == said(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_tells_nothing_of_where_it_was_made(name: str) -> None:
    text = (RECORDED / f"{name}.jsonl").read_text(encoding="utf-8")
    assert [word for word in ("127.0.0.1", "localhost", "/home/", "/tmp/", "/root/") if word in text] == []
