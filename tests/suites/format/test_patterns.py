import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.suites.format.patterns import PatternError, compile_pattern, search


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("REVIEW|ESCALAT", "please ESCALATE", True),
        ("a$", "a\n", False),
        ("^b", "a\nb", False),
        (r"^\d$", "٣", False),
        (r"^\w$", "é", False),
        (r"^\s$", "\ufeff", True),
        (r"^\s$", "\v", True),
        (r"^\S$", "\u00a0", False),
        (r"^[\s]$", "\u2003", True),
        (r"^[^\S]$", "\u2003", True),
        ("^.$", "\u2028", False),
        ("^.$", "\r", False),
        ("^[^]$", "\n", True),
        ("[]", "a", False),
        ("[[a]", "[", True),
        ("(?<year>[0-9]{4})", "in 2025", True),
        (r"\u00e9\x41\cJ\0", "éA\n\0", True),
        (r"\u{41", "u{41", True),
        (r"\x+1", "x1", True),
        (r"[\b]", "\b", True),
        (r"\/\-\.", "/-.", True),
        (r"\y", "y", True),
        ("(?i:denied)", "DENIED", True),
        ("(?s:a.b)", "a\nb", True),
        ("(?s:a(x|.)b).", "a\nb\n", False),
        ("(?s:a.b(?-s:.))", "a\nb\n", False),
        ("(?is:A(?<dot>.)b)", "a\nb", True),
        (r"(?s:[(]\(.)", "((\n", True),
        ("(?s-i:.)", "\n", True),
        ("(?:.)", "\n", False),
        (r"\p{Lu}", "É", True),
        ("x{", "x{", True),
        ("é", "e\u0301", False),
        ("a", "\ud800a", True),
        ("\ud800", "\ud800a", True),
        # Without the flag u a character beyond U+FFFF is two.
        ("^.$", "😀", False),
        ("^.{2}$", "😀", True),
        ("^😀$", "😀", True),
        ("[😀]", "😁", True),
        (r"^\ud83d", "😀", True),
        (r"^[\ud800-\udbff]", "😀", True),
        (r"^[\u0080-\uffff]{2}$", "😀", True),
        (r"[^\u0000-\uffff]", "😀", False),
        (r"^\p{So}$", "😀", True),
        # Case is not ignored from ASCII to what is beyond.
        ("(?i:sk)", "ſ\u212a", False),
        ("(?i:^ſ\u212a$)", "ſ\u212a", True),
        (r"^[\u017f]\u212a$", "ſ\u212a", True),
        (r"^\S\W$", "ſ\u212a", True),
    ],
)
def test_patterns_mean_what_they_mean_in_javascript(pattern: str, text: str, expected: bool) -> None:
    assert search(pattern, text) is expected


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(", "missing )"),
        ("a**", "bad repetition"),
        ("(?=a)", "negate"),
        ("(?<!a)b", "negate"),
        (r"(a)\1", "back-references"),
        ("(?i)a", "(?i:...)"),
        ("(?U:a+)", "modifiers i, m and s"),
        (r"\Aa", "write ^"),
        (r"a\Z", "write $"),
        ("a\\", "backslash"),
        ("a{1001}", "repetition"),
        ("a" * 20_000, "longer"),
    ],
)
def test_what_cannot_be_run_is_refused_with_a_remedy(pattern: str, said: str) -> None:
    with pytest.raises(PatternError) as raised:
        compile_pattern(pattern)
    assert said in str(raised.value)


@pytest.mark.parametrize("pattern", ["^(a+)+$", "(a|a)*$", "(.*a){20}", r"(\s*,?)*$"])
def test_patterns_that_explode_elsewhere_take_linear_time(pattern: str) -> None:
    started = time.process_time()
    search(pattern, "a" * 5_000 + "!")
    assert time.process_time() - started < 20


@given(st.text(max_size=30))
def test_any_text_either_compiles_or_is_refused(pattern: str) -> None:
    try:
        compile_pattern(pattern)
    except PatternError:
        return
    search(pattern, "some text\n")
