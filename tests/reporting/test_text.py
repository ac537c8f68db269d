import re
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from persona_pipeline.reporting.text import (
    html_text,
    markdown_code,
    markdown_text,
    one_line,
    printable,
    xml_text,
)

MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("\x1b[2Jgone", "gone", id="a CSI sequence clears the screen"),
        pytest.param("\x1b]8;;http://x\x07link\x1b]8;;\x07", "link", id="an OSC hyperlink"),
        pytest.param("\x1b]0;title\x1b\\text", "text", id="a window title ended by ST"),
        pytest.param("\x9b31mred", "red", id="the 8-bit CSI"),
        pytest.param("\x9d0;t\x9ctext", "text", id="the 8-bit OSC"),
        pytest.param("\x1bPq#0\x1b\\text", "text", id="a DCS string"),
        pytest.param("\x1bctext", "text", id="a reset"),
        pytest.param("a\x00b\x08c\x7f", "abc", id="C0 controls and DEL"),
        pytest.param("abc\u202edef\u2066g\u200e", "abcdefg", id="bidi overrides, isolates and marks"),
        pytest.param("tab\tand\nline", "tab\tand\nline", id="tab and new line stay"),
        pytest.param("a\ud800b", "a\ufffdb", id="a lone surrogate"),
        pytest.param("👩‍👩‍👧 café مرحبا", "👩‍👩‍👧 café مرحبا", id="emoji joiners and scripts stay"),
    ],
)
def test_printable_text_cannot_drive_a_terminal(text: str, expected: str) -> None:
    assert printable(text) == expected


@given(st.text())
@example("\x1b\x1b[[2J")
def test_printable_text_has_no_control_left(text: str) -> None:
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", printable(text))


def test_one_line_folds_white_space_and_shortens() -> None:
    assert one_line(" a\n\n b\u2028c ") == "a b c"
    assert one_line("abcdef", 4) == "abc…"
    assert one_line("abcd", 4) == "abcd"


def _text_of(tokens: list[Token]) -> str:
    return "".join(
        child.content if child.type in ("text", "code_inline") else " " if child.type == "softbreak" else "<MARKUP>"
        for token in tokens
        for child in token.children or ()
    )


HOSTILE = [
    "@everyone please look",
    "[click](javascript:alert(1)) ![x](http://evil.example/x.png)",
    "<img src=x onerror=alert(1)> <!-- persona-pipeline -->",
    "</details><h1>Merged</h1>",
    "| a | b |\n|---|---|\n| 1 | 2 |",
    "```\nfence\n```",
    "# heading\n- list\n> quote",
    "**bold** _it_ ~~gone~~ `code` \\`",
    "http://evil.example www.evil.example a@evil.example #12 GH-34 octo/repo#5",
    "&lt;script&gt; &#64;user",
    "$x$ $$y$$ :tada: :+1:",
    "1. list 2) list",
    "===\n---",
    "deadbeefdeadbeefdeadbeefdeadbeefdeadbeef",
]


def test_markdown_renders_as_the_text_itself() -> None:
    for text, prefix in product(HOSTILE, ("", "- ", "word ")):
        rendered = MARKDOWN.parse(prefix + markdown_text(text))
        assert _text_of(rendered).removeprefix("word ") == one_line(text)
        assert not {token.type for token in rendered} & {"html_block", "fence", "heading_open", "table_open", "hr"}


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
@example("0)")
@example("1.")
@example("\\")
def test_markdown_of_any_text_is_one_paragraph_of_that_text(text: str) -> None:
    line = one_line(text)
    rendered = MARKDOWN.parse("x " + markdown_text(text))
    expected = "x " + line if line else "x"
    assert _text_of(rendered) == expected


LINKED = (
    "@octocat",
    "#12",
    "octo/repo#5",
    "GH-12",
    "https://x.example",
    "www.x.example",
    ":tada:",
    "deadbeef",
    "a@b.c",
)


def test_words_that_github_would_link_are_code_spans_to_copy() -> None:
    for word, around in product(LINKED, ("{}", "see {}", "see {} (there)")):
        text = around.format(word)
        (inline,) = (token for token in MARKDOWN.parse(markdown_text(text)) if token.type == "inline")
        assert [child.content for child in inline.children or () if child.type == "code_inline"] == [word]
        assert _text_of([inline]) == text


def test_a_linked_word_in_a_table_leaves_the_cells_alone() -> None:
    tokens = MARKDOWN.parse(f"| a | b |\n|---|---|\n| {markdown_text('x|m@1|`y')} | end |\n")
    assert [_text_of([token]) for token in tokens if token.type == "inline"] == ["a", "b", "x|m@1|`y", "end"]


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
@example("`")
@example("``` `")
@example("a|b \\| c")
def test_a_code_span_in_a_table_cell_holds_the_text(text: str) -> None:
    code = markdown_code(text, in_table=True)
    tokens = MARKDOWN.parse(f"| a | b |\n|---|---|\n| {code} | end |\n")
    cells = [token for token in tokens if token.type == "inline"]
    assert len(cells) == 4 and cells[3].content == "end"
    # A backslash before a pipe is eaten with the table's own escape: nothing else may change.
    shown = "".join(child.content for child in cells[2].children or ())
    assert shown.replace("\\", "").strip() == one_line(text).replace("\\", "").strip()


@given(st.text())
def test_xml_and_html_text_can_be_encoded(text: str) -> None:
    assert xml_text(f"a\x00\x0b\x1b\ufffe\ud800b\t\n{text}").startswith("a\ufffd\ufffd\ufffd\ufffd\ufffdb\t\n")
    xml_text(text).encode("utf-8")
    html_text(text).encode("utf-8")
    assert "\x00" not in html_text(text)
