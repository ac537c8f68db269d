"""Names that do not match: who is meant, aliases that are followed, and messages that are taken out."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

import persona_pipeline.world.names as kept_names
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.world import Message, Window, World
from persona_pipeline.world.messages.store import Selection, remove_messages, select_messages, write_messages
from persona_pipeline.world.names import AgentNames, Aliases, read_names
from persona_pipeline.world.runs import record_windows, touched_windows
from persona_pipeline.world.speakers import match_names, stored_names
from tests.support.worlds import ingest, write_jsonl, write_yaml

NAMES = {
    "michael": AgentNames("michael", "Michael Barrow", ()),
    "zoe": AgentNames("zoe", "Zoé Laurent", ()),
    "jim": AgentNames("jim", "Jim", ()),
    "night_desk": AgentNames("night_desk", "Night Desk", ()),
}
NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)


MEANT = {
    "michael": ["Michael", "MICHAEL ", "michael barrow", "michael.barrow", "Michael B.", "Micheal", "Micael", "imchael", "ichael"],
    "zoe": ["Zoë"], "jim": ["Jmi"], "night_desk": ["Night desk", "night-desk-2"], None: ["visitor", "Mia", "jo", "日本", "🙂"],
}  # fmt: skip


def test_who_is_meant() -> None:
    for meant, name in ((meant, name) for meant, listed in MEANT.items() for name in listed):
        (stranger,) = match_names({name: 2}, NAMES).strangers
        assert (name, stranger.agent_id) == (name, meant)
        assert ("did you mean" in stranger.text) == (meant is not None)


def test_of_two_whose_name_it_could_be_the_one_who_is_silent_is_meant() -> None:
    names = {name: AgentNames(name, "Sam " + name.title(), ()) for name in ("hill", "lake")}
    said = {"Sam": 3, "hill": 5}
    assert match_names(said, names).strangers[0].agent_id == "lake"
    assert match_names({**said, "lake": 1}, names).strangers[0].agent_id is None, "either could be meant"


def test_an_agent_of_another_number_is_not_meant() -> None:
    names = {f"agent_{n}": AgentNames(f"agent_{n}", f"Agent {n}", ()) for n in range(10, 20)}
    said = {"agent_21": 1, "agent-10": 1, "Agent 1": 2}
    meant = {item.name: item.agent_id for item in match_names(said, names).strangers}
    assert meant == {"agent_21": None, "agent-10": "agent_10", "Agent 1": None}


def test_nobody_is_silent_while_nothing_is_said() -> None:
    assert match_names({}, NAMES).lines() == []
    assert match_names({"jim": 1}, NAMES).silent == ("michael", "night_desk", "zoe")


def aliased(root: Path, agent_id: str, *aliases: str) -> None:
    content = {"display_name": agent_id.title(), "persona": f"{agent_id} speaks.", "aliases": list(aliases)}
    write_yaml(root / "personas" / f"{agent_id}.yaml", content)


@pytest.mark.parametrize(
    ("aliases", "says"),
    [
        ({"ann": ["Bob"]}, ["ann.yaml:5:3: alias 'Bob' is the id of another agent (personas/bob.yaml)"]),
        ({"ann": ["A. Nonymous"], "bob": ["a.  nonymous"]}, ["is an alias of 'ann' too (", "ann.yaml:", "bob.yaml:"]),
        ({"ann": [""]}, ["an alias must be 1 to 256 printable characters"]),
        ({"ann": ["x\ny"]}, ["an alias must be 1 to 256 printable characters"]),
        ({"ann": ["Ann", "annie", "ANNIE"]}, []),
    ],
    ids=["an id", "an alias", "empty", "two lines", "one's own"],
)
def test_an_alias_is_one_agents_own(small_world: World, aliases: dict[str, list[str]], says: list[str]) -> None:
    for agent_id, names in aliases.items():
        aliased(small_world.root, agent_id, *names)
    if not says:
        small_world.sync()
        return
    with pytest.raises(ConfigError) as error:
        small_world.sync()
    text = str(error.value)
    assert all(part in text for part in says), text
    assert len(text.splitlines()) == 1


def test_a_broken_file_takes_no_message_from_its_agent(small_world: World) -> None:
    aliased(small_world.root, "ann", "Annie")
    write_messages(small_world.store, [Message("x", "Annie", "Hello.", NOON, "general")])
    small_world.sync()
    path = small_world.root / "personas" / "ann.yaml"
    text = path.read_text(encoding="utf-8")
    path.write_text("display_name: [", encoding="utf-8")
    small_world.sync_messages()
    assert said_by(small_world, "x") == "ann"
    path.write_text(text.replace("Annie", "Anna"), encoding="utf-8")
    small_world.sync_messages()
    assert said_by(small_world, "x") == "Annie"


def said_by(world: World, message_id: str) -> str:
    return next(message.agent_id for message in world.messages() if message.id == message_id)


def test_aliases_are_followed_in_every_store_and_back(small_root: Path, database_url: str) -> None:
    world = World.open(small_root, database_url)
    rows = [
        Message("s", "Micheal", "By me.", NOON, "general"),
        Message("r", "bob", "To you.", NOON, recipient="MICHEAL"),
        Message("b", "MICHEAL", "Back.", NOON, recipient="bob"),
    ]
    write_messages(world.store, rows)
    plain = {message.id: message for message in world.messages()}
    aliased(small_root, "michael", "micheal", "somebody else")
    world.sync()
    assert Aliases.of(read_names(small_root)).agent_of("Somebody  Else") == "michael"
    mended = {message.id: message for message in world.messages()}
    assert (mended["s"].agent_id, mended["s"].speaker) == ("michael", "Micheal")
    assert (mended["r"].recipient, mended["r"].addressee) == ("michael", "MICHEAL")
    assert mended["r"].conversation == mended["b"].conversation
    assert stored_names(world).lines() == []
    aliased(small_root, "michael")
    world.sync()
    assert {message.id: message for message in world.messages()}.items() >= plain.items()
    world.store.close()


SELECTIONS = [
    (Selection(agents=["ann"]), {"m1", "m3", "m4", "m6", "m8"}),
    (Selection(speakers=["bob"]), {"m2", "m5", "m7"}),
    (Selection(ids=["m1", "m7", "nobody's"]), {"m1", "m7"}),
    (Selection(sources=["messages/all.jsonl"]), {f"m{n}" for n in range(1, 9)}),
    (
        Selection(between=(datetime(2026, 3, 9, 9, tzinfo=UTC), datetime(2026, 3, 10, 11, tzinfo=UTC))),
        {"m4", "m5", "m6"},
    ),
    (Selection(agents=["ann", "bob"], ids=["m1", "m2", "m3"], speakers=["ann"]), {"m1", "m3"}),
]


def test_what_is_removed_is_what_was_meant_and_stays_out(small_world: World) -> None:
    small_world.sync()
    path = small_world.root / "messages" / "all.jsonl"
    for selection, ids in SELECTIONS:
        text = path.read_text(encoding="utf-8")
        selected = select_messages(small_world.store, selection)
        assert set(selected.ids) == ids
        assert len(small_world.messages()) == 8, "looking removes nothing"
        assert remove_messages(small_world.store, selected) == len(ids)
        path.write_text(text + "\n", encoding="utf-8")
        small_world.sync()
        assert {message.id for message in small_world.messages()} == {f"m{n}" for n in range(1, 9)} - ids
        again = ingest(small_world, path).written
        assert (again.inserted, again.kept_out, again.unchanged) == (0, len(ids), 8 - len(ids))
        assert ingest(small_world, path, restore=True).written.inserted == len(ids)
        assert ingest(small_world, path).written.kept_out == 0, "what was brought back is not out any more"
        assert path.read_text(encoding="utf-8") == text + "\n"


def test_a_removed_message_that_was_corrected_comes_in(small_world: World) -> None:
    small_world.sync()
    remove_messages(small_world.store, select_messages(small_world.store, Selection(ids=["m1", "m2"])))
    path = small_world.root / "messages" / "all.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    rows[0]["text"] = "What I really said."
    write_jsonl(path, rows)
    small_world.sync()
    said = {message.id: message.text for message in small_world.messages()}
    assert said["m1"] == "What I really said."
    assert "m2" not in said


def test_an_alias_that_comes_later_brings_no_removed_message_back(small_world: World, tmp_path: Path) -> None:
    row = {"id": "x", "agent_id": "Annie", "channel": "c", "text": "Hi.", "created_at": "2026-03-10T12:00:00Z"}
    path = write_jsonl(tmp_path / "export.jsonl", [row])
    ingest(small_world, path)
    remove_messages(small_world.store, select_messages(small_world.store, Selection(speakers=["Annie"])))
    aliased(small_world.root, "ann", "annie")
    assert ingest(small_world, path).written.kept_out == 1
    assert ingest(small_world, path, mapping={"Annie": "ann"}).written.inserted == 1, "the file is read as another one"


def test_a_selection_of_nothing_is_an_error_and_what_was_generated_is_not_removed(small_world: World) -> None:
    small_world.sync()
    write_messages(small_world.store, [Message("g", "ann", "Made up.", NOON, "general", synthetic=True)])
    for selection, says in (
        (Selection(), "say which messages: --agent"),
        (Selection(agents=["anne"]), "there is none of 'anne'; did you mean 'ann'?"),
        (Selection(sources=["messages/al.jsonl"]), "did you mean 'messages/all.jsonl'?"),
        (Selection(ids=["nobody's"]), "no message is meant"),
        (Selection(ids=["g"]), "no message is meant"),
    ):
        with pytest.raises(ConfigError) as error:
            select_messages(small_world.store, selection)
        assert says in str(error.value)


def test_a_file_that_is_renamed_or_merged_loses_no_message_and_touches_no_window(small_world: World) -> None:
    small_world.sync()
    messages = small_world.messages()
    window = Window(end=NOON, start=None)
    with small_world.store.begin() as connection:
        record_windows(connection, [("ann", window, None)])
    path = small_world.root / "messages" / "all.jsonl"
    for name in ("a.jsonl", "z.jsonl", "deep/all.jsonl"):
        moved = small_world.root / "messages" / name
        moved.parent.mkdir(exist_ok=True)
        path = path.rename(moved)
        assert small_world.sync().problems == []
        assert small_world.messages() == messages
    assert touched_windows(small_world.store, ["ann"]) == []


def test_an_id_of_two_messages_in_two_files_is_named_and_the_first_kept(small_world: World) -> None:
    row = {"id": "m1", "agent_id": "bob", "channel": "c", "text": "Mine.", "created_at": "2026-03-10T12:00:00Z"}
    path = write_jsonl(small_world.root / "messages" / "other.jsonl", [row])
    (problem,) = small_world.sync().problems
    assert str(problem) == "messages/other.jsonl:1: id 'm1' is taken in messages/all.jsonl; give this message its own"
    assert small_world.sync().problems == [problem]
    assert said_by(small_world, "m1") == "ann"
    (small_world.root / "messages" / "all.jsonl").unlink()
    assert small_world.sync().problems == []
    assert said_by(small_world, "m1") == "bob"
    assert path.exists()


ANNA = {"display_name": "Anna", "persona": "Calm."}
# What is done to the files, and which are read again.
EDITS: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "nothing changed": (lambda _: None, []),
    "another name": (lambda folder: write_yaml(folder / "ann.yaml", ANNA), ["ann.yaml"]),
    "an alias": (lambda folder: write_yaml(folder / "ann.yaml", ANNA | {"aliases": ["a b"]}), ["ann.yaml"]),
    "one gone": (lambda folder: (folder / "ann.yaml").unlink(), []),
    "both spellings": (lambda folder: write_yaml(folder / "ann.yml", ANNA), []),
    "no YAML": (lambda folder: (folder / "ann.yaml").write_text("aliases: [", "utf-8"), ["ann.yaml"]),
    "damaged": (lambda folder: (folder.parent / "names.json").write_text("{}}", "utf-8"), ["ann.yaml", "bob.yaml"]),
}


@pytest.mark.parametrize(("edit", "read"), EDITS.values(), ids=list(EDITS))
def test_of_a_large_world_only_what_looks_otherwise_is_read_again(
    edit: Callable[[Path], object], read: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, kept, opened = tmp_path / "personas", tmp_path / "names.json", list[str]()
    write_yaml(folder / "ann.yaml", {"display_name": "Ann", "persona": "Calm."})
    write_yaml(folder / "bob.yaml", {"display_name": "Bob", "aliases": ["bobby", "robert"], "persona": "Loud."})
    monkeypatch.setattr(kept_names, "_FEWEST_KEPT", 1)
    assert read_names(tmp_path, kept) == read_names(tmp_path)
    # As another process finds it.
    kept_names._SEEN.clear()
    edit(folder)
    expected = read_names(tmp_path)
    monkeypatch.setattr(
        kept_names, "read_regular", lambda path: opened.append(Path(path).name) or Path(path).read_bytes()
    )
    assert read_names(tmp_path, kept) == expected
    assert [name for name in opened if name != kept.name] == read
    opened.clear()
    assert read_names(tmp_path, kept) == expected and [n for n in opened if n.endswith(".json")] == []
