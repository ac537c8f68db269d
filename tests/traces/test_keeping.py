"""Messages in the store from pieces of traces: each once, whatever way they came."""

import itertools
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from persona_pipeline.base.database import tables
from persona_pipeline.importing.traces.calls import Piece, RefusedError, piece_of
from persona_pipeline.importing.traces.messages import _call, forget_pieces, keep_pieces
from persona_pipeline.importing.traces.otlp import items
from persona_pipeline.testing.worlds import WorldBuilder
from persona_pipeline.world import World
from tests.support.spans import agent, chat, event, logs, request, span


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> World:
    builder = WorldBuilder(tmp_path_factory.mktemp("world"))
    builder.persona("ann", "Ann is dry.", aliases=["Ann the Agent", "asst_1"])
    return builder.persona("bob", "Bob purrs.").open()


def pieces(*requests: Any) -> list[Piece]:
    found = (piece_of(item) for each in requests for item in items(each))
    return [piece for piece in found if piece is not None]


def keep(world: World, *requests: Any) -> None:
    keep_pieces(world, pieces(*requests))


def said(world: World) -> list[tuple[str | None, str, str]]:
    return [(message.channel, message.agent_id, message.text) for message in world.messages()]


def emptied(world: World) -> None:
    with world.store.begin() as connection:
        connection.execute(sa.delete(tables.run_messages))
        connection.execute(sa.delete(tables.trace_pieces))


def conversation(turns: int, *, trace: int = 1, name: str = "c", by: str = "ann", parent: bool = True) -> Iterable[Any]:
    """Return the spans of a conversation, a trace a turn, each call with the whole history."""
    history: list[str] = []
    for turn in range(turns):
        history.append("ok")
        place: dict[str, Any] = {"trace": trace + turn, "at": 10 * turn}
        given = None if parent else {"gen_ai.agent.name": by, "gen_ai.conversation.id": name}
        yield chat(2, history, f"Answer {turn % 2}", parent=1 if parent else None, given=given, **place)
        if parent:
            yield agent(1, by, name, **place)
        history.append(f"Answer {turn % 2}")


LINES = [("c", "user", "ok"), ("c", "ann", "Answer 0"), ("c", "user", "ok"), ("c", "ann", "Answer 1")] * 2


@pytest.mark.parametrize("parent", [True, False])
def test_a_history_in_every_call_doubles_nothing(world: World, parent: bool) -> None:
    keep(world, request(*conversation(4, parent=parent)))
    assert said(world) == LINES


def _legacy(number: int, history: Sequence[str], answer: str, *, trace: int, at: float) -> Iterable[Any]:
    names = ("gen_ai.user.message", "gen_ai.assistant.message")
    for place, text in enumerate(history):
        yield event(number, names[place % 2], {"content": text}, trace=trace, at=at + place / 1000)
    yield event(number, "gen_ai.choice", {"index": 0, "message": {"content": answer}}, trace=trace, at=at + 0.4)


def _everything() -> list[Piece]:
    """A conversation whose contents stand in events, one that has an agent's span above, one of two agents and a failed call."""
    history: list[str] = []
    found: list[Any] = []
    for turn in range(3):
        history.append("ok")
        found += [request(span(2, {"gen_ai.response.id": f"r{turn}"}, trace=20 + turn, parent=1, at=10 * turn))]
        found += [request(agent(1, "ann", "events", trace=20 + turn, at=10 * turn))]
        found += [logs(record) for record in _legacy(2, history, f"Answer {turn}", trace=20 + turn, at=10 * turn)]
        history.append(f"Answer {turn}")
    found += [request(each) for each in conversation(3, trace=40, name="spans")]
    both = {"trace": 60, "parent": 1}
    found += [request(span(1, {"session.id": "both"}, trace=60, at=50))]
    found += [request(chat(2, ["Who is there?"], "Ann is.", at=50, given={"agent.name": "Ann the Agent"}, **both))]
    relayed = chat(3, ["Ann is."], "And Bob.", at=51, given={"agent.name": "bob"}, **both)
    failed = chat(4, ["Who is there?"], None, at=49, given={"agent.name": "ann"}, **both)
    return pieces(*found, request(relayed), request(failed))


EVERYTHING = {
    ("events", "ann", "Answer 0"), ("events", "ann", "Answer 1"), ("events", "ann", "Answer 2"), ("events", "user", "ok"),
    ("spans", "ann", "Answer 0"), ("spans", "ann", "Answer 1"), ("spans", "user", "ok"),
    ("both", "user", "Who is there?"), ("both", "ann", "Ann is."), ("both", "bob", "And Bob."),
}  # fmt: skip


