"""Which messages judges cited, for and against which claims: read off the runs of the store once, and then only what is new."""

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store, chunks
from persona_pipeline.reporting.view import LOW_SCORE
from persona_pipeline.scoring.results import HIGHEST

# Runs whose citations are known, the newest windows first: a hundred thousand messages have a few hundred.
MOST_RUNS = 3000
_RUNS = tables.evaluation_runs


@dataclass(frozen=True, slots=True)
class Citation:
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


@dataclass(frozen=True)
class CitationIndex:
    """What is cited. ``claims``: (dimension, id) of every judged claim by agent; ``complete``: no run was left out."""

    by_message: Mapping[str, Sequence[Citation]] = field(default_factory=dict)
    claims: Mapping[str, frozenset[tuple[str, str]]] = field(default_factory=dict)
    complete: bool = True


class Citations:
    """The index of a store, brought up to date whenever it is asked for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._by_run: dict[tuple[Any, Any], _OfRun] = {}
        self._index = CitationIndex()

    def index(self) -> CitationIndex:
        """Return what the newest runs of every window say."""
        with self._lock:
            wanted = self._counting_runs()
            new = [key for key in wanted if key not in self._by_run]
            if new or len(wanted) != len(self._by_run):
                kept = {key: self._by_run[key] for key in wanted if key in self._by_run}
                self._by_run = {**kept, **self._read(new)}
                self._index = _joined(self._by_run.values(), complete=len(wanted) < MOST_RUNS)
            return self._index

    def _counting_runs(self) -> list[tuple[Any, Any]]:
        """Return id and time of the run that counts of each window of each agent, the newest windows first."""
        columns = (_RUNS.c.id, _RUNS.c.agent_id, _RUNS.c.window_end, _RUNS.c.completed_at)
        newest_first = (_RUNS.c.window_end, _RUNS.c.whole, _RUNS.c.completed_at, _RUNS.c.id)
        query = (
            sa.select(*columns)
            .where(_RUNS.c.status == "completed", _RUNS.c.synthetic.is_(False))
            .order_by(*(column.desc() for column in newest_first))
            .limit(2 * MOST_RUNS)
        )
        found: dict[tuple[str, datetime], tuple[Any, Any]] = {}
        with self._store.connect() as connection:
            for row in connection.execute(query):
                found.setdefault((row.agent_id, row.window_end), (row.id, row.completed_at))
        return list(found.values())[:MOST_RUNS]

    def _read(self, keys: Sequence[tuple[Any, Any]]) -> dict[tuple[Any, Any], "_OfRun"]:
        # A run that was forgotten meanwhile cites nothing, and is not asked for again.
        found = {key: _OfRun("", frozenset(), ()) for key in keys}
        by_id = {key[0]: key for key in keys}
        columns = (_RUNS.c.id, _RUNS.c.agent_id, _RUNS.c.window_end, _RUNS.c.result, _RUNS.c.comparison)
        with self._store.connect() as connection:
            for some in chunks(list(by_id)):
                query = sa.select(*columns).where(_RUNS.c.id.in_(some), _RUNS.c.result.is_not(None))
                for row in connection.execution_options(yield_per=50).execute(query):
                    found[by_id[row.id]] = _of_run(row)
        return found


@dataclass(frozen=True, slots=True)
class _OfRun:
    agent_id: str
    claims: frozenset[tuple[str, str]]
    cited: Sequence[tuple[str, Citation]]


def _of_run(row: sa.Row) -> _OfRun:
    compared = (row.comparison or {}).get("dimensions", {})
    dropped = {(name, drop["proposition_id"]) for name, item in compared.items() for drop in item.get("drops", ())}
    claims, cited = set(), []
    for dimension, item in row.result.get("dimensions", {}).items():
        for claim in item.get("propositions", {}).values():
            if claim.get("algorithmic"):
                continue
            key = (dimension, claim["id"])
            claims.add(key)
            for message_id, score, quote in _cited(claim):
                broke = score is not None and (score < LOW_SCORE or (key in dropped and bool(quote)))
                of = (str(row.id), row.agent_id, row.window_end, *key, claim.get("claim") or claim["id"])
                cited.append((message_id, Citation(*of, score, broke, quote)))
    return _OfRun(row.agent_id, frozenset(claims), cited)


def _cited(claim: Mapping[str, Any]) -> Iterator[tuple[str, float | None, str]]:
    """Yield message, score and quote of what a claim's judge cited, and of what it was asked about by itself."""
    for evidence in claim.get("evidence", ()):
        if evidence.get("verified") and evidence.get("message_id"):
            yield evidence["message_id"], claim.get("score"), evidence["quote"]
    for part in claim.get("parts", ()):
        raw = part.get("raw")
        if part.get("part") and raw is not None:
            yield str(part["part"]), HIGHEST - raw if claim.get("inverted") else float(raw), ""


def _joined(runs: "Sequence[_OfRun] | Any", *, complete: bool) -> CitationIndex:
    by_message: dict[str, list[Citation]] = defaultdict(list)
    claims: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for run in runs:
        claims[run.agent_id] |= run.claims
        for message_id, citation in run.cited:
            by_message[message_id].append(citation)
    for cited in by_message.values():
        cited.sort(key=lambda item: (not item.broke, -item.window_end.timestamp(), item.dimension, item.claim_id))
    return CitationIndex(dict(by_message), {name: frozenset(own) for name, own in claims.items()}, complete)
