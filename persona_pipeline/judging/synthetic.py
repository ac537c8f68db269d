"""Conversations for agents with too few messages: the persona answers sample prompts. All messages are marked synthetic."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from persona_pipeline.base.documents.json import content_hash, object_schema
from persona_pipeline.judging.claims import TEXTS, plain_json
from persona_pipeline.judging.verdict import Backend, Question, Usage
from persona_pipeline.world.models import Message, Persona

CHANNEL = "synthetic"
VISITOR = "visitor"
_MINUTES_APART = 5
_MAX_TOKENS = 700
# As long as generated messages usually are.
_USUAL = "This is what a message looks like that is as long as usual. " * 6

# Each is one conversation: what the visitor says, turn by turn, whatever the answers are.
SAMPLE_PROMPTS: tuple[tuple[str, ...], ...] = tuple(map(tuple, TEXTS["prompts"]))
RULES: str = TEXTS["synthetic"]
SCHEMA = object_schema({"message": {"type": "string"}})
PROMPT_VERSION = f"synthetic-1-{content_hash({'rules': RULES, 'schema': SCHEMA})[:8]}"


@dataclass(frozen=True)
class SyntheticConversations:
    """Generated messages, and the reasons why conversations ended early.

    The messages are the visitor's and the agent's, oldest first, all marked synthetic, in the channel ``synthetic``.
    """

    messages: tuple[Message, ...] = ()
    failures: tuple[str, ...] = ()
    usage: Usage = field(default_factory=Usage)


@dataclass
class _Conversation:
    prompts: Sequence[str]
    texts: list[str] = field(default_factory=list)
    failure: str = ""


async def generate_conversations(
    persona: Persona, backend: Backend, *, ends: datetime, prompts: Sequence[Sequence[str]] = SAMPLE_PROMPTS
) -> SyntheticConversations:
    """Let a persona answer sample prompts, side by side; the last message is of ``ends``, the others minutes before one another."""
    conversations = [_Conversation(turns) for turns in prompts]
    usage = Usage()
    for turn in range(max((len(turns) for turns in prompts), default=0)):
        open_ones = [item for item in conversations if not item.failure and turn < len(item.prompts)]
        for item in open_ones:
            item.texts.append(item.prompts[turn])
        answers = await backend.ask([_question(persona, item.texts) for item in open_ones])
        for item, answer in zip(open_ones, answers, strict=True):
            usage += answer.usage
            if answer.data is None:
                item.texts.pop()
                item.failure = f"{answer.unscored}: {answer.detail}"
            else:
                item.texts.append(answer.data["message"].strip())
    return SyntheticConversations(
        messages=_messages(persona, conversations, ends),
        failures=tuple(item.failure for item in conversations if item.failure),
        usage=usage,
    )


def expected_conversations(persona: Persona, *, ends: datetime) -> tuple[list[Question], tuple[Message, ...]]:
    """Return the questions that generate an agent's conversations, and the messages, if every answer has the usual length."""
    conversations, questions = [_Conversation(turns) for turns in SAMPLE_PROMPTS], list[Question]()
    for item in conversations:
        for prompt in item.prompts:
            item.texts.append(prompt)
            questions.append(_question(persona, item.texts))
            item.texts.append(_USUAL)
    return questions, _messages(persona, conversations, ends)


def _question(persona: Persona, texts: Sequence[str]) -> Question:
    so_far = [
        {"speaker": persona.display_name if index % 2 else "Visitor", "text": text} for index, text in enumerate(texts)
    ]
    return Question(
        kind="synthetic",
        subject={"kind": "synthetic", "persona": persona.persona, "name": persona.display_name, "conversation": so_far},
        label=f"synthetic conversation of {persona.agent_id}",
        system=RULES,
        context=(f"Who you are, as JSON:\n{plain_json({'name': persona.display_name, 'persona': persona.persona})}",),
        evidence=plain_json(so_far),
        ask="Write your next message.",
        schema=SCHEMA,
        max_tokens=_MAX_TOKENS,
        agent_id=persona.agent_id,
        prompt_version=PROMPT_VERSION,
        check=_problem,
    )


def _problem(data: Any) -> str | None:
    if not isinstance(data, dict) or set(data) != {"message"} or not isinstance(data["message"], str):
        return "the answer is not an object with the one key 'message'"
    return None if data["message"].strip() else "the message is empty"


def _messages(persona: Persona, conversations: Sequence[_Conversation], ends: datetime) -> tuple[Message, ...]:
    spoken = [
        (persona.agent_id if index % 2 else VISITOR, text)
        for item in conversations
        for index, text in enumerate(item.texts)
    ]
    messages = []
    for place, (speaker, text) in enumerate(spoken):
        identity = content_hash([persona.agent_id, persona.hash, place, speaker, text])
        messages.append(
            Message(
                id=f"synthetic-{identity[:24]}",
                agent_id=speaker,
                text=text,
                created_at=ends - timedelta(minutes=_MINUTES_APART * (len(spoken) - 1 - place)),
                channel=CHANNEL,
                synthetic=True,
            )
        )
    return tuple(messages)
