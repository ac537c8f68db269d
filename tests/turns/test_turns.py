"""The reader of what chats and SDKs write: words, thinking, calls and their results, and what is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.base.text import split_thinking
from persona_pipeline.base.turn_forms import ToolCall, TurnError, UnknownCallError
from persona_pipeline.base.turns import Turn, find_turns, read_message, read_turns
from tests.turns.shapes import GIVEN, IN_TEXT, SHAPES, UNKNOWN


def test_half_a_character_in_encoded_json_is_replaced() -> None:
    for value in (r'{"role": "user", "content": "a \ud83d"}', r'"{\"text\": \"a \\ud83d\"}"'):
        assert [turn.text for turn in find_turns(value, "user")] == ["a \ufffd"]


@pytest.mark.parametrize("role", ["user", "assistant", ""])
def test_a_role_that_is_written_counts_wherever_a_message_is_found(role: str) -> None:
    said = {"_role": "system", "_content": [{"text": "Be Otto."}]}, {"type": "human", "data": {"content": "Hi"}}
    turns = find_turns({"messages": [*said]}, role)
    assert [(turn.role, turn.text) for turn in turns] == [("system", "Be Otto."), ("user", "Hi")]


def calls_in(turns: list[Turn]) -> list[ToolCall]:
    return [call for turn in turns for call in turn.calls or ()]


@pytest.mark.parametrize("name", SHAPES)
def test_a_call_is_read_in_every_shape(name: str) -> None:
    answer, has_result = SHAPES[name]
    turns = read_turns(answer)
    (call,) = calls_in(turns)
    assert (call.name, call.given["input"], call.given.get("output")) == ("refund", GIVEN, "ok" if has_result else None)
    assert [turn.text for turn in turns if turn.role == "assistant" and turn.text] == ["Done."]
    assert {turn.role for turn in turns} <= {"assistant", "user", "system", "tool"}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_looks_like_a_call_is_refused_by_its_place(name: str) -> None:
    answer, place = UNKNOWN[name]
    with pytest.raises(UnknownCallError) as raised:
        read_turns(answer)
    assert place in str(raised.value)


@pytest.mark.parametrize(
    "value",
    [5, None, [5], ["a"], {}, {"a": 1}, [{"content": "x"}], {"choices": []}, [{"role": 5}], {"choices": [5]},
     {"steps": [{"toolCalls": []}, 5]}],
    ids=repr,
)  # fmt: skip
def test_what_is_no_turn(value: Any) -> None:
    with pytest.raises(TurnError):
        read_turns(value)


@pytest.mark.parametrize(
    ("text", "thinking", "words"),
    [
        ("Hi.", "", "Hi."),
        ("<think>no</think>Hi.", "no", "Hi."),
        ("\n<thinking>no\nno</thinking>\n\nHi.", "no\nno", "Hi."),
        ("no</think>Hi.", "no", "Hi."),
        ("<think>a</think><reasoning>b</reasoning>Hi.", "ab", "Hi."),
        ("<think>cut off", "cut off", ""),
        ("<think>\n\n</think>\n\nHi.", "\n\n", "Hi."),
        ('<details type="reasoning" done="true">no</details>Hi.', "no", "Hi."),
        ("[THINK]no[/THINK]Hi.", "no", "Hi."),
        ("◁think▷no◁/think▷Hi.", "no", "Hi."),
        ("Write `</think>` at its end", "", "Write `</think>` at its end"),
        ("Write '</think> at its end", "", "Write '</think> at its end"),
        ("<scratchpad>no</scratchpad>Hi.", "no", "Hi."),
        ("<thoughts>no</thoughts>Hi.", "no", "Hi."),
        ("<antThinking>no</antThinking>Hi.", "no", "Hi."),
        ("<|START_THINKING|>no<|END_THINKING|><|START_RESPONSE|>Hi.<|END_RESPONSE|>", "no", "Hi."),
        ("<|begin_of_thought|>no<|end_of_thought|>\n<|begin_of_solution|>Hi.<|end_of_solution|>", "no", "Hi."),
        ("<|channel|>analysis<|message|>no<|end|><|channel|>final<|message|>Hi.", "no", "Hi."),
        (
            "<|start|>assistant<|channel|>analysis<|message|>no<|end|><|start|>assistant<|channel|>final<|message|>Hi.<|return|>",
            "no",
            "Hi.",
        ),
        ("<|channel|>final<|message|>Hi.<|return|>", "", "Hi."),
        ("Type <|return|> to end, then <|x|>", "", "Type <|return|> to end, then <|x|>"),
        ("a < b and <b>bold</b>", "", "a < b and <b>bold</b>"),
    ],
)
def test_thinking_is_kept_apart(text: str, thinking: str, words: str) -> None:
    assert split_thinking(text) == (thinking, words)
    (turn,) = read_turns(text)
    assert (turn.thinking, turn.text, turn.calls) == (thinking, words, None)


def test_of_a_text_nothing_is_known_of_calls_and_of_messages_it_is() -> None:
    assert [read_turns(value)[0].calls for value in ("a", {"text": "a"})] == [None, None]
    assert read_turns({"text": "a", "tool_calls": []})[0].calls == []
    assert read_turns([{"role": "assistant", "content": "a"}])[0].calls == []


@pytest.mark.parametrize("name", IN_TEXT)
def test_where_a_text_holds_a_call_nothing_is_known_of_calls(name: str) -> None:
    said, done = {"role": "assistant", "content": IN_TEXT[name]}, {"role": "assistant", "content": "Done."}
    assert [turn.calls for turn in read_turns([said, done])] == [None, []]


def test_an_empty_answer_of_an_api_is_read_without_words() -> None:
    for value in ({"choices": [{"message": []}]}, [{"type": "message"}], [{"type": "message", "content": 5}]):
        assert not any(turn.text for turn in read_turns(value))


def test_items_of_the_responses_api_stay_with_who_said_them() -> None:
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "message", "role": "user", "content": "Well?"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]},
    ]
    turns = read_turns(items)
    assert [(turn.role, turn.text, [call.name for call in turn.calls or ()]) for turn in turns] == [
        ("user", "Hi", []),
        ("assistant", "Hello", ["look"]),
        ("user", "Well?", []),
        ("assistant", "Done.", []),
    ]


KEYS = "role content parts type text tool_calls function name args output steps id".split()  # noqa: SIM905
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_value_has_turns_or_is_refused(value: Any) -> None:
    try:
        turns = read_turns(value)
    except TurnError as error:
        assert str(error)
    else:
        assert all(call.name for call in calls_in(turns))


@pytest.mark.parametrize(
    ("value", "role", "text", "speaker"),
    [
        ({"role": "Human", "content": "a", "name": "Ann"}, "user", "a", "Ann"),
        ({"role": "narrator", "content": ["a", {"text": "b"}, {"type": "text", "content": "c"}]}, "narrator", "a\nb\nc", ""),
        ({"role": "assistant", "content": [{"type": "text", "text": "a "}, {"type": "text", "text": "b", "citations": [1]}]},
         "assistant", "a b", ""),
        ({"role": "user", "content": [{"type": "output_text", "text": "a"}, 7, {"text": 7}, "", ["x"]]}, "user", "a", ""),
        ({"role": "model", "parts": [{"text": "hm", "thought": True}, {"text": "a"}]}, "assistant", "a", ""),
        ({"role": "user", "content": None}, "user", None, ""),
        ({"role": "developer", "content": "a"}, "system", "a", ""),
        ({"type": "AIMessageChunk", "content": "a", "name": "ann"}, "assistant", "a", "ann"),
        ({"lc": 1, "id": ["langchain", "HumanMessage"], "kwargs": {"content": "a"}}, "user", "a", ""),
        ({"type": "ai", "data": {"content": [{"type": "reasoning", "text": "hm"}, "a"]}}, "assistant", "a", ""),
        ({"role": "assistant", "content": None, "refusal": "No."}, "assistant", "No.", ""),
        ({"role": "assistant", "content": "<think>hm</think>a", "reasoning_content": "so"}, "assistant", "a", ""),
    ],
    ids=repr,
)  # fmt: skip
def test_one_message_of_a_chat(value: Any, role: str, text: str | None, speaker: str) -> None:
    turn = read_message(value)
    assert (turn.role, turn.text, turn.speaker) == (role, text, speaker)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (5, "is not a message"),
        ({"content": "a"}, "a message has no role"),
        ({"role": 5, "content": "a"}, "a role that is not a text"),
        ({"role": "user", "content": 5}, "must be a text or a list of parts"),
        ({"role": "user", "content": "a", "name": 5}, "name must be a string"),
        ({"role": "assistant", "content": "a", "tool_runs": 1, "tool_results": [{"x": 1}]}, "tool_results looks like"),
        ({"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "a"}] * 2}, "holds several messages"),
    ],
)
def test_what_is_not_one_message(value: Any, said: str) -> None:
    with pytest.raises(TurnError) as raised:
        read_message(value)
    assert said in str(raised.value)


def test_parts_that_are_not_words_are_attachments() -> None:
    picture = {"type": "image_url", "image_url": "x"}
    turn = read_message({"role": "assistant", "content": [picture, "a", {"type": "thinking", "thinking": "hm"}]})
    assert (turn.attachments, turn.text, turn.thinking, turn.role) == ([picture], "a", "hm", "assistant")
