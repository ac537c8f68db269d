"""Facts read from what agents said, and which of an agent's cannot both be true: a judged call over pairs found in code."""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import combinations
from typing import Any

from pydantic import BaseModel

from persona_pipeline.base.documents.json import list_schema, object_schema
from persona_pipeline.judging.claims import TEXT_SCHEMA, checked_quote
from persona_pipeline.judging.verdict import Answer, Ask, Question, QuoteHealth, Unscored, Usage, unscored_label
from persona_pipeline.scoring.facts.extraction import NO_QUOTE, ONE_LIFE, QUOTE_SCHEMA, Fact, SelfTalk, facts_question
from persona_pipeline.scoring.text.tokens import tokenize
from persona_pipeline.world.models import Entry, Trajectory, Window, grouped

_PAIR = {"first": QUOTE_SCHEMA, "second": QUOTE_SCHEMA, "reasoning": TEXT_SCHEMA}
_DECIDED = {"verdict": {**TEXT_SCHEMA, "enum": ["contradiction", "explained"]}}
_CONTRADICTIONS = list_schema(object_schema({**_PAIR, **_DECIDED}))
# Facts of an agent that are compared at once; of more the newest, beside canon.
MOST_FACTS = 200
NO_PAIR = "no such pair in its lines"


class Contradiction(BaseModel, frozen=True):
    """Two facts that cannot both be true, the older or the canon first, and why, in the judge's words."""

    first: Fact
    second: Fact
    reason: str


def candidates(facts: Sequence[Fact], fresh: Set[str]) -> list[tuple[Fact, Fact]]:
    """Return the pairs that may contradict, the older or the canon first; ``fresh``: ids, of which each pair has one.

    Of what was said again the first and the last time count. Nothing said before its day is held against canon.
    """
    again = grouped(sorted(facts, key=_place), lambda fact: (fact.text.casefold(), fact.is_canon))
    once = sorted({fact.id: fact for same in again.values() for fact in (same[0], same[-1])}.values(), key=_place)
    said = grouped((fact for fact in once if not fact.is_canon), lambda fact: fact.kind)
    pairs = [pair for alike in said.values() for pair in combinations(alike, 2) if _may_clash(*pair)]
    canon = [
        (fact, other)
        for fact in once
        if fact.is_canon
        for kind in said
        for other in said[kind]
        if fact.kind in ("", kind)
    ]
    pairs += [(fact, other) for fact, other in canon if _moment(fact) <= _moment(other)]
    return [pair for pair in pairs if not fresh.isdisjoint({pair[0].id, pair[1].id})]


def _moment(fact: Fact) -> datetime:
    return fact.said_at or datetime.min.replace(tzinfo=UTC)


def _place(fact: Fact) -> tuple[bool, datetime, str]:
    return not fact.is_canon, _moment(fact), fact.id


def _may_clash(first: Fact, second: Fact) -> bool:
    if first.source == second.source or first.text.casefold() == second.text.casefold():
        return False
    whole = first.kind in ONE_LIFE or not (first.about and second.about)
    return whole or not _words(first).isdisjoint(_words(second))


def _words(fact: Fact) -> set[str]:
    return {word.removesuffix("s") for word in tokenize(f"{fact.about} {fact.value}") if len(word) > 2}


@dataclass(frozen=True)
class FactsComparison:
    """Facts of an agent that are compared in one call. ``pairs``: those that may contradict; ``left``: so many are too many."""

    question: Question
    trajectory: Trajectory
    pairs: Mapping[frozenset[str], tuple[Fact, Fact]]
    left: int

    @classmethod
    def of(cls, agent_id: str, pairs: Sequence[tuple[Fact, Fact]]) -> "FactsComparison":
        """Return what is asked about pairs."""
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
        known, question = {fact.id for fact in shown}, facts_question("contradictions", agent_id, rows, _CONTRADICTIONS)
        asked = {frozenset((a.id, b.id)): (a, b) for a, b in pairs if {a.id, b.id} <= known}
        return cls(question, trajectory, asked, len(pairs) - len(asked))

    def contradictions(self, data: Mapping[str, Any], left_out: Counter[str]) -> list[Contradiction]:
        """Return the contradictions of a valid answer whose two lines are quoted; ``left_out`` counts the others."""
        found = dict[tuple[str, str], Contradiction]()
        for item in (item for item in data["contradictions"] if item["verdict"] == "contradiction"):
            sides = [item["first"], item["second"]]
            quotes = [checked_quote(self.trajectory, side["message"], side["quote"]) for side in sides]
            pair = self.pairs.get(frozenset(quote.message_id or "" for quote in quotes if quote.verified))
            if pair is None:
                left_out[NO_PAIR] += 1
            else:
                reason = " ".join(item["reasoning"].split())
                said = Contradiction(first=pair[0], second=pair[1], reason=reason)
                found.setdefault((pair[0].text, pair[1].text), said)
        return list(found.values())


@dataclass(frozen=True)
class FactsRequest:
    """What is read of an agent, what is laid down of it, and the window of which each pair that is compared has a fact."""

    agent_id: str
    talks: Sequence[SelfTalk]
    canon: Sequence[Fact]
    window: Window


@dataclass
class FactsFound:
    """What an agent said of itself.

    Attributes:
        read: of its ``conversations`` those that were read in full.
        uncompared: pairs that may contradict and were not decided.
        failed: answers that were not given, by reason; ``detail``: of the first, what went wrong.
        left_out: facts and pairs that do not stand in a line as they were quoted, by reason.
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
        """Whether all was read and compared by a judge that can quote: else no contradiction does not mean that there is none."""
        failing = sum(self.left_out[why] for why in (NO_QUOTE, NO_PAIR))
        quotes = QuoteHealth(len(self.facts) + len(self.contradictions) + failing, failing)
        return self.read == self.conversations and not self.uncompared and not quotes.is_doubtful

    @property
    def summary(self) -> str:
        """What was read, in a line."""
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
    """Return what agents said of themselves: all their conversations are asked about at once, then what may contradict."""
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
