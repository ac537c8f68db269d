import random
import time
from datetime import UTC, datetime

import pytest

from persona_pipeline.scoring.convergence import voice_statistics
from persona_pipeline.scoring.style.likeness import Likeness, find_clones, find_likeness, nearness
from persona_pipeline.world.models import Message
from tests.scoring.style.samples import DISTINCT, conversation

HISTORY = conversation(DISTINCT, 200, 1)
START = datetime(2026, 3, 2, tzinfo=UTC)


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
    assert found[0].lines
    assert all(ours in current["ann"] and theirs in HISTORY["bob"] for ours, theirs in found[0].lines)


def test_a_pair_that_has_come_closer_has_merged() -> None:
    current = conversation(DISTINCT, 40, 3)
    current["ann"][::3], current["bob"][::3] = current["bob"][::3], current["ann"][::3]
    found = find_likeness(nearness(current, HISTORY), current, HISTORY)
    assert (Likeness.MERGED, "ann", "bob") in [(item.kind, item.agent_id, item.other) for item in found]


def test_nobody_who_kept_a_voice_is_named() -> None:
    current = conversation(DISTINCT, 40, 6)
    assert find_likeness(nearness(current, HISTORY), current, HISTORY) == []


def test_voices_of_two_languages_never_merge_however_much_nearer_they_came() -> None:
    german = ["Der Antrag liegt vor", "Bitte senden Sie das Formular", "Die Frist ist leider vorbei", "Wir prüfen das"]
    arabic = ["وصل الطلب اليوم", "أرسل النموذج من فضلك", "انتهت المهلة أمس", "سنراجع الأمر"]
    generator = random.Random(3)
    said = {
        name: [" ".join(generator.sample(" ".join(lines).split(), 6)) for _ in range(240)]
        for name, lines in (("de", german), ("ar", arabic))
    }
    history = {name: lines[:200] for name, lines in said.items()}
    # Each puts two of the other's words into every line: nearer, and still of another language.
    current = {
        name: [
            f"{line} {' '.join(theirs.split()[:2])}"
            for line, theirs in zip(said[name][200:], said[other], strict=False)
        ]
        for name, other in (("de", "ar"), ("ar", "de"))
    }
    near = nearness(current, history)
    assert (near.pairs["ar", "de"].z or 0.0) > 3
    assert not near.pairs["ar", "de"].close
    assert find_likeness(near, current, history) == []
    said_by = {
        name: [Message(f"{name}{n}", name, text, START, "talk") for n, text in enumerate(texts)]
        for name, texts in current.items()
    }
    channel = voice_statistics({"talk": [*said_by["de"], *said_by["ar"]]}, history)["talk"]
    assert (channel["diversity"], channel["findings"]) == (9.0, [])


@pytest.mark.parametrize(
    ("others", "expected"),
    [(1, {"ann": "bob"}), (2, {"ann": "bob"}), (3, {})],
    ids=["another's", "said by two others", "said by three others"],
)
def test_what_three_others_say_is_nobodys(others: int, expected: dict[str, str]) -> None:
    earlier = [(name, text) for text in BOB for name in ("bob", "cyd", "dee")[:others]]
    found = find_clones([("ann", text) for text in BOB], earlier, of=["ann"])
    assert {item.agent_id: item.other for item in found} == expected


def test_what_an_agent_has_long_said_is_its_own() -> None:
    new = [("ann", text) for text in ANN]
    assert (
        find_clones(
            [("ann", text) for text in BOB], [("bob", text) for text in BOB] + [("ann", text) for text in BOB] + new
        )
        == []
    )
    copied_since = [("bob", text) for text in BOB] + new + [("ann", text) for text in BOB[:2]]
    assert [item.other for item in find_clones([("ann", text) for text in BOB], copied_since, of=["ann"])] == ["bob"]


def test_a_line_that_is_mostly_everyday_phrases_is_nobodys() -> None:
    everyday = ["Thank you so much for getting in touch", "Is there anything else I can help you with today?"]
    lines = ["Thank you so much for getting in touch with Acme", "And is there anything else I can help you with, Jo?"]
    assert find_clones([("ann", text) for text in lines], [("bob", text) for text in lines], everyday=everyday) == []
    assert find_clones([("ann", text) for text in lines], [("bob", text) for text in lines]) != []


@pytest.mark.parametrize("stock", [False, True], ids=["lines of their own", "one template"])
def test_time_grows_with_the_lines_and_not_with_their_pairs(stock: bool) -> None:
    def seconds(count: int) -> float:
        generator = random.Random(count)
        words = [f"w{number}" for number in range(3000)]
        frame = (
            "your order {} has left our house and will be with you by {}" if stock else "{} {} " + " ".join(["{}"] * 10)
        )
        said = [(f"a{number % 50}", frame.format(*generator.choices(words, k=12))) for number in range(count)]
        started = time.process_time()
        find_clones(said[: count // 4], said[count // 4 :])
        return time.process_time() - started

    seconds(500)
    # A busy machine makes one measurement longer, not three of them; what is quadratic fails them all.
    assert any(seconds(16_000) < 10 * max(seconds(4_000), 0.02) for _ in range(3))
