"""Every format gives the same messages of the same conversation, once, however often and however grown it is imported."""

import json
import re
import sys
import zipfile
from contextlib import ExitStack
from importlib.metadata import EntryPoint
from io import BytesIO, TextIOWrapper
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import Mock

import pytest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.importing import ReadOptions, Source, run
from persona_pipeline.importing.base import TurnIds, as_text, value_at
from persona_pipeline.importing.records import first_records, records
from persona_pipeline.importing.run import IMPORTERS, Imported, ImportOptions, import_messages, importer_of, read_export
from persona_pipeline.importing.sillytavern import sent_at
from persona_pipeline.world import World
from persona_pipeline.world.messages.files import parse_time
from persona_pipeline.world.models import Message
from tests.importing.samples import SAMPLES, TEXTS
from tests.support.worlds import write_jsonl


def said(world: World) -> list[tuple[str, str | None, str | None, str, str]]:
    found = [message for message in world.messages() if message.channel == "general"]
    return [
        (m.agent_id, m.channel, m.recipient, m.text, m.created_at.isoformat().replace("+00:00", "Z")) for m in found
    ]


def take(world: World, *given: Path, **options: Any) -> Imported:
    return import_messages(world, given, ImportOptions(**options))


# Claude's export names nobody.
NAMES = {"claude": {"ann": "user", "bob": "assistant"}}


def expected(name: str) -> list[tuple[str, str | None, str | None, str, str]]:
    return [(NAMES.get(name, {}).get(who, who), "general", None, text, at) for who, text, at in TEXTS]


@pytest.mark.parametrize("name", SAMPLES)
def test_an_export_that_grew_adds_what_is_new(name: str, empty_world: World, tmp_path: Path) -> None:
    for count, new in ((2, 2), (3, 1), (4, 1), (5, 1), (5, 0)):
        imported = take(empty_world, SAMPLES[name](tmp_path, count))
        written = imported.result.written
        assert ([*imported.formats.values()], imported.result.problems) == ([name], [])
        assert (written.inserted, written.updated, written.unchanged) == (new, 0, count - new)
    assert said(empty_world) == expected(name)


def test_what_is_no_message_is_counted(empty_world: World, tmp_path: Path) -> None:
    counted = {name: dict(take(empty_world, make(tmp_path, 5)).skipped) for name, make in SAMPLES.items()}
    assert counted == {
        "messages": {},
        "openai": {"system prompt": 1, "tool call without words": 1, "tool result": 1},
        "slack": {"channel_join": 1},
        "langfuse": {"step within a trace": 2, "said before": 6},
        "langsmith": {"step within a trace": 2, "said before": 10},
        "sillytavern": {"header": 1, "system note": 1},
        "otlp": {},
        "chatgpt": {"system prompt": 1, "turn without text": 4},
        "claude": {},
        "discord": {"GuildMemberJoin": 1},
    }


LINE = {"role": "user", "content": "hi"}
PLAIN = {"id": "1", "agent_id": "ann", "channel": "c", "text": "hi", "created_at": "2026-03-01T10:00:00Z"}


def rows_of(folder: Path, name: str, text: str, *, format_name: str | None = None, **reading: Any) -> list[Any]:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    source = Source(path, name)
    importer = importer_of(source, format_name)
    return [getattr(found, "found", found) for found in importer.rows(source, ReadOptions(**reading))]


def message_of(folder: Path, name: str, data: Any, **options: Any) -> Message:
    (found,) = [item for item in rows_of(folder, name, json.dumps(data), **options) if not hasattr(item, "reason")]
    assert isinstance(found, Message), found
    return found


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"messages": []}, "has no messages"),
        ({"messages": [{"content": "x"}]}, "messages[0]: a message has no role"),
        ({"messages": [{"role": "user", "content": 5}], "created": 1}, "content must be a text or a list of parts"),
        ({"messages": [LINE]}, "says no time; give --starting"),
        ({"messages": [LINE], "created": "yesterday"}, "is not an RFC 3339 time"),
        ([1], "is not an object"),
    ],
)
def test_a_chat_that_cannot_be_read_is_named(tmp_path: Path, data: Any, says: str) -> None:
    (found,) = rows_of(tmp_path, "chats.jsonl", json.dumps(data), format_name="openai")
    assert isinstance(found, ValueError)
    assert says in str(found)


def test_chats_without_ids_and_times_are_known_by_how_they_begin(empty_world: World, tmp_path: Path) -> None:
    def chat(*texts: str) -> str:
        turns = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
        return json.dumps({"messages": turns}) + "\n"

    options = {"reading": ReadOptions(starting=parse_time("2026-03-01T09:00:00Z"))}
    first, later = tmp_path / "monday.jsonl", tmp_path / "tuesday.jsonl"
    rest = chat("hi", "hey") + chat("hi", "ho")
    first.write_text(chat("hi", "ho") + rest, encoding="utf-8")
    assert take(empty_world, first, **options).result.written.inserted == 6
    later.write_text(chat("hi", "ho", "more") + rest + chat("new", "one"), encoding="utf-8")
    written = take(empty_world, later, **options).result.written
    assert (written.inserted, written.updated, written.unchanged) == (3, 0, 6)
    assert len({message.channel for message in empty_world.messages()}) == 4, "two chats that begin alike are two"
    times = {(message.text, f"{message.created_at:%H:%M:%S}") for message in empty_world.messages()}
    assert {("hi", "09:00:00"), ("ho", "09:00:01"), ("hi", "09:02:00"), ("new", "09:03:00")} <= times, "a minute a line"


