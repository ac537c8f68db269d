"""Chats one a record: in OpenAI's form, and as ChatGPT, Claude and DiscordChatExporter export them."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar

from persona_pipeline.base.documents.json import rfc3339
from persona_pipeline.guard.labels.voice import KEYS
from persona_pipeline.importing.base import (
    ChatTurn,
    Found,
    Importer,
    ReadOptions,
    Skipped,
    Source,
    TurnIds,
    as_text,
    digest,
    message_row,
    text_of,
    turn_of,
)
from persona_pipeline.importing.records import each_record, first_records, records
from persona_pipeline.world.messages.files import Row, parse_time

_CONVERSATION = ("conversation_id", "session_id", "thread_id", "chat_id", "custom_id", "id")
_TIMES = ("created_at", "created", "timestamp")
_NO_TIME = (
    "says no time; give --starting 2026-03-01T09:00:00Z, when the first conversation began, or map a key to created_at"
)


class OpenAIChats(Importer):
    """A conversation a line. One without an id of its own is known by how it begins, one without a time follows the line before."""

    name: ClassVar[str] = "openai"
    about: ClassVar[str] = 'chats in OpenAI\'s form, one a line: {"messages": [{"role", "content"}]}'

    def recognises(self, source: Source) -> bool:
        found = first_records(source)[:1]
        listed = found[0].get("messages") if found else None
        return isinstance(listed, list) and bool(listed) and isinstance(listed[0], dict) and "role" in listed[0]

    def rows(self, file: Source, options: ReadOptions) -> Iterator[Found]:
        ids, alike = TurnIds(), Counter[str]()
        return each_record(records(file), lambda line, record: _said(line, record, options, ids, alike))


def _turns(record: Mapping[str, Any]) -> list[ChatTurn]:
    listed = record.get("messages")
    if not isinstance(listed, list) or not listed:
        raise ValueError('has no messages; write {"messages": [{"role": ..., "content": ...}]}')
    turns = []
    for number, value in enumerate(listed, start=1):
        try:
            turns.append(turn_of(value))
        except ValueError as error:
            raise ValueError(f"messages[{number - 1}]: {error}") from None
    return turns


def _said(line: int, record: Mapping[str, Any], options: ReadOptions, ids: TurnIds, alike: Counter[str]) -> list[Found]:
    turns, given = _turns(record), options.given(record)
    conversation = given.get("channel") or _conversation(record, turns, alike)
    began = given.get("created_at") or _time_of(record)
    found: list[Found] = []
    start = parse_time(began, name="created_at") if began else None
    if start is None and options.starting is not None:
        start = options.starting + timedelta(minutes=line - 1)
    # A mark on a whole conversation is none on each of its messages.
    beside = {
        f"conversation_{key}" if key in KEYS else key: value
        for key, value in record.items()
        if key not in ("messages", *options.fields)
    }
    for place, turn in enumerate(turns):
        if turn.skipped:
            found.append(Skipped(line, turn.skipped))
            continue
        said_at = _time_of(turn.extras) or (start and rfc3339(start + timedelta(seconds=place), exact=True))
        if said_at is None:
            raise ValueError(_NO_TIME)
        speaker = turn.name or (given.get("agent_id") if turn.role == "assistant" else None) or turn.role
        values = {
            **beside, **turn.extras, "role": turn.role, "id": ids.next(conversation, speaker, turn.text),
            "agent_id": speaker, "channel": conversation, "text": turn.text, "created_at": said_at,
            "run_id": given.get("run_id"), "recipient": None,
        }  # fmt: skip
        found.append(message_row(line, values))
    return found


def _conversation(record: Mapping[str, Any], turns: Sequence[ChatTurn], alike: Counter[str]) -> str:
    named = next((as_text("channel", record[key]) for key in _CONVERSATION if record.get(key)), None)
    if isinstance(named, str):
        return named
    # A conversation goes on, but it does not begin anew: its first exchange is its name.
    first = [turn for turn in turns if not turn.skipped][:2]
    key = digest(*(f"{turn.role}\x1f{turn.text}" for turn in first))[:12]
    alike[key] += 1
    return f"chat-{key}" + (f"-{alike[key]}" if alike[key] > 1 else "")


def _time_of(record: Mapping[str, Any]) -> str | None:
    value = next((record[key] for key in _TIMES if record.get(key)), None)
    value = as_text("created_at", value)
    return value if isinstance(value, str) else None


class ChatGPTExport(Importer):
    """``conversations.json`` of ChatGPT: of each conversation what stands last, and beside an answer those that were made anew."""

    name: ClassVar[str] = "chatgpt"
    about: ClassVar[str] = "conversations.json of a ChatGPT export"

    def recognises(self, source: Source) -> bool:
        return any(isinstance(record.get("mapping"), dict) for record in _first(source))

    def rows(self, file: Source, options: ReadOptions) -> Iterator[Found]:
        self.require_no_fields(options)
        return each_record(records(file), _chatgpt)


def _chatgpt(line: int, record: Mapping[str, Any]) -> Iterator[Found]:
    nodes = record.get("mapping")
    if not isinstance(nodes, dict):
        raise ValueError("is no conversation of ChatGPT: it has no mapping")
    conversation = str(record.get("conversation_id") or record.get("id") or digest(str(record.get("title"))))
    path: list[Any] = []
    node = nodes.get(record.get("current_node"))
    while isinstance(node, dict) and len(path) <= len(nodes):
        path.append(node)
        node = nodes.get(node.get("parent"))
    passed = {str(node.get("id")) for node in path}
    for node in reversed(path):
        message = node.get("message")
        if not isinstance(message, dict):
            continue
        role, text = _of_chatgpt(message)
        if role not in ("user", "assistant") or not text.strip():
            yield Skipped(
                line, "system prompt" if role == "system" else "tool result" if role == "tool" else "turn without text"
            )
            continue
        above = nodes.get(node.get("parent"))
        siblings = above.get("children") if isinstance(above, dict) else None
        others = [nodes.get(key) for key in siblings if key not in passed] if isinstance(siblings, list) else []
        said = [
            _of_chatgpt(other["message"])
            for other in others
            if isinstance(other, dict) and isinstance(other.get("message"), dict)
        ]
        anew = [words for kind, words in said if kind == role == "assistant" and words.strip() and words != text]
        metadata = message.get("metadata")
        model = metadata.get("model_slug") if isinstance(metadata, dict) else None
        yield message_row(
            line,
            {
                "id": f"chatgpt:{conversation}:{message.get('id') or node.get('id')}",
                "agent_id": _author(message).get("name") or role,
                "channel": conversation,
                "text": text,
                "created_at": as_text("created_at", message.get("create_time") or record.get("create_time")),
                "role": role,
                "title": record.get("title"),
                "model": model,
                "regenerations": anew or None,
            },
        )


def _author(message: Mapping[str, Any]) -> Mapping[str, Any]:
    author = message.get("author")
    return author if isinstance(author, Mapping) else {}


def _of_chatgpt(message: Mapping[str, Any]) -> tuple[str, str]:
    """Return a message's role and words; thoughts, code and what is addressed to a tool are none."""
    content, role = message.get("content"), str(_author(message).get("role"))
    spoken = isinstance(content, Mapping) and content.get("content_type") in ("text", "multimodal_text")
    if not spoken or message.get("recipient") not in (None, "all"):
        return role, ""
    return role, text_of(content.get("parts")) if isinstance(content, Mapping) else ""


