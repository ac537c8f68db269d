"""Messages out of rows that a program has in hand."""

from datetime import UTC, datetime
from typing import Any

import pandas as pd
import pytest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.world import World
from persona_pipeline.world.messages.files import records_of
from persona_pipeline.world.world import bring_rows

ROW = {"agent_id": "ann", "text": "The till is open.", "created_at": "2026-04-01T09:00:00Z"}


class Arrow:
    def to_pylist(self) -> list[dict[str, Any]]:
        return [ROW]


class Polars:
    def to_dicts(self) -> list[dict[str, Any]]:
        return [ROW]


def test_what_an_asset_returns_can_be_read_and_what_holds_no_rows_is_refused() -> None:
    partitions = {"2026-04-01": [ROW], "2026-04-02": None}
    for rows in ([ROW], (row for row in [ROW]), pd.DataFrame([ROW]), Arrow(), Polars(), partitions):
        assert list(records_of(rows)) == [ROW], rows
    with pytest.raises(ConfigError, match="messages cannot be read from str"):
        list(records_of("ann: hello"))


def test_a_row_is_a_message_by_the_columns_it_has(small_world: World) -> None:
    at = pd.Timestamp("2026-04-01T09:00:00")
    frame = pd.DataFrame(
        [
            {"n": 7, "who": "ann", "said": "Hello.", "at": at, "to": None, "mood": 1.5},
            {"n": 8, "who": "bob", "said": "Hm.", "at": at, "to": "ann", "mood": float("nan")},
        ]
    )
    columns = {"id": "n", "agent_id": "who", "text": "said", "created_at": "at", "recipient": "to"}
    result = bring_rows(small_world, frame, source="shop/chats", columns=columns)
    assert (result.problems, result.written.inserted) == ([], 2)
    said = {message.id: message for message in small_world.messages()}
    moment = datetime(2026, 4, 1, 9, tzinfo=UTC)
    assert (said["7"].agent_id, said["7"].channel, said["7"].created_at) == ("ann", "shop/chats", moment)
    assert (said["8"].channel, said["8"].recipient) == (None, "ann")


def test_a_message_without_an_id_is_the_same_the_next_time(small_world: World) -> None:
    assert bring_rows(small_world, [ROW], source="chats").written.inserted == 1
    again = bring_rows(small_world, [ROW, {**ROW, "text": "The till is shut."}], source="chats")
    assert (again.written.inserted, again.written.unchanged) == (1, 1)


def test_rows_that_are_no_messages_are_named_and_stop_no_other(small_world: World) -> None:
    odd = {
        "text is missing": {**ROW, "text": None},
        "created_at": {**ROW, "created_at": "yesterday"},
        "agent_id is missing": {**ROW, "agent_id": float("nan")},
        "is no record but str": "ann: hello",
    }
    rows: list[Any] = [*odd.values(), ROW]
    result = bring_rows(small_world, rows, source="chats")
    assert [(problem.path, problem.line) for problem in result.problems] == [("chats", n) for n in (1, 2, 3, 4)]
    assert all(said in problem.message for said, problem in zip(odd, result.problems, strict=True))
    assert result.written.inserted == 1
    for columns, said in (
        ({"agentid": "who"}, "a message has no 'agentid'; did you mean 'agent_id'"),
        ({"text": "txt"}, "row 1 of chats has no column 'txt'; did you mean 'text'"),
    ):
        with pytest.raises(ConfigError, match=said):
            bring_rows(small_world, [ROW], source="chats", columns=columns)