def test_the_same_pieces_give_the_same_messages_in_whatever_order_and_however_often(world: World) -> None:
    found = _everything()
    keep_pieces(world, found)
    whole = world.messages()
    assert set(said(world)) == EVERYTHING
    assert len(whole) == 6 + 6 + 3
    for seed in range(6):
        emptied(world)
        rolls = random.Random(seed)
        again = [*found, *rolls.sample(found, len(found) // 2)]
        rolls.shuffle(again)
        while again:
            size = rolls.randint(1, 9)
            keep_pieces(world, again[:size])
            again = again[size:]
        assert world.messages() == whole


def test_every_database_says_the_same(tmp_path: Path, database_url: str) -> None:
    builder = WorldBuilder(tmp_path / "world").persona("ann", "Ann is dry.", aliases=["Ann the Agent"])
    world = World.open(builder.persona("bob", "Bob purrs.").root, database_url)
    found = _everything()
    for number in (0, 1):
        keep_pieces(world, found[number::2])
    assert set(said(world)) == EVERYTHING
    assert len(said(world)) == 6 + 6 + 3
    assert forget_pieces(world.store, timedelta(days=1), world.clock() + timedelta(days=2)) > len(found) / 2
    world.store.close()


@pytest.mark.parametrize("order", itertools.permutations(range(3)))
def test_whose_words_they_were_may_come_later(world: World, order: Sequence[int]) -> None:
    between = span(2, {"http.route": "/chat"}, parent=1)
    parts = [chat(3, ["Hi"], "Yes?", parent=2), between, agent(1, "Ann the Agent", "c")]
    for place in order:
        keep(world, request(parts[place], service="shop"))
    assert said(world) == [("c", "user", "Hi"), ("c", "ann", "Yes?")]
    (message,) = world.messages(agent_id="ann")
    assert message.speaker == "Ann the Agent"


def test_what_a_message_comes_from_stands_in_its_extras(world: World) -> None:
    given = {"response.id": "resp_1", "response.model": "m-1", "agent.name": "Mystery", "agent.id": "asst_1"}
    given = {f"gen_ai.{key}": value for key, value in given.items()} | {"user.id": "eve"}
    keep(world, request(chat(5, ["Hi"], "Yes?", given=given)))
    asked, answered = world.messages()
    ids = {"trace_id": f"{1:032x}", "span_id": f"{5:016x}"}
    known = {**ids, "response_id": "resp_1", "model": "m-1"}
    assert asked.extras == {**known, "told": "ann"}
    assert answered.extras == {**known, "asked": answered.extras["asked"], "continued": answered.extras["continued"]}
    # Of the names that a span gives, the one that is an agent's counts; without a conversation, the trace is one.
    assert (answered.agent_id, asked.agent_id, answered.channel) == ("ann", "eve", f"trace-{1:032x}")
    assert answered.created_at - asked.created_at == timedelta(seconds=0.5)


NODE, PART = {"metadata": '{"langgraph_node": "bob"}'}, {"ai.telemetry.functionId": "f"}
LANGCHAIN = {"metadata": '{"lc_agent_name": "bob", "langgraph_node": "f"}'}


@pytest.mark.parametrize(
    ("inner", "middle", "outer", "service", "speaker"),
    [
        pytest.param({}, {}, "Ann the Agent", "shop", "ann", id="an alias as a span's name"),
        pytest.param(NODE, {}, "ann", "shop", "bob", id="a node nearer than a name"),
        pytest.param({"ai.telemetry.functionId": "bob"}, {}, "ann", "shop", "bob", id="a function of the AI SDK"),
        pytest.param({"gen_ai.agent.name": "eve"}, NODE, "ann", "shop", "eve", id="whoever is named as an agent"),
        pytest.param(PART, {}, "chain", "Ann the Agent", "ann", id="a program that is an agent"),
        pytest.param(PART, NODE, "chain", "shop", "bob", id="an agent above a part of a program"),
        pytest.param(PART, {}, "chain", "shop", "f", id="a part of a program before all of it"),
        pytest.param(LANGCHAIN, {}, "f", "shop", "bob", id="LangChain's agent"),
        pytest.param({"metadata.agent_name": '"bob"'}, {}, "f", "shop", "bob", id="encoded"),
        pytest.param({"gen_ai.agent.name": "RunnableSequence"}, {}, "f", "shop", "shop", id="a class alone"),
        pytest.param({"metadata": "{broken"}, {}, "chain", "shop", "shop", id="nothing but the program"),
    ],
)
def test_whose_voice_it_is(
    world: World, inner: dict[str, str], middle: dict[str, str], outer: str, service: str, speaker: str
) -> None:
    above = span(1, {"openinference.span.kind": "CHAIN"})
    above.name = outer
    between = span(2, middle, parent=1)
    keep(world, request(chat(3, ["Hi"], "Yes?", parent=2, given=inner), between, above, service=service))
    assert [name for _, name, _ in said(world)] == ["user", speaker]


def test_what_two_spans_say_of_one_answer_is_said_once(world: World) -> None:
    repeated = {"gen_ai.output.messages": '[{"role": "assistant", "parts": [{"type": "text", "content": "Yes?"}]}]'}
    above = span(1, {"gen_ai.agent.name": "ann", **repeated})
    outer = chat(2, ["Hi"], "Yes?", parent=1)
    inner = chat(3, ["Hi"], "Yes?", parent=2, given={"gen_ai.response.id": "r"})
    beside = chat(4, ["Hi"], "Yes?", parent=1, given={"gen_ai.response.id": "r"})
    keep(world, request(above))
    assert [text for _, _, text in said(world)] == ["Yes?"]
    keep(world, request(outer))
    keep(world, request(inner, beside))
    assert [text for _, _, text in said(world)] == ["Hi", "Yes?"]


@pytest.mark.parametrize("nested", [False, True])
def test_a_trace_may_be_a_whole_conversation(world: World, nested: bool) -> None:
    spans = [agent(1, "ann", "c")]
    history: list[str] = []
    for turn in range(4):
        history.append("ok")
        at, number = 10 * turn, 10 * (turn + 1)
        # A span of its own for each turn that holds what is new, above the call that holds everything.
        spans += [chat(number, ["ok"], f"Answer {turn % 2}", parent=1, at=at)] if nested else []
        spans.append(chat(number + 1, history, f"Answer {turn % 2}", parent=number if nested else 1, at=at))
        history.append(f"Answer {turn % 2}")
    keep(world, request(*spans))
    assert said(world) == LINES


def test_what_two_agents_are_told_is_one_message_as_often_as_each_is_told_it(world: World) -> None:
    spans = [span(1, {"gen_ai.conversation.id": "c"})]
    ann, bob = ["ok"], ["ok"]
    for turn in range(3):
        for number, (name, heard, answer) in enumerate((("ann", ann, f"Dry {turn}"), ("bob", bob, f"Purr {turn}"))):
            given = {"gen_ai.agent.name": name}
            spans.append(chat(10 * turn + number + 2, heard, answer, parent=1, at=10 * turn + number, given=given))
            heard += [answer, "ok"]
    keep(world, request(*spans))
    lines = [text for turn in range(3) for text in ("ok", f"Dry {turn}", f"Purr {turn}")]
    assert [text for _, _, text in said(world)] == lines


GIVEN = {"gen_ai.conversation.id": "c", "gen_ai.agent.name": "ann"}
HI, TEA = ["Hi"], ["Hi", "Yes?", "Tea?"]
# Calls by their second: what was heard, and the answer; in the end, what counts as said.
MADE_ANEW: dict[str, tuple[dict[int, tuple[list[str], str]], list[str]]] = {
    "the first answer": ({0: (HI, "Bah."), 5: (HI, "Yes?"), 10: (TEA, "No.")}, [*TEA, "No."]),
    "the first answer, but the earlier one was kept": ({0: (HI, "Yes?"), 5: (HI, "Bah."), 10: (TEA, "No.")}, [*TEA, "No."]),
    "a later answer": (
        {0: (HI, "Yes?"), 5: (TEA, "No."), 10: (TEA, "Please."), 15: ([*TEA, "Please.", "Milk?"], "No.")},
        [*TEA, "Please.", "Milk?", "No."],
    ),
    "the same words at another beginning, after the conversation went on": (
        {0: (HI, "Yes?"), 5: (TEA, "No."), 10: (HI, "You again.")}, [*TEA, "No.", "Hi", "You again."],
    ),
    "both, as the conversation went on from neither": ({5: (TEA, "Please."), 10: (TEA, "No.")}, ["Tea?", "Please.", "No."]),
    "words again, where calls send no history": ({at: (["ok"], "Sure.") for at in (0, 10, 20)}, ["ok", "Sure."] * 3),
    "no examples of a prompt": ({0: (["Example?", "Example.", "Hi"], "Yes?")}, ["Hi", "Yes?"]),
    "words of a user that the agent said": ({0: (["Hello!"], "Hello!"), 5: (["Hello!"] * 3, "Hello!")}, ["Hello!"] * 4),
    "both, where it is not known which one was kept": ({0: (HI, "Bah."), 5: (HI, "Yes?")}, ["Hi", "Bah.", "Hi", "Yes?"]),
}  # fmt: skip


@pytest.mark.parametrize("name", MADE_ANEW)
def test_of_answers_made_anew_the_one_that_the_conversation_went_on_from_was_said(world: World, name: str) -> None:
    calls, lines = MADE_ANEW[name]
    said_at = ((at, heard, answer) for at, (heard, answer) in calls.items())
    requests = [request(chat(1, heard, answer, trace=at + 1, at=at, given=GIVEN)) for at, heard, answer in said_at]
    # Of four in a row every third order.
    for order in itertools.islice(itertools.permutations(requests), None, None, 3 if len(requests) > 3 else 1):
        emptied(world)
        for each in order:
            keep(world, each)
        assert [text for _, _, text in said(world)] == lines


def test_an_answer_in_events_that_was_made_anew_is_known_too(world: World) -> None:
    for at, heard, answer in ((0, ["Hi"], "Bah."), (5, ["Hi"], "Yes?"), (10, ["Hi", "Yes?", "Tea?"], "No.")):
        keep(world, request(span(2, GIVEN, trace=at + 1, at=at)))
        keep(world, logs(*_legacy(2, heard, answer, trace=at + 1, at=at)))
    assert [text for _, _, text in said(world)] == ["Hi", "Yes?", "Tea?", "No."]


VOICES = {
    "a visitor before another agent": ("Visitor: Is it open?\nBob: Until six.", [("Visitor", "Is it open?")]),
    "a visitor after the agent itself": (
        "Visitor: Hi\nAnn the Agent: Yes?\nVisitor: Is it open?\nOr not?",
        [("Visitor", "Is it open?\nOr not?")],
    ),
    "nobody whom the world knows": ("Visitor: Hi\nClerk: Yes?", [("user", "Visitor: Hi\nClerk: Yes?")]),
    "an agent in a sentence": ("I asked:\nBob: was he there?", [("user", "I asked:\nBob: was he there?")]),
    "one voice": ("bob: Until six.", [("user", "bob: Until six.")]),
}


@pytest.mark.parametrize("name", VOICES)
def test_several_voices_in_one_text(world: World, name: str) -> None:
    text, lines = VOICES[name]
    keep(world, request(chat(1, [text], "No.", given=GIVEN)))
    assert [(name, text) for _, name, text in said(world)] == [*lines, ("ann", "No.")]


def test_a_transcript_that_grows_in_one_text_doubles_nothing(world: World) -> None:
    transcript = ""
    for turn in range(3):
        transcript += f"Visitor: ok\nBob: Purr {turn}\n"
        keep(world, request(chat(1, [transcript], f"Dry {turn}", trace=turn + 1, at=10 * turn, given=GIVEN)))
        transcript += f"ann: Dry {turn}\n"
    lines = [line for turn in range(3) for line in (("Visitor", "ok"), ("ann", f"Dry {turn}"))]
    assert [(name, text) for _, name, text in said(world)] == lines


def test_what_was_redacted_are_nobodys_words(world: World) -> None:
    masks = ("__REDACTED__", "[REDACTED]", " <redacted>\n", "REDACTED", "[Filtered]", "[Scrubbed due to 'password']")
    words = ("My name is [REDACTED].", "Redacted.", "*a masked man enters*", "**")
    for text in (*masks, "\u2588\u2588\u2588\u2588", "********", *words):
        emptied(world)
        keep(world, request(chat(1, [text], "Yes?", given=GIVEN), chat(2, ["Tea?"], text, trace=2, at=5, given=GIVEN)))
        lines = [text] if text in words else []
        assert [line for _, _, line in said(world)] == [*lines, "Yes?", "Tea?", *lines], text


@pytest.mark.parametrize("handed", ["The kettle is on.", "ann: The kettle is on.", "Ann: The kettle is on."])
@pytest.mark.parametrize("turned", [False, True])
def test_what_one_agent_is_told_of_another_was_said_by_that_one(world: World, handed: str, turned: bool) -> None:
    first = chat(1, ["Report."], "The kettle is on.", trace=1, given=GIVEN)
    then = chat(1, [handed], "It purrs.", trace=2, at=5, given={**GIVEN, "gen_ai.agent.name": "bob"})
    for each in (then, first) if turned else (first, then):
        keep(world, request(each))
    assert said(world) == [("c", "user", "Report."), ("c", "ann", "The kettle is on."), ("c", "bob", "It purrs.")]


def test_pieces_are_dropped_when_no_more_of_their_trace_is_expected(world: World) -> None:
    keep(world, request(*conversation(2)))
    now = world.clock()
    assert forget_pieces(world.store, timedelta(days=1), now) == 0
    assert forget_pieces(world.store, timedelta(days=1), now + timedelta(days=2)) == 4
    assert len(said(world)) == 4
    keep(world, request(*conversation(2)))
    assert len(said(world)) == 4


def test_what_a_person_took_out_stays_out(world: World) -> None:
    from persona_pipeline.world.messages.store import Selection, remove_messages, select_messages

    keep(world, request(chat(2, ["Hi"], "Yes?", parent=1)))
    remove_messages(world.store, select_messages(world.store, Selection(agents=["assistant"])))
    keep(world, request(span(1, {"http.route": "/"})))
    assert [text for _, _, text in said(world)] == ["Hi"]


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"trace_id": b""}, "trace id ''"),
        ({"span_id": bytes(8)}, "span id '0000000000000000'"),
        ({"start_time_unix_nano": 0, "end_time_unix_nano": 0}, "no time"),
    ],
)
def test_a_span_without_valid_ids_and_times_is_refused(changed: dict[str, Any], problem: str) -> None:
    wrong = chat(1, ["Hi"], "Yes?")
    for name, value in changed.items():
        setattr(wrong, name, value)
    with pytest.raises(RefusedError, match=problem):
        pieces(request(wrong))


