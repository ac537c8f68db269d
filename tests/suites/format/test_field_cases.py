"""Inputs from the field that failed once; each folder holds its suite, and answers where it has some."""

from pathlib import Path

import pytest

from persona_pipeline.base.documents.yaml import parse_document
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.suites import load_responses, load_suite, run_suite

FIELD = Path(__file__).parent / "field"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("yaml-unquoted-braces-in-a-suite", "s.eval.yaml:3:13: "),
        ("yaml-unquoted-colon", "s.eval.yaml:3:20: "),
    ],
)
def test_a_text_without_quotes_is_named_with_what_to_do(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match="put quotes around") as raised:
        load_suite(FIELD / name / "s.eval.yaml")
    assert said in str(raised.value)


@pytest.mark.parametrize("name", ["think-in-an-answer", "letters-composed-otherwise"])
def test_an_answer_says_what_its_words_say(name: str) -> None:
    folder = FIELD / name
    result = run_suite(load_suite(folder / "s.eval.yaml"), responses=load_responses(folder / "answers.json"))
    assert [test.verdict for test in result.tests] == ["pass"]


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("a: {{ q }} and more\n", "put quotes around a value that begins with {{"),
        ("- {{#if x}}b{{/if}}\n", "put quotes around a value that begins with {{"),
        ("a: [{{q}}, 1]\n", "put quotes around a value that begins with {{"),
        ("- Say this: to: me\n", "put quotes around a text with ': ' in it"),
        ("a: {input: Say this: hello}\n", "put quotes around a text with ': ' in it"),
        ("a: 1\n  b: 2\n", "correct how the line is indented"),
        ("a:\n\tb: 1\n", "indent with spaces, not with a tab"),
        ("a: @me\n", "put quotes around a text that begins with @"),
        ("a: *bold* text\n", "put quotes around a text that begins with *"),
        ("a: [note] text\n", "put quotes around a text that begins with ["),
        ("a: {agent_name} is calm\n", "a variable has double braces: {{agent_name}}"),
        ('a: "x" and y\n', "put one pair of quotes around the whole text"),
        ('a: {type: regex, value: "\\d+"}\n', "put single quotes around a text with a backslash"),
    ],
)
def test_advice_fits_the_slip(text: str, advice: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_document(text)
    assert advice in str(raised.value)
