import pytest

from persona_pipeline.scoring.text.likeness import Likeness, find_clones, find_likeness
from persona_pipeline.scoring.text.voices import nearness
from tests.scoring.text.test_voice import DISTINCT, conversation

HISTORY = conversation(DISTINCT, 200, 1)


def said(voices: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [
        (agent, text) for turn in zip(*voices.values(), strict=True) for agent, text in zip(voices, turn, strict=True)
    ]


BOB = [
    "The quarterly numbers are on the green clipboard by the door",
    "Nobody leaves before the last pallet is wrapped and labelled",
    "My cousin breeds llamas and not one of them has ever complained",
    "Forty cartons of the heavy stock went out before breakfast today",
    "A man who cannot back up a forklift should not drink coffee",
]
ANN = [
    "Who put glitter in the printer tray, and was it worth it",
    "There is cake in the kitchen for everyone who signed the card",
    "Lovely morning out there if you like sideways rain and gulls",
    "The phones are down again so please shout your orders at me",
    "Somebody's umbrella has been living under my desk since March",
]


@pytest.mark.parametrize(
    ("lines", "history", "expected"),
    [
        pytest.param({"bob": BOB, "ann": BOB}, {}, ("ann", "bob", 1.0), id="in the same window, the later speaker"),
        pytest.param({"ann": BOB}, {"bob": BOB}, ("ann", "bob", 1.0), id="lines of an earlier window"),
        pytest.param({"ann": BOB[:2] + ANN[:3]}, {"bob": BOB}, ("ann", "bob", 0.4), id="two lines of five"),
        pytest.param(
            {"ann": [BOB[0].replace("green", "blue").upper(), BOB[1].replace("pallet", "box"), *ANN]},
            {"bob": BOB},
            ("ann", "bob", 2 / 7),
            id="with small changes",
        ),
        pytest.param({"ann": ANN}, {"bob": BOB}, None, id="lines of her own"),
        pytest.param({"ann": ANN}, {"ann": ANN, "bob": BOB}, None, id="repeating oneself is no clone"),
        pytest.param({"ann": [*ANN, BOB[0]]}, {"bob": BOB}, None, id="one line quoted"),
        pytest.param({"ann": ["Sounds good to me"] * 5}, {"bob": ["Sounds good to me"]}, None, id="short lines"),
    ],
)
def test_a_clone_says_lines_that_another_said_before(
    lines: dict[str, list[str]], history: dict[str, list[str]], expected: tuple[str, str, float] | None
) -> None:
    now, before = ([(agent, text) for agent, texts in said.items() for text in texts] for said in (lines, history))
    found = find_clones(now, before)
    if expected is None:
        assert found == []
        return
    assert [(item.kind, item.agent_id, item.other) for item in found] == [(Likeness.CLONE, *expected[:2])]
    assert found[0].strength == pytest.approx(expected[2])
    assert all(theirs in BOB for _, theirs in found[0].lines)


def test_a_clone_in_style_is_named_with_the_voice_it_has_taken() -> None:
    current = conversation(DISTINCT | {"ann": "terse"}, 40, 2)
    found = find_likeness(nearness(current, HISTORY), current, HISTORY)
    assert [(item.kind, item.agent_id, item.other) for item in found] == [(Likeness.STYLE, "ann", "bob")]
    assert all(ours in current["ann"] and theirs in HISTORY["bob"] for ours, theirs in found[0].lines)


def test_a_pair_that_has_met_in_the_middle_has_merged() -> None:
    current = conversation(DISTINCT, 40, 3)
    current["ann"][::2], current["bob"][::2] = current["bob"][::2], current["ann"][::2]
    found = find_likeness(nearness(current, HISTORY), current, HISTORY)
    assert (Likeness.MERGED, "ann", "bob") in [(item.kind, item.agent_id, item.other) for item in found]


def test_nobody_who_kept_a_voice_is_named() -> None:
    current = conversation(DISTINCT, 40, 6)
    assert find_likeness(nearness(current, HISTORY), current, HISTORY) == []
