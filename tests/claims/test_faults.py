"""Operators: the same for the same seed, on messages of any language, and each the fault it says it is."""

import json
import random
from pathlib import Path

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.lab.claims.trial import (
    FAULTS,
    LanguageWords,
    Material,
    NotApplicableError,
    all_words,
    words_of,
)
from persona_pipeline.scoring.text.repetition import excessive_repetition
from tests.support.languages import LANGUAGES, LINES

PROJECT = Path(__file__).parents[2]
SAMPLE = [
    json.loads(line) for line in (PROJECT / "messages" / "general.jsonl").read_text(encoding="utf-8").splitlines()
]
MICHAEL = [line["text"] for line in SAMPLE if line["agent_id"] == "michael"][:12]
DWIGHT = [line["text"] for line in SAMPLE if line["agent_id"] == "dwight"]
MATERIAL = Material(words_of(MICHAEL), {"dwight": DWIGHT, "jim": ["so"]})
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
    assert len(FAULTS[name].__doc__ or "") > 40


@pytest.mark.parametrize("name", FAULTS)
@given(texts=st.lists(st.text(max_size=60), min_size=1, max_size=8), seed=st.integers(0, 3))
def test_a_fault_can_be_planted_in_any_text_or_says_why_not(name: str, texts: list[str], seed: int) -> None:
    material = Material(words_of(texts), {"other": ["one line of mine"] * 9})
    try:
        found = broken(name, texts, material, seed)
    except NotApplicableError as error:
        assert str(error)
        return
    assert len(found) == len(texts)
    assert all(isinstance(text, str) for text in found)


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


def of_language(language: str) -> tuple[LanguageWords, Material]:
    words = words_of(LINES[language])
    assert words is not None
    return words, Material(words, {"other": LINES[language][::-1]})


def test_every_language_has_words_and_is_told_from_the_others() -> None:
    for unknown in (["Привет! Завтра пятнадцатое мая."], []):
        with pytest.raises(NotApplicableError, match="no stock lines in the language"):
            broken("boilerplate", unknown, Material(words_of(unknown)))
    assert {*all_words()} == {*LANGUAGES}
    assert [words_of(LINES[language]) for language in LANGUAGES] == [all_words()[language] for language in LANGUAGES]
    # Stock lines are in their language too, and no list says a thing twice.
    for language, words in all_words().items():
        assert words_of(words.boilerplate) is words_of(words.denials) is words, language
        for listed in (words.boilerplate, words.denials, words.fillers):
            assert len({*listed}) == len(listed) > 1, language
        assert all("{line}" in denial for denial in words.denials)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_breaks_most_lines_of_every_language(name: str, language: str) -> None:
    lines, (words, material) = LINES[language], of_language(language)
    found = broken(name, lines, material)
    changed = [(new, old) for new, old in zip(found, lines, strict=True) if new != old]
    assert len(changed) >= (5 if name == "contradiction" else 6)
    # A loop is of one line, too short to tell.
    assert name == "repetition" or words_of(found) is words
    assert not any(
        regex.search(r"[\p{Han}\p{Hiragana}\p{Katakana}] [\p{Han}\p{Hiragana}\p{Katakana}「“]", text) for text in found
    )


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_flat_voice_keeps_the_words_of_every_language(language: str) -> None:
    words, material = of_language(language)
    found = broken("flattened", LINES[language], material)
    assert not regex.search(r"[!！¡…😀(（]|\.\.|\s[.。]|[,،，、][.。]", " ".join(found))
    for new, old in zip(found, LINES[language], strict=True):
        assert regex.search(r"[.?。？؟]$", new), new
        letters = lambda text: "".join(regex.findall(r"[\p{L}\p{N}]", text.lower()))  # noqa: E731
        gone, kept = letters(old), letters(new)
        assert kept and (
            language in ("ja", "zh")
            or {*regex.findall(r"\p{L}+", new.lower())} <= {*regex.findall(r"\p{L}+", old.lower())}
        )
        assert len(kept) >= len(gone) / 2, (new, old)
    assert broken("flattened", ["😀!!", *LINES[language]], material)[0] == words.assent


def test_a_loop_and_a_clause_end_where_each_script_ends_them() -> None:
    for language, line in {"zh": "星期一烤炉", "ja": "ライ麦", "ar": "الجاودار"}.items():
        _, material = of_language(language)
        assert any(line in text for text in broken("contradiction", LINES[language], material)[1::2]), language
    arabic = broken("contradiction", ["هل هذا صحيح؟ لا أدري والله.", "نعم."], of_language("ar")[1])[1]
    assert "«هل هذا صحيح»" in arabic
