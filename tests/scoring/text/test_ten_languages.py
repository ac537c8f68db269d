"""Agreement, sentences and words in ten languages, with what comes with the package alone."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from persona_pipeline.corrections.configuration import CorrectionSettings
from persona_pipeline.corrections.nudges import AntiConvergence
from persona_pipeline.scoring.text.agreement import (
    _TERM_LISTS,
    AgreementLexicon,
    agreement_ratio,
    is_agreement,
    often_missed,
    packaged_languages,
    packaged_lexicon,
    unread_language,
)
from persona_pipeline.scoring.text.tokens import language_of, languages_of, tokenize, vocabulary_stats

LINES: dict[str, Any] = yaml.safe_load(
    (Path(__file__).parent / "agreement_lines/ten_languages.yaml").read_text("utf-8")
)
ON = CorrectionSettings(anti_convergence_enabled=True)


def test_there_is_a_lexicon_for_each_and_its_recall_is_stated() -> None:
    assert packaged_languages() == set(LINES)
    for language in LINES:
        lexicon = packaged_lexicon(language)
        assert lexicon.languages == {language}
        assert lexicon.recall is not None
        assert {name for name, _ in lexicon.terms} <= set(_TERM_LISTS)
        named = {token for _, term in lexicon.terms for token in term if token[0] == "<"}
        assert named <= {name for name, _ in lexicon.words | packaged_lexicon("en").words}


@pytest.mark.parametrize("language", LINES)
def test_ten_turns_that_only_agree_lead_to_a_nudge_and_ten_others_do_not(language: str) -> None:
    agreeing, normal = LINES[language]["agreeing"], LINES[language]["normal"]
    assert languages_of(agreeing) == languages_of(normal) == [language]
    assert unread_language(agreeing) is None
    assert agreement_ratio(agreeing) == 1.0
    assert agreement_ratio(normal) == 0.0
    anti = AntiConvergence(ON)
    assert anti.find("ann", agreeing) is not None
    assert anti.unread(agreeing) == ""
    assert anti.find("ann", normal) is None


@pytest.mark.parametrize(("text", "sentences"), [case for lines in LINES.values() for case in lines["sentences"]])
def test_sentences_end_with_the_marks_of_their_script(text: str, sentences: int) -> None:
    assert vocabulary_stats([text]).average_sentence_length == pytest.approx(len(tokenize(text)) / sentences)


@pytest.mark.parametrize(
    ("language", "text", "agrees"),
    [
        ("ar", "صدقتَ، وقلتها بلطف.", True),
        ("ar", "نعم؛ أتّفق معك.", True),
        ("ar", "أتفق معك، لكن السعر مرتفع.", False),
        ("ar", "هل أنت متفق معي؟", False),
        ("zh", "完美,一个字都不用改。", True),
        ("zh", "好主意，但是太贵了。", False),
        ("zh", "再好不过了。", True),
        ("ja", "いいアイデアですね、初心者でもすぐできます。", True),
        ("ja", "いいアイデアですね。でも、高すぎます。", False),
        ("ja", "なるほど、田中さん、その通りです。", True),
    ],
)
def test_marks_spelling_and_contrasts_are_those_of_the_script(language: str, text: str, agrees: bool) -> None:
    assert is_agreement(text, packaged_lexicon(language)) is agrees


@pytest.mark.parametrize(
    ("texts", "languages", "unread"),
    [
        pytest.param(
            LINES["de"]["agreeing"][:5] + LINES["fr"]["agreeing"][:5], {"de", "fr"}, None, id="two with lexicons"
        ),
        pytest.param(
            LINES["en"]["agreeing"][:6] + ["Вы совершенно правы, я согласен."] * 4, {"en", "ru"}, "ru", id="one without"
        ),
        pytest.param(
            [*LINES["en"]["agreeing"][:9], "Вы совершенно правы, я согласен."], {"en"}, None, id="one line of another"
        ),
        pytest.param(["Jag håller helt med dig om det."] * 10, {"sv"}, "sv", id="a neighbour of Dutch and German"),
    ],
)
def test_all_languages_of_a_channel_are_read_or_named(
    texts: list[str], languages: set[str], unread: str | None
) -> None:
    assert set(languages_of(texts)) == languages
    assert unread_language(texts) == unread


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Jag vet inte var bilen är.", "sv"),
        ("No sé on és el cotxe, però hi ha temps.", "ca"),
        ("Nie wiem, gdzie jest samochód.", "pl"),
        ("نمی‌دانم ماشین کجاست، ولی پیدایش می‌کنم.", "unknown"),
        ("Я не знаю, де стоїть машина і чия вона.", "unknown"),
        ("Jamuhaw cheswa brindil tok", "en"),
        ("Žluťoučký kůň", "unknown"),
    ],
)
def test_what_cannot_be_told_is_unknown_and_not_a_neighbour(text: str, language: str) -> None:
    assert language_of([text]) == language


def test_a_lexicon_is_read_when_its_language_is_first_said(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr(
        "persona_pipeline.scoring.text.agreement.packaged_lexicon",
        lambda language: read.append(language) or packaged_lexicon(language),
    )
    agreement_ratio(LINES["en"]["normal"], AgreementLexicon(frozenset()))
    assert read == []
    agreement_ratio(["Der Zug kommt heute nicht mehr an."], AgreementLexicon(frozenset()))
    assert read == ["de"]


def test_what_a_lexicon_misses_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    lexicons = {"ja": AgreementLexicon(frozenset(), recall=0.65), "nl": AgreementLexicon(frozenset(), recall=0.8)}
    monkeypatch.setattr("persona_pipeline.scoring.text.agreement.packaged_lexicon", lambda language: lexicons[language])
    assert often_missed(["ja", "ko", "nl"]) == ["the lexicon for ja finds about 65% of agreeing lines"]
