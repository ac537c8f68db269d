"""``pairwise``: asked twice with the places exchanged; agreement wins, disagreement is a tie, silence is no number."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.judging.verdict import Question, Unscored
from persona_pipeline.suites import UngradedError, read_responses, run_suite
from tests.suites.support import (
    ScriptedBackend,
    ScriptedSuiteJudge,
    calls,
    judged,
    suite_of,
    write,
)

PAIR = {"type": "pairwise"}


def prefers(better: Callable[[str, str], str]) -> Callable[[Question], dict[str, Any]]:
    def reply(question: Question) -> dict[str, Any]:
        shown = json.loads(question.evidence)
        return {"reasoning": "because", "better": better(shown["first"], shown["second"])}

    return reply


def longer(first: str, second: str) -> str:
    return "tie" if len(first) == len(second) else "first" if len(first) > len(second) else "second"


@pytest.mark.parametrize(
    ("answer", "better", "score", "orders"),
    [
        ("a long answer", longer, 1.0, ["win", "win"]),
        ("no", longer, 0.0, ["loss", "loss"]),
        ("good", longer, 0.5, ["tie", "tie"]),
        ("a long answer", lambda first, second: "first", 0.5, ["win", "loss"]),
        ("a long answer", lambda first, second: "second", 0.5, ["loss", "win"]),
        ("a long answer", lambda first, second: "tie" if first == "fine" else "first", 0.5, ["win", "tie"]),
    ],
    ids=["better", "worse", "neither", "always the first", "always the second", "half a win"],
)
def test_both_orders_make_the_score(
    tmp_path: Path, answer: str, better: Callable[[str, str], str], score: float, orders: list[str]
) -> None:
    found, asked = judged(tmp_path, PAIR, prefers(better), answer, expected_output="fine")
    assert (found.score, (found.details or {})["orders"]) == (score, orders)
    shown = [json.loads(question.evidence) for question in asked]
    assert [(item["first"], item["second"]) for item in shown] == [(answer, "fine"), ("fine", answer)]
    # Neither is known to be the reference.
    assert all(set(item) == {"question", "criteria", "first", "second"} for item in shown)
    assert len({question.key for question in asked}) == 2


def test_the_same_text_is_a_tie_nobody_is_asked_about(tmp_path: Path) -> None:
    found, asked = judged(tmp_path, PAIR, prefers(longer), "fine\n", expected_output=" fine")
    assert (found.score, asked) == (0.5, [])
    # The same words, but a tool was called.
    _, asked = judged(tmp_path, PAIR, prefers(longer), calls("refund", text="fine"), expected_output="fine")
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (lambda question: Unscored.UNRECORDED, "unrecorded"),
        (lambda question: {"reasoning": "r", "better": "both"}, "invalid_output"),
        (
            lambda question: (
                {"reasoning": "r", "better": "first"} if question.label.endswith("first") else Unscored.UNRECORDED
            ),
            "unrecorded",
        ),
    ],
    ids=["neither is answered", "no reply that can be used", "one of them is not answered"],
)
def test_what_is_not_judged_is_no_number(tmp_path: Path, reply: Any, reason: str) -> None:
    with pytest.raises(UngradedError, match=reason):
        judged(tmp_path, PAIR, reply, expected_output="fine")


def test_without_a_reference_there_is_nothing_to_compare(tmp_path: Path) -> None:
    with pytest.raises(UngradedError, match="no_reference"):
        judged(tmp_path, PAIR, prefers(longer))


def test_the_question_keeps_a_reference_that_is_not_compared(tmp_path: Path) -> None:
    write(tmp_path, {"old.json": '{"t": "old", "t@b": "the longest of them"}'})
    old, (question, _) = judged(
        tmp_path, {**PAIR, "responses": "old.json"}, prefers(longer), "longer", expected_output="reference"
    )
    b, _ = judged(tmp_path, {**PAIR, "responses": "old.json", "target": "b"}, prefers(longer), "longer")
    assert (old.score, b.score) == (1, 0)
    assert json.loads(question.evidence)["reference_answer"] == "reference"


def test_an_answer_to_another_question_is_not_compared(tmp_path: Path) -> None:
    write(tmp_path, {"old.json": '{"t": {"text": "old", "request_key": "of another question"}}'})
    suite = suite_of(tmp_path, {**PAIR, "responses": "old.json"})
    judge = ScriptedSuiteJudge(ScriptedBackend(prefers(longer)))
    error = run_suite(suite, responses=read_responses({"t": "new"}), judge=lambda: judge).tests[0].error
    assert error is not None and error.reason == "stale"


def test_a_prompt_names_both_places(tmp_path: Path) -> None:
    item = {**PAIR, "prompt": "Is {{ first }} or {{second}} kinder, by {{ criteria }}?"}
    _, (question, _) = judged(tmp_path, item, prefers(longer), expected_output="fine")
    assert question.ask == (
        'Is [the field "first" of the evidence] or [the field "second" of the evidence] kinder, '
        'by [the field "criteria" of the evidence]?'
    )


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({**PAIR, "prompt": "Is {{ answer }} good?"}, "the two answers are {{ first }} and {{ second }}"),
        ({**PAIR, "responses": "none.json"}, "responses: .*none.json"),
        ({**PAIR, "responses": "broken.json"}, "is not JSON"),
        ({**PAIR, "target": "old"}, "target needs responses, its recorded answers"),
    ],
)
def test_mistakes_are_found_when_the_suite_is_loaded(tmp_path: Path, item: dict[str, Any], said: str) -> None:
    write(tmp_path, {"broken.json": "{"})
    with pytest.raises(ConfigError, match=said):
        suite_of(tmp_path, item)
