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


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([ROW], id="records"),
        pytest.param((row for row in [ROW]), id="a generator"),
        pytest.param(pd.DataFrame([ROW]), id="pandas"),
        pytest.param(Arrow(), id="Arrow"),
        pytest.param(Polars(), id="polars"),
        pytest.param({"2026-04-01": [ROW], "2026-04-02": None}, id="by partition"),
    ],
)
def test_what_an_asset_returns_can_be_read(rows: Any) -> None:
    assert list(records_of(rows)) == [ROW]


def test_what_holds_no_rows_is_refused() -> None:
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


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({**ROW, "text": None}, "text is missing"),
        ({**ROW, "created_at": "yesterday"}, "created_at"),
        ({**ROW, "agent_id": float("nan")}, "agent_id is missing"),
        ("ann: hello", "is no record but str"),
    ],
)
def test_a_row_that_is_no_message_is_named_and_stops_no_other(small_world: World, row: Any, said: str) -> None:
    result = bring_rows(small_world, [row, ROW], source="chats")
    [problem] = result.problems
    assert (problem.path, problem.line, result.written.inserted) == ("chats", 1, 1)
    assert said in problem.message


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"agentid": "who"}, "a message has no 'agentid'; did you mean 'agent_id'"),
        ({"text": "txt"}, "row 1 of chats has no column 'txt'; did you mean 'text'"),
    ],
)
def test_columns_that_are_not_there_are_said(small_world: World, columns: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        bring_rows(small_world, [ROW], source="chats", columns=columns)
