"""A run as JUnit, as HTML, as lines: with text that wants to be markup."""

import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

from persona_pipeline.reporting.html import page_html
from persona_pipeline.reporting.junit import render_suite_junit
from persona_pipeline.reporting.pages.suites import result_line, suite_page, summary_line
from persona_pipeline.suites import Output, SuiteResult
from persona_pipeline.suites.grading.results import AssertResult, Attempt, SuiteVerdict, TestResult
from tests.suites.support import load, run

HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(1)> & \x1b]8;;http://x\x07 \x00 \u202e {{ 7*7 }}"
SUITE = """
tests:
  - {id: good, input: hi, assert: [{type: contains, value: script}]}
  - id: "<b>bad</b>"
    input: hi
    assert: [{type: contains, value: "<i>nowhere</i>", required: true}]
  - {id: broken, input: hi, assert: [{type: llm_judge}]}
  - {id: half, input: hi, assert: [{type: contains, value: script, weight: 3}, {type: is_json}]}
"""


def result(folder: Path) -> SuiteResult:
    names = ("good", "<b>bad</b>", "broken", "half")
    return run(load(folder, SUITE), {name: {"text": HOSTILE, "duration_ms": 1500} for name in names})


def test_junit(tmp_path: Path) -> None:
    root = ElementTree.fromstring(render_suite_junit(result(tmp_path)))
    (suite,) = root
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("4", "1", "1")
    cases = {case.get("name"): case for case in suite}
    failure = cases["<b>bad</b>"].find("failure")
    assert failure is not None
    assert failure.get("message") == "score 0.000"
    assert "<i>nowhere</i>" in str(failure.text)
    error = cases["broken"].find("error")
    assert error is not None
    assert error.get("type") == "unrecorded"
    assert cases["half"].find("failure") is None
    assert cases["good"].get("time") == "1.5"


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attrs), (tag, attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_shows_foreign_text_as_text_and_loads_nothing(tmp_path: Path) -> None:
    page = page_html(suite_page(result(tmp_path)))
    parser = Tags()
    parser.feed(page)
    assert not {"script", "img", "b", "i", "link", "iframe"} & set(parser.tags)
    assert "<script>alert(1)</script>" in parser.text
    assert "{{ 7*7 }}" in parser.text
    assert "\x00" not in page
    assert re.search(r"Content-Security-Policy\" content=\"default-src &#39;none&#39;|default-src 'none'", page)


def spoken(text: str) -> str:
    return " ".join(text.split())


CONVERSATION = """
tests:
  - id: chat
    turns:
      - {user: hi, assert: [{type: contains, value: nowhere, name: says nowhere}]}
      - user: [{role: user, content: [{type: text, value: two parts}]}]
    each_turn: [{type: regex, value: first, name: says first}]
"""


def test_a_conversation_is_shown_turn_by_turn_with_what_was_found_there(tmp_path: Path) -> None:
    said = [
        {"role": "user", "name": "<b>ann</b>", "content": "hi"},
        {"role": "assistant", "content": f"the first {HOSTILE}"},
        {"role": "user", "content": [{"type": "text", "value": "two parts"}]},
        {"role": "assistant", "content": "the second"},
    ]
    held = run(load(tmp_path, CONVERSATION), {"chat": {"output_messages": said}})
    parser = Tags()
    parser.feed(page_html(suite_page(held)))
    assert not {"script", "img"} & set(parser.tags)
    text = spoken(parser.text)
    _, first, second = re.split(r"(?<=turns) 1 | 2 (?=User)", text[text.index("Conversation, 2 turns") :])
    assert first.startswith("<b>ann</b> hi Answer the first")
    assert "fail says nowhere: " in first
    # What holds for every turn is said where it does not hold.
    assert "says first" not in first
    assert second.startswith("User two parts Answer the second fail says first: ")


def character(scores: list[float | None], lost_from: int | None) -> str:
    """The page of a conversation of that many turns, judged so."""
    told = {"agent": "pam", "scores": scores, "lost_from": lost_from}
    grade = AssertResult("lasts", "fades", 1.0, 1.0, SuiteVerdict.PASS, details=told)
    turns = [
        Output([{"role": "assistant", "content": "yes"}], asked=[{"role": "user", "content": "so"}]) for _ in range(8)
    ]
    attempt = Attempt(0, 1.0, SuiteVerdict.PASS, (grade,), output=Output.of_turns(turns))
    return page_html(suite_page(SuiteResult("s", "s", [TestResult("chat", "chat", 1.0, SuiteVerdict.PASS, attempt)])))


def test_a_long_conversation_is_folded_and_says_where_a_character_is_lost() -> None:
    scores = [8.0, 3.0, None, 8.0, 8.0, 2.0, 1.0, 0.5]
    page = character(scores, 6)
    assert '<details class="transcript">' in page
    assert re.findall(r'<span class="value( bad)?">([^<]+)<', page) == [
        ("", "8.0"), ("", "3.0"), ("", "–"), ("", "8.0"), ("", "8.0"), (" bad", "2.0"), (" bad", "1.0"), (" bad", "0.5"),
    ]  # fmt: skip
    before, after = page.split("Out of character from here on")
    assert (before.count("<b><bdi>pam"), after.count("<b><bdi>pam")) == (5, 3)
    assert "Out of character" not in character(scores, None)
    # Several messages a turn: whose score is whose cannot be told.
    assert 'class="value' not in character(scores * 2, 6)


def test_lines_hold_no_escape_sequences(tmp_path: Path) -> None:
    lines = [*map(result_line, result(tmp_path).tests), summary_line(result(tmp_path))]
    assert len(lines) == 5
    assert not any(character in line for line in lines for character in "\x1b\x07\x00\u202e\n")
    assert lines[1].startswith("fail       0.000  <b>bad</b>  gate contains-<i>nowhere</i>")
    assert lines[-1] == "suite: 1 of 4 passed, 1 borderline, 1 failed, 1 not judged, mean score 0.583. Exit code 1."


def test_targets_are_compared_side_by_side_and_calls_have_their_arguments() -> None:
    said = Output([{"role": "assistant", "content": "Done", "tool_calls": [{"tool": "refund", "input": {"order": 7}}]}])
    tests = [
        TestResult(f"pay@{target}", "pay", score, verdict, Attempt(1, score, verdict, (), said), target=target)
        for target, score, verdict in (("haiku", 1.0, SuiteVerdict.PASS), ("opus", 0.0, SuiteVerdict.FAIL))
    ]
    parser = Tags()
    parser.feed(page_html(suite_page(SuiteResult("desk", "desk.eval.yaml", tests))))
    text = spoken(parser.text)
    assert "Testhaikuopuspaypass100%fail0%" in text.replace(" ", "")
    assert 'refund({"order": 7})' in text