SLACK = {"type": "message", "user": "U9", "ts": "1772352000.000100"}


@pytest.mark.parametrize(
    ("item", "agent_id", "text"),
    [
        ({**SLACK, "text": "<@U1> see <#C1|general> <!here>"}, "U9", "@Ann see #general @here"),
        ({**SLACK, "text": "<https://x.org|x> <mailto:a@b|a@b> &lt;b&gt;"}, "U9", "x (https://x.org) a@b <b>"),
        ({**SLACK, "text": "<!subteam^S1|@team> <!date^1^{d}|Monday>"}, "U9", "@team Monday"),
        ({**SLACK, "user": "U1", "text": "hi"}, "Ann", "hi"),
        ({**SLACK, "text": "hi", "user_profile": {"display_name": "Guest"}}, "Guest", "hi"),
        (
            {**SLACK, "user": None, "subtype": "bot_message", "username": "Robo", "attachments": [{"text": "card"}]},
            "Robo",
            "card",
        ),
        ({**SLACK, "user": None, "bot_id": "B1", "bot_profile": {"name": "Helper"}, "text": "x"}, "Helper", "x"),
    ],
)
def test_what_people_see_in_slack_is_the_text(tmp_path: Path, item: Any, agent_id: str, text: str) -> None:
    (tmp_path / "general").mkdir()
    (tmp_path / "general" / "2026-03-01.json").write_text(json.dumps([item]), encoding="utf-8")
    (tmp_path / "users.json").write_text('[{"id": "U1", "profile": {"real_name": "Ann"}}]', encoding="utf-8")
    source = Source(tmp_path, "export")
    importer = importer_of(source)
    (file,) = importer.files(source)
    assert file.name == "export/general/2026-03-01.json"
    (found,) = importer.rows(file, ReadOptions())
    message = getattr(found, "found", None)
    assert isinstance(message, Message), found
    assert (message.agent_id, message.text, message.channel) == (agent_id, text, "general")
    assert message.created_at.isoformat() == "2026-03-01T08:00:00.000100+00:00"
    assert message.id == "slack:general:1772352000.000100"


def test_a_direct_message_in_slack_has_a_recipient(tmp_path: Path) -> None:
    (tmp_path / "D1").mkdir()
    (tmp_path / "D1" / "2026-03-01.json").write_text(json.dumps([{**SLACK, "user": "U1", "text": "x"}]), "utf-8")
    (tmp_path / "dms.json").write_text('[{"id": "D1", "members": ["U1", "U2"]}]', encoding="utf-8")
    (tmp_path / "users.json").write_text('[{"id": "U1", "name": "ann"}, {"id": "U2", "name": "bob"}]', "utf-8")
    importer = importer_of(Source(tmp_path, "export"))
    (file,) = importer.files(Source(tmp_path, "export"))
    (found,) = importer.rows(file, ReadOptions())
    message = getattr(found, "found", None)
    assert isinstance(message, Message)
    assert (message.agent_id, message.recipient, message.channel) == ("ann", "bob", None)


@pytest.mark.parametrize(
    ("sent", "moment"),
    [
        ("June 19, 2023 2:20pm", "2023-06-19T14:20:00+00:00"),
        ("June 19, 2023 12:05am", "2023-06-19T00:05:00+00:00"),
        ("2024-07-12@01h31m37s123ms", "2024-07-12T01:31:37.123000+00:00"),
        ("2024-7-12@01h31m37s", "2024-07-12T01:31:37+00:00"),
        ("2024-6-5 @14h 56m 50s 682ms", "2024-06-05T14:56:50.682000+00:00"),
        ("2025-10-04T10:20:30.123Z", "2025-10-04T10:20:30.123000+00:00"),
        (1687184400000, "2023-06-19T14:20:00+00:00"),
        ("1687184400000", "2023-06-19T14:20:00+00:00"),
        ("Brumaire 19, 2023 2:20pm", None),
        (True, None),
        ("²", None),
        (None, None),
    ],
)
def test_every_time_sillytavern_ever_wrote(sent: Any, moment: str | None) -> None:
    if moment is None:
        with pytest.raises(ValueError, match="is no time that SillyTavern writes"):
            sent_at(sent)
    else:
        assert sent_at(sent).isoformat() == moment


