"""Chats one a record: in OpenAI's form, and as ChatGPT, Claude and DiscordChatExporter export them."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar

from persona_pipeline.base.documents.json import rfc3339
from persona_pipeline.base.turn_forms import ASSISTANT, TurnError
from persona_pipeline.base.turns import Turn, read_message
from persona_pipeline.importing.base import (
    Found,
    Importer,
    ReadOptions,
    Skipped,
    Source,
    TurnIds,
    as_text,
    card_words,
    digest,
    extras_of,
    list_of,
    object_of,
    spoken,
    text_of,
)
from persona_pipeline.importing.marks import KEYS
from persona_pipeline.importing.records import each_record, first_records, records
from persona_pipeline.world.messages.files import parse_time

_CONVERSATION = ("conversation_id", "session_id", "thread_id", "chat_id", "custom_id", "id")
_TIMES = ("created_at", "created", "timestamp")
# Under "contents" Gemini's form has them.
_MESSAGES = ("messages", "contents")
_NO_TIME = (
    "says no time; give --starting 2026-03-01T09:00:00Z, when the first conversation began, or map a key to created_at"
)


class OpenAIChats(Importer):
    """One conversation per line. Without an id it is identified by its beginning; without a time it follows the previous line."""

    name: ClassVar[str] = "openai"
    about: ClassVar[str] = 'chats in OpenAI\'s form, one a line: {"messages": [{"role", "content"}]}'

    def recognises(self, source: Source) -> bool:
        found = first_records(source)[:1]
        return any("role" in object_of(value) for value in _listed(found[0])[:1]) if found else False

    def rows(self, file: Source, options: ReadOptions) -> Iterator[Found]:
        ids, alike = TurnIds(), Counter[str]()
        return each_record(records(file), lambda line, record: _said(line, record, options, ids, alike))


def _said(line: int, record: Mapping[str, Any], options: ReadOptions, ids: TurnIds, alike: Counter[str]) -> list[Found]:
    turns, given = _turns(record), options.given(record)
    began_with = [f"{turn.role}\x1f{written}" for turn, written in turns if not turn.silence][:2]
    conversation = given.get("channel") or _conversation(record, began_with, alike)
    began = given.get("created_at") or _time_of(record)
    start = parse_time(began, name="created_at") if began else None
    if start is None and options.starting is not None:
        start = options.starting + timedelta(minutes=line - 1)
    # A mark on a whole conversation is none on each of its messages.
    beside = {
        f"conversation_{key}" if key in KEYS else key: value
        for key, value in record.items()
        if key not in (*_MESSAGES, *options.fields)
    }
    found: list[Found] = []
    for place, (turn, written) in enumerate(turns):
        if turn.silence:
            found.append(Skipped(line, turn.silence))
            continue
        said_at = _time_of(turn.extras) or (start and rfc3339(start + timedelta(seconds=place), exact=True))
        if said_at is None:
            raise ValueError(_NO_TIME)
        speaker = turn.speaker or (given.get("agent_id") if turn.role == ASSISTANT else None) or turn.role
        values = {
            **beside, **turn.extras, "role": turn.role, "id": ids.next(conversation, speaker, written),
            "agent_id": speaker, "channel": conversation, "text": turn.text, "created_at": said_at,
            "run_id": given.get("run_id"), "recipient": None,
        }  # fmt: skip
        found.append(spoken(line, values))
    return found


def _listed(record: Mapping[str, Any]) -> list[Any]:
    return next((found for key in _MESSAGES if (found := list_of(record.get(key)))), [])


def _turns(record: Mapping[str, Any]) -> list[tuple[Turn, str]]:
    """Return the turns of a conversation, with all that is kept of each, and the text that its id is made of: with thinking."""
    listed = _listed(record)
    if not listed:
        raise ValueError('has no messages; write {"messages": [{"role": ..., "content": ...}]}')
    turns = []
    for place, value in enumerate(listed):
        try:
            turn = read_message(value)
        except TurnError as error:
            raise ValueError(f"messages[{place}]: {error}") from None
        content = value.get("content")
        called = {key: value.get(key) for key in ("tool_calls", "function_call")}
        kept = content if turn.attachments else None
        turn.extras = extras_of(turn, **called, thinking=turn.thinking.strip(), content=kept)
        turns.append((turn, content if isinstance(content, str) else turn.text or ""))
    return turns


def _conversation(record: Mapping[str, Any], first: Sequence[str], alike: Counter[str]) -> str:
    named = next((as_text("channel", record[key]) for key in _CONVERSATION if record.get(key)), None)
    if isinstance(named, str):
        return named
    # Later exports continue a conversation, but its first exchange stays the same.
    key = digest(*first)[:12]
    alike[key] += 1
    return f"chat-{key}" + (f"-{alike[key]}" if alike[key] > 1 else "")


def _time_of(record: Mapping[str, Any]) -> str | None:
    value = next((record[key] for key in _TIMES if record.get(key)), None)
    value = as_text("created_at", value)
    return value if isinstance(value, str) else None


class ConversationExport(Importer):
    """A format with a conversation a record, whose keys are known; ``key`` is the one under which it has its messages.

    ``alone``: keys by which a file is told that begins with an object: one conversation, one a line, or an object around them.
    """

    key: ClassVar[str]
    alone: ClassVar[Sequence[str]] = ()

    def recognises(self, source: Source) -> bool:
        # A first conversation may be longer than the beginning that is read.
        start = source.beginning.lstrip()
        keys = {"[": (self.key,), "{": self.alone}.get(start[:1], ())
        return bool(keys) and all(f'"{key}"' in start for key in keys)

    def rows(self, file: Source, options: ReadOptions) -> Iterator[Found]:
        self.require_no_fields(options)
        return each_record(records(file, ("conversations",)), self._found)

    def _found(self, line: int, record: Mapping[str, Any]) -> list[Found]:
        if not isinstance(record.get(self.key), (list, dict)):
            raise ValueError(f"is no conversation of {self.name}: it has no {self.key}")
        return list(self.said(line, record)) or [Skipped(line, "conversation without messages")]

    @abstractmethod
    def said(self, line: int, record: Mapping[str, Any]) -> Iterator[Found]:
        """Yield what the messages of a conversation are."""


class ChatGPTExport(ConversationExport):
    """``conversations.json`` of ChatGPT: the last state of each conversation, and answers with their regenerated alternatives.

    Messages that a branched chat shares with its first chat belong to the first chat alone.
    """

    name: ClassVar[str] = "chatgpt"
    about: ClassVar[str] = "conversations.json of a ChatGPT export"
    looks_ahead = True
    key = "mapping"
    alone = ("mapping", "children", "content_type")

    def __init__(self) -> None:
        # When the oldest conversation with a message began, and its id.
        self._first: dict[str, tuple[float, str]] = {}

    def said(self, line: int, record: Mapping[str, Any]) -> Iterator[Found]:
        nodes = {key: object_of(node) for key, node in object_of(record["mapping"]).items()}
        conversation = str(record.get("conversation_id") or record.get("id") or digest(str(record.get("title"))))
        path, thinking, began = _path(record.get("current_node"), nodes), list[str](), _created(record)
        for place, key in enumerate(path):
            message = object_of(nodes[key].get("message"))
            if not message:
                continue
            author, text, sent = (
                object_of(message.get("author")),
                _words_of_chatgpt(message),
                message.get("create_time"),
            )
            role = str(author.get("role"))
            thinking += _thoughts(message)
            if role not in ("user", "assistant"):
                yield Skipped(line, Turn(role).silence)
            elif text and sent and not self._is_first(digest(str(sent), role, text), (began, conversation)):
                yield Skipped(line, "said in the chat that this one is a branch of")
            else:
                # Messages without times keep their order.
                sent = sent or (began and began + place / 1000) or record.get("create_time")
                yield spoken(line, {
                    "channel": conversation, "text": text, "role": role, "agent_id": author.get("name") or role,
                    "title": record.get("title"), "id": f"chatgpt:{conversation}:{key}",
                    "model": object_of(message.get("metadata")).get("model_slug"),
                    "created_at": as_text("created_at", sent),
                    "regenerations": _regenerations(key, path, nodes) if role == "assistant" else None,
                    "thinking": "\n".join(thinking) if role == "assistant" and thinking else None,
                })  # fmt: skip
            thinking = [] if text else thinking

    def _is_first(self, message: str, conversation: tuple[float, str]) -> bool:
        self._first[message] = min(conversation, self._first.get(message, conversation))
        return self._first[message] == conversation


def _path(current: Any, nodes: dict[str, Mapping[str, Any]]) -> list[str]:
    """Return the nodes up to the current one, oldest first; up to the last leaf where that is not named, or names the root.

    A parent that is not there is the node that lists the child.
    """
    parents = {str(child): key for key, node in nodes.items() for child in list_of(node.get("children"))}
    parents |= {key: str(node["parent"]) for key, node in nodes.items() if str(node.get("parent")) in nodes}
    if not isinstance(current, str) or current not in nodes or current not in parents:
        leaves = nodes.keys() - parents.values()
        messages = {key: object_of(nodes[key].get("message")) for key in reversed(nodes) if key in leaves}
        current = max(messages, key=lambda key: (bool(messages[key]), _created(messages[key])), default=None)
    path: dict[str, None] = {}
    while current in nodes and current not in path:
        path[current] = None
        current = parents.get(current)
    return [*reversed(path)]


def _regenerations(key: str, path: Sequence[str], nodes: Mapping[str, Mapping[str, Any]]) -> list[str] | None:
    """Return the alternative answers in place of a message; None: there are none."""
    beside = map(str, list_of(object_of(nodes.get(str(nodes[key].get("parent")))).get("children")))
    others = (object_of(nodes.get(other, {}).get("message")) for other in beside if other not in path)
    return [text for other in others if (text := _words_of_chatgpt(other)).strip()] or None


def _created(item: Mapping[str, Any]) -> float:
    created = item.get("create_time")
    return float(created) if isinstance(created, int | float) else 0.0


def _words_of_chatgpt(message: Mapping[str, Any]) -> str:
    """Return a message's words, without thoughts, code and messages to tools."""
    content = object_of(message.get("content"))
    is_spoken = content.get("content_type") in ("text", "multimodal_text") and message.get("recipient") in (None, "all")
    is_hidden = object_of(message.get("metadata")).get("is_visually_hidden_from_conversation")
    return text_of(content.get("parts")) if is_spoken and not is_hidden else ""


