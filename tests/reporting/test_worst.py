"""The messages that broke character in the page, the terminal and the comment."""

import html
import re
from collections.abc import Callable

import pytest

from persona_pipeline.guard.report import RunReport
from persona_pipeline.reporting.html import render_html
from persona_pipeline.reporting.markdown import render_comment
from persona_pipeline.reporting.pages.evaluation import short_page
from persona_pipeline.reporting.terminal import page_text
from persona_pipeline.reporting.view import UNREAD
from persona_pipeline.scoring.messages.verdicts import MessageVerdicts
from tests.reporting.sample import sample_report, with_messages

TITLE = "Messages out of character"
WRITERS: dict[str, Callable[[RunReport], str]] = {
    "page": render_html,
    "terminal": lambda report: page_text(short_page(report, verbose=True)),
    "comment": render_comment,
}
HOSTILE = "<script>alert(1)</script> `x` [a](http://evil.example) | @all \x1b[31m\n# head \u202e"


def read(text: str) -> str:
    """Return what a person reads of the section, on one line."""
    section = text[text.rindex(TITLE) :]
    return " ".join(re.sub(r"[*`\\]", "", html.unescape(re.sub(r"<[^>]*>", " ", section))).split())


@pytest.mark.parametrize("writer", WRITERS)
def test_each_line_has_what_it_answered_its_claims_its_reason_and_an_example(writer: str) -> None:
    text = read(WRITERS[writer](with_messages(sample_report())))
    places = [
        text.index(part)
        for part in ("michael-0617-02", "Please find the quarterly figures", "Kindly confirm", "facts of the persona")
    ]
    assert places[1] < places[2]
    for part in (
        "turns conversations towards themselves",
        "without any personality",
        "like minutes",
        "Did you see the figures?",
    ):
        assert part in text, part
    assert "Pam Beesly" in text and text.count("Sales are up, and so am I.") >= 1
    assert UNREAD not in text


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize(
    ("verdicts", "unread"),
    [
        pytest.param(None, True, id="no verdicts"),
        pytest.param(MessageVerdicts(agent_id="michael"), False, id="no message is out"),
    ],
)
def test_without_verdicts_one_line_says_so_and_the_section_is_absent(
    writer: str, verdicts: MessageVerdicts | None, unread: bool
) -> None:
    report = sample_report()
    report.agents["michael"].evaluation.dimensions["adherence"].messages = verdicts
    text = WRITERS[writer](report)
    assert (TITLE in text, text.count(UNREAD)) == (False, int(unread))


@pytest.mark.parametrize(
    ("writer", "alive"),
    [
        pytest.param("page", r"<script>alert|\x1b", id="page"),
        pytest.param("terminal", r"^\s*# head|[\x1b\u202e]", id="terminal"),
        # Ids and words that GitHub would link are code, in which nothing is markup.
        pytest.param("comment", r"^\s*# head|[^`]<script>alert|[*:] .*[^\\]\]\(http:/|\x1b", id="comment"),
    ],
)
def test_hostile_text_stays_text(writer: str, alive: str) -> None:
    text = WRITERS[writer](with_messages(sample_report(), HOSTILE))
    section = text[text.rindex(TITLE) :].partition("<script>(")[0]
    assert re.search(r"alert\\?\(1", section)
    section = re.sub(r"``.*?``|(?<!\\)`[^`]+`", "", section)
    assert not re.search(alive, section, re.MULTILINE)
