"""The worst messages: their order, what they answered, and the earlier message that does it right."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from persona_pipeline.scoring.messages.reading import MOST_WORST, worst_messages
from persona_pipeline.scoring.messages.verdicts import MessageVerdict, MessageVerdicts, Role, ShareChange
from persona_pipeline.world.models import Message

NINE = datetime(2026, 11, 2, 9, tzinfo=UTC)
ROLES = {"+": Role.IN, "-": Role.OUT, "?": Role.UNCLEAR}
# A line: minutes after nine, channel, speaker, and for the agent a sign and the claims that it breaks.
Line = tuple[int, str, str]


def message(line: Line) -> Message:
    minute, channel, told = line
    speaker = told.split()[0]
    return Message(f"m{minute}", speaker, f"text {minute}", NINE + timedelta(minutes=minute), channel=channel)


def verdict(line: Line) -> MessageVerdict:
    said, (_, sign, *claims) = message(line), line[2].split()
    place = f"#{line[1]} {NINE.isoformat()}"
    about = {"claims": tuple(claims), "quote": said.text, "reason": "why"} if sign == "-" else {}
    return MessageVerdict(message=said.id, conversation=place, said_at=said.created_at, verdict=ROLES[sign], **about)


def found(lines: Sequence[Line], *, drift: int | None = None, back: int | None = None) -> list[tuple[str, str, str]]:
    """Return ids of the worst messages, of what they answered and of their examples; "": none."""
    verdicts = [verdict(line) for line in lines if line[2].startswith("ann ")]
    since = drift if back is None else back
    counts = ((9, 10), (1, 10)) if back is None else ((1, 10), (9, 10))
    change = None if since is None else ShareChange(NINE + timedelta(minutes=since), "m", *counts, 0, 0.001)
    read = MessageVerdicts(agent_id="ann", verdicts=verdicts, change=change)
    worst = worst_messages(read, verdicts, [message(line) for line in lines])
    ids = [
        (item.answered.message_id if item.answered else "", item.example.message_id if item.example else "")
        for item in worst
    ]
    return [(item.verdict.message, *pair) for item, pair in zip(worst, ids, strict=True)]


@pytest.mark.parametrize(
    ("lines", "worst"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([(1, "a", "ann +"), (2, "a", "ann ?")], [], id="none is out"),
        pytest.param([(1, "a", "ann - x")], [("m1", "", "")], id="it began, and none is right"),
        pytest.param(
            [(1, "a", "ann - x y"), (2, "a", "ann - x"), (3, "a", "ann - x y"), (4, "a", "ann -")],
            [("m3", "", ""), ("m1", "", ""), ("m2", "", ""), ("m4", "", "")],
            id="most claims, then newest; facts alone last",
        ),
        pytest.param(
            [(n, "a", "ann - x") for n in range(7)],
            [(f"m{n}", "", "") for n in (6, 5, 4, 3, 2)],
            id="five at most",
        ),
        pytest.param(
            [(1, "a", "bob"), (2, "b", "eve"), (3, "a", "ann - x"), (4, "a", "ann - x")],
            [("m4", "m1", ""), ("m3", "m1", "")],
            id="what somebody else said in the same place",
        ),
        pytest.param([(1, "a", "bob"), (61, "a", "ann - x")], [("m61", "", "")], id="an hour later it answers nothing"),
        pytest.param(
            [(1, "a", "ann +"), (2, "b", "ann +"), (3, "a", "ann - x"), (4, "a", "ann +")],
            [("m3", "", "m1")],
            id="an example is earlier, of the same place",
        ),
        pytest.param(
            [(1, "b", "ann +"), (2, "a", "ann ?"), (3, "a", "ann - x")],
            [("m3", "", "m1")],
            id="of another place where the same has none; never an unclear one",
        ),
        pytest.param(
            [(1, "a", "ann +"), (2, "a", "ann +"), (3, "a", "ann - x"), (4, "a", "ann - x"), (5, "a", "ann - x")],
            [("m5", "", "m2"), ("m4", "", "m1"), ("m3", "", "m2")],
            id="another example for each, as far as there are some",
        ),
    ],
)
def test_the_worst_messages(lines: list[Line], worst: list[tuple[str, str, str]]) -> None:
    assert found(lines) == worst


LATE = [(1, "a", "ann +"), (5, "b", "ann +"), (6, "a", "ann - x"), (7, "a", "ann +"), (8, "a", "ann - x")]


@pytest.mark.parametrize(
    ("change", "examples"),
    [
        pytest.param({}, {"m8": "m7", "m6": "m1"}, id="no change"),
        pytest.param({"drift": 6}, {"m8": "m1", "m6": "m1"}, id="only from before a drift"),
        pytest.param({"drift": 1}, {"m8": "", "m6": ""}, id="none is older than the drift"),
        pytest.param({"back": 6}, {"m8": "m7", "m6": "m1"}, id="a correction sets no date"),
    ],
)
def test_an_example_is_older_than_a_drift(change: dict[str, int], examples: dict[str, str]) -> None:
    assert {message: example for message, _, example in found(LATE, **change)} == examples


def test_an_example_may_come_from_an_earlier_window_and_needs_a_text() -> None:
    out = verdict((60, "a", "ann - x"))
    before = [verdict((minute, "a", "ann +")) for minute in (1, 2)]
    read = MessageVerdicts(agent_id="ann", verdicts=[out])
    [worst] = worst_messages(read, [*before, out], [message((1, "a", "ann"))])
    assert worst.example is not None and worst.example.message_id == "m1"


def test_long_texts_are_cut() -> None:
    said = Message("m0", "bob", "x" * 9_000, NINE, channel="a")
    out = verdict((5, "a", "ann - x"))
    [worst] = worst_messages(MessageVerdicts(agent_id="ann", verdicts=[out]), [out], [said, message((5, "a", "ann"))])
    assert worst.answered is not None and len(worst.answered.quote) == 500 and worst.answered.quote.endswith("…")
    assert MOST_WORST == 5
