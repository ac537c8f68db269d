import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.scoring.text.agreement import AgreementLexicon, agreement_ratio, is_agreement, world_lexicon

AGREEING = [
    "I agree",
    "I AGREE!!",
    "Exactly!",
    "Good point, Dwight",
    "You’re right about the copier",
    "youre right",
    "I couldn't agree more",
    "No, I agree",
    "Not today, but I agree with the plan",
    "Why not? I agree.",
    "I can't disagree with that",
    "There is no doubt you're right",
    "Michael, you're right",
    "Oh wow, what a wonderful idea!",
    "Thanks Dana, this is exactly the right approach",
    "Sounds great, let me know if you need help",
    "Love it! What if we also ask the drivers?",
    "I can't believe I agree with you",
    "Great.",
]
NOT_AGREEING = [
    "Sure.",
    "",
    "I disagree",
    "I completely disagree exactly because it is Tuesday",
    "Not exactly what I meant",
    "I don't agree",
    "I don’t agree",
    "I do not really think that I agree",
    "I would never agree to that",
    "Nobody here would agree with you",
    "That is not a good point",
    "I'm not sure you're right",
    "I couldn't agree less",
    "We will have to agree to disagree",
    "Do you agree?",
    "The agreement is signed",
    "It was exactly the opposite",
    "If you agree then sign here",
    "Absolutely nobody came",
    "We ship exactly forty cartons",
    "I'd agree if the numbers were better",
    "Good point, but it ignores the freight",
    "Good point. However, it ignores the freight",
    "Makes sense only if they sign",
    "Great, now the printer is down",
    "Do you agree? Because I agree.",
    "The copier is down again. Exactly what we need.",
]


@pytest.mark.parametrize("text", AGREEING)
def test_agrees(text: str) -> None:
    assert is_agreement(text)


@pytest.mark.parametrize("text", NOT_AGREEING)
def test_does_not_agree(text: str) -> None:
    assert not is_agreement(text)


def lines(name: str) -> list[str]:
    text = (Path(__file__).parent / "agreement_lines" / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if not line.startswith("#")]


# The first set was written before the lexicon; of the third, the lexicon was tuned on every other line at most.
@pytest.mark.parametrize("which", ["", "_second", "_third"])
def test_seldom_misses_agreement_and_seldom_hears_it_where_there_is_none(which: str) -> None:
    agreeing, normal = lines(f"agreeing{which}.txt"), lines(f"normal{which}.txt")
    assert agreement_ratio(agreeing) >= 0.85
    assert agreement_ratio(normal) <= 0.15


def test_ten_agreeing_turns_are_nearly_always_more_than_six() -> None:
    generator, agreeing = random.Random(1), lines("agreeing.txt") + lines("agreeing_third.txt")
    windows = [generator.sample(agreeing, 10) for _ in range(1000)]
    assert sum(agreement_ratio(window) > 0.6 for window in windows) >= 950


def test_ratio_is_the_share_of_agreeing_messages() -> None:
    assert agreement_ratio(["I agree", "Beets", "Exactly", "not exactly"]) == 0.5
    assert agreement_ratio([]) == 0.0


@given(st.lists(st.text(max_size=40), max_size=8))
def test_ratio_of_any_text_is_a_share(messages: list[str]) -> None:
    assert 0 <= agreement_ratio(messages) <= 1


def test_terms_can_be_added() -> None:
    lexicon = AgreementLexicon(frozenset({("phrases", ("bears", "beets")), ("phrases", ("word", "up"))}))
    assert is_agreement("Bears! Beets!", lexicon) is False
    assert is_agreement("well bears beets then", lexicon)
    assert agreement_ratio(["Word up", "I agree"], lexicon) == 0.5


GERMAN = """\
language: de
phrases: [genau, ich stimme zu, da hast du recht]
negations: [nicht, kein, keine]
"""


def test_another_language_is_another_file(tmp_path: Path) -> None:
    path = tmp_path / "agreement.de.yaml"
    path.write_text(GERMAN, encoding="utf-8")
    german = AgreementLexicon.load(path)
    both = german | AgreementLexicon(frozenset({("phrases", ("exactly",))}), reach=2)
    assert is_agreement("Ja, genau!", german)
    assert not is_agreement("Nicht genau das", german)
    assert not is_agreement("Exactly", german)
    assert is_agreement("Exactly", both)
    assert both.reach == 5


def test_japanese_terms_match_by_character(tmp_path: Path) -> None:
    path = tmp_path / "agreement.ja.yaml"
    path.write_text("language: ja\nphrases: [その通り, 賛成]\n", encoding="utf-8")
    lexicon = AgreementLexicon.load(path)
    assert is_agreement("まったくその通りです。", lexicon)
    assert not is_agreement("明日は雨です。", lexicon)


def test_a_list_of_words_and_a_choice_stand_for_each_of_theirs_and_a_star_for_any_word(tmp_path: Path) -> None:
    path = tmp_path / "agreement.en.yaml"
    path.write_text(
        "language: en\nphrases: []\nwords: {fish: [herring, red mullet]}\n"
        "openings: ['<fish> it is', '(very/) fishy (plan/idea)']\nclauses: ['what * said']\n",
        encoding="utf-8",
    )
    lexicon = AgreementLexicon.load(path)
    assert is_agreement("Herring it is, then", lexicon)
    assert is_agreement("Red mullet it is!", lexicon)
    assert not is_agreement("Cod it is", lexicon)
    assert is_agreement("Fishy idea, Dana", lexicon) and is_agreement("Very fishy plan", lexicon)
    assert not is_agreement("Very fishy", lexicon)
    assert is_agreement("What Dana said.", lexicon)
    assert not is_agreement("What Dana said was wrong.", lexicon)


def test_a_world_extends_the_english_lists_of_words(tmp_path: Path) -> None:
    (tmp_path / "lexicons").mkdir()
    text = "language: en\nphrases: []\nwords: {praise: [dandy]}\nopenings: ['mighty <praise> <idea>']\n"
    (tmp_path / "lexicons" / "agreement.en.yaml").write_text(text, encoding="utf-8")
    lexicon = world_lexicon(tmp_path)
    assert is_agreement("That's a dandy idea!", lexicon)
    assert is_agreement("Mighty dandy plan, Leo", lexicon)
    assert not is_agreement("That's a dandy idea!")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("language: en\n", "phrases is required", id="no phrases"),
        pytest.param("language: en\nphrases: [no, 1]\n", ":2:15: phrases.1: must be a string", id="a number"),
        pytest.param("language: en\nphrases: ['<nope> it']\n", ":2:11: <nope> is no list of words", id="unknown list"),
        pytest.param("language: en\nphrase: []\nphrases: []\n", "did you mean 'phrases'", id="unknown key"),
    ],
)
def test_a_bad_file_is_named_with_its_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "lexicon.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        AgreementLexicon.load(path)
