"""Every format gives the same messages of the same conversation, once, however often and however grown it is imported."""

import json
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.importing import ReadOptions, Source
from persona_pipeline.importing.run import IMPORTERS, Imported, ImportOptions, import_messages, importer_of
from persona_pipeline.world import World
from persona_pipeline.world.models import Message
from tests.importing.samples import SAMPLES, TEXTS


def said(world: World) -> list[tuple[str, str | None, str | None, str, str]]:
    found = [
        message for message in world.messages() if message.channel == "general" and message.created_at.year == 2026
    ]
    mine = [message for message in found if message.created_at.isoformat() >= "2026-03-01T08"]
    return [(m.agent_id, m.channel, m.recipient, m.text, m.created_at.isoformat().replace("+00:00", "Z")) for m in mine]


@pytest.fixture
def empty_world(small_root: Path):
    for path in (small_root / "messages").iterdir():
        path.unlink()
    world = World.open(small_root)
    yield world
    world.store.close()


def take(world: World, *given: Path, **options: Any) -> Imported:
    return import_messages(world, given, ImportOptions(**options))


EXPECTED = [(who, "general", None, text, at) for who, text, at in TEXTS]


@pytest.mark.parametrize("name", SAMPLES)
def test_the_same_conversation_gives_the_same_messages(name: str, empty_world: World, tmp_path: Path) -> None:
    imported = take(empty_world, SAMPLES[name](tmp_path, len(TEXTS)))
    assert list(imported.formats.values()) == [name]
    assert imported.result.problems == []
    assert said(empty_world) == EXPECTED


@pytest.mark.parametrize("name", SAMPLES)
def test_an_export_that_grew_adds_what_is_new(name: str, empty_world: World, tmp_path: Path) -> None:
    for count in (1, 2, 3, 4, 5):
        written = take(empty_world, SAMPLES[name](tmp_path, count)).result.written
        assert (written.inserted, written.updated) == (1, 0), count
    again = take(empty_world, SAMPLES[name](tmp_path, 5)).result.written
    assert (again.inserted, again.updated, again.unchanged) == (0, 0, 5)
    assert said(empty_world) == EXPECTED


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
    from persona_pipeline.world.messages.files import parse_time

    def chat(*texts: str) -> str:
        turns = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
        return json.dumps({"messages": turns}) + "\n"

    options = {"reading": ReadOptions(starting=parse_time("2026-03-01T09:00:00Z"))}
    first = tmp_path / "monday.jsonl"
    first.write_text(chat("hi", "ho") + chat("hi", "hey") + chat("hi", "ho"), encoding="utf-8")
    assert take(empty_world, first, **options).result.written.inserted == 6
    later = tmp_path / "tuesday.jsonl"
    later.write_text(
        chat("hi", "ho", "more") + chat("hi", "hey") + chat("hi", "ho") + chat("new", "one"), encoding="utf-8"
    )
    written = take(empty_world, later, **options).result.written
    assert (written.inserted, written.updated, written.unchanged) == (3, 0, 6)
    channels = {message.channel for message in empty_world.messages()}
    assert len(channels) == 4, "two chats that begin alike are two"


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
    from persona_pipeline.importing.sillytavern import sent_at

    if moment is None:
        with pytest.raises(ValueError, match="is no time that SillyTavern writes"):
            sent_at(sent)
    else:
        assert sent_at(sent).isoformat() == moment


