"""Chats one a record: in OpenAI's form, and as ChatGPT, Claude and DiscordChatExporter export them."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar

from persona_pipeline.base.documents.json import rfc3339
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
from persona_pipeline.importing.marks import KEYS
from persona_pipeline.importing.records import each_record, first_records, records
from persona_pipeline.world.messages.files import parse_time

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


class ConversationExport(Importer):
    """A format with a conversation a record, whose keys are known; ``key`` is the one under which it has its messages."""

    key: ClassVar[str]

    def recognises(self, source: Source) -> bool:
        # A first conversation may be longer than what is looked at.
        start = source.beginning.lstrip()
        return start[:1] == "[" and f'"{self.key}"' in start

    def rows(self, file: Source, options: ReadOptions) -> Iterator[Found]:
        self.require_no_fields(options)
        return each_record(records(file), self._found)

    def _found(self, line: int, record: Mapping[str, Any]) -> list[Found]:
        if not isinstance(record.get(self.key), (list, dict)):
            raise ValueError(f"is no conversation of {self.name}: it has no {self.key}")
        return list(self.said(line, record)) or [Skipped(line, "conversation without messages")]

    @abstractmethod
    def said(self, line: int, record: Mapping[str, Any]) -> Iterator[Found]:
        """Yield what the messages of a conversation are."""


def _row(line: int, place: str, text: str, **values: Any) -> Found:
    return (
        message_row(line, {**values, "channel": place, "text": text})
        if text.strip()
        else Skipped(line, "turn without text")
    )


class ChatGPTExport(ConversationExport):
    """``conversations.json`` of ChatGPT: of each conversation what stands last, and beside an answer those that were made anew."""

    name: ClassVar[str] = "chatgpt"
    about: ClassVar[str] = "conversations.json of a ChatGPT export"
    key = "mapping"

    def said(self, line: int, record: Mapping[str, Any]) -> Iterator[Found]:
        nodes = {key: _object(node) for key, node in _object(record["mapping"]).items()}
        conversation = str(record.get("conversation_id") or record.get("id") or digest(str(record.get("title"))))
        path: list[str] = []
        at = record.get("current_node")
        while isinstance(at, str) and at in nodes and at not in path:
            path.append(at)
            at = nodes[at].get("parent")
        for key in reversed(path):
            node, message = nodes[key], _object(nodes[key].get("message"))
            author = _object(message.get("author"))
            role, text = str(author.get("role")), _words_of_chatgpt(message)
            if message and role not in ("user", "assistant"):
                yield Skipped(line, _SILENT_ROLES.get(role, "turn without text"))
            elif message:
                beside = _listed(_object(nodes.get(str(node.get("parent")))).get("children"))
                others = [_object(nodes.get(str(other), {}).get("message")) for other in beside if other not in path]
                anew = [_words_of_chatgpt(other) for other in others] if role == "assistant" else []
                yield _row(
                    line, conversation, text, role=role, agent_id=author.get("name") or role, title=record.get("title"),
                    id=f"chatgpt:{conversation}:{key}", model=_object(message.get("metadata")).get("model_slug"),
                    created_at=as_text("created_at", message.get("create_time") or record.get("create_time")),
                    regenerations=[words for words in anew if words.strip()] or None,
                )  # fmt: skip


_SILENT_ROLES = {"system": "system prompt", "tool": "tool result"}


def _words_of_chatgpt(message: Mapping[str, Any]) -> str:
    """Return a message's words; thoughts, code and what is addressed to a tool are none."""
    content = _object(message.get("content"))
    spoken = content.get("content_type") in ("text", "multimodal_text") and message.get("recipient") in (None, "all")
    return text_of(content.get("parts")) if spoken else ""


class ClaudeExport(ConversationExport):
    """``conversations.json`` of Claude: ``chat_messages`` of humans and the assistant."""

    name: ClassVar[str] = "claude"
    about: ClassVar[str] = "conversations.json of a Claude export"
    key = "chat_messages"

    def said(self, line: int, record: Mapping[str, Any]) -> Iterator[Found]:
        for message in map(_object, _listed(record["chat_messages"])):
            role = "assistant" if message.get("sender") == "assistant" else "user"
            text = text_of(message.get("content")) or text_of(message.get("text"))
            yield _row(
                line, str(record.get("uuid")), text, id=f"claude:{message.get('uuid')}", agent_id=role, role=role,
                created_at=message.get("created_at"), title=record.get("name") or None,
            )  # fmt: skip


class DiscordExport(ConversationExport):
    """A channel as DiscordChatExporter writes it in JSON, under the nicknames that its members see."""

    name: ClassVar[str] = "discord"
    about: ClassVar[str] = "a channel exported by DiscordChatExporter as JSON"
    key = "messages"

    def recognises(self, source: Source) -> bool:
        start = source.beginning.lstrip()[:4096]
        return start.startswith("{") and all(f'"{key}"' in start for key in ("guild", "channel", "exportedAt"))

    def said(self, line: int, record: Mapping[str, Any]) -> Iterator[Found]:
        channel = _object(record.get("channel"))
        for message in map(_object, _listed(record["messages"])):
            author, text = _object(message.get("author")), message.get("content")
            if message.get("type", "Default") not in _SAID_ON_DISCORD:
                yield Skipped(line, str(message.get("type"))[:40])
                continue
            yield _row(
                line, str(channel.get("name") or channel.get("id")), text if isinstance(text, str) else "",
                id=f"discord:{message.get('id')}", agent_id=author.get("nickname") or author.get("name"),
                role="assistant" if author.get("isBot") else "user", created_at=message.get("timestamp"),
                edited_at=message.get("timestampEdited"),
                reactions=[_reaction(_object(item)) for item in _listed(message.get("reactions"))] or None,
            )  # fmt: skip


_SAID_ON_DISCORD = ("Default", "Reply", "ThreadStarterMessage", "ChatInputCommand", "ContextMenuCommand")


def _reaction(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return a reaction as Slack writes it: thumbs by name, and who gave them."""
    emoji, users = _object(item.get("emoji")), map(_object, _listed(item.get("users")))
    return {"name": str(emoji.get("code") or emoji.get("name")), "users": [str(user.get("id")) for user in users]}


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
