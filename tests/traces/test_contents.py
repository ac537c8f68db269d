"""Every convention's way to write down what was said to a model and what it answered."""

import json
from typing import Any

import pytest

from persona_pipeline.importing.traces.calls import last_words
from persona_pipeline.importing.traces.messages import told_by
from persona_pipeline.importing.traces.spans import SaidMessage, read_span
from tests.traces.documented import ASKED, ATTRIBUTES, BE, SAID
from tests.traces.documented import CHAT as CALL
from tests.traces.documented import EVENTS as BY_EVENTS

CHAT = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Yes?"},
    {"role": "user", "content": "Tea?"},
]
CURRENT = {"gen_ai.input.messages": CHAT, "gen_ai.output.messages": [{"role": "assistant", "content": "Please."}]}


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"http.route": "/chat", "input.value": "Hi"},
        {"openinference.span.kind": "CHAIN", "llm.input_messages.0.message.content": "Hi"},
        {"gen_ai.operation.name": "chat", "gen_ai.response.id": "r"},
        {"gen_ai.input.messages": '[{"role": "user", "content": "Hi'},
        {"gen_ai.input.messages": 7},
        {"gen_ai.prompt.x.content": "Hi"},
        {"ai.operationId": "ai.generateText", "ai.prompt": json.dumps({"messages": CHAT}), "ai.response.text": "So."},
        {
            f"langfuse.observation.{key}": value
            for key, value in {"type": "agent", "input": "Hi", "output": "So."}.items()
        },
        {"langfuse.observation.type": "generation", "langfuse.observation.output": '{"score": 3}'},
        {"gen_ai.operation.name": "execute_tool", "gen_ai.output.messages": "21 C", **CURRENT},
    ],
)
def test_spans_without_contents_say_nothing(found: dict[str, Any]) -> None:
    assert not any(read_span(found, ())[:2])


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("Hi", "Hi"),
        (None, ""),
        (
            [{"type": "text", "text": "one"}, {"type": "image_url", "image_url": "x"}, {"type": "text", "text": "two"}],
            "one\ntwo",
        ),
        ('[{"type": "text", "text": "packed"}]', "packed"),
        ('[{"type": "mine", "text": "data"}]', '[{"type": "mine", "text": "data"}]'),
        ('{"type": "answer", "value": 3}', '{"type": "answer", "value": 3}'),
        ("[{broken", "[{broken"),
        ('[{"text": "Bedrock"}, {"toolUse": {"name": "look"}}, {"text": "two"}]', "Bedrock\ntwo"),
        ('[{"text": "data", "more": 1}]', '[{"text": "data", "more": 1}]'),
        ([{"type": "tool_result", "content": "72 F"}], ""),
        ({"type": "text", "content": "alone"}, "alone"),
        ("null\x00byte", "null\ufffdbyte"),
    ],
)
def test_words_of_a_content(content: Any, text: str) -> None:
    found = {"gen_ai.output.messages": [{"role": "assistant", "content": content}]}
    assert read_span(found, ()).outputs == [SaidMessage("assistant", text)]


def test_a_call_that_answers_without_words_has_answered() -> None:
    for kind in ("toolCalls", "object"):
        found = {"ai.prompt.messages": json.dumps(CHAT[:2]), f"ai.response.{kind}": "[]"}
        assert read_span(found, ()).outputs == [SaidMessage("assistant", "")]


def _words(*said: tuple[str, str]) -> list[str]:
    return [item.text for item in last_words(SaidMessage(*item) for item in said) if item.role == "user"]


def test_only_what_was_said_since_the_last_answer_is_new() -> None:
    assert _words(("user", "Hi")) == ["Hi"]
    assert _words(("user", "Hi"), ("assistant", "Yes?"), ("user", "Tea?"), ("user", "Or not?")) == ["Tea?", "Or not?"]
    # The call of a tool is an answer, and its result is nobody's word.
    assert _words(("user", "Hi"), ("assistant", ""), ("tool", "72 F")) == []
    assert _words(("user", "Hi"), ("tool", "72 F")) == [], "some write the result alone"
    # What the caller wrote for the model to go on from.
    assert _words(("user", "Hi"), ("assistant", "Yes?"), ("user", "Tea?"), ("assistant", "{")) == ["Tea?"]


def test_words_of_an_input_are_told_apart_by_the_answer_before_and_by_how_often_they_were_said() -> None:
    said = [SaidMessage(role, text) for role, text in (("user", "ok"), ("user", "no"), ("user", "ok"), ("user", "ok"))]
    told = [(item.said.text, item.number, item.place) for item in told_by("s", said)]
    assert told == [("ok", 0, (None, 0)), ("no", 1, (None, 0)), ("ok", 2, (None, 1)), ("ok", 3, (None, 2))]
    (told_after,) = told_by("s", [SaidMessage("assistant", "Yes?"), said[0]])
    assert (told_after.number, told_after.place) == (0, ("Yes?", 0))


def test_a_history_tells_words_apart_that_are_said_again() -> None:
    turn, again = [SaidMessage("user", "ok"), SaidMessage("assistant", "Sure.")], SaidMessage("user", "ok")
    first, second = last_words([*turn, again]), last_words([*turn, *turn, again])
    assert first[0].role == second[0].role == "assistant"
    assert first[0] != second[0]
    assert first[1:] == second[1:] == (again,)


EXCHANGES = {name: (given, []) for name, given in ATTRIBUTES.items()} | {
    name: (CALL, given) for name, given in BY_EVENTS.items()
}


@pytest.mark.parametrize("name", EXCHANGES)
def test_every_instrumentation_says_what_its_documentation_says(name: str) -> None:
    contents = read_span(*EXCHANGES[name])
    asked = [said.text for said in contents.inputs if said.role != "system"]
    assert ([said.role for said in contents.inputs][-1:], asked) == (["user"], [ASKED])
    assert [(said.role, said.text) for said in contents.outputs] == [("assistant", SAID)]
    assert {said.text for said in contents.inputs if said.role == "system"} <= {BE}
    assert contents.keys
