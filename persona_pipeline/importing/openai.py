"""Chats in OpenAI's form, one a line: ``{"messages": [{"role": ..., "content": ...}]}``."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
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
    turn_of,
)
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
