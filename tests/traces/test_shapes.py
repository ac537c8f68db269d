"""Whatever the names in a span, messages are read by their shape: lists of messages, parts and pairs, encoded or not."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.base.turn_forms import UnknownCallError
from persona_pipeline.importing.traces.spans import SaidMessage, read_span

TEXT = st.text("abcXYZ .,!?()'äß日本語😀\n", min_size=1, max_size=30).filter(lambda text: text.strip())
Said = list[tuple[str, str]]
CHATS = st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=3).map(
    lambda pairs: [(role, text) for pair in pairs for role, text in zip(("user", "assistant"), pair, strict=True)]
)
NAMED = {"user": "human", "assistant": "ai"}
CLASSES = {"user": "HumanMessage", "assistant": "AIMessage"}
MESSAGES: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "content": lambda role, text: {"role": role, "content": text},
    "blocks": lambda role, text: {"role": role, "content": [{"type": "text", "text": text}]},
    "keyed blocks": lambda role, text: {"role": role, "content": [{"text": text}, {"image": {"format": "png"}}]},
    "parts": lambda role, text: {"role": role, "parts": [{"type": "text", "content": text}]},
    "Gemini": lambda role, text: {"role": role.replace("assistant", "model"), "parts": [{"text": text}]},
    "type": lambda role, text: {"type": NAMED[role], "content": text},
    "class": lambda role, text: {"lc": 1, "id": ["langchain", CLASSES[role]], "kwargs": {"content": text}},
}
AROUND: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda value: value,
    "messages": lambda value: {"model": "m", "messages": value, "tools": []},
    "a batch": lambda value: [value],
    "a key of no known name": lambda value: {"model": "m", "qz": {"xk": value}},
}
PAIRS = [
    ("input", "output"),
    ("prompt", "completion"),
    ("request", "response"),
    ("inputs.value", "outputs.value"),
    ("spanInputs", "spanOutputs"),
    ("question", "answer"),
    ("request_messages", "response_text"),
]
FORMS, PREFIX = st.sampled_from([*MESSAGES]), st.sampled_from(["", "q.", "xk.zq.", "span_", "Vendor:"])


def encoded(value: Any, times: int) -> Any:
    for _ in range(times):
        value = json.dumps(value)
    return value


def expected(said: Said) -> tuple[Any, Any]:
    messages = [SaidMessage(*item) for item in said]
    return messages[:-1], messages[-1:]


@given(CHATS, FORMS, st.sampled_from([*AROUND]), PREFIX, st.integers(0, 2), st.booleans())
def test_a_conversation_under_any_key(
    said: Said, form: str, around: str, prefix: str, times: int, by_event: bool
) -> None:
    messages = [MESSAGES[form](*item) for item in said]
    value = {f"{prefix}history": encoded(AROUND[around](messages), times)}
    contents = read_span({}, [("zq", value)]) if by_event else read_span(value, ())
    assert contents[:2] == expected(said)


@given(CHATS, FORMS, st.sampled_from([*AROUND]), PREFIX, st.sampled_from(PAIRS), st.integers(0, 2), st.data())
def test_an_input_and_an_output_of_any_form(
    said: Said, form: str, around: str, prefix: str, pair: tuple[str, str], times: int, data: st.DataObject
) -> None:
    *asked, (_, answer) = said
    message = MESSAGES[form]("assistant", answer)
    part = {"type": "text", "text": answer}
    outputs = [answer, message, [message], [part], part, {"choices": [{"message": message}]}, {"text": answer}]
    given = {
        prefix + pair[0]: encoded(AROUND[around]([MESSAGES[form](*item) for item in asked]), times),
        prefix + pair[1]: encoded(data.draw(st.sampled_from(outputs)), times),
    }
    assert read_span(given, ())[:2] == expected(said)


@given(TEXT, TEXT, PREFIX, st.sampled_from(PAIRS), st.integers(0, 2), st.sampled_from(["text", "part", "parts"]))
def test_a_pair_of_texts(question: str, answer: str, prefix: str, pair: tuple[str, str], times: int, form: str) -> None:
    forms = [
        {"text": text, "part": {"type": "text", "text": text}, "parts": [{"type": "text", "content": text}]}[form]
        for text in (question, answer)
    ]
    given = {prefix + key: encoded(value, times) for key, value in zip(pair, forms, strict=True)}
    assert read_span(given, ())[:2] == expected([("user", question), ("assistant", answer)])


KEYS = st.text("inputoutpromesagcl._0123", max_size=20) | st.sampled_from(
    ["input", "output.value", "gen_ai.prompt.0.content"]
)
INNER = st.sampled_from(["role", "content", "parts", "text", "messages", "choices", "type"])
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(INNER, inner, max_size=3),
    max_leaves=8,
).flatmap(lambda value: st.sampled_from([value, json.dumps(value)]))


@given(st.dictionaries(KEYS, ANY, max_size=4))
def test_any_span_is_read_or_refused(found: dict[str, Any]) -> None:
    try:
        contents = read_span(found, [("gen_ai.user.message", found), ("zq", found)])
    except UnknownCallError as error:
        assert str(error)
    else:
        assert all(isinstance(said.text, str) and said.role for said in (*contents.inputs, *contents.outputs))


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ({"role": "assistant", "content": [{"type": "tool_use", "input": {}}]}, "q.output.content[0]"),
        ({"text": "Hi", "used_tools": [{"what": 1}]}, "q.output.used_tools"),
    ],
)
def test_what_looks_like_a_call_is_refused_by_its_place(message: Any, place: str) -> None:
    with pytest.raises(UnknownCallError, match="it as tool_calls") as raised:
        read_span({"q.input": "Hi", "q.output": json.dumps(message)}, ())
    assert place in str(raised.value)


@pytest.mark.parametrize(
    "written", ["ChatMessage(role=<Role.USER: 'user'>, blocks=[T(text='Hi')])", "<app.Context object at 0x7f>"]
)
def test_what_a_program_writes_of_its_objects_are_no_words(written: str) -> None:
    contents = read_span({"input.value": {"messages": [written]}, "output.value": written}, ())
    assert [*contents.inputs, *contents.outputs] == []


@pytest.mark.parametrize(
    "answer",
    [
        "<think>No lift!</think>Yes.",
        {"role": "assistant", "content": "No lift!</think>Yes."},
        [{"type": "thinking", "thinking": "No lift!"}, {"type": "text", "text": "Yes."}],
    ],
    ids=repr,
)
def test_thinking_is_not_what_was_said(answer: Any) -> None:
    assert read_span({"input": "Hi", "output": answer}, ()).outputs == [SaidMessage("assistant", "Yes.")]
