"""Words where platforms put them, without what is not said; speakers and places by their ids; shared beginnings once."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.importing.base import as_text, is_placeholder, spoken, text_of_html
from persona_pipeline.importing.run import ImportOptions, read_export
from persona_pipeline.importing.slack import SlackExport
from persona_pipeline.world import World
from persona_pipeline.world.messages.files import Row, parse_message
from persona_pipeline.world.models import Message
from tests.importing.test_importers import message_of, rows_of, take
from tests.support.worlds import write_jsonl

AT = 1769940000
LINE = {"id": "1", "agent_id": "ann", "channel": "c", "created_at": "2026-03-01T10:00:00Z"}


def said(world: World) -> list[tuple[str, str | None, str]]:
    return [(item.agent_id, item.channel or item.recipient, item.text) for item in world.messages()]


# Thinking


@pytest.mark.parametrize(
    ("text", "words", "thinking"),
    [
        ("<think>\nDry.\n</think>\n\nHello", "Hello", "Dry."),
        ("<think>\n\n</think>\n\nHello", "Hello", None),
        ("<think>cut off", "", "cut off"),
    ],
)
def test_thinking_in_front_of_a_text_is_kept_beside_it(text: str, words: str, thinking: str | None) -> None:
    message = parse_message({**LINE, "text": text})
    assert (message.text, message.extras.get("thinking")) == (words, thinking)
    assert parse_message({**LINE, "text": text, "role": "user"}).text == text


def openai_chat(**message: Any) -> Any:
    return {"id": "c", "created": AT, "messages": [{"role": "assistant", **message}]}


def claude_chat(*blocks: Any) -> Any:
    said = {"uuid": "m", "sender": "assistant", "content": [*blocks], "created_at": LINE["created_at"]}
    return [{"uuid": "c", "name": "t", "chat_messages": [said]}]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("openai", openai_chat(content="<think>Dry.</think>Hello")),
        ("openai", openai_chat(content="Hello", reasoning_content="Dry.")),
        ("openai", openai_chat(content="Hello", reasoning="Dry.")),
        ("openai", openai_chat(content=[{"type": "thinking", "thinking": "Dry."}, {"type": "text", "text": "Hello"}])),
        ("claude", claude_chat({"type": "thinking", "thinking": "Dry."}, {"type": "text", "text": "Hello"})),
        ("claude", claude_chat({"type": "text", "text": "<think>Dry.</think>Hello"})),
        ("sillytavern", {"name": "A", "is_user": False, "mes": "<think>Dry.</think>Hello", "send_date": LINE["created_at"]}),
    ],
)  # fmt: skip
def test_thinking_of_every_format_is_kept_beside_the_message(tmp_path: Path, name: str, data: Any) -> None:
    message = message_of(tmp_path, "x.jsonl", data, format_name=name)
    assert (message.text, message.extras["thinking"]) == ("Hello", "Dry.")


def test_thinking_changes_no_id_and_is_alone_not_a_message(tmp_path: Path) -> None:
    plain = message_of(tmp_path, "x.jsonl", openai_chat(content="<think>Dry.</think>Hello"), format_name="openai")
    assert plain.id == "6bcce161f6e6d2cb0d9b4811"
    (found,) = rows_of(tmp_path, "x.jsonl", json.dumps(openai_chat(content="<think>Dry")), format_name="openai")
    assert found.reason == "turn without text"


# Words


def slack(folder: Path, *items: Any, users: Any = (), **lists: Any) -> Path:
    (folder / "general").mkdir(parents=True, exist_ok=True)
    rows = [{"type": "message", "user": f"U{n}", "ts": f"{AT + n}.000000", **item} for n, item in enumerate(items)]
    (folder / "general" / "2026-02-01.json").write_text(json.dumps(rows), encoding="utf-8")
    (folder / "users.json").write_text(json.dumps(list(users)), encoding="utf-8")
    for name, value in lists.items():
        (folder / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
    return folder


def rich(*elements: Any, kind: str = "rich_text_section") -> Any:
    return {"blocks": [{"type": "rich_text", "elements": [{"type": kind, "elements": [*elements]}]}]}


def section(*parts: Any) -> Any:
    return {"type": "rich_text_section", "elements": [*parts]}


HI = {"type": "text", "text": "Hi <b> "}
EMBEDDED = "This content can't be displayed."


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ({"blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": "a &amp; <@U1>"}}]}, "a & @ann"),
        ({"blocks": [{"type": "header", "text": {"type": "plain_text", "text": "A"}}, {"type": "divider"}]}, "A"),
        ({"blocks": [{"type": "section", "fields": [{"type": "mrkdwn", "text": t} for t in "ab"]}]}, "a\nb"),
        ({"blocks": [{"type": "context", "elements": [{"type": "image"}, {"type": "mrkdwn", "text": "a"}]}]}, "a"),
        ({"blocks": [{"type": "markdown", "text": "**a**"}]}, "**a**"),
        ({"text": EMBEDDED, **rich(HI, {"type": "user", "user_id": "U1"})}, "Hi <b> @ann"),
        (rich({"type": "link", "url": "https://x.org", "text": "x"}), "x (https://x.org)"),
        (rich({"type": "emoji", "name": "wave"}, {"type": "broadcast", "range": "here"}), ":wave:@here"),
        (rich({"type": "channel", "channel_id": "C1"}, {"type": "date", "fallback": "Monday"}), "#C1Monday"),
        (rich(section(HI), section(HI), kind="rich_text_list"), "Hi <b> \nHi <b> "),
        (rich(HI, kind="rich_text_preformatted"), "Hi <b> "),
        ({"attachments": [{"title": "T", "text": "a", "fields": [{"title": "b", "value": 1}]}]}, "T\na\nb: 1"),
        ({"attachments": [{"blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": "a"}}]}]}, "a"),
        ({"attachments": [{"fallback": "a"}, {"fallback": "[no preview available]"}]}, "a"),
        ({"text": "New!", "bot_id": "B1", **rich(HI)}, "Hi <b> "),
        ({"text": "*Hi* _b_", "bot_id": "B1", **rich({"type": "text", "text": "Hi b"})}, "*Hi* _b_"),
        ({"text": "Hi", **rich({"type": "text", "text": "other"})}, "Hi"),
        ({"text": EMBEDDED}, None),
        ({"attachments": [{"fallback": "[no preview available]"}]}, None),
        ({"blocks": 5, "attachments": 7}, None),
        ({"blocks": [{"type": "actions", "elements": [{"type": "button", "text": {"type": "plain_text", "text": "OK"}}]}]}, None),
    ],
)  # fmt: skip
def test_words_of_slack(empty_world: World, tmp_path: Path, item: Any, text: str | None) -> None:
    take(empty_world, slack(tmp_path / "export", item, users=[{"id": "U1", "name": "ann"}]))
    assert [row[2] for row in said(empty_world)] == ([] if text is None else [text])


def test_a_message_of_slack_that_nests_too_deeply_is_named(
    empty_world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def words(self: SlackExport, block: Any) -> str:
        if block:
            raise RecursionError
        return ""

    monkeypatch.setattr(SlackExport, "_words", words)
    imported = take(empty_world, slack(tmp_path / "export", {"blocks": [{}]}, {"text": "b"}))
    assert "is nested too deeply" in str(imported.result.problems[0])
    assert [row[2] for row in said(empty_world)] == ["b"]


def discord(folder: Path, name: str, *messages: Any, channel: str = "10", place: str = "general") -> Path:
    said = {"author": {"id": "1", "name": "Bram", "isBot": True}}
    rows = [
        {"id": f"{channel}-{n}", "timestamp": f"2026-02-01T10:00:{n:02}Z", **said, **message}
        for n, message in enumerate(messages)
    ]
    data = {"guild": {"id": "1"}, "channel": {"id": channel, "name": place}, "exportedAt": "x", "messages": rows}
    (path := folder / name).write_text(json.dumps(data), encoding="utf-8")
    return path


EMBED = {"title": "Menu", "description": "Soup", "url": "https://x.org", "fields": [{"name": "Price", "value": "3"}]}
PERSON = {"id": "2", "name": "ann", "isBot": False}


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": "", "embeds": [EMBED]}, "Menu\nSoup\nPrice: 3"),
        ({"content": "Look", "embeds": [EMBED]}, "Look\nMenu\nSoup\nPrice: 3"),
        ({"content": "See https://x.org", "embeds": [EMBED]}, "See https://x.org"),
        ({"content": "Look", "embeds": [EMBED], "author": PERSON}, "Look"),
        ({"content": "[Original Message Deleted]"}, None),
        ({"content": "", "embeds": [{"image": {}}]}, None),
        ({"content": "<think>Dry.</think>Hello"}, "Hello"),
    ],
)
def test_words_of_discord(empty_world: World, tmp_path: Path, message: Any, text: str | None) -> None:
    take(empty_world, discord(tmp_path, "a.json", message))
    assert [row[2] for row in said(empty_world)] == ([] if text is None else [text])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Late. \ue200cite\ue202turn0search1\ue202turn0news3\ue201 Bring a coat.", "Late. Bring a coat."),
        ("Late \ue200cite\ue202turn0search1\ue201.", "Late."),
        ("Late【4:0†source】【4:1†source】.", "Late."),
        ("Late \ue200cite\ue202turn0", "Late"),
        ("\ue200cite\ue202turn0search1\ue201 Late.", "Late."),
        ('\ue200genui\ue202{"type":"math"}\ue201Late.', "Late."),
        ("Late【oaicite:0】. So:contentReference[oaicite:1]{index=1}.", "Late. So."),
        ('Ask \ue200entity\ue202["people","Ada Lovelace","mathematician"]\ue201.', "Ask Ada Lovelace."),
        ("Ask \ue200url\ue202the museum\ue202https://x.org\ue201.", "Ask the museum."),
        ("\ue203 stays, 【note】 too", "\ue203 stays, 【note】 too"),
    ],
)
def test_citation_marks_are_not_words(text: str, words: str) -> None:
    found = spoken(1, {**LINE, "text": text})
    assert isinstance(found, Row) and isinstance(found.found, Message)
    assert found.found.text == words


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        *((text, True) for text in (EMBEDDED, "This content can\u2019t be displayed", "[no preview available]", " ")),
        *((text, True) for text in ("<Media omitted>", "\u200eimage omitted", "This message was deleted.", "[deleted]")),
        ("```\nThis block is not supported on your current device yet.\n```", True),
        *((text, False) for text in ("Deleted.", "...", "null", "Why is this content not displayed?")),
    ],
)  # fmt: skip
def test_placeholders_are_not_words(text: str, is_one: bool) -> None:
    assert is_placeholder(text) is is_one


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<p>Hello&nbsp;<b>Ann</b></p><p>Bye &amp; thanks</p>", "Hello Ann\n\nBye & thanks"),
        ("<div>a<br>b</div>", "a\nb"),
        ("Hi<br/>there", "Hi\nthere"),
        ("<style>p {}</style><ul><li>x</li>\n <li>y</li></ul>", "x\n\ny"),
        ("a < b and c > d", "a < b and c > d"),
        ("&lt;b&gt; and <think>", "&lt;b&gt; and <think>"),
    ],
)
def test_html_of_mapped_texts_becomes_text(text: str, words: str) -> None:
    assert text_of_html(text) == as_text("text", text) == words


# Speakers and places


def account(identity: str, name: str, **more: Any) -> Any:
    return {"content": "x", "author": {"id": identity, "name": "u", "nickname": name, "isBot": False, **more}}


def unnumbered(account: str) -> Any:
    return {"content": "x", "author": {"name": account, "nickname": "Ann", "isBot": False}}


WEBHOOK = {"isBot": True, "discriminator": "0000"}


@pytest.mark.parametrize(
    ("messages", "speakers"),
    [
        ((account("1", "Ann"), account("2", "Ann"), account("3", "Bob")), ["Ann (1)", "Ann (2)", "Bob"]),
        ((account("1", "Ann"), account("1", "Annie"), account("2", "Bob")), ["Ann", "Ann", "Bob"]),
        ((account("1", "Annie"), account("1", "ann"), account("2", "x")), ["ann", "ann", "x"]),
        ((account("1", "Ann", **WEBHOOK), account("1", "Bob", **WEBHOOK)), ["Ann", "Bob"]),
        ((unnumbered("a"), unnumbered("b")), ["Ann (a)", "Ann (b)"]),
    ],
    ids=["two of a name", "one of two", "one of two, one of them an agent's", "a webhook for two", "without ids"],
)
def test_accounts_of_discord_are_speakers(
    empty_world: World, tmp_path: Path, messages: Any, speakers: list[str]
) -> None:
    imported = take(empty_world, discord(tmp_path, "a.json", *messages))
    assert [row[0] for row in said(empty_world)] == speakers
    shared = [f"2 Discord accounts are called 'Ann', read as {speakers[0]}, {speakers[1]}"]
    assert imported.shared_names == (shared if "(" in speakers[0] else [])


def test_speakers_and_channels_of_several_files_are_told_apart(empty_world: World, tmp_path: Path) -> None:
    first = discord(tmp_path, "a.json", account("1", "Ann"))
    take(empty_world, first)
    assert said(empty_world) == [("Ann", "general", "x")]
    second = discord(tmp_path, "b.json", account("2", "Ann"), channel="11")
    imported = take(empty_world, first, second)
    assert said(empty_world) == [("Ann (1)", "general (10)", "x"), ("Ann (2)", "general (11)", "x")]
    assert (imported.result.written.inserted, len(imported.shared_names)) == (1, 2)
    take(empty_world, first, second, speakers={"Ann (2)": "ann"})
    assert [row[0] for row in said(empty_world)] == ["Ann (1)", "ann"]


def test_a_name_that_another_id_has_in_stored_messages_is_told(empty_world: World, tmp_path: Path) -> None:
    take(empty_world, discord(tmp_path, "a.json", account("1", "Ann"), account("5", "Bob")))
    imported = take(empty_world, discord(tmp_path, "b.json", account("2", "Ann"), account("5", "Bob"), channel="11"))
    says = "is the Discord {} here and {} in stored messages"
    named = [("'Ann'", says.format("account 2", "1")), ("'general'", says.format("channel 11", "10"))]
    assert [line.split(": ")[0] for line in imported.shared_names] == [" ".join(item) for item in named]
    table = tmp_path / "c.csv"
    table.write_text("AuthorID,Author,Date,Content\n1,Gone,2026-03-01,a\n2,Gone,2026-03-02,b\n", encoding="utf-8")
    take(empty_world, table)
    assert [row[0] for row in said(empty_world)][-2:] == ["Gone (1)", "Gone (2)"]


def member(identity: str, name: str, **more: Any) -> Any:
    return {"id": identity, "profile": {"display_name": name, **more}}


@pytest.mark.parametrize(
    ("items", "users", "speakers"),
    [
        (({}, {}), (member("U0", "Ann"), member("U1", "Ann")), ["Ann (U0)", "Ann (U1)"]),
        (({}, {"user": "U0"}), (member("U0", "Ann"), member("U1", "Ann")), ["Ann", "Ann"]),
        (({"user": "U7", "user_profile": {"name": "Ann"}}, {"user": "U1"}), (member("U1", "Ann"),), ["Ann (U7)", "Ann (U1)"]),
        (({"user": None, "bot_id": "B0"}, {"user": "U0"}), (member("U0", "Bo", bot_id="B0"),), ["Bo", "Bo"]),
        (({"subtype": "bot_message", "username": "Desk", "bot_id": "B"}, {}), (member("U0", "Ann"),), ["Desk", "U1"]),
    ],
    ids=["two of a name", "one of them silent", "a guest", "an app and its member", "an app under a name of its choice"],
)  # fmt: skip
def test_accounts_of_slack_are_speakers(
    empty_world: World, tmp_path: Path, items: Any, users: Any, speakers: list[str]
) -> None:
    take(empty_world, slack(tmp_path / "export", *({"text": "x", **item} for item in items), users=users))
    assert [row[0] for row in said(empty_world)] == speakers


# Beginnings that are shared


def tavern(folder: Path, name: str, *texts: str, **metadata: Any) -> Path:
    sent = {"is_system": False, "send_date": "January 2, 2026 10:05am"}
    rows = [
        {"name": ("Ana", "Bram")[n % 2], "is_user": n % 2 == 0, "mes": text, **sent} for n, text in enumerate(texts)
    ]
    header = {"user_name": "Ana", "character_name": "Bram", "chat_metadata": metadata}
    return write_jsonl(folder / f"{name}.jsonl", [header, *rows])


@pytest.mark.parametrize(
    ("main_chat", "texts", "count"),
    [
        ("main", ("a", "b", "c"), 4),
        ("main", ("a", "x"), 5),
        ("main", ("a", "b", "c", "d", "e"), 5),
        ("gone", ("a", "b"), 6),
        ("../chats/main", ("a", "b"), 6),
        ("branch", ("a", "b"), 6),
        (None, ("a", "b"), 6),
    ],
)
def test_a_branch_of_sillytavern_shares_its_beginning(
    empty_world: World, tmp_path: Path, main_chat: str | None, texts: tuple[str, ...], count: int
) -> None:
    (folder := tmp_path / "chats").mkdir()
    tavern(folder, "main", "a", "b", "c", "d")
    before = take(empty_world, tavern(folder, "branch", *texts)).result.written.inserted
    tavern(folder, "branch", *texts, **({"main_chat": main_chat} if main_chat else {}))
    again = take(empty_world, folder).result.written
    assert before == len(texts)
    assert again.inserted == 4, "what was stored before has the same ids"
    other = World.open(empty_world.root)
    assert len(other.messages()) == 4 + len(texts)
    other.store.close()
    with zipfile.ZipFile(tmp_path / "chats.zip", "w") as archive:
        for path in folder.iterdir():
            archive.write(path, path.name)
    assert len(read_export([tmp_path / "chats.zip"], ImportOptions())[0]) == count


def chatgpt(folder: Path, *conversations: Any) -> Path:
    (path := folder / "conversations.json").write_text(json.dumps(conversations), encoding="utf-8")
    return path


def tree(identity: str, began: int, *nodes: tuple[str, str | None, str, int | None], **more: Any) -> Any:
    mapping: dict[str, Any] = {}
    for key, parent, text, at in nodes:
        role = "user" if text.endswith("?") else "assistant"
        content = {"content_type": "thoughts", "thoughts": [{"content": text}]} if "Hmm" in text else None
        content = content or {"content_type": "text", "parts": [text]}
        message = {"author": {"role": role}, "create_time": at, "content": content, "recipient": "all"}
        mapping[key] = {"id": key, "message": message if text else None, "parent": parent, "children": []}
        if parent in mapping:
            mapping[parent]["children"].append(key)
    return {"id": identity, "title": "t", "create_time": AT + began, "mapping": mapping, **more}


def orphaned(conversation: Any) -> Any:
    """Return a conversation whose nodes name their children alone."""
    for node in conversation["mapping"].values():
        node["parent"] = None
    return conversation


ROOT = ("r", None, "", None)
ASKED, ANSWERED = ("q", "r", "Why?", AT + 1), ("a", "q", "So.", AT + 2)


@pytest.mark.parametrize(
    ("conversations", "texts"),
    [
        ([tree("1", 0, ROOT, ASKED, ANSWERED)], ["Why?", "So."]),
        ([tree("1", 0, ROOT, ASKED, ("b", "q", "Or.", AT + 9), ANSWERED)], ["Why?", "Or."]),
        ([tree("1", 0, ROOT, ASKED, ANSWERED, current_node="gone")], ["Why?", "So."]),
        ([tree("1", 0, ROOT, ("q", "r", "Why?", None), ("a", "q", "So.", None))], ["Why?", "So."]),
        ([tree("1", 0, ROOT, ASKED, ANSWERED, ("h", "a", "Hmm", None), current_node="a")], ["Why?", "So."]),
        ([tree("1", 0, ROOT, ASKED, ANSWERED, current_node="r")], ["Why?", "So."]),
        ([tree("1", 0, ROOT, ("q", "r", "Why?", None), ("a", "q", "So.", None), ("x", "lost", "", None))], ["Why?", "So."]),
        ([orphaned(tree("1", 0, ROOT, ASKED, ANSWERED))], ["Why?", "So."]),
        (
            [
                tree("2", 5, ROOT, ASKED, ANSWERED, ("n", "a", "Then?", AT + 9), current_node="n"),
                tree("1", 0, ROOT, ASKED, ANSWERED, ("m", "a", "And?", AT + 3), current_node="m"),
            ],
            ["Why?", "So.", "And?", "Then?"],
        ),
        ([tree("2", 5, ROOT, ASKED), tree("1", 0, ROOT, ("q", "r", "Why?", AT + 2))], ["Why?", "Why?"]),
    ],
    ids=[
        *("no current node", "two leaves", "a current node that is gone", "no times", "a current node", "the root"),
        *("a leaf without a message", "no parents", "a branch", "alike"),
    ],
)  # fmt: skip
def test_paths_and_branches_of_chatgpt(
    empty_world: World, tmp_path: Path, conversations: Any, texts: list[str]
) -> None:
    take(empty_world, chatgpt(tmp_path, *conversations))
    assert [row[2] for row in said(empty_world)] == texts


@pytest.mark.parametrize(
    "around", ["{}", '{{"conversations": [{}]}}', "{}\n{}"], ids=["one", "an object around", "lines"]
)
def test_conversations_of_chatgpt_outside_a_list(empty_world: World, tmp_path: Path, around: str) -> None:
    one, other = (json.dumps(tree(each, 0, ROOT, ASKED, ANSWERED)) for each in "12")
    (path := tmp_path / "conversations.json").write_text(around.format(one, other), encoding="utf-8")
    take(empty_world, path)
    assert [row[2] for row in said(empty_world)] == ["Why?", "So."]


def test_messages_that_chatgpt_hides_are_not_said(empty_world: World, tmp_path: Path) -> None:
    one = tree("1", 0, ROOT, ASKED, ("b", "q", "Told so.", AT + 2), ("a", "b", "So.", AT + 3))
    one["mapping"]["b"]["message"]["metadata"] = {"is_visually_hidden_from_conversation": True}
    take(empty_world, chatgpt(tmp_path, one))
    assert [row[2] for row in said(empty_world)] == ["Why?", "So."]


def test_thoughts_of_chatgpt_are_kept_beside_the_answer(empty_world: World, tmp_path: Path) -> None:
    nodes = (ROOT, ASKED, ("t", "q", "Hmm, dry.", AT + 1), ("a", "t", "So.", AT + 2), ("z", "a", "Thus.", AT + 3))
    take(empty_world, chatgpt(tmp_path, tree("1", 0, *nodes)))
    assert [item.extras.get("thinking") for item in empty_world.messages()] == [None, "Hmm, dry.", None]