@pytest.mark.parametrize("user", [None, 5, "unused", "Kim"])
def test_a_group_chat_to_the_minute_keeps_its_order_and_its_names(tmp_path: Path, user: Any) -> None:
    sent, name = {"send_date": "June 19, 2023 2:20pm"}, user if user == "Kim" else "Zoe"
    lines = [
        *([{"user_name": user, "character_name": "Ann", "chat_metadata": {}}] if user else []),
        {"name": "Zoe", "is_user": True, "mes": "Hi {{char}}, I am {{user}}.", "gen_id": 7, **sent},
        {"name": "Ann", "is_user": False, "mes": "{{char}} here, <USER>.", **sent},
        {"name": "Bob", "is_user": False, "mes": "{{Char}} too.", **sent},
    ]
    found = rows_of(tmp_path, "group.jsonl", "\n".join(map(json.dumps, lines)))
    said = [message for message in found if isinstance(message, Message)]
    assert [message.text for message in said] == [f"Hi Ann, I am {name}.", f"Ann here, {name}.", "Bob too."]
    assert sorted(said, key=lambda message: message.created_at) == said
    assert len({message.created_at for message in said}) == 3
    assert said[0].extras == {"is_user": True, "gen_id": 7, **sent}, "name and text stand in their own places"


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("langfuse", {"traceId": "t", "id": "o", "type": "GENERATION", "startTime": "2026-03-01T10:00:00Z"}, "x"),
        ("langfuse", {"trace_id": "t", "id": "o", "type": "SPAN", "start_time": "2026-03-01 10:00:00.000000"}, "x"),
        ("langfuse", {"id": "t", "timestamp": "2026-03-01T10:00:00Z"}, "x"),
        ("langsmith", {"id": "r", "run_type": "llm", "start_time": "2026-03-01T10:00:00"}, "x"),
    ],
)
def test_a_lone_answer_is_a_message(tmp_path: Path, name: str, data: Any, text: str) -> None:
    answer = {"role": "assistant", "content": [{"type": "text", "text": "x"}, {"type": "image_url"}]}
    message = message_of(tmp_path, "traces.jsonl", {**data, "outputs" if name == "langsmith" else "output": answer})
    place = data["id"] if "trace" not in str(data) else "t"
    assert (message.agent_id, message.text, message.channel) == ("assistant", text, place)


def test_who_and_where_can_be_mapped(tmp_path: Path) -> None:
    data = {"messages": [{"role": "assistant", "content": "x"}], "who": {"bot": "ann"}, "at": 1772355600, "room": 7}
    fields = {"who.bot": "agent_id", "at": "created_at", "room": "channel"}
    message = message_of(tmp_path, "chats.jsonl", data, fields=fields)
    assert (message.agent_id, message.channel, f"{message.created_at:%F %T%z}") == (
        "ann",
        "7",
        "2026-03-01 09:00:00+0000",
    )
    line = {"n": 1, "from": {"name": "ann"}, "room": "c", "body": [{"text": "hi"}, {"text": "ho"}], "ts": 1772355600.5}
    fields = {"n": "id", "from.name": "agent_id", "room": "channel", "body": "text", "ts": "created_at"}
    message = message_of(tmp_path, "own.jsonl", line, format_name="messages", fields=fields)
    assert (message.id, message.agent_id, message.text) == ("1", "ann", "hi\nho")
    assert message.extras == {"from": {"name": "ann"}}
    (problem,) = rows_of(tmp_path, "own.jsonl", "[3]", format_name="messages", fields=fields)
    assert isinstance(problem, ValueError) and "object" in str(problem)
    (found,) = rows_of(
        tmp_path, "own.csv", "n,who,room,said,at\n1,ann,c,hi,2026-03-01T10:00:00Z\n", format_name="messages",
        fields={"n": "id", "who": "agent_id", "room": "channel", "said": "text", "at": "created_at"},
    )  # fmt: skip
    assert found.text == "hi"
    # A key that has a field's name anyway is read like those that are mapped.
    (found,) = rows_of(
        tmp_path, "own.csv", "part,agent_id,channel,text,created_at\n7,ann,c,hi,1772355600\n", format_name="messages",
        fields={"part": "id"},
    )  # fmt: skip
    assert (found.id, found.created_at.isoformat()) == ("7", "2026-03-01T09:00:00+00:00")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("x.jsonl", '{"foo": 1}', "of no format that is known by its look; say which with --format"),
        ("x.txt", "hello", "of no format"),
        ("missing.jsonl", None, "does not exist"),
    ],
)
def test_a_format_that_is_not_clear_is_said(tmp_path: Path, name: str, text: str | None, says: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=says):
        importer_of(Source(tmp_path / name, name))
    with pytest.raises(ConfigError, match="--format opnai: unknown format; did you mean 'openai'"):
        importer_of(Source(tmp_path / name, name), "opnai")


def test_another_package_adds_the_format_of_the_page(
    empty_world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(run.__file__).parents[2] / "docs" / "reference" / "formats.md").read_text(encoding="utf-8")
    module = ModuleType("acme_formats")
    examples = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(next(text for text in examples if "(Importer)" in text), vars(module))
    monkeypatch.setitem(sys.modules, "acme_formats", module)
    points = {"irc": EntryPoint("irc", "acme_formats:IrcLog", IMPORTERS.group)}
    points["wrong"] = EntryPoint("wrong", "acme_formats:message_row", IMPORTERS.group)
    monkeypatch.setattr("persona_pipeline.base.options.offered", {IMPORTERS.group: points}.get)
    monkeypatch.setattr(IMPORTERS, "loaded", {})
    path = tmp_path / "general.irc"
    path.write_text("2026-03-01T10:00:00Z <ann> hi\n2026-03-01T10:00:09Z bob joined\nsoon <ann> ho\n", encoding="utf-8")
    imported = take(empty_world, path, format="irc")
    assert (imported.result.written.inserted, dict(imported.skipped)) == (1, {"notice": 1})
    assert [str(problem) for problem in imported.result.problems] == [
        f"{path}:3: created_at 'soon' is not an RFC 3339 time such as 2026-06-01T09:30:00Z"
    ]
    with pytest.raises(ConfigError, match=r"importer 'wrong' .* is no subclass of .*importing\.base\.Importer"):
        take(empty_world, path, format="wrong")


