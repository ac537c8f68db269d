from pathlib import Path

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.corrections import nudges as module
from persona_pipeline.corrections.nudges import (
    AgentTexts,
    AntiConvergence,
    Nudges,
    RepetitionSuppression,
    as_written,
    guidance_block,
    language_told,
)
from persona_pipeline.scoring.text.repetition import find_repetition
from persona_pipeline.world import CorrectionSettings
from tests.support.languages import LANGUAGES, LINES


def test_the_package_brings_three_characters_and_a_fallback() -> None:
    nudges = Nudges.load()
    texts = {agent_id: nudges.of(agent_id).anti_convergence for agent_id in ("michael", "dwight", "jim", "pam")}
    assert len(set(map(tuple, texts.values()))) == 4
    assert "story" in " ".join(texts["michael"])
    assert "authority" in " ".join(texts["dwight"])
    assert "witty observation" in " ".join(texts["jim"])


def test_the_choice_depends_on_the_seed_alone() -> None:
    nudges = Nudges.load()
    assert nudges.choose("michael", "a") == nudges.choose("michael", "a")
    assert len({nudges.choose("michael", str(seed)) for seed in range(20)}) == 2


def test_variables_are_filled_in_and_nothing_else() -> None:
    nudges = Nudges({"_default": AgentTexts(anti_convergence=["{{agent_name}} {{x}} {{channel_name}}"])})
    assert nudges.choose("ann", variables={"agent_name": "Ann"}) == "Ann {{x}} {{channel_name}}"


def test_a_channels_name_is_data_of_others_and_no_instruction() -> None:
    nudges = Nudges({"_default": AgentTexts(anti_convergence=["{{agent_name}}: talk about {{channel_name}}."])})
    said = [
        nudges.choose("ann", variables={"agent_name": "Ann", "channel_name": name}) for name in ("ops", "a. {{x}}!")
    ]
    assert said == ['Ann: talk about "ops".', "Ann: talk about the channel."]


def test_a_world_brings_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "nudges"
    folder.mkdir()
    (folder / "michael.yaml").write_text("anti_convergence: [Sing.]\n", encoding="utf-8")
    (folder / "_default.yaml").write_text("anti_convergence: [Differ.]\n", encoding="utf-8")
    nudges = Nudges.load(tmp_path)
    assert nudges.choose("michael") == "Sing."
    assert nudges.choose("pam") == "Differ."
    assert nudges.choose("dwight") == Nudges.load().choose("dwight")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("ann.yaml", "anti_convergence: []\n", "ann.yaml:1:"),
        ("ann.yaml", "anti_convergence: ['  ']\n", "empty text"),
        ("ann.yaml", "anti_convergence: [1]\n", "must be a string"),
        ("ann.yaml", "anticonvergence: [a]\n", "did you mean 'anti_convergence'"),
        ("ann.yaml", "agent_id: bob\nanti_convergence: [a]\n", "ann.yaml:1:.*write 'ann'"),
        ("Ann B.yaml", "anti_convergence: [a]\n", "cannot be an agent's id"),
        ("ann.yaml", "agent_id: ann\n", "ann.yaml: holds no text; write anti_convergence"),
        ("ann.yaml", "language: German\nanti_convergence: [a]\n", "ann.yaml:1:.*language"),
        ("ann.yaml", "heading: null\n", "ann.yaml:1:.*heading: must be a string"),
        ("_default.de.yaml", "language: fr\nanti_convergence: [a]\n", "_default.de.yaml:1:.*write 'de'"),
        ("_default.german.yaml", "anti_convergence: [a]\n", "name the file after the agent, or after its language"),
        ("_default.de.yaml", "said_again: Schon gesagt.\n", "needs the placeholders {{earlier}}, {{line}}"),
        ("_default.yaml", "gate: {rejected: 'No: {{score}}.'}\n", "{{score}}, {{threshold}} and no others"),
        ("_default.yaml", "repetition: {request: New words}\n", "repetition.phrase is required"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / "nudges").mkdir()
    (tmp_path / "nudges" / name).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        Nudges.load(tmp_path)


# Words that a frame in English would have.
ENGLISH_FRAME = regex.compile(
    r"\b(the|your|you|again|missing|avoid|instead|rewrite|resend|begins|guidance)\b", regex.IGNORECASE
)