def _thoughts(message: Mapping[str, Any]) -> list[str]:
    content = object_of(message.get("content"))
    listed = map(object_of, list_of(content.get("thoughts") if content.get("content_type") == "thoughts" else None))
    return [words for item in listed if (words := text_of(item.get("content") or item.get("summary")))]


class ClaudeExport(ConversationExport):
    """``conversations.json`` of Claude: ``chat_messages`` of humans and the assistant."""

    name: ClassVar[str] = "claude"
    about: ClassVar[str] = "conversations.json of a Claude export"
    key = "chat_messages"
    alone = ("chat_messages", "sender")

    def said(self, line: int, record: Mapping[str, Any]) -> Iterator[Found]:
        for message in map(object_of, list_of(record["chat_messages"])):
            role = "assistant" if message.get("sender") == "assistant" else "user"
            blocks = [block for block in map(object_of, list_of(message.get("content"))) if block]
            thinking = [str(block["thinking"]) for block in blocks if block.get("thinking")]
            text = text_of([block for block in blocks if "text" in block]) or text_of(message.get("text"))
            yield spoken(line, {
                "channel": str(record.get("uuid")), "text": text, "id": f"claude:{message.get('uuid')}", "agent_id": role,
                "role": role, "created_at": message.get("created_at"), "title": record.get("name") or None,
                "thinking": "\n".join(thinking) or None,
            })  # fmt: skip


