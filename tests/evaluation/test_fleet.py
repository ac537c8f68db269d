"""Likeness over a fleet: four support voices, a channel a conversation, and nobody of them ever meets another."""

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import event

from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.evaluation.plan import build_case
from persona_pipeline.evaluation.read import WorldReader
from persona_pipeline.scoring.style.likeness import fleet_likeness
from persona_pipeline.testing import ScriptedJudge, WorldBuilder
from persona_pipeline.world.messages.store import read_alike, read_newest, said_most
from persona_pipeline.world.models import Message, Window
from persona_pipeline.world.world import World
from tests.scoring.style.samples import DISTINCT, conversation
from tests.support.command_line import in_process

FLEET = {"ada": "Ada Byron", "ben": "Ben Ochoa", "cleo": "Cléo Martin", "dev": "Dev Anand"}
FIRST = datetime.fromisoformat("2026-03-02T09:00:00+00:00")
WEEKS, TICKETS, TURNS = 5, 3, 4
COURTESIES = [
    "Thank you so much for getting in touch with our support team today",
    "Is there anything else I can help you with this afternoon",
    "I apologize for the inconvenience and appreciate your patience",
    "Thanks for contacting us, how can I help you today?",
]
_THINGS = {
    "ada": "ledger cog engine loom punch card brass wheel difference table proof margin",
    "ben": "truck ramp pallet forklift depot driver tyre gate chain yard crane hook",
    "cleo": "tulip vase ribbon bouquet stem petal courier florist bow rose moss twine",
    "dev": "router cable reboot firmware socket packet port switch modem lamp antenna rack",
}
THINGS = {agent_id: words.split() for agent_id, words in _THINGS.items()}
FRAMES = {
    "ada": "By my reckoning the {} and the {} do agree, save that the {} was counted twice before the {}.",
    "ben": "Right, {} first, {} after, and nobody touches that {} until the {} is back with me!",
    "cleo": "oh the {} would look divine beside the {}, shall i tuck a {} under your {} as well?",
    "dev": "Step one: unplug the {}. Step two: check the {}. Step three: tell me what {} and {} say.",
}


def line(agent_id: str, number: int) -> str:
    return FRAMES[agent_id].format(*random.Random(f"{agent_id}{number}").sample(THINGS[agent_id], 4))


def support_world(root: Path, *, copies: str | None = None, alone: bool = False, courteous: Sequence[str] = ()) -> Path:
    """Write a fleet in tickets of its own, with customers who have no persona or as monologues.

    Args:
        copies: whose earlier lines ada says in its last week.
        courteous: who says nothing but courtesies then.
    """
    world = WorldBuilder(root).claim("convergence", "own-words", "{{agent_name}} has words of its own")
    for agent_id, name in FLEET.items():
        world.persona(agent_id, f"{name} works at the support desk.", display_name=name)
    for week in range(WEEKS):
        for agent_id in FLEET:
            for ticket in range(TICKETS):
                for turn in range(TURNS):
                    number = (week * TICKETS + ticket) * TURNS + turn
                    at = FIRST + timedelta(weeks=week, days=ticket, minutes=10 * turn, seconds=len(agent_id))
                    channel = f"{agent_id}-{week}-{ticket}"
                    text = line(agent_id, number)
                    if week == WEEKS - 1 and agent_id == "ada" and copies:
                        text = line(copies, number - TICKETS * TURNS)
                    if week == WEEKS - 1 and agent_id in courteous:
                        text = COURTESIES[turn]
                    world.say(agent_id, text, at=at, channel=channel)
                    if not alone:
                        world.say(f"customer-{channel}", f"And what about the {number}?", at=at, channel=channel)
    return root