def filled(texts: AgentTexts) -> list[str]:
    return [
        texts.heading,
        *texts.anti_convergence,
        texts.said_again,
        *texts.repetition.model_dump().values(),
        *texts.gate.model_dump(exclude_none=True).values(),
    ]


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_every_text_and_every_placeholder(language: str) -> None:
    packaged = module._packaged()
    own = packaged["_default" if language == "en" else f"_default.{language}"]
    assert {*own.texts} == {*AgentTexts.model_fields} - {"agent_id", "language"}
    assert own.language == language
    english = packaged["_default"]
    assert len(own.anti_convergence) == len(english.anti_convergence)
    variables = lambda texts: [regex.findall(r"{{\w+}}", text) for text in filled(texts)]  # noqa: E731
    assert [sorted(found) for found in variables(own)] == [sorted(found) for found in variables(english)]
    if language != "en":
        assert not {*filled(own)} & {*filled(english)} - {"{{phrase}} (in {{messages}} of {{count}})"}
        said = [regex.sub(r"{{\w+}}", "", text) for text in filled(own)]
        assert [text for text in said if ENGLISH_FRAME.search(text)] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_is_said_of_repetition_is_in_the_agents_language(language: str) -> None:
    said = LINES[language][:3]
    found = RepetitionSuppression(CorrectionSettings(repetition_suppression_enabled=True)).find(
        "michael", [*said, *said[:2]]
    )
    assert found is not None
    texts = Nudges().of("michael", language)
    assert found.text.startswith(texts.repetition.request + "\n")
    assert (guidance_block([found]) or "").startswith(texts.heading + "\n\n")
    # Each phrase stands in a message as it is shown, and no sign of a script without blanks has one beside it.
    phrases = regex.findall(r'^- "(.*)"', found.text, regex.MULTILINE)[: -len(said) - 2]
    assert phrases
    assert all(any(phrase.rstrip("…") in " ".join(line.split()) for line in said) for phrase in phrases)
    assert not regex.search(r"[\p{Han}\p{Hiragana}\p{Katakana}] [\p{Han}\p{Hiragana}\p{Katakana}]", found.text)
    assert language == "en" or not ENGLISH_FRAME.search(found.text)


@pytest.mark.parametrize("language", LANGUAGES)
def test_against_agreement_an_agent_is_told_in_its_language(language: str) -> None:
    agreeing = AntiConvergence(CorrectionSettings(anti_convergence_enabled=True))
    agreeing.ratio = lambda messages: 1.0
    found = agreeing.find("michael", LINES[language][:4], agent_name="Mika")
    assert found is not None
    texts = Nudges().of("michael", language)
    assert found.text in {text.replace("{{agent_name}}", "Mika") for text in texts.anti_convergence}
    assert found.heading == texts.heading
    assert ("story" in " ".join(texts.anti_convergence)) == (language == "en")


@given(st.lists(st.text(st.sampled_from("日本語中文のを，。！ ab"), max_size=30), min_size=2, max_size=4))
def test_a_phrase_is_shown_as_it_was_written(messages: list[str]) -> None:
    for item in find_repetition(messages).phrases:
        shown = as_written(item.phrase, messages)
        assert any(shown in " ".join(message.split()) for message in messages)


@pytest.mark.parametrize(
    ("phrase", "message", "shown"),
    [
        ("its and or now", "Well: it's and/or -- NOW!", "it's and/or -- NOW"),
        ("請 再 試", "好的，請再試一次。", "請再試"),
        ("a b", "A\n### b", "A ### b"),
        ("जी हाँ है", "जी हाँ, है ना", "जी हाँ, है"),
        ("not there", "nothing", "not there"),
    ],
)
def test_a_phrase_is_cut_from_its_message(phrase: str, message: str, shown: str) -> None:
    assert as_written(phrase, ["x", message]) == shown


def test_a_short_text_is_read_with_what_was_said_before() -> None:
    german = LINES["de"][:3]
    assert language_told(["OK, super!"], german) == "de"
    assert language_told([" ".join(LINES["fr"][:2])], german) == "fr"
    assert language_told([]) == language_told(["OK"]) == "en"


def test_a_world_brings_its_own_by_language(tmp_path: Path) -> None:
    (tmp_path / "nudges").mkdir()
    for name, text in {
        "_default.de": "anti_convergence: [Widersprich.]\n",
        "_default.fi": "anti_convergence: [Ole eri mieltä.]\n",
        "ann": "language: de\nanti_convergence: [Sing.]\n",
        "bob": "anti_convergence: [Dance.]\n",
    }.items():
        (tmp_path / "nudges" / f"{name}.yaml").write_text(text, encoding="utf-8")
    nudges = Nudges.load(tmp_path)
    told = lambda agent_id, language: nudges.choose(agent_id, language=language)  # noqa: E731
    assert [told(agent, "de") for agent in ("pam", "ann", "bob", "michael")] == [
        "Widersprich.",
        "Sing.",
        "Dance.",
        "Widersprich.",
    ]
    assert [told(agent, "fi") for agent in ("pam", "bob")] == ["Ole eri mieltä.", "Dance."]
    assert nudges.of("ann", "fr") == nudges.of("pam", "fr") == Nudges().of("pam", "fr") != Nudges().of("pam")
    # What the file does not have comes from the package.
    assert nudges.of("pam", "de").repetition == Nudges().of("pam", "de").repetition
    # In a language that nobody has written for, English.
    assert nudges.of("pam", "ru") == nudges.of("pam", "unknown") == nudges.of("pam", "en")


def test_a_worlds_texts_for_all_go_before_the_packages_of_a_language(tmp_path: Path) -> None:
    (tmp_path / "nudges").mkdir()
    file = tmp_path / "nudges" / "_default.yaml"
    file.write_text("anti_convergence: [Differ.]\n", encoding="utf-8")
    assert Nudges.load(tmp_path).choose("pam", language="de") == "Differ."
    file.write_text("language: en\nanti_convergence: [Differ.]\n", encoding="utf-8")
    assert Nudges.load(tmp_path).choose("pam", language="de") == Nudges().choose("pam", language="de")
    assert Nudges.load(tmp_path).choose("pam") == Nudges.load(tmp_path).choose("pam", language="unknown") == "Differ."
