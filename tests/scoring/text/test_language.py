"""Which language texts are in, told from few words."""

from dataclasses import replace

import pytest

from persona_pipeline.scoring.text.agreement import ENGLISH, language_of, packaged_lexicon, unread_language
from persona_pipeline.scoring.text.tokens import languages_of

SAID = {
    "de": ["Das Paket kommt heute nicht mehr.", "Ich habe es dir doch gesagt, wir sind zu spät."],
    "en": ["The parcel will not come today.", "I told you that we are too late."],
    "fr": ["Le colis n'arrive pas aujourd'hui.", "Je te l'avais dit, nous sommes en retard."],
    "es": ["El paquete no llega hoy.", "Te lo dije, estamos muy tarde con los envíos."],
    "it": ["Il pacco non arriva oggi.", "Te lo avevo detto, siamo molto in ritardo."],
    "pt": ["O pacote não chega hoje.", "Eu disse que você estava muito atrasado."],
    "nl": ["Het pakket komt vandaag niet.", "Dat heb ik je gezegd, wij zijn te laat."],
    "ja": ["荷物は今日届きません。", "遅いと言いました。"],
    "zh": ["包裹今天不会到。", "我早就告诉过你了。"],
    "ar": ["لن تصل الحزمة اليوم.", "قلت لك ذلك."],
    "ko": ["소포는 오늘 오지 않습니다."],
    "ru": ["Посылка сегодня не придёт."],
}


@pytest.mark.parametrize("language", SAID)
def test_tells_languages_apart(language: str) -> None:
    assert language_of(SAID[language]) == language
    assert language_of([*SAID[language], "OK 👍", "https://example.com/the/is/and"]) == language


@pytest.mark.parametrize(
    ("texts", "language"),
    [
        pytest.param([], "en", id="nothing"),
        pytest.param(["Sure thing."], "en", id="few words that fit none"),
        pytest.param(["👍", "1234"], "en", id="no letters"),
        pytest.param(
            ["La vie est belle, said the old man to the boy, and he was right about that."], "en", id="a quote"
        ),
        pytest.param(["lorem ipsum dolor sit amet consectetur"] * 6, "unknown", id="many words that fit none"),
        pytest.param(["Det här är en väldigt bra idé"], "sv", id="Swedish"),
    ],
)
def test_in_doubt_few_words_are_english_and_many_are_not(texts: list[str], language: str) -> None:
    assert language_of(texts) == language


def test_a_lexicon_is_of_its_languages() -> None:
    finnish = replace(packaged_lexicon(ENGLISH), languages=frozenset({"en", "fi"}))
    esperanto = replace(packaged_lexicon(ENGLISH), languages=frozenset({"en", "eo"}))
    latin = ["Lorem ipsum dolor sit amet consectetur adipiscing"] * 6
    assert unread_language(SAID["ru"]) == "ru" and unread_language(SAID["en"]) is None
    assert unread_language(["Olen täysin samaa mieltä"], finnish) is None
    assert unread_language(latin) == "unknown"
    assert unread_language(latin, esperanto) is None, "Esperanto is not told from what is unknown"
    assert unread_language(SAID["ru"], esperanto) == "ru"


@pytest.mark.parametrize(
    ("texts", "languages"),
    [
        pytest.param([*SAID["de"] * 4, *SAID["en"]], ["de", "en"], id="two of ten"),
        pytest.param([*SAID["de"] * 4, SAID["en"][0]], ["de"], id="one of nine"),
        pytest.param([*SAID["de"] * 6, *SAID["en"]], ["de"], id="two of fourteen are no fifth"),
        pytest.param([*SAID["en"] * 2, *SAID["de"] * 3], ["de", "en"], id="most first"),
        pytest.param([*SAID["de"], "ok", "ja"], ["de"], id="half too short: that of all"),
        pytest.param([*SAID["de"], "ok", "ja", "o", "a"], ["de"], id="most too short"),
        pytest.param([*SAID["ru"] * 2, "ok", "hm", *SAID["en"]], ["ru", "en"], id="told of just more than half"),
        pytest.param(
            [*SAID["de"], *["lorem ipsum dolor sit amet " * 8] * 2],
            ["unknown", "de"],
            id="no more than half are known",
        ),
        pytest.param(["ok", "hm"], ["en"], id="too short all"),
        pytest.param([SAID["de"][0]], ["de"], id="one alone"),
        pytest.param([*SAID["en"] * 2, "nicht ich", "nicht ich"], ["en"], id="two words tell nothing"),
    ],
)
def test_a_fifth_of_the_texts_makes_a_language(texts: list[str], languages: list[str]) -> None:
    assert languages_of(texts) == languages
