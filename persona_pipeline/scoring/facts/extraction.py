"""Facts an agent stated about itself, each with the line it was said in: one question a conversation, quotes checked in code."""

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from persona_pipeline.base.documents.json import content_hash, list_schema, object_schema
from persona_pipeline.judging.claims import TEXT_SCHEMA, checked_quote, plain_json, suspicious_entries
from persona_pipeline.judging.verdict import Question
from persona_pipeline.scoring.text.tokens import tokenize
from persona_pipeline.scoring.voice_alarm.learning import conversations
from persona_pipeline.world.models import Entry, Message, Trajectory

TEXTS: Mapping[str, Mapping[str, str]] = tomllib.loads(
    (Path(__file__).parent / "data" / "facts.toml").read_text(encoding="utf-8")
)
# Everybody has one life of the first; of the others only what is about the same can contradict.
ONE_LIFE = ("age", "birthday", "home", "family", "work", "past")
KINDS = (*ONE_LIFE, "possessions", "preferences", "opinions", "promises", "abilities")
QUOTE_SCHEMA = object_schema({"message": TEXT_SCHEMA, "quote": TEXT_SCHEMA})
_FACT = {"evidence": QUOTE_SCHEMA, "kind": {**TEXT_SCHEMA, "enum": list(KINDS)}, "about": TEXT_SCHEMA}
_FACTS = list_schema(object_schema({**_FACT, "value": TEXT_SCHEMA, "holds": {"type": "boolean"}}))
NO_QUOTE = "quote not found"
# Of a piece of conversation that is read at once; of what is kept of a fact, and of the line around it.
MOST_MESSAGES, MOST_CHARACTERS, _LONGEST, _LINE = 80, 24_000, 200, 400


class Fact(BaseModel, frozen=True):
    """One thing an agent said of itself, or that a person laid down as canon.

    Attributes:
        kind: one of ``KINDS``; "": canon of no kind. ``about``: what of it; "" where the kind says it all.
        holds: False: it is not so.
        quote: its words; ``line``: the message they stand in, or of a long one they alone.
        source: the message's id; of canon file and line.
        said_at: UTC; of canon since when it holds, None: always.
    """

    kind: str
    value: str
    quote: str
    line: str
    source: str
    about: str = ""
    holds: bool = True
    said_at: datetime | None = None
    is_canon: bool = False

    @property
    def id(self) -> str:
        """8 hex digits made of the line and what it says."""
        return content_hash([self.source, self.text, self.quote])[:8]

    @property
    def text(self) -> str:
        """What it says, in a line."""
        return ": ".join(filter(None, (self.kind, self.about, f"{'' if self.holds else 'not '}{self.value}")))


def facts_question(kind: str, agent_id: str, shown: Sequence[Mapping[str, Any]], answer: Mapping[str, Any]) -> Question:
    """Return the question of a kind; the same content is the same recording. ``answer``: the schema of what it lists."""
    rules, schema = TEXTS[kind]["rules"], object_schema({kind: answer})
    return Question(
        kind=kind,
        subject={"kind": kind, "agent_id": agent_id, "shown": content_hash(shown)},
        label=f"{kind} of {agent_id}",
        system=rules,
        evidence=plain_json(shown),
        ask=TEXTS[kind]["ask"],
        schema=schema,
        max_tokens=4096,
        agent_id=agent_id,
        prompt_version=f"{kind}-1-{content_hash([rules, schema])[:8]}",
    )


@dataclass(frozen=True)
class SelfTalk:
    """A conversation, or of a long one a piece, in which an agent spoke. ``number``: of the conversation."""

    agent_id: str
    number: int
    messages: Sequence[Message]

    @cached_property
    def trajectory(self) -> Trajectory:
        """What is shown of it: the agent is called AGENT, and the others are numbered."""
        names = dict.fromkeys([self.agent_id, *(message.agent_id for message in self.messages)])
        labels = {name: f"Speaker {place}" if place else "AGENT" for place, name in enumerate(names)}
        return Trajectory(tuple(Entry(labels[item.agent_id], item.text, item.id) for item in self.messages))

    @property
    def question(self) -> Question:
        """What is asked of it."""
        return facts_question("facts", self.agent_id, self.trajectory.content(), _FACTS)

    def facts(self, data: Mapping[str, Any], left_out: Counter[str]) -> list[Fact]:
        """Return the facts of a valid answer that stand in the agent's own words; ``left_out`` counts the others, by reason."""
        said, suspicious = {message.id: message for message in self.messages}, suspicious_entries(self.trajectory)
        found = dict[str, Fact]()
        for item in data["facts"]:
            quoted = checked_quote(self.trajectory, item["evidence"]["message"], item["evidence"]["quote"])
            about, value, quote = (" ".join(text.split()) for text in (item["about"], item["value"], quoted.quote))
            message = said.get(quoted.message_id or "") if quoted.verified else None
            if message is None:
                left_out[NO_QUOTE] += 1
            elif message.agent_id != self.agent_id:
                left_out["not in its own words"] += 1
            elif message.id in suspicious:
                left_out["written for a judge"] += 1
            elif not value or max(len(about), len(value)) > _LONGEST or not (about + value).isprintable():
                left_out["unreadable"] += 1
            elif len(tokenize(quote)) < 2 and quote != message.text.strip():
                left_out["quote too short"] += 1
            else:
                line = " ".join(message.text.split())
                told = {"kind": item["kind"], "about": about, "value": value, "holds": item["holds"], "quote": quote}
                where = {
                    "line": line if len(line) <= _LINE else quote,
                    "source": message.id,
                    "said_at": message.created_at,
                }
                fact = Fact.model_validate(told | where)
                found[fact.id] = fact
        return list(found.values())


def talks_of(agent_id: str, messages: Sequence[Message]) -> list[SelfTalk]:
    """Return the conversations of everybody's messages, in order of time, in which an agent spoke.

    A conversation is one place without a pause of an hour; a long one is in pieces of at most 80 messages and 24,000 characters,
    or one message that is longer.
    """
    parts: dict[int, list[list[Message]]] = {}
    for message, number in zip(messages, conversations(messages).tolist(), strict=True):
        own = parts.setdefault(number, [[]])
        size = sum(len(earlier.text) for earlier in own[-1]) + len(message.text)
        if len(own[-1]) == MOST_MESSAGES or (own[-1] and size > MOST_CHARACTERS):
            own.append([])
        own[-1].append(message)
    pieces = [SelfTalk(agent_id, number, part) for number, own in parts.items() for part in own]
    return [piece for piece in pieces if any(message.agent_id == agent_id for message in piece.messages)]
