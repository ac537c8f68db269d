"""Statements of agents about themselves: facts with their lines, one question per conversation, and contradictions.

Code checks the quotes of every answer: a fact needs a quote of the agent's own words, a contradiction quotes of two of its lines.
"""

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from itertools import combinations, product
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from persona_pipeline.base.documents.json import content_hash, list_schema, object_schema
from persona_pipeline.judging.claims import TEXT_SCHEMA, checked_quote, plain_json, suspicious_entries
from persona_pipeline.judging.verdict import Answer, Ask, Question, QuoteHealth, Unscored, Usage, unscored_label
from persona_pipeline.scoring.text.tokens import tokenize
from persona_pipeline.world.models import Entry, Message, Trajectory, Window, conversations, grouped

TEXTS: Mapping[str, Mapping[str, str]] = tomllib.loads((Path(__file__).parent / "data/facts.toml").read_text("utf-8"))
# A person has one of each of these; facts of the other kinds contradict only if they are about the same thing.
_ONE_LIFE = ("age", "birthday", "home", "family", "work", "past")
KINDS = (*_ONE_LIFE, "possessions", "preferences", "opinions", "promises", "abilities")
_QUOTE = object_schema({"message": TEXT_SCHEMA, "quote": TEXT_SCHEMA})
_FACT = {"evidence": _QUOTE, "kind": {**TEXT_SCHEMA, "enum": list(KINDS)}, "about": TEXT_SCHEMA, "value": TEXT_SCHEMA}
_VERDICT = {**TEXT_SCHEMA, "enum": ["contradiction", "explained"]}
_PAIR = {"first": _QUOTE, "second": _QUOTE, "reasoning": TEXT_SCHEMA, "verdict": _VERDICT}
# Schema of the rows in the answer to each kind of question.
_LISTED = {"facts": {**_FACT, "holds": {"type": "boolean"}}, "contradictions": _PAIR}
_NO_QUOTE = "quote not found"
# Limits of a piece of conversation (messages, characters), and characters of a fact and of its line.
MOST_MESSAGES, MOST_CHARACTERS, _LONGEST, _LINE = 80, 24_000, 200, 400
# Facts of an agent that are compared in one call: canon, then the newest.
MOST_FACTS = 200


class Fact(BaseModel, frozen=True):
    """A statement of an agent about itself, or a canon fact that a person wrote.

    Attributes:
        kind: one of ``KINDS``; "": canon without a kind. ``about``: the topic; "" where the kind says enough.
        holds: False: the statement is negated.
        quote: its words; ``line``: the message that contains them, or the quote alone if the message is long.
        source: the message's id; for canon, file and line.
        said_at: UTC; for canon, the start of its validity, None: always valid.
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
        """8 hex digits of the hash of source, text and quote."""
        return content_hash([self.source, self.text, self.quote])[:8]

    @property
    def text(self) -> str:
        """The fact as one line."""
        return ": ".join(filter(None, (self.kind, self.about, f"{'' if self.holds else 'not '}{self.value}")))


def _question(kind: str, agent_id: str, shown: Sequence[Mapping[str, Any]]) -> Question:
    """Return the question of a kind; the same content uses the same recording."""
    rules, schema = TEXTS[kind]["rules"], object_schema({kind: list_schema(object_schema(_LISTED[kind]))})
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
    """A conversation in which an agent spoke, or a piece of a long one. ``number``: of the conversation."""

    agent_id: str
    number: int
    messages: Sequence[Message]

    @cached_property
    def trajectory(self) -> Trajectory:
        """The messages as the judge sees them: the agent is called AGENT, and the others are numbered."""
        names = dict.fromkeys([self.agent_id, *(message.agent_id for message in self.messages)])
        labels = {name: f"Speaker {place}" if place else "AGENT" for place, name in enumerate(names)}
        return Trajectory(tuple(Entry(labels[item.agent_id], item.text, item.id) for item in self.messages))

    @property
    def question(self) -> Question:
        """The question about its facts."""
        return _question("facts", self.agent_id, self.trajectory.content())

    def facts(self, data: Mapping[str, Any], left_out: Counter[str]) -> list[Fact]:
        """Return the facts of a valid answer that quote the agent's own words; ``left_out`` counts the others, by reason."""
        said, suspicious = {message.id: message for message in self.messages}, suspicious_entries(self.trajectory)
        found = dict[str, Fact]()
        for item in data["facts"]:
            quoted = checked_quote(self.trajectory, item["evidence"]["message"], item["evidence"]["quote"])
            about, value, quote = (" ".join(text.split()) for text in (item["about"], item["value"], quoted.quote))
            message = said.get(quoted.message_id or "") if quoted.verified else None
            if message is None:
                left_out[_NO_QUOTE] += 1
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
                told |= {"line": line if len(line) <= _LINE else quote, "source": message.id}
                fact = Fact.model_validate({**told, "said_at": message.created_at})
                found[fact.id] = fact
        return list(found.values())


