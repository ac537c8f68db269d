"""Conversations a persona is led into, for agents who have said too little."""

import asyncio
import json
from datetime import UTC, datetime

from persona_pipeline.evaluation.plan import FEWEST_MESSAGES
from persona_pipeline.judging.model.asking import ModelBackend
from persona_pipeline.judging.synthetic import (
    SAMPLE_PROMPTS,
    SyntheticConversations,
    generate_conversations,
)
from persona_pipeline.world.models import Persona
from tests.support.messages_server import Call, MessagesServer, Reply, message

ENDS = datetime(2026, 6, 19, 17, 0, tzinfo=UTC)
KEVIN = Persona("kevin", "Kevin", "An accountant who loves chili.")


def reply(call: Call) -> Reply:
    so_far = json.loads(call.evidence)
    return message(json.dumps({"message": f"Chili, {len(so_far)}. {so_far[-1]['text'][:12]}"}))


def generate(backend: ModelBackend, **arguments: object) -> SyntheticConversations:
    return asyncio.run(generate_conversations(KEVIN, backend, ends=ENDS, **arguments))  # pyright: ignore


def test_the_sample_prompts_suffice_for_an_evaluation() -> None:
    assert sum(len(turns) for turns in SAMPLE_PROMPTS) >= FEWEST_MESSAGES


def test_every_message_is_marked_synthetic_and_has_its_place_and_time(
    server: MessagesServer, backend: ModelBackend
) -> None:
    server.handler = reply
    made = generate(backend)
    assert made.failures == ()
    assert all(item.synthetic and item.channel == "synthetic" for item in made.messages)
    assert [item.agent_id for item in made.messages[:4]] == ["visitor", "kevin", "visitor", "kevin"]
    assert sum(item.agent_id == "kevin" for item in made.messages) == 10
    assert made.messages[-1].created_at == ENDS
    assert [item.created_at for item in made.messages] == sorted({item.created_at for item in made.messages})
    assert len({item.id for item in made.messages}) == len(made.messages)
    assert made.usage.calls == 10 and backend.spent == made.usage
    assert generate(backend).messages == made.messages, "the same answers make the same messages"


def test_a_conversation_goes_on_from_what_was_said(server: MessagesServer, backend: ModelBackend) -> None:
    server.handler = reply
    generate(backend, prompts=[("Hi!", "And then?")])
    assert json.loads(server.calls[1].evidence) == [
        {"speaker": "Visitor", "text": "Hi!"},
        {"speaker": "Kevin", "text": "Chili, 1. Hi!"},
        {"speaker": "Visitor", "text": "And then?"},
    ]
    assert "An accountant who loves chili." in server.calls[0].body["messages"][0]["content"][0]["text"]


def test_a_turn_that_fails_ends_its_conversation_and_no_other(server: MessagesServer, backend: ModelBackend) -> None:
    server.handler = lambda call: message(None, stop_reason="refusal") if "A?" in call.evidence else reply(call)
    made = generate(backend, prompts=[("A?", "more"), ("B?", "more")])
    assert [item.text for item in made.messages] == ["B?", "Chili, 1. B?", "more", "Chili, 3. more"]
    assert made.failures == ("refusal: the model refused",)


def test_an_empty_message_is_no_message(server: MessagesServer, backend: ModelBackend) -> None:
    server.handler = lambda call: message(json.dumps({"message": "  "}))
    made = generate(backend, prompts=[("A?",)])
    assert made.messages == ()
    assert made.failures == ("invalid_output: the message is empty",)