class ClaudeExport(Importer):
    """``conversations.json`` of Claude: ``chat_messages`` of humans and the assistant."""

    name: ClassVar[str] = "claude"
    about: ClassVar[str] = "conversations.json of a Claude export"

    def recognises(self, source: Source) -> bool:
        return any(isinstance(record.get("chat_messages"), list) for record in _first(source))

    def rows(self, file: Source, options: ReadOptions) -> Iterator[Found]:
        self.require_no_fields(options)
        return each_record(records(file), _claude)


def _claude(line: int, record: Mapping[str, Any]) -> Iterator[Found]:
    listed = record.get("chat_messages")
    if not isinstance(listed, list):
        raise ValueError("is no conversation of Claude: it has no chat_messages")
    if not listed:
        yield Skipped(line, "conversation without messages")
    for message in listed:
        if not isinstance(message, dict):
            raise ValueError("a message of chat_messages is no object")
        text = text_of(message.get("content")) or text_of(message.get("text"))
        role = "assistant" if message.get("sender") == "assistant" else "user"
        if not text.strip():
            yield Skipped(line, "turn without text")
            continue
        yield message_row(
            line,
            {
                "id": f"claude:{message.get('uuid')}",
                "agent_id": role,
                "channel": record.get("uuid"),
                "text": text,
                "created_at": message.get("created_at"),
                "role": role,
                "title": record.get("name") or None,
            },
        )