def talks_of(agent_id: str, messages: Sequence[Message]) -> list[SelfTalk]:
    """Return the conversations in which an agent spoke. ``messages``: of all speakers, in order of time.

    A conversation is in one place, without a pause of an hour. A long one is split into pieces of at most 80 messages and 24,000
    characters; a longer message is a piece on its own.
    """
    parts: dict[int, list[list[Message]]] = {}
    for message, number in zip(messages, conversations(messages), strict=True):
        own = parts.setdefault(number, [[]])
        size = sum(len(earlier.text) for earlier in own[-1]) + len(message.text)
        if len(own[-1]) == MOST_MESSAGES or (own[-1] and size > MOST_CHARACTERS):
            own.append([])
        own[-1].append(message)
    pieces = [SelfTalk(agent_id, number, part) for number, own in parts.items() for part in own]
    return [piece for piece in pieces if any(message.agent_id == agent_id for message in piece.messages)]


class Contradiction(BaseModel, frozen=True):
    """Two facts that cannot both be true, the older or canon fact first, and the judge's reason."""

    first: Fact
    second: Fact
    reason: str


def candidates(facts: Sequence[Fact], fresh: Set[str]) -> list[tuple[Fact, Fact]]:
    """Return the pairs that may contradict, the older or canon fact first; each pair has at least one id of ``fresh``.

    For a repeated statement the first and last time count. Canon is compared only with statements since its day.
    """
    again = grouped(sorted(facts, key=_place), lambda fact: (fact.text.casefold(), fact.is_canon))
    once = sorted({fact.id: fact for same in again.values() for fact in (same[0], same[-1])}.values(), key=_place)
    canon, said = ([fact for fact in once if fact.is_canon is laid_down] for laid_down in (True, False))
    pairs = [
        (law, fact)
        for law, fact in product(canon, said)
        if law.kind in ("", fact.kind) and _moment(law) <= _moment(fact)
    ]
    for alike in grouped(said, lambda fact: fact.kind).values():
        pairs += [pair for pair in combinations(alike, 2) if _may_clash(*pair)]
    return [pair for pair in pairs if not fresh.isdisjoint({pair[0].id, pair[1].id})]


def _moment(fact: Fact) -> datetime:
    return fact.said_at or datetime.min.replace(tzinfo=UTC)


def _place(fact: Fact) -> tuple[bool, datetime, str]:
    return not fact.is_canon, _moment(fact), fact.id


def _may_clash(first: Fact, second: Fact) -> bool:
    if first.source == second.source or first.text.casefold() == second.text.casefold():
        return False
    whole = first.kind in _ONE_LIFE or not (first.about and second.about)
    return whole or not _words(first).isdisjoint(_words(second))


def _words(fact: Fact) -> set[str]:
    return {word.removesuffix("s") for word in tokenize(f"{fact.about} {fact.value}") if len(word) > 2}


