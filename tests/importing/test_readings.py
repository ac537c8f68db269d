"""What a reader makes of one entry: whose names stand in it, when it was said, what is left beside it."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.world.models import Message
from tests.importing.test_importers import rows_of

NINE = datetime(2026, 3, 1, 9, tzinfo=UTC)


def messages_of(folder: Path, lines: list[Any], name: str, **reading: Any) -> list[Message]:
    text = "".join((json.dumps(line) if line else "") + "\n" for line in lines)
    found = rows_of(folder, "chats.jsonl", text, format_name=name, **reading)
    return [item for item in found if isinstance(item, Message)]


def test_chats_without_times_follow_one_another_a_minute_a_line_and_a_second_a_turn(tmp_path: Path) -> None:
    chat = lambda *texts: {"messages": [{"role": "user", "content": text} for text in texts]}  # noqa: E731
    found = messages_of(tmp_path, [chat("a", "b"), None, chat("c")], "openai", starting=NINE)
    times = [(item.text, item.created_at.strftime("%H:%M:%S")) for item in found]
    assert times == [("a", "09:00:00"), ("b", "09:00:01"), ("c", "09:02:00")]


@pytest.mark.parametrize(
    ("user", "filled"),
    [("Ann", "Hello Ann, I am Bob"), (5, "Hello Annie, I am Bob"), ("unused", "Hello Annie, I am Bob")],
    ids=["the header's name", "a header that holds none", "a header nobody filled in"],
)
def test_a_cards_variables_are_the_names_of_the_header_or_of_who_speaks(tmp_path: Path, user: Any, filled: str) -> None:
    sent = {"send_date": "2026-03-01T09:00:00.000Z"}
    lines = [
        {"user_name": user, "character_name": "Bob", "chat_metadata": {}},
        {"name": "Bob", "is_user": False, "mes": "Hello {{user}}, I am {{char}}", **sent},
        {"name": "Annie", "is_user": True, "mes": "Hi", "swipe_info": [1], "gen_id": 7, **sent},
    ]
    first, second = messages_of(tmp_path, lines, "sillytavern")
    assert (first.text, second.text) == (filled, "Hi")
    assert second.extras == {"is_user": True, "gen_id": 7, "swipe_info": [1], **sent}, (
        "name and text stand in their own places"
    )