@pytest.mark.parametrize("alone", [False, True])
def test_whose_lines_an_agent_says_in_its_own_tickets_is_found(
    alone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cli = in_process(support_world(tmp_path, copies="ben", alone=alone), monkeypatch, capsys)
    for agents in ((), ("--agents", "ada")):
        told = json.loads(cli("evaluate", *agents).stdout)
        found = [item for agent in told["agents"].values() for item in agent["findings"] if item["kind"] == "clone"]
        assert [item["agent_id"] for item in found] == ["ada"]
        assert found[0]["message"].startswith("Ada Byron says Ben Ochoa's lines (100%")
        assert "nobody touches that" in found[0]["message"]
        statistics = told["agents"]["ada"]["dimensions"]["convergence"]["statistics"]
        assert [(item["agent_id"], item["other"]) for item in statistics["findings"]] == [("ada", "ben")]
    assert cli("evaluate", "--only-fail-on", "voices").returncode == 1
    for kind in ("markdown", "html"):
        assert "Ada Byron says Ben Ochoa" in cli("evaluate", "--format", kind).stdout.replace("&#39;", "'")


@pytest.mark.parametrize(
    "courteous", [pytest.param((), id="as ever"), pytest.param(("ada", "ben"), id="two"), pytest.param(FLEET, id="all")]
)
def test_courtesies_are_nobodys(courteous: Sequence[str], tmp_path: Path) -> None:
    world = WorldBuilder(support_world(tmp_path, courteous=courteous)).open()
    inputs = WorldReader(world).snapshot(EvaluationRequest(), ScriptedJudge(lambda _: 8)).inputs
    assert {scope.agent_id: scope.alike for scope in inputs.agents} == dict.fromkeys(FLEET, ())


def test_what_an_agent_said_before_is_what_it_said_in_other_tickets(tmp_path: Path) -> None:
    world = WorldBuilder(support_world(tmp_path)).open()
    inputs = WorldReader(world).snapshot(EvaluationRequest(), ScriptedJudge(lambda _: 8)).inputs
    scope = inputs.agents[0]
    case = build_case(inputs, scope, 1)
    assert len(case.history["ada"]) == (WEEKS - 1) * TICKETS * TURNS
    assert {"ben", "cleo", "dev"}.isdisjoint(case.history)


@pytest.mark.parametrize(
    ("said", "swapped", "expected"),
    [
        pytest.param({}, False, set(), id="voices of their own"),
        pytest.param({"ann": "terse"}, False, {("style_clone", "ann", "bob")}, id="one has gone over to another's"),
        pytest.param({}, True, {("merged", "ann", "bob")}, id="two have met in the middle"),
    ],
)
def test_voices_are_compared_whatever_the_channel(
    said: dict[str, str], swapped: bool, expected: set[tuple[str, str, str]]
) -> None:
    before, now = conversation(DISTINCT, 200, 1), conversation(DISTINCT | said, 40, 3)
    if swapped:
        now["ann"][::3], now["bob"][::3] = now["bob"][::3], now["ann"][::3]
    earlier, current = (
        [
            Message(f"{when}{name}{n}", name, text, FIRST + timedelta(minutes=n), f"{when}-{name}-{n // 10}")
            for name, texts in voices.items()
            for n, text in enumerate(texts)
        ]
        for when, voices in (("before", before), ("now", now))
    )
    found = fleet_likeness(current, earlier, set(DISTINCT), of=set(DISTINCT))
    styles = {
        (item.kind.value, item.agent_id, item.other)
        for items in found.values()
        for item in items
        if item.kind != "clone"
    }
    assert styles == expected


@pytest.mark.parametrize(
    ("agents", "each", "expected"),
    [
        pytest.param(["ada"], 2, {"ada": 2}, id="the newest two of one"),
        pytest.param([*FLEET], 100, dict.fromkeys(FLEET, TICKETS * TURNS), id="all there is of everybody"),
        pytest.param([*FLEET, *map(str, range(1000))], 1, dict.fromkeys(FLEET, 1), id="more than a query can name"),
        pytest.param([], 5, {}, id="nobody"),
    ],
)
def test_the_newest_messages_of_each_are_read(
    agents: list[str], each: int, expected: dict[str, int], tmp_path: Path, database_url: str
) -> None:
    world = World.open(support_world(tmp_path), database_url)
    world.sync()
    window = Window.ending(FIRST + timedelta(weeks=WEEKS), timedelta(weeks=1))
    asked: list[str] = []
    event.listen(world.store.engine, "before_cursor_execute", lambda *given: asked.append(given[2]))
    found = read_newest(world.store, window, agents, each)
    # Most of what one agent's evaluation reads of a large world.
    assert not any(name in statement for statement in asked for name in ("extras", "addressee", "run_id"))
    assert Counter(message.agent_id for message in found) == expected
    ends = {name: max(m.created_at for m in world.messages(window, agent_id=name)) for name in expected}
    assert {name: max(m.created_at for m in found if m.agent_id == name) for name in expected} == ends


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        pytest.param(lambda text: text, {"ben"}, id="word for word"),
        pytest.param(lambda text: text + " And mind the rain, would you?", {"ben"}, id="it begins so"),
        pytest.param(lambda text: "Now then, friends. " + text, {"ben"}, id="it ends so"),
        pytest.param(lambda text: text.upper(), set(), id="other letters"),
        pytest.param(lambda text: text[3:-3], set(), id="the middle"),
    ],
)
def test_lines_that_begin_or_end_as_ones_own_are_read_of_whoever_said_them_in_time(
    changed: Callable[[str], str], expected: set[str], tmp_path: Path, database_url: str
) -> None:
    copied = "Right, hook first, crane after, and nobody touches that yard until the chain is back with me!"
    soon = FIRST + timedelta(weeks=WEEKS)
    builder = WorldBuilder(tmp_path).say("ada", changed(copied), at=soon, channel="last")
    builder.say("ada", copied, at=FIRST, channel="her own").say("ben", line("ben", 1), at=FIRST, channel="another")
    builder.say("ben", copied, at=FIRST + timedelta(days=1), channel="said")
    builder.say("cleo", copied, at=soon + timedelta(days=1), channel="said after the window")
    world = World.open(builder.root, database_url)
    world.sync()
    own = world.messages(agent_id="ada")[-1]
    found = read_alike(world.store, Window.ending(soon, timedelta(weeks=6)), [own])
    assert {message.agent_id for message in found if message.text == copied} == expected
    assert "ada" not in {message.agent_id for message in found}


@pytest.mark.parametrize(
    ("least", "most", "expected"),
    [
        pytest.param(TICKETS * TURNS, 10, [*sorted(FLEET)], id="all"),
        pytest.param(TICKETS * TURNS, 2, [*sorted(FLEET)][:2], id="no more than asked for"),
        pytest.param(TICKETS * TURNS + 1, 10, [], id="too few messages"),
    ],
)
def test_who_has_said_much(least: int, most: int, expected: list[str], tmp_path: Path, database_url: str) -> None:
    world = World.open(support_world(tmp_path), database_url)
    world.sync()
    weeks = [Window.ending(FIRST + timedelta(weeks=week), timedelta(weeks=1)) for week in (2, 3)]
    found = said_most(world.store, dict.fromkeys(weeks, least), [*FLEET, "nobody"], most)
    assert len(found) == len(expected)
    assert set(found) <= set(FLEET)
