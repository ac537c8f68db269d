import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.scoring.text.tokens import tokenize


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        pytest.param("It's WELL-known.", ["its", "wellknown"], id="apostrophes and hyphens join"),
        pytest.param("and/or a_b", ["andor", "a_b"], id="slash joins, underscore stays"),
        pytest.param("I saw 3 of 12", ["i", "saw", "3", "of", "12"], id="one-letter words and digits stay"),
        pytest.param("  \t\n ", [], id="white space only"),
        pytest.param("?! ... 👍 ❤️", [], id="punctuation and emoji leave nothing"),
        pytest.param("1️⃣ first", ["1", "first"], id="keycap sign goes"),
        pytest.param("Crème brûlée", ["crème", "brûlée"], id="accents stay"),
        pytest.param("cafe\u0301 noir", ["cafe\u0301", "noir"], id="combining accent stays with its letter"),
        pytest.param("n\u0303andu\u0301", ["n\u0303andu\u0301"], id="a mark shared with Thai cuts no Latin word"),
        pytest.param("हिन्दी भाषा", ["हिन्दी", "भाषा"], id="Devanagari vowel signs stay"),
        pytest.param("Привет, мир", ["привет", "мир"], id="Cyrillic"),
        pytest.param("مرحبا بالعالم", ["مرحبا", "بالعالم"], id="Arabic"),
        pytest.param("한국어 말", ["한국어", "말"], id="Hangul has spaces"),
        pytest.param("東京タワー", ["東", "京", "タ", "ワ", "ー"], id="Han and kana by character"),
        pytest.param("Tシャツ2枚", ["t", "シ", "ャ", "ツ", "2", "枚"], id="Latin inside Japanese is a word"),
        pytest.param("กินข้าว", ["กิ", "น", "ข้", "า", "ว"], id="Thai marks stay with their letter"),
        pytest.param("မြန်မာ", ["မြ", "န်", "မာ"], id="Myanmar by character"),
        pytest.param("བོད་ཡིག", ["བོ", "ད", "ཡི", "ག"], id="Tibetan by character"),
        pytest.param("ꦧꦱꦗꦮ", ["ꦧ", "ꦱ", "ꦗ", "ꦮ"], id="Javanese by character"),
    ],
)
def test_tokens(text: str, tokens: list[str]) -> None:
    assert tokenize(text) == tokens


@given(st.text())
def test_tokens_hold_only_word_characters_and_lose_none(text: str) -> None:
    tokens = tokenize(text)
    assert all(token and not regex.search(r"[^\p{L}\p{M}\p{N}_]", token) for token in tokens)
    letters = regex.findall(r"[\p{L}\p{N}_]", text.lower())
    assert regex.findall(r"[\p{L}\p{N}_]", "".join(tokens)) == letters


@given(st.text())
def test_tokens_of_tokens_are_the_same(text: str) -> None:
    tokens = tokenize(text)
    assert tokenize(" ".join(tokens)) == tokens


@given(st.text(alphabet=st.characters(max_codepoint=127)))
def test_plain_ascii_has_the_tokens_it_has_beside_other_letters(text: str) -> None:
    assert [*tokenize(text), "é"] == tokenize(f"{text} é")