class DiscordExport(ConversationExport):
    """A channel as DiscordChatExporter writes it in JSON, under the nicknames that its members see."""

    name: ClassVar[str] = "discord"
    about: ClassVar[str] = "a channel exported by DiscordChatExporter as JSON"
    looks_ahead = True
    key = "messages"

    def recognises(self, source: Source) -> bool:
        start = source.beginning.lstrip()[:4096]
        return start.startswith("{") and all(f'"{key}"' in start for key in ("guild", "channel", "exportedAt"))

    def said(self, line: int, record: Mapping[str, Any]) -> Iterator[Found]:
        place = _on_discord("channel", record.get("channel"))
        for message in map(object_of, list_of(record["messages"])):
            is_bot = bool(object_of(message.get("author")).get("isBot"))
            author = _on_discord("account", message.get("author"))
            if message.get("type", "Default") not in _SAID_ON_DISCORD:
                yield Skipped(line, str(message.get("type"))[:40])
                continue
            yield spoken(line, {
                "channel": place[0], "place_id": place[1], "agent_id": author[0], "speaker_id": author[1],
                "text": _words_on_discord(message), "id": f"discord:{message.get('id')}",
                "role": "assistant" if is_bot else "user", "created_at": message.get("timestamp"),
                "edited_at": message.get("timestampEdited"),
                "reactions": [_reaction(object_of(item)) for item in list_of(message.get("reactions"))] or None,
            })  # fmt: skip


def _on_discord(kind: str, value: Any) -> tuple[Any, str]:
    """Return the name and the id of an account or a channel. A webhook speaks under as many names as it likes."""
    item = object_of(value)
    name = item.get("nickname") or item.get("name") or item.get("id")
    is_webhook = item.get("isBot") and item.get("discriminator") == "0000"
    identity = name if is_webhook else item.get("id") or item.get("name") or name
    return name and str(name), f"Discord {kind}: {identity}"


def _words_on_discord(message: Mapping[str, Any]) -> str:
    """Return a message's content and what a bot says in embeds; previews of linked pages are the words of others."""
    content = text_of(message.get("content"))
    if content.strip() and not object_of(message.get("author")).get("isBot"):
        return content
    embeds = [
        item for item in map(object_of, list_of(message.get("embeds"))) if str(item.get("url") or "\n") not in content
    ]
    words = [text for item in embeds for text in card_words(item, ("title", "description"), "name")]
    return "\n".join([content, *words] if content.strip() else words)


_SAID_ON_DISCORD = ("Default", "Reply", "ThreadStarterMessage", "ChatInputCommand", "ContextMenuCommand")


def _reaction(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return a reaction as Slack writes it: thumbs by name, and who gave them."""
    emoji, users = object_of(item.get("emoji")), map(object_of, list_of(item.get("users")))
    return {"name": str(emoji.get("code") or emoji.get("name")), "users": [str(user.get("id")) for user in users]}
