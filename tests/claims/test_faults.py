"""Operators: the same for the same seed, on messages of any language, and each the fault it says it is."""

import json
import random
from pathlib import Path

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.lab.claims.faults import FAULTS, Material, NotApplicableError, stands_for, words_of
from persona_pipeline.scoring.text.repetition import excessive_repetition

PROJECT = Path(__file__).parents[2]
LINES = [json.loads(line) for line in (PROJECT / "messages" / "general.jsonl").read_text(encoding="utf-8").splitlines()]
MICHAEL = [line["text"] for line in LINES if line["agent_id"] == "michael"][:12]
DWIGHT = [line["text"] for line in LINES if line["agent_id"] == "dwight"]
MATERIAL = Material(words_of(MICHAEL), {"dwight": DWIGHT, "jim": ["so"]}, ["Pam Beesly", "Jim Halpert"])
GERMAN = [
    "Ich habe am Montag drei Kisten an Herrn Huber geliefert, und das war nicht meine Idee!",
    "Der Hund ist nicht da.",
]


def broken(name: str, texts: list[str] = MICHAEL, material: Material = MATERIAL, seed: int = 1) -> list[str]:
    return FAULTS[name](texts, material, random.Random(seed))


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_the_same_for_the_same_seed_and_says_what_it_stands_for(name: str) -> None:
    assert broken(name) == broken(name)
    assert broken(name) != MICHAEL
    assert len(broken(name)) == len(MICHAEL)
    assert len(stands_for(name)) > 40


@pytest.mark.parametrize("name", FAULTS)
@given(texts=st.lists(st.text(max_size=60), min_size=1, max_size=8), seed=st.integers(0, 3))
def test_a_fault_can_be_planted_in_any_text_or_says_why_not(name: str, texts: list[str], seed: int) -> None:
    material = Material(words_of(texts), {"other": ["one line of mine"] * 9}, ["Ünal", "", "李"])
    try:
        found = broken(name, texts, material, seed)
    except NotApplicableError as error:
        assert str(error)
        return
    assert len(found) == len(texts)
    assert all(isinstance(text, str) for text in found)


@pytest.mark.parametrize(
    ("texts", "language"),
    [
        (MICHAEL, "English"),
        (GERMAN, "German"),
        (["Je suis dans le jardin avec les enfants, et vous ?"], "French"),
        (["No sé qué hacer con los niños, pero está bien."], "Spanish"),
        (["こんにちは！今日は寒いですね。"], None),
        (["Привет! Завтра пятнадцатое мая."], None),
        ([], None),
    ],
)
def test_stock_lines_are_of_the_language_of_the_messages(texts: list[str], language: str | None) -> None:
    words = words_of(texts)
    assert (words.language if words else None) == language
    if words is None:
        with pytest.raises(NotApplicableError, match="no stock lines in the language"):
            broken("boilerplate", texts, Material(words))
    else:
        assert set(broken("boilerplate", texts, Material(words))) <= set(words.boilerplate)


def test_another_agent_speaks_with_the_voice_of_who_said_most() -> None:
    assert set(broken("borrowed")) <= set(DWIGHT)
    with pytest.raises(NotApplicableError, match="no other agent"):
        broken("borrowed", MICHAEL, Material(MATERIAL.words, {"jim": ["so"]}))


def test_a_loop_is_made_of_the_agents_own_messages() -> None:
    found = broken("repetition")
    assert set(found) < set(MICHAEL)
    assert len(set(found)) <= 2
    assert excessive_repetition(found[:5], 0.3) is not None


def test_a_flat_voice_says_the_same_without_its_manner() -> None:
    found = " ".join(broken("flattened"))
    assert "!" not in found and "(" not in found
    texts = ["SOOOO happy (really)!!! 🎉 who's in?!", "he's fine… totally fine", "すごい！！😀（笑）"]
    assert broken("flattened", texts) == ["So happy. Who's in.", "He's fine. Fine.", "すごい。"]
    words = lambda text: set(regex.findall(r"\p{L}+", text.lower()))  # noqa: E731
    assert all(words(new) <= words(old) for new, old in zip(broken("flattened"), MICHAEL, strict=True))


def test_every_second_message_takes_back_the_one_before() -> None:
    found = broken("contradiction")
    for place, (new, old) in enumerate(zip(found, MICHAEL, strict=True)):
        assert new.startswith(old)
        assert (new != old) == bool(place % 2)
    assert "Good morning, Marlow Paper family" in found[1].removeprefix(MICHAEL[1])
    assert "Montag drei Kisten" in broken("contradiction", GERMAN, Material(words_of(GERMAN)))[1]


def test_wrong_facts_are_wrong_everywhere_in_the_same_way() -> None:
    texts = ["On Monday I met Pam and Jim about 40 boxes.", "Then Pam left, with Jim.", "PAM has 7."]
    first, second, third = broken("wrong_facts", texts, Material(words_of(MICHAEL), {}, ["Pam Beesly", "Jim Halpert"]))
    swapped = regex.fullmatch(r"On (\w+day) I met (\w+) and (\w+) about (\d\d) boxes\.", first)
    assert swapped is not None
    day, pam, jim, boxes = swapped.groups()
    assert day != "Monday" and boxes != "40" and "Pam" != pam != jim != "Jim"
    assert second == f"Then {pam} left, with {jim}."
    assert third.startswith("PAM has ") and third != "PAM has 7."
