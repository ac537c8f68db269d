"""A judge of the gate that scores by what the message says, in process or over the wire."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store
from persona_pipeline.judging.verdict import Answer, Question, Unscored, Usage
from persona_pipeline.world import CorrectionSettings, World
from persona_pipeline.world.models import Message
from tests.support.messages_server import Call, Reply, message

GATED = CorrectionSettings(action_gate_enabled=True)


def bypass_counts(store: Store) -> dict[str, int]:
    """How many texts went past the gate, by reason."""
    bypasses = tables.gate_bypasses
    query = sa.select(bypasses.c.reason, sa.func.sum(bypasses.c["count"])).group_by(bypasses.c.reason)
    with store.connect() as connection:
        return {row[0]: int(row[1]) for row in connection.execute(query)}


def reviewed_text(evidence: str) -> str:
    """The message under review, the last entry of a transcript."""
    return json.loads(evidence)[-1]["text"]


def scores_of(text: str, claims: Sequence[dict[str, str]]) -> dict[str, Any]:
    """A valid answer: every claim scores the digit the text ends with, `n` for not applicable."""
    last = text.strip()[-1:]
    score = None if last == "n" else int(last) if last.isdigit() else 7
    return {"verdicts": [{"id": claim["id"], "reason": f"It says {text[:20]!r}.", "score": score} for claim in claims]}


def claims_of(context: Sequence[str]) -> list[dict[str, str]]:
    """The claims in the context of a gate's question."""
    return json.loads(context[-1].partition("\n")[2])["claims"]


def answer_gate(call: Call) -> Reply:
    """A handler for ``MessagesServer``."""
    context = [block["text"] for block in call.body["messages"][0]["content"][:-1]]
    return message(json.dumps(scores_of(reviewed_text(call.evidence), claims_of(context))), model=call.body["model"])


class TextBackend:
    """Answers like ``answer_gate`` without a server, and keeps the questions."""

    name = "text"
    live = False

    def __init__(self, answer: Callable[[Question], Answer] | None = None) -> None:
        self.questions: list[Question] = []
        self._answer = answer or self._by_text

    async def ask(self, questions: Sequence[Question]) -> list[Answer]:
        self.questions += questions
        return [self._answer(question) for question in questions]

    @staticmethod
    def _by_text(question: Question) -> Answer:
        data = scores_of(reviewed_text(question.evidence), claims_of(question.context))
        assert question.check is not None
        assert question.check(data) is None
        return Answer(data, usage=Usage(100, 20, calls=1, usd=0.00002), model="text-1")


def unscored(reason: Unscored) -> Callable[[Question], Answer]:
    return lambda _: Answer(unscored=reason, detail="as told", usage=Usage(10, 0, calls=1, usd=0.000001))


def spoil_settings(world: World, agent_id: str) -> None:
    """Store settings that are not valid, as somebody with access to the database can."""
    table = tables.agent_evaluation_config
    with world.store.begin() as connection:
        connection.execute(sa.update(table).where(table.c.agent_id == agent_id).values(action_gate_threshold=99))


def say(world: World, *said: tuple[str, str | None, str]) -> None:
    """Write messages (speaker, channel or None for a direct one to bob, text) to the store, a minute apart."""
    from datetime import UTC, datetime, timedelta

    from persona_pipeline.world.messages.store import write_messages

    start = datetime(2026, 4, 1, tzinfo=UTC)
    write_messages(
        world.store,
        [
            Message(
                f"said-{number}",
                speaker,
                text,
                start + timedelta(minutes=number),
                channel=channel,
                recipient=None if channel else "bob",
            )
            for number, (speaker, channel, text) in enumerate(said)
        ],
    )
