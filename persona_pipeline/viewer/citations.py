"""Which messages judges cited, for and against which claims: read off the runs of the store once, and then only what is new."""

import re
import threading
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store, chunks
from persona_pipeline.guard.labels.files import ANONYMOUS
from persona_pipeline.scoring.results import LOW_SCORE, PropositionResult, cited_messages
from persona_pipeline.world.models import Message, Window
from persona_pipeline.world.propositions.models import claim_variables
from persona_pipeline.world.runs import counting_rows, counting_state

# Runs whose citations are known, the newest windows first: a hundred thousand messages have a few hundred.
MOST_RUNS = 3000
# Runs that are read at once in the background, and seconds between them.
_AT_ONCE, _PAUSE = 20, 0.02
_RUNS = tables.evaluation_runs


class Citation(NamedTuple):
    """What a judge said of a message: a quote of it in the reasons of a claim, or the score of this message alone.

    Attributes:
        agent_id: whose claim it is; others' messages are cited, too.
        score: of the claim, or of this message where it was judged by itself, 0-9, 9 is best; None: unscored.
        broke: the claim dropped there, or its score is low.
        quote: "" where the message was judged by itself.
    """

    run_id: str
    agent_id: str
    window_end: datetime
    dimension: str
    claim_id: str
    claim: str
    score: float | None
    broke: bool
    quote: str


class RunKey(NamedTuple):
    """A run as the index knows it: the same key says the same."""

    id: uuid.UUID
    completed_at: datetime | None
    agent_id: str
    window_end: datetime
    window_start: datetime | None

    def bears_on(self, agents: Collection[str] | None, span: Window | None) -> bool:
        """Return whether it may cite messages of a span, or is about one of some agents; None: of all times, about anybody."""
        if agents is not None and self.agent_id not in agents:
            return False
        if span is None:
            return True
        previous = Window(self.window_end, self.window_start).previous()
        # Consistency cites the window before, too.
        begins = previous and previous.start
        return (span.start is None or self.window_end >= span.start) and (begins is None or begins < span.end)


@dataclass(frozen=True)
class CitationIndex:
    """What is cited. ``claims``: (dimension, id) of judged claims by agent; ``complete``: no run was left out for its age."""

    by_message: Mapping[str, Sequence[Citation]] = field(default_factory=dict)
    claims: Mapping[str, Collection[tuple[str, str]]] = field(default_factory=dict)
    complete: bool = True

    def of(self, message_id: str) -> list[Citation]:
        """Return who cited a message, what broke first, newer windows before older ones."""

        def order(item: Citation) -> tuple[bool, float, str, str]:
            return not item.broke, -item.window_end.timestamp(), item.dimension, item.claim_id

        return sorted(self.by_message.get(message_id, ()), key=order)


class Citations:
    """The index of a store: of each run that is asked for, what it cites is read once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._state: object = None
        self._wanted: list[RunKey] = []
        self._read: set[RunKey] = set()
        self._by_message: dict[str, list[Citation]] = {}
        self._claims: dict[str, set[tuple[str, str]]] = {}

    def index(self, agents: Collection[str] | None = None, span: Window | None = None) -> CitationIndex:
        """Return what the runs say that count, as far as they are about some agents and may cite messages of a span; None: all."""
        with self._lock:
            self._bring([key for key in self._unread() if key.bears_on(agents, span)])
            claims = {agent_id: frozenset(own) for agent_id, own in self._claims.items()}
            # A copy: more is read meanwhile.
            return CitationIndex(dict(self._by_message), claims, len(self._wanted) < MOST_RUNS)

    def warm(self) -> None:
        """Read everything in small steps, so that nobody who asks meanwhile waits for it."""
        while True:
            with self._lock:
                left = self._unread()
                self._bring(left[:_AT_ONCE])
            if len(left) <= _AT_ONCE:
                return
            time.sleep(_PAUSE)

    def _unread(self) -> list[RunKey]:
        """Return the runs that count and are not read, the newest windows first."""
        now = counting_state(self._store)
        if now != self._state:
            self._wanted = [RunKey(*row[:-1]) for row in counting_rows(self._store, most=MOST_RUNS)]
            if not self._read <= set(self._wanted):
                # Some say another thing now, and their citations are among the others.
                self._read, self._by_message, self._claims = set(), {}, {}
            self._state = now
        return [key for key in self._wanted if key not in self._read]

    def _bring(self, keys: Sequence[RunKey]) -> None:
        columns = (_RUNS.c.id, _RUNS.c.agent_id, _RUNS.c.window_end, _RUNS.c.result, _RUNS.c.comparison)
        with self._store.connect() as connection:
            ids: list[Any] = [key.id for key in keys]
            for some in chunks(ids):
                # A run that was forgotten cites nothing.
                query = sa.select(*columns).where(_RUNS.c.id.in_(some), _RUNS.c.result.is_not(None))
                for row in connection.execution_options(yield_per=50).execute(query):
                    claims = self._claims.setdefault(row.agent_id, set())
                    for message_id, citation in _citations(row, claims):
                        self._by_message.setdefault(message_id, []).append(citation)
        self._read.update(keys)


def _citations(row: sa.Row, claims: set[tuple[str, str]]) -> Iterator[tuple[str, Citation]]:
    """Yield what a run cites, each with the message's id, and add its claims to those that are known."""
    compared = (row.comparison or {}).get("dimensions", {})
    dropped = {(name, drop["proposition_id"]) for name, item in compared.items() for drop in item.get("drops", ())}
    run_id = str(row.id)
    for dimension, item in row.result.get("dimensions", {}).items():
        for claim in item.get("propositions", {}).values():
            if claim.get("algorithmic"):
                continue
            key = (dimension, claim["id"])
            claims.add(key)
            words = claim.get("claim") or claim["id"]
            for message_id, score, quote in cited_messages(claim):
                broke = score is not None and (score < LOW_SCORE or (key in dropped and bool(quote)))
                yield message_id, Citation(run_id, row.agent_id, row.window_end, *key, words, score, broke, quote)


def as_asked_of(result: PropositionResult, message: Message, name: str) -> PropositionResult:
    """Return what was judged as it concerns one message: the claim about its channel and agent, and what was said of that channel.

    A claim of several channels stands as the first was asked of it, where speakers have labels in place of names.
    """
    claim, reasoning = re.sub(rf"\b{ANONYMOUS}\b", lambda _: name, result.claim), result.reasoning
    if own := [part for part in result.parts if part["part"] == message.channel]:
        asked, here = (
            claim_variables({"channel_name": str(part["part"])})["channel_name"] for part in (result.parts[0], own[0])
        )
        claim = claim.replace(asked, here)
        reasoning = " / ".join(dict.fromkeys(str(part["reasoning"]) for part in own if part["reasoning"]))
    return result.model_copy(update={"claim": claim, "reasoning": reasoning})