def test_deeply_nested_and_long_lines_are_problems_and_not_crashes(tmp_path: Path) -> None:
    deep = json.loads("[" * 900 + "]" * 900)
    for name in IMPORTERS.built_in:
        for key in ("messages", "ts", "send_date", "mes", "input", "outputs", "text", "content"):
            line = {
                "id": "t", "timestamp": "2026-03-01T10:00:00Z", "run_type": "llm", "start_time": "2026-03-01T10:00:00Z",
                "is_user": True, "name": "x", "mes": "x", "messages": [{"role": "user", "content": "hi"}], "type": "message",
            }  # fmt: skip
            data = {**line, key: deep}
            if name == "slack":
                (tmp_path / "c").mkdir(exist_ok=True)
                (tmp_path / "c" / "2026-03-01.json").write_text(json.dumps([data]), encoding="utf-8")
                importer = importer_of(Source(tmp_path, "x"), name)
                found = list(importer.rows(importer.files(Source(tmp_path, "x"))[0], ReadOptions()))
            else:
                fields = {"name": "agent_id", "timestamp": "created_at", "mes": "text"} if name == "table" else {}
                found = rows_of(tmp_path, "deep.jsonl", json.dumps(data), format_name=name, fields=fields)
            assert found, (name, key)


@pytest.mark.parametrize("name", ["messages", "slack", "sillytavern"])
def test_a_message_that_was_edited_changes(name: str, empty_world: World, tmp_path: Path) -> None:
    path = SAMPLES[name](tmp_path, len(TEXTS))
    take(empty_world, path)
    file = path / "general" / "2026-03-01.json" if path.is_dir() else path
    file.write_text(file.read_text(encoding="utf-8").replace('"ok"', '"okay"'), encoding="utf-8")
    written = take(empty_world, path).result.written
    assert (written.inserted, written.updated, written.unchanged) == (0, 1, 4)
    assert [text for *_, text, _ in said(empty_world)][2] == "okay"


def test_a_folder_of_files_is_read_file_by_file(empty_world: World, tmp_path: Path) -> None:
    for place in ("a", "b/c"):
        (tmp_path / "chats" / place).mkdir(parents=True)
    SAMPLES["sillytavern"](tmp_path / "chats" / "a", 5)
    SAMPLES["openai"](tmp_path / "chats" / "b" / "c", 2)
    (tmp_path / "chats" / "picture.png").write_bytes(b"x")
    imported = take(empty_world, tmp_path / "chats")
    chats = tmp_path / "chats"
    assert imported.formats == {f"{chats}/a/general.jsonl": "sillytavern", f"{chats}/b/c/chats.jsonl": "openai"}
    assert imported.result.written.inserted == 7
    with pytest.raises(ConfigError, match=r"has no day files such as general/2026-03-01\.json"):
        take(empty_world, tmp_path / "chats", format="slack")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"has no file in it that ends in \.jsonl"):
        take(empty_world, tmp_path / "empty")


def test_a_dotted_key_leads_to_one_value() -> None:
    data = {"a": {"b": 1}, "c": ["x"], "e": {"f": {"g": 3}}, "e.f.g": 2}
    assert [value_at(data, key) for key in ("a.b", "c.0", "e.f.g")] == [1, "x", 2]
    assert [value_at(data, key) for key in ("c.1", "c.x", "d", "a.b.c", "c.-1")] == [None] * 5
    assert ReadOptions({"a": "channel", "b": "text"}).given({"a": "x", "b": None}) == {"channel": "x"}


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("text", ["a", {"text": "b"}], "a\nb"),
        ("channel", ["a"], ["a"]),
        ("text", "a", "a"),
        ("channel", 7, "7"),
        ("channel", True, True),
        ("created_at", 0, "1970-01-01T00:00:00Z"),
        ("created_at", 1e11, "5138-11-16T09:46:40Z"),
        ("created_at", 1e11 + 1, "1973-03-03T09:46:40.001000Z"),
        ("created_at", 1.25, "1970-01-01T00:00:01.250000Z"),
        ("created_at", 1e300, "1e+300"),
        ("created_at", "1777284017", "2026-04-27T10:00:17Z"),
        ("created_at", "1777284017000", "2026-04-27T10:00:17Z"),
        ("created_at", "2026-04-27 10:00:17", "2026-04-27T10:00:17Z"),
        ("created_at", "2026-04-27 10:00:17 UTC", "2026-04-27T10:00:17Z"),
        ("created_at", "2026-04-27T10:00:17+02:00", "2026-04-27T10:00:17+02:00"),
        ("created_at", "27.4.2026", "27.4.2026"),
        ("created_at", "20260427100017", "20260427100017"),
    ],
)
def test_a_mapped_value_is_what_the_field_wants(name: str, value: Any, text: Any) -> None:
    assert as_text(name, value) == text