@dataclass(frozen=True)
class FactsComparison:
    """Facts of an agent that are compared in one call. ``pairs``: may contradict; ``left``: number of pairs beyond the limit."""

    question: Question
    trajectory: Trajectory
    pairs: Mapping[frozenset[str], tuple[Fact, Fact]]
    left: int

    @classmethod
    def of(cls, agent_id: str, pairs: Sequence[tuple[Fact, Fact]]) -> "FactsComparison":
        """Return the comparison of pairs, with its question."""
        facts = sorted({fact.id: fact for pair in pairs for fact in pair}.values(), key=_place)
        canon = [fact for fact in facts if fact.is_canon][: MOST_FACTS // 2]
        shown = [*canon, *[fact for fact in facts if not fact.is_canon][len(canon) - MOST_FACTS :]]
        trajectory = Trajectory(tuple(Entry("AGENT", fact.line, fact.id) for fact in shown))
        rows = [
            {"id": row["id"], "text": row["text"], **fact.model_dump(include={"kind", "about", "value", "holds"})}
            | ({"said": fact.said_at.date().isoformat()} if fact.said_at else {})
            | ({"canon": True} if fact.is_canon else {})
            for row, fact in zip(trajectory.content(), shown, strict=True)
        ]
        known, question = {fact.id for fact in shown}, _question("contradictions", agent_id, rows)
        asked = {frozenset((a.id, b.id)): (a, b) for a, b in pairs if {a.id, b.id} <= known}
        return cls(question, trajectory, asked, len(pairs) - len(asked))

    def contradictions(self, data: Mapping[str, Any], left_out: Counter[str]) -> list[Contradiction]:
        """Return the contradictions of a valid answer whose two lines are quoted; ``left_out`` counts the others."""
        found = dict[tuple[str, str], Contradiction]()
        for item in (item for item in data["contradictions"] if item["verdict"] == "contradiction"):
            sides = [item["first"], item["second"]]
            quotes = [checked_quote(self.trajectory, side["message"], side["quote"]) for side in sides]
            pair = self.pairs.get(frozenset(quote.message_id or "" for quote in quotes))
            if not all(quote.verified for quote in quotes) or pair is None:
                left_out["pair not about the same" if pair is None else _NO_QUOTE] += 1
            else:
                said = Contradiction(first=pair[0], second=pair[1], reason=" ".join(item["reasoning"].split()))
                found.setdefault((pair[0].text, pair[1].text), said)
        return list(found.values())


@dataclass(frozen=True)
class FactsRequest:
    """Conversations and canon of an agent, and a window: each compared pair has a fact of it."""

    agent_id: str
    talks: Sequence[SelfTalk]
    canon: Sequence[Fact]
    window: Window


@dataclass
class FactsFound:
    """Facts and contradictions of an agent.

    Attributes:
        read: number of its ``conversations`` that were read in full.
        uncompared: number of pairs that may contradict and were not decided.
        failed: number of missing answers by reason; ``detail``: the first failure.
        left_out: number of rejected facts and pairs by reason, such as a quote that is not in the line.
    """

    agent_id: str
    facts: list[Fact] = field(default_factory=list)
    contradictions: list[Contradiction] = field(default_factory=list)
    conversations: int = 0
    read: int = 0
    uncompared: int = 0
    failed: Counter[Unscored] = field(default_factory=Counter)
    detail: str = ""
    left_out: Counter[str] = field(default_factory=Counter)
    usage: Usage = field(default_factory=Usage)

    @property
    def is_whole(self) -> bool:
        """Whether a judge that quotes correctly read and compared everything: only then an empty result means no contradiction."""
        failing = self.left_out[_NO_QUOTE]
        quotes = QuoteHealth(len(self.facts) + len(self.contradictions) + failing, failing)
        return self.read == self.conversations and not self.uncompared and not quotes.is_doubtful

    @property
    def summary(self) -> str:
        """Summary of the reading in one line."""
        said = f"facts: {self.read} of {self.conversations} conversations read, {len(self.facts)} facts"
        said += f", {len(self.contradictions)} contradictions"
        said += f", {self.uncompared} pairs not compared" if self.uncompared else ""
        reasons = {unscored_label(reason): count for reason, count in self.failed.items()} | self.left_out
        return said + "".join(f"; {count} {why}" for why, count in reasons.items())

    def _taken(self, answer: Answer) -> Mapping[str, Any] | None:
        self.usage += answer.usage
        if answer.unscored:
            self.failed[answer.unscored] += 1
            self.detail = self.detail or answer.detail
        return answer.data


async def find_facts(asked: Sequence[FactsRequest], ask: Ask) -> list[FactsFound]:
    """Return the facts and contradictions of agents: one batch asks about all conversations, a second about candidate pairs."""
    found, compared = [FactsFound(item.agent_id) for item in asked], list[tuple[FactsFound, FactsComparison]]()
    questions = [talk.question for item in asked for talk in item.talks]
    answers = iter(await ask(questions) if questions else ())
    for own, item in zip(found, asked, strict=True):
        unread = set[int]()
        for talk in item.talks:
            if data := own._taken(next(answers)):
                own.facts += talk.facts(data, own.left_out)
            else:
                unread.add(talk.number)
        own.conversations = len({talk.number for talk in item.talks})
        own.read = own.conversations - len(unread)
        fresh = {fact.id for fact in own.facts if fact.said_at and fact.said_at in item.window}
        if pairs := candidates([*item.canon, *own.facts], fresh):
            compared.append((own, FactsComparison.of(item.agent_id, pairs)))
    answers = await ask([item.question for _, item in compared]) if compared else ()
    for (own, item), answer in zip(compared, answers, strict=True):
        data = own._taken(answer)
        own.contradictions = item.contradictions(data, own.left_out) if data else []
        own.uncompared = item.left + (0 if data else len(item.pairs))
    return found