def test_a_text_that_is_too_long_is_cut_and_the_conversation_goes_on(world: World) -> None:
    long = "x" * 1_200_000
    keep(world, request(chat(1, ["Hi"], long, given=GIVEN)))
    keep(world, request(chat(1, ["Hi", long, "ok"], "Yes?", trace=2, at=5, given=GIVEN)))
    lines = [("user", 2, "Hi"), ("ann", 1_000_000, "x\u2026"), ("user", 2, "ok"), ("ann", 4, "s?")]
    assert [(name, len(text), text[-2:]) for _, name, text in said(world)] == lines


def test_names_that_are_no_names_are_made_some(world: World) -> None:
    given = {"gen_ai.conversation.id": "c" * 300, "gen_ai.agent.name": "An\nn"}
    keep(world, request(chat(1, ["Hi"], "Yes?", given=given)))
    assert {(len(channel or ""), name) for channel, name, _ in said(world)} == {(256, "user"), (256, "An n")}


@pytest.mark.parametrize(
    ("keys", "place"),
    [
        (("an event", "details", "span"), "span"),
        (("an event", "details"), "details"),
        (("b event", "an event"), "an event"),
    ],
    ids=["the span itself", "the event that tells of the whole call", "any event"],
)
def test_of_one_call_counts_what_is_said_nearest_to_it(keys: tuple[str, ...], place: str) -> None:
    (piece,) = pieces(request(chat(2, ["Hi"], "Yes?")))
    call = _call([replace(piece, key=key, conversation=key) for key in keys])
    assert call.conversation == place


@pytest.mark.parametrize(
    "around",
    [{"input": "Hi", "output": "Yes?"}, {"app.request": '{"query": "Hi"}', "app.response": '{"text": "Yes?"}'}],
)
def test_a_span_of_the_program_that_repeats_a_call_says_nothing_more(world: World, around: dict[str, str]) -> None:
    keep(world, request(span(1, around), chat(2, ["Hi"], "Yes?", parent=1)))
    assert [(speaker, text) for _, speaker, text in said(world)] == [("user", "Hi"), ("assistant", "Yes?")]


def test_what_looks_like_a_call_and_has_no_known_form_is_refused(world: World) -> None:
    output = '{"role": "assistant", "content": "Yes?", "used_tools": [{"a": 1}]}'
    with pytest.raises(RefusedError, match=r"0001: output\.used_tools looks like a tool call"):
        pieces(request(span(1, {"input": "Hi", "output": output})))