def test_the_same_words_twice_have_two_ids_the_same_everywhere() -> None:
    ids, again = TurnIds(), TurnIds()
    said = [ids.next(place, who, "hi") for place, who in (("c", "ann"), ("c", "ann"), ("c", "bob"), ("d", "ann"))]
    assert len(set(said)) == 4
    assert [again.next("d", "ann", "hi"), again.next("c", "ann", "hi")] == [said[3], said[0]]
    # Messages that were imported with an earlier version are known again by these.
    assert said[:2] == ["fe6c856a706340c7bd507185", "f60c6d8a50be53f680631d63"]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(tmp_path / "none", "none.jsonl")
    says = r"none.jsonl: cannot be read \(No such file or directory\); check the path"
    for read in (lambda: source.beginning, source.text):
        with pytest.raises(ConfigError, match=says):
            read()
    source.path.write_bytes(b"12345")
    monkeypatch.setattr("persona_pipeline.importing.base._LARGEST", 5)
    assert source.text() == "12345"
    monkeypatch.setattr("persona_pipeline.importing.base._LARGEST", 4)
    with pytest.raises(ConfigError, match=r"none.jsonl: is larger than 500 MB; export it as JSON lines"):
        source.text()


MINE = {"agent_id": "a", "text": "t", "created_at": "2026-03-01T10:00:00Z", "id": "1"}
KNOWN = [
    ("messages", "x.jsonl", [MINE]),
    ("messages", "x.jsonl", [{"n": 1}, MINE]),
    ("messages", "x.jsonl", []),
    ("openai", "x.jsonl", [{"messages": [LINE]}, {"n": 1}]),
    ("openai", "x.json", [{"messages": [LINE]}]),
    ("langfuse", "x.jsonl", [{"n": 1}, {"n": 2}, {"traceId": "t", "type": "SPAN"}]),
    ("langfuse", "x.jsonl", [{"trace": {"id": "t"}}]),
    ("langfuse", "x.jsonl", [{"observations": []}]),
    ("langfuse", "x.jsonl", [{"id": "t", "timestamp": "now", "output": "x"}]),
    ("langsmith", "x.jsonl", [{"run_type": "llm"}]),
    ("langsmith", "x.jsonl", [{"dotted_order": "a", "trace_id": "b"}]),
    ("sillytavern", "x.jsonl", [{"user_name": "u", "character_name": "c"}]),
    ("sillytavern", "x.jsonl", [{"name": "a", "is_user": True, "mes": "x"}]),
    (None, "x.jsonl", [{"n": 1}, {"n": 2}, {"n": 3}, {"traceId": "t", "type": "SPAN"}]),
    (None, "x.jsonl", [{"traceId": "t", "value": 1}]),
    (None, "x.jsonl", [{"dotted_order": "a"}]),
    (None, "x.jsonl", [{"n": 1}, {"messages": [LINE]}]),
    (None, "x.jsonl", [{"messages": []}]),
    (None, "x.jsonl", [{"user_name": "u"}]),
    (None, "x.md", [MINE]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "file", "rows"), KNOWN)
def test_a_format_is_known_by_its_look(tmp_path: Path, name: str | None, file: str, rows: list[Any]) -> None:
    path = write_jsonl(tmp_path / file, rows)
    found = [each for each in IMPORTERS.names() if importer_of(Source(path, file), each).recognises(Source(path, file))]
    assert found == ([name] if name else [])


def test_what_could_be_two_formats_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({"run_type": "llm", "messages": [LINE]}), encoding="utf-8")
    with pytest.raises(ConfigError, match="could be openai or langsmith; say which with --format"):
        importer_of(Source(path, "x.jsonl"))


def test_lines_with_a_key_of_ours_are_named_one_by_one(tmp_path: Path) -> None:
    for rows in ([{"text": "x"}], [{"n": 1}, {"id": "x"}]):
        path = write_jsonl(tmp_path / "x.jsonl", rows)
        assert importer_of(Source(path, "x.jsonl")).name == "messages"
    path.write_text('{"n": 1}', encoding="utf-8")
    assert importer_of(Source(path, "x.jsonl"), mapped=True).name == "table"


TRACE: dict[str, Any] = {
    "id": "t1", "timestamp": "2026-03-01T10:00:00Z", "sessionId": "s1", "userId": "kim", "name": "chat", "metadata": {"env": "x"},
    "input": {"messages": [{"role": "user", "content": "hi"}]}, "output": {"role": "assistant", "content": "ho"}, "tags": ["a"],
    "scores": [
        {"name": "no", "source": "EVAL", "value": 1},
        {"name": "other", "observationId": "o9", "value": 1},
        {"name": "stars", "stringValue": "good", "authorUserId": "u7"},
    ],
}  # fmt: skip
RUN: dict[str, Any] = {
    "id": "r1", "trace_id": "t1", "run_type": "llm", "name": "call", "start_time": "2026-03-01T10:00:00Z",
    "end_time": "2026-03-01T10:00:09Z", "inputs": {"messages": [{"role": "user", "content": "hi"}]},
    "outputs": {"role": "assistant", "content": "ho"}, "extra": {"metadata": {"user_id": "kim", "thread_id": "s1"}},
    "feedback_stats": {"stars": {"n": 1, "avg": 0.5}, "many": {"n": 2, "avg": 1}},
}  # fmt: skip