_DISCORD = ("Default", "Reply", "ThreadStarterMessage", "ChatInputCommand", "ContextMenuCommand")


class DiscordExport(Importer):
    """A channel as DiscordChatExporter writes it in JSON, under the nicknames that its members see."""

    name: ClassVar[str] = "discord"
    about: ClassVar[str] = "a channel exported by DiscordChatExporter as JSON"

    def recognises(self, source: Source) -> bool:
        start = source.beginning.lstrip()[:4096]
        return start.startswith("{") and all(f'"{key}"' in start for key in ("guild", "channel", "exportedAt"))

    def rows(self, file: Source, options: ReadOptions) -> Iterator[Found]:
        self.require_no_fields(options)
        for line, record in records(file):
            listed = record.get("messages") if isinstance(record, dict) else None
            if not isinstance(listed, list):
                yield Row(
                    line, record if isinstance(record, ValueError) else ValueError("has no messages; export it again")
                )
                continue
            if not listed:
                yield Skipped(line, "channel without messages")
            channel = record.get("channel") if isinstance(record, dict) else None
            place = channel if isinstance(channel, dict) else {}
            yield from each_record(
                [(line, item if isinstance(item, dict) else ValueError("is no message")) for item in listed],
                partial(_discord, place),
            )


def _discord(channel: Mapping[str, Any], line: int, message: dict[str, Any]) -> Iterator[Found]:
    author = message.get("author")
    author = author if isinstance(author, dict) else {}
    if message.get("type", "Default") not in _DISCORD:
        yield Skipped(line, str(message.get("type"))[:40])
    elif not (isinstance(text := message.get("content"), str) and text.strip()):
        yield Skipped(line, "message without text")
    else:
        listed = message.get("reactions")
        reactions = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
        yield message_row(
            line,
            {
                "id": f"discord:{message.get('id')}",
                "agent_id": author.get("nickname") or author.get("name"),
                "channel": channel.get("name") or channel.get("id"),
                "text": text,
                "created_at": message.get("timestamp"),
                "role": "assistant" if author.get("isBot") else "user",
                "edited_at": message.get("timestampEdited"),
                "reactions": [_reaction(item) for item in reactions] or None,
            },
        )


def _reaction(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return a reaction as Slack writes it: thumbs by name, and who gave them."""
    emoji, users = item.get("emoji"), item.get("users")
    code = emoji.get("code") or emoji.get("name") if isinstance(emoji, dict) else None
    given = [str(user.get("id")) for user in users if isinstance(user, dict)] if isinstance(users, list) else []
    return {"name": str(code), "users": given, "count": item.get("count")}


def _first(source: Source) -> list[dict[str, Any]]:
    """Return the first records of a file, or, of one whose first is longer than what is looked at, what its keys tell."""
    if source.is_folder:
        return []
    if found := first_records(source)[:3]:
        return found
    start = source.beginning.lstrip()
    kinds = {"mapping": {}, "chat_messages": []}
    return [{key: kind} for key, kind in kinds.items() if start[:1] == "[" and f'"{key}"' in start]