def test_a_group_chat_to_the_minute_keeps_its_order_and_its_names(tmp_path: Path) -> None:
    sent = "June 19, 2023 2:20pm"
    lines = [
        {"name": "Zoe", "is_user": True, "mes": "Hi {{char}}, I am {{user}}.", "send_date": sent},
        {"name": "Ann", "is_user": False, "mes": "{{char}} here, <USER>.", "send_date": sent},
        {"name": "Bob", "is_user": False, "mes": "{{Char}} too.", "send_date": sent},
    ]
    found = rows_of(tmp_path, "group.jsonl", "\n".join(map(json.dumps, lines)))
    assert [message.text for message in found] == ["Hi Ann, I am Zoe.", "Ann here, Zoe.", "Bob too."]
    assert sorted(found, key=lambda message: message.created_at) == found
    assert len({message.created_at for message in found}) == 3


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("langfuse", {"traceId": "t", "id": "o", "type": "GENERATION", "startTime": "2026-03-01T10:00:00Z"}, "x"),
        ("langfuse", {"trace_id": "t", "id": "o", "type": "SPAN", "start_time": "2026-03-01 10:00:00.000000"}, "x"),
        ("langfuse", {"id": "t", "timestamp": "2026-03-01T10:00:00Z"}, "x"),
        ("langsmith", {"id": "r", "run_type": "llm", "start_time": "2026-03-01T10:00:00"}, "x"),
    ],
)
@pytest.mark.parametrize(
    "answer",
    [
        "x",
        {"role": "assistant", "content": "x"},
        {"role": "assistant", "content": [{"type": "text", "text": "x"}, {"type": "image_url"}]},
        {"choices": [{"message": {"role": "assistant", "content": "x"}}]},
        {"generations": [[{"text": "x", "message": {"lc": 1, "id": ["AIMessage"], "kwargs": {"content": "x"}}}]]},
        {"output": {"type": "ai", "content": "x"}},
        {"output": "x"},
        [{"type": "ai", "data": {"content": "x"}}],
        {"role": "model", "parts": [{"type": "text", "content": "x"}]},
        json.dumps({"answer": "x"}),
    ],
)
def test_answers_are_found_in_whatever_form(tmp_path: Path, name: str, data: Any, text: str, answer: Any) -> None:
    key = "outputs" if name == "langsmith" else "output"
    message = message_of(tmp_path, "traces.jsonl", {**data, key: answer})
    assert (message.agent_id, message.text, message.channel) == (
        "assistant",
        text,
        data["id"] if "trace" not in str(data) else "t",
    )


def test_who_and_where_can_be_mapped(tmp_path: Path) -> None:
    data = {"messages": [{"role": "assistant", "content": "x"}], "who": {"bot": "ann"}, "at": 1772355600, "room": 7}
    fields = {"who.bot": "agent_id", "at": "created_at", "room": "channel"}
    message = message_of(tmp_path, "chats.jsonl", data, fields=fields)
    assert (message.agent_id, message.channel, message.created_at.isoformat()) == (
        "ann",
        "7",
        "2026-03-01T09:00:00+00:00",
    )
    line = {"n": 1, "from": {"name": "ann"}, "room": "c", "body": [{"text": "hi"}, {"text": "ho"}], "ts": 1772355600.5}
    fields = {"n": "id", "from.name": "agent_id", "room": "channel", "body": "text", "ts": "created_at"}
    message = message_of(tmp_path, "own.jsonl", line, format_name="messages", fields=fields)
    assert (message.id, message.agent_id, message.text) == ("1", "ann", "hi\nho")
    assert message.extras == {"from": {"name": "ann"}}
    (found,) = rows_of(
        tmp_path, "own.csv", "n,who,room,said,at\n1,ann,c,hi,2026-03-01T10:00:00Z\n", format_name="messages",
        fields={"n": "id", "who": "agent_id", "room": "channel", "said": "text", "at": "created_at"},
    )  # fmt: skip
    assert found.text == "hi"


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
    import re
    import sys
    from importlib.metadata import EntryPoint
    from types import ModuleType

    from persona_pipeline.importing import run

    page = (Path(run.__file__).parents[2] / "docs" / "how-to" / "importing.md").read_text(encoding="utf-8")
    module = ModuleType("acme_formats")
    exec(
        next(text for text in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "(Importer)" in text), vars(module)
    )
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
    with pytest.raises(
        ConfigError, match=r"importer 'wrong' .* is no subclass of persona_pipeline\.importing\.base\.Importer"
    ):
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
                found = rows_of(tmp_path, "deep.jsonl", json.dumps(data), format_name=name)
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