def units_of(name: str, record: dict[str, Any]) -> list[Any]:
    importer = importer_of(Source(Path("none"), "none"), name)
    return list(importer.units(1, record, ReadOptions()))  # pyright: ignore[reportAttributeAccessIssue]


def test_a_trace_of_langfuse_is_read_whole() -> None:
    steps = [
        {"id": "o1", "type": "GENERATION", "startTime": "2026-03-01T10:00:01Z", "endTime": "2026-03-01T10:00:05Z", "userId": None},
        {"id": "o2", "type": "SPAN", "startTime": "2026-03-01T10:00:02Z", "endTime": "2026-03-01T10:00:03Z",
         "parentObservationId": "o1", "userId": "lee"},
    ]  # fmt: skip
    whole, call, inner = units_of("langfuse", TRACE | {"observations": steps})
    assert [(step.id, step.parent, step.calls_model, step.user) for step in (whole, call, inner)] == [
        ("trace:t1", None, False, "kim"),
        ("observation:o1", "trace:t1", True, "kim"),
        ("observation:o2", "observation:o1", False, "lee"),
    ]
    assert {step.conversation for step in (whole, call, inner)} == {"s1"}
    assert {step.trace for step in (whole, call, inner)} == {"t1"}
    ends = [str(step.ended)[17:19] for step in (whole, call, inner)]
    assert ends == ["05", "05", "03"], "a trace ends with its last step"
    assert whole.marks == [{"name": "stars", "value": "good", "by": "u7"}]
    beside = {"id": "t1", "name": "chat", "tags": ["a"], "metadata": {"env": "x"}}
    assert whole.extras == {f"langfuse_{key}": value for key, value in beside.items()}
    (alone,) = units_of("langfuse", {"id": "o1", "type": "SPAN", "traceId": "t1", "startTime": "2026-03-01T10:00:00Z"})
    assert (alone.parent, alone.conversation) == ("trace:t1", "t1")
    assert alone.extras == {"langfuse_id": "o1", "langfuse_traceId": "t1"}
    (told,) = units_of("langfuse", {"id": "o1", "traceId": "t1", "type": "GENERATION", "trace": TRACE})
    assert (told.id, told.conversation, told.user) == ("observation:o1", "s1", "kim")


@pytest.mark.parametrize(
    ("changed", "conversation", "user", "parent", "marks"),
    [
        ({}, "s1", "kim", None, [{"name": "stars", "value": 0.5}]),
        ({"parent_run_id": "r0"}, "s1", "kim", "r0", None),
        ({"parent_run_ids": ["a", "b"]}, "s1", "kim", "b", None),
        ({"parent_run_ids": "b"}, "s1", "kim", None, None),
        ({"extra": {"metadata": {"session_id": "z", "thread_id": "y", "user_id": 7}}}, "z", None, None, None),
        ({"extra": json.dumps({"metadata": {"thread_id": "y"}})}, "y", None, None, None),
        ({"extra": None, "thread_id": "w"}, "w", None, None, None),
        ({"extra": {"metadata": "x"}}, "t1", None, None, None),
        ({"run_type": "chain", "extra": None, "trace_id": None}, "r1", None, None, None),
        (
            {
                "feedback": [
                    {"key": "k", "value": "good", "feedback_source": {"type": "app", "user_id": "u"}},
                    {"key": "m", "score": 0, "feedback_source": "x"},
                    {"key": "n", "score": 1, "feedback_source": {"type": "model"}},
                    "x",
                ]
            },
            "s1", "kim", None,
            [{"name": "k", "value": "good", "by": "u"}, {"name": "m", "value": 0, "by": None}],
        ),
    ],
)  # fmt: skip
def test_a_run_of_langsmith_is_read_whole(
    changed: dict[str, Any], conversation: str, user: str | None, parent: str | None, marks: list[Any] | None
) -> None:
    (step,) = units_of("langsmith", RUN | changed)
    assert (step.id, step.conversation, step.user, step.parent) == ("r1", conversation, user, parent)
    assert step.calls_model is (step.extras["langsmith_run_type"] == "llm")
    assert str(step.ended - step.started) == "0:00:09"
    assert marks is None or step.marks == marks
    metadata = step.extras.pop("langsmith_metadata", None)
    assert metadata is None or metadata["user_id" if user else next(iter(metadata))]
    assert (metadata is None) == (conversation in ("w", "t1", "r1"))


def test_chats_keep_their_places_and_names(tmp_path: Path) -> None:
    turns = [{"role": role, "content": text} for role, text in (("system", "s"), ("user", "a"), ("assistant", "b"))]
    rows = [{"messages": [*turns, {"role": "user", "content": more}], "created": 1772355600} for more in ("x", "y")]
    found = rows_of(tmp_path, "x.jsonl", "\n".join(map(json.dumps, rows)))
    said = [item for item in found if isinstance(item, Message)]
    assert [str(item.created_at)[17:19] for item in said] == ["01", "02", "03"] * 2, "a second a turn"
    # Two turns that are heard name a chat.
    assert [item.channel for item in said] == ["chat-a6fdbf66752a"] * 3 + ["chat-a6fdbf66752a-2"] * 3
    turn = message_of(tmp_path, "y.jsonl", {"messages": [LINE], "id": 5, "created": 1.25, "rating": 1, "n": 2})
    assert (turn.channel, turn.created_at.microsecond) == ("5", 250000)
    assert turn.extras == {"conversation_rating": 1, "created": 1.25, "n": 2, "role": "user"}


