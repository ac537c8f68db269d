import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.suites.format import text as patterns
from persona_pipeline.suites.format.files import ReasonedError
from persona_pipeline.suites.format.text import PatternError, compile_pattern, search


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("a$", "a\n", True),
        (r"a\Z", "a\n", False),
        ("(?i:ÉXITO)", "éxito", True),
        (r"^\w+$", "niño", True),
        (r"\p{Lu}", "É", True),
        ("a", "\ud800a", True),
        # A character beyond U+FFFF is one, not two halves.
        ("^.$", "😀", True),
    ],
)
def test_patterns_are_those_of_the_regex_package(pattern: str, text: str, expected: bool) -> None:
    assert search(pattern, text) is expected


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(", "missing )"),
        ("a\\", "backslash"),
        ("a" * 20_000, "longer"),
    ],
)
def test_what_cannot_be_run_is_refused_with_a_remedy(pattern: str, said: str) -> None:
    with pytest.raises(PatternError) as raised:
        compile_pattern(pattern)
    assert said in str(raised.value)


def test_a_search_that_takes_too_long_cannot_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "MOST_SECONDS", 0.01)
    with pytest.raises(ReasonedError, match="takes more than") as raised:
        search("^(a|aa)+(b|bb)+$", "a" * 2_000 + "!")
    assert raised.value.reason == "pattern_too_slow"


@given(st.text(max_size=30))
def test_any_text_either_compiles_or_is_refused(pattern: str) -> None:
    try:
        compile_pattern(pattern)
    except PatternError:
        return
    search(pattern, "some text\n")