def test_a_row_of_a_table_is_what_its_cells_say(tmp_path: Path) -> None:
    head = "id,agent_id,channel,text,created_at,more\n"
    at = "2026-03-01T10:00:00Z"
    rows = f"1,ann,c,hi,{at},\n\n2,ann,c,ho,{at},x\n3,ann,c,ho,{at},x,y\n"
    (trace,) = rows_of(tmp_path, "t.csv", 'id,timestamp,output,sessionId\nt,2026-03-01T10:00:00Z,"a\nb",\n')
    assert (trace.text, trace.channel, trace.extras) == ("a\nb", "t", {"langfuse_id": "t", "role": "assistant"})
    one, two, three = rows_of(tmp_path, "own.csv", head + rows)
    assert (one.id, one.extras, two.extras) == ("1", {}, {"more": "x"})
    assert isinstance(three, ValueError)


@pytest.mark.parametrize(
    ("item", "says"),
    [
        (7, "is not an object; export it again"),
        ({"type": "message", "text": "x", "ts": "soon"}, "ts 'soon' is no Slack time such as 1355517523.000005"),
        ({"type": "message", "text": " ", "ts": "1.0"}, "message without text"),
        ({"type": "message", "attachments": [7, {"text": ""}], "ts": "1.0"}, "message without text"),
        ({"type": "file", "text": "x", "ts": "1.0"}, "file"),
    ],
)
def test_what_slack_did_not_say_is_named_with_its_line(tmp_path: Path, item: Any, says: str) -> None:
    (tmp_path / "general").mkdir()
    day = tmp_path / "general" / "2026-03-01.json"
    day.write_text(f'[\n{{"type": "message", "user": "U1", "text": "a", "ts": "1.5"}},\n{json.dumps(item)}]', "utf-8")
    # An export without a list of members is one all the same, and its names are looked for beside its channels.
    source = Source(tmp_path, "export")
    importer = importer_of(source, "slack")
    first, second = importer.rows(importer.files(source)[0], ReadOptions())
    assert (second.line, str(getattr(second, "reason", getattr(second, "found", "")))) == (3, says)
    assert getattr(first, "found", None) is not None and first.line == 2


@pytest.mark.parametrize("name", ["slack", "chatgpt"])
def test_an_archive_is_read_as_it_is(name: str, empty_world: World, tmp_path: Path) -> None:
    whole = SAMPLES[name](tmp_path, len(TEXTS))
    root, archive = whole if whole.is_dir() else whole.parent, tmp_path / f"{name}.zip"
    with zipfile.ZipFile(archive, "w") as made:
        for path in sorted(path for path in root.rglob("*.json")):
            made.write(path, path.relative_to(root))
        if name == "chatgpt":
            made.writestr("user.json", '{"email": "somebody"}')
    for count in (len(TEXTS), 0):
        imported = take(empty_world, archive)
        assert ([*imported.formats.values()], imported.result.problems) == ([name], [])
        assert imported.result.written.inserted == count
    assert said(empty_world) == expected(name)


def test_an_archive_that_is_none_is_named(empty_world: World, tmp_path: Path) -> None:
    for content in (b"no archive", b"PK\x03\x04"):
        (tmp_path / "export.zip").write_bytes(content)
        with pytest.raises(ConfigError, match="cannot be unpacked"):
            take(empty_world, tmp_path / "export.zip")


KEYS = {"ticket": "channel", "no": "id", "from": "agent_id", "body": "text", "sent": "created_at"}


def test_a_world_remembers_the_keys_of_a_helpdesk(small_root: Path, tmp_path: Path) -> None:
    (small_root / "persona.yaml").write_text(f"message_fields: {json.dumps(KEYS)}\n", encoding="utf-8")
    desk = tmp_path / "tickets.csv"
    desk.write_text(
        "no,ticket,from,body,sent,status\n7,T-1,michael,Hello there,2026-03-01T09:00:00Z,open\n", encoding="utf-8"
    )
    world = World.open(small_root)
    for source, written in ((desk, 1), (SAMPLES["messages"](tmp_path, 2), 2), (SAMPLES["slack"](tmp_path, 2), 2)):
        imported = take(world, source)
        assert (imported.result.problems, imported.result.written.inserted) == ([], written)
    (message,) = [message for message in world.messages() if message.channel == "T-1"]
    assert (message.id, message.agent_id, message.text) == ("7", "michael", "Hello there")
    assert message.extras == {"status": "open"}
    world.store.close()


@pytest.mark.parametrize("name", ["chatgpt", "claude", "discord"])
def test_keys_of_a_known_format_are_not_mapped(name: str, tmp_path: Path) -> None:
    source = Source(SAMPLES[name](tmp_path, 2), "it")
    with pytest.raises(ConfigError, match=f"--map KEY=FIELD is not for {name}"):
        list(importer_of(source).rows(source, ReadOptions({"a": "text"})))


def test_the_lists_of_an_export_stand_beside_its_channels(tmp_path: Path) -> None:
    inner = tmp_path / "unpacked" / "general"
    inner.mkdir(parents=True)
    (inner / "2026-03-01.json").write_text(json.dumps([{**SLACK, "user": "U1", "text": "x"}]), "utf-8")
    (inner.parent / "users.json").write_text('[{"id": "U1", "name": "ann"}]', encoding="utf-8")
    # One channel alone is named.
    importer = importer_of(Source(inner, "export"), "slack")
    (file,) = importer.files(Source(inner, "export"))
    (found,) = importer.rows(file, ReadOptions())
    assert getattr(found, "found", None).agent_id == "ann"  # pyright: ignore[reportOptionalMemberAccess]
    with pytest.raises(ConfigError, match="--map KEY=FIELD is not for slack"):
        list(importer.rows(file, ReadOptions({"a": "text"})))
    (inner / "2026-03-01.json").write_text('[{"type": "message",', encoding="utf-8")
    (broken,) = importer.rows(file, ReadOptions())
    assert broken.line == 1 and "is not JSON" in str(getattr(broken, "found", ""))


def test_what_exports_hold_besides_is_counted(empty_world: World, tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "x.jsonl", [{**PLAIN, "mood": "glad"}, {**PLAIN, "id": "2", "mood": "z" * 100_000}])
    imported = take(empty_world, path)
    assert (dict(imported.extras), imported.cut) == ({"mood": 1, "_cut": 1}, 1)
    messages, read = read_export([path], ImportOptions(speakers={"ann": "Zoe"}))
    assert [message.agent_id for message in messages] == ["Zoe", "Zoe"]
    assert read.cut == 1


def test_standard_input_is_read_as_a_file_and_a_terminal_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for data, ending in ((b' {"id"', ".jsonl"), (b"[", ".jsonl"), (b"", ".jsonl"), (b"id,text", ".csv")):
        monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(data), encoding="utf-8"))
        with ExitStack() as stack:
            source = run._stdin(stack)
            assert (source.name, source.path.suffix, source.path.read_bytes()) == ("stdin", ending, data)
    monkeypatch.setattr("sys.stdin", Mock(isatty=lambda: True))
    with ExitStack() as stack, pytest.raises(ConfigError, match="standard input is a terminal"):
        run._stdin(stack)


def test_parts_that_are_no_text_are_kept_beside_it(tmp_path: Path) -> None:
    image = {"type": "image_url"}
    for content, kept in (("a", False), (["a"], False), ([{"text": "a"}, image], True), ([image, "a"], True)):
        said = {"role": "user", "content": content, "tool_calls": [], "mood": "glad", "created": 1772355600}
        message = message_of(tmp_path, "chats.jsonl", {"messages": [said]})
        assert (message.text, message.extras["mood"]) == ("a", "glad")
        assert message.extras.get("content") == (content if kept else None)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"runs": [{"a": 1}, 7]}', [(1, {"a": 1}), (1, "record 2 is not an object; export it again")]),
        ('{"other": [{"a": 1}]}', [(1, {"other": [{"a": 1}]})]),
        ('{"a": 1}\n\n{"a": 2}\n7\n{', [(1, {"a": 1}), (3, {"a": 2}), (4, "is not an object"), (5, "is not JSON")]),
        ('{"a": 1}\n{"a": 1, "a": 2}', [(1, {"a": 1}), (2, "is not JSON (the key 'a' stands twice in")]),
        ('[\n{"a": 1},\n7\n]', [(2, {"a": 1}), (3, "is not an object; export it again")]),
        ('[{"a": 1}]', [(1, {"a": 1})]),
        ('[1]\n{"a": 1}', [(1, "is not an object"), (2, {"a": 1})]),
        ('[{"a": 1},\n{"a"', [(1, {"a": 1}), (2, "what follows is not read, export it again")]),
        (
            'a,b\n1,\n\n"[1, 2]","x\ny"\n1,2,3\n',
            [(2, {"a": "1"}), (4, {"a": [1, 2], "b": "x\ny"}), (6, "has more cells")],
        ),
        ("a\n\x00\n1", [(2, "")]),
        ("", []),
    ],
)
def test_records_are_told_with_their_lines(tmp_path: Path, text: str, found: list[tuple[int, Any]]) -> None:
    path = tmp_path / "x"
    path.write_text(text, encoding="utf-8")
    told = list(records(Source(path, "x"), ("runs",)))
    assert [line for line, _ in told][: len(found)] == [line for line, _ in found]
    for (_, record), (_, expected) in zip(told, found, strict=False):
        assert record == expected if isinstance(expected, dict) else expected in str(record)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"runs":[{"a":1},{"a":2', [{"a": 1}]),
        ('{ "runs" : [{"a":1}]', [{"a": 1}]),
        ('{"a": [{"b": 1}]}', [{"a": [{"b": 1}]}]),
        ('[{"a": 1}, 7, {"a": 2}]', [{"a": 1}, {"a": 2}]),
        ('{"a": 1}\n{"a": 2}\n', [{"a": 1}, {"a": 2}]),
        ("a,b\n1,2\n3,", [{"a": "1", "b": "2"}, {"a": "3"}]),
    ],
)
def test_the_beginning_of_a_file_is_read_as_far_as_it_can_be(tmp_path: Path, text: str, found: list[Any]) -> None:
    path = tmp_path / "x"
    path.write_text(text, encoding="utf-8")
    assert first_records(Source(path, "x"), ("runs",)) == found
