"""The gate over stored messages: how many each threshold would have held, and how many of them are out of character."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, Field

from persona_pipeline.base.calls import run_async
from persona_pipeline.base.documents.json import csv_rows
from persona_pipeline.base.errors import ConfigError, NothingError, Problem
from persona_pipeline.corrections.configuration import read_config
from persona_pipeline.corrections.judgment import (
    ClaimFiles,
    GateFacts,
    NotJudgedError,
    gather_facts,
    question_of,
    reviewed,
)
from persona_pipeline.corrections.records import Action, GateCall, PriorAttempts, decide
from persona_pipeline.judging.estimate import Estimate, estimate_questions
from persona_pipeline.judging.open import RECORDINGS, OpenedJudge
from persona_pipeline.judging.providers.base import ModelOptions
from persona_pipeline.judging.recordings.replay import RecordedBackend
from persona_pipeline.judging.verdict import Backend, Question, Usage
from persona_pipeline.world.models import CorrectionSettings, Message, Window
from persona_pipeline.world.propositions.models import ADHERENCE
from persona_pipeline.world.world import World


class Held(BaseModel, frozen=True, extra="forbid"):
    """How many messages a threshold holds, and how many of them are known to be in character (``good``) or out of it."""

    threshold: float
    held: int
    out: int
    good: int


class GateReplay(BaseModel, frozen=True, extra="forbid"):
    """The gate of one agent over stored messages.

    Attributes:
        threshold: as it is set now; ``enabled``: whether the gate is on.
        messages: how many were looked at; ``measured`` of them have a score, ``unmeasured``: why the others have none.
        good: known to be in character; ``out``: known to be out of it.
        held: by threshold, the lowest first.
        judges: models that gave the scores, with how often.
    """

    agent_id: str
    enabled: bool
    threshold: float
    messages: int
    measured: int
    unmeasured: dict[str, int] = Field(default_factory=dict)
    good: int = 0
    out: int = 0
    held: list[Held] = Field(default_factory=list)
    judges: dict[str, int] = Field(default_factory=dict)


class Replay(BaseModel, frozen=True, extra="forbid"):
    """The gates of agents over stored messages; ``usd`` and ``calls`` are of the judge."""

    results: list[GateReplay]
    usd: float | None = 0.0
    calls: int = 0


def held_at(threshold: float, scored: Sequence[tuple[float, bool | None]]) -> Held:
    """Return what a threshold would have held of scores (0-9), each with whether its message is good (None: not known)."""
    known = [good for score, good in scored if decide(score, threshold, attempt=1, max_attempts=1) is not Action.COMMIT]
    return Held(threshold=threshold, held=len(known), out=known.count(False), good=known.count(True))


def thresholds(present: float) -> list[float]:
    """Return the thresholds that are looked at: every half point of the scale, and the one that is set now."""
    return sorted({*(step / 2 for step in range(19)), present})


_WORDS = {"good": True, "bad": False}


@dataclass(frozen=True)
class Known:
    """What is known of messages.

    ``marked``: by a message's id, from a file. ``good_until``, ``bad_from``: messages sent until then are in character, and
    messages sent from then on are out of it.
    """

    marked: Mapping[str, bool] = field(default_factory=dict)
    good_until: datetime | None = None
    bad_from: datetime | None = None

    def is_good(self, message: Message) -> bool | None:
        """Return whether a message is good; None: nothing is known of it."""
        if message.id in self.marked:
            return self.marked[message.id]
        if self.good_until is not None and message.created_at <= self.good_until:
            return True
        if self.bad_from is not None and message.created_at >= self.bad_from:
            return False
        return None


def read_marks(path: Path) -> dict[str, bool]:
    """Return what a CSV file with the columns ``id`` and ``good`` or ``bad``, without a head, says of messages.

    Raises ``ConfigError``: the file cannot be read, or a row says something else or contradicts another, each with its place.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([Problem(f"cannot be read: {error}", str(path))]) from error
    problems: list[Problem] = []
    found: dict[str, bool] = {}
    for line, cells in csv_rows(text, str(path), problems):
        if not cells:
            continue
        if len(cells) != 2 or cells[1].strip() not in _WORDS:
            problems.append(Problem("a row is not a message's id and 'good' or 'bad'", str(path), line))
        elif found.setdefault(cells[0].strip(), _WORDS[cells[1].strip()]) is not _WORDS[cells[1].strip()]:
            problems.append(Problem(f"message {cells[0].strip()!r} is good and bad", str(path), line))
    if problems:
        raise ConfigError(problems)
    return found


_ON = CorrectionSettings(action_gate_enabled=True)
_AT_ONCE = 8


@dataclass(frozen=True)
class ReplayedCheck:
    """A stored message, what the gate would have asked about it, and what the judge says.

    ``score``: 0-9; None: there is none, ``reason`` says why. ``question``: None where the gate would have asked nothing.
    """

    message: Message
    facts: GateFacts | None = None
    question: Question | None = None
    score: float | None = None
    reason: str = ""
    model: str | None = None
    usage: Usage = field(default_factory=Usage)


def questions_about(world: World, agent_id: str, messages: Sequence[Message]) -> list[ReplayedCheck]:
    """Return what the gate would have asked about an agent's messages when they were sent, by today's persona and claims.

    ConfigError: the agent has no persona or no valid adherence claims.
    """
    claims, found = ClaimFiles(world.root, ADHERENCE.name), []
    for message in messages:
        place = (message.channel, message.recipient)
        call = GateCall(agent_id, message.text, *place, attempt=1, action_id="", known=PriorAttempts(), ends=0.0)
        facts = gather_facts(world, claims, call, _ON, before=(message.created_at, message.id))
        # The gate is on.
        assert facts is not None
        try:
            found.append(ReplayedCheck(message, facts, question_of(agent_id, facts)))
        except NotJudgedError as error:
            found.append(ReplayedCheck(message, reason=error.reason))
    return found


async def check_messages(backend: Backend, asked: Sequence[ReplayedCheck]) -> list[ReplayedCheck]:
    """Return what the judge says of messages, in their order; a failed call costs its message only."""
    places = asyncio.Semaphore(_AT_ONCE)
    async with AsyncExitStack() as stack:
        opened = backend.backend if isinstance(backend, OpenedJudge) else backend
        if isinstance(opened, AbstractAsyncContextManager):
            await stack.enter_async_context(opened)

        async def check(item: ReplayedCheck) -> ReplayedCheck:
            async with places:
                return await _checked(backend, item)

        # The first alone: it writes the prefix to the API's cache that the others read.
        return [*await asyncio.gather(*map(check, asked[:1])), *await asyncio.gather(*map(check, asked[1:]))]


async def _checked(backend: Backend, item: ReplayedCheck) -> ReplayedCheck:
    if item.question is None or item.facts is None:
        return item
    (answer,) = await backend.ask([item.question])
    told = replace(item, model=answer.model, usage=answer.usage)
    try:
        return replace(told, score=reviewed(answer, item.facts).score)
    except NotJudgedError as error:
        return replace(told, reason=error.reason)


@dataclass(frozen=True)
class ReplayRequest:
    """What is replayed.

    ``window``: whose messages; ``newest``: only so many of each agent, the newest. ``good_until``, ``bad_from``, ``marks``: see
    ``Known``; ``marks`` is a file.
    """

    agents: Sequence[str]
    window: Window | None = None
    newest: int | None = None
    good_until: datetime | None = None
    bad_from: datetime | None = None
    marks: Path | None = None


def estimate_replay(world: World, request: ReplayRequest, judge: str | None, *, fresh: bool = False) -> Estimate:
    """Return what asking a live judge would take. Raises ``ConfigError``: bad input."""
    asked = [
        item for agent in request.agents for item in questions_about(world, agent, _messages(world, request, agent))
    ]
    questions = [item.question for item in asked if item.question]
    recorded = RecordedBackend(world.root / RECORDINGS, settings=world.settings)
    missing = questions if fresh else [item for item in questions if item.key not in recorded.recordings]
    options = ModelOptions.from_settings(world.settings, judge)
    return estimate_questions(missing, options, None if fresh else world.store)


def replay(world: World, request: ReplayRequest, backend: Backend) -> Replay:
    """Replay the gate over stored messages; nothing is changed by it.

    Raises:
        ConfigError: an agent's files or the marks are not valid, or it has said nothing.
    """
    marked = read_marks(request.marks) if request.marks else {}
    known = Known(marked, request.good_until, request.bad_from)
    results: list[GateReplay] = []
    usage = Usage()
    for agent_id in request.agents:
        settings = read_config(world.store, agent_id).settings
        asked = questions_about(world, agent_id, _messages(world, request, agent_id))
        checked = run_async(check_messages(backend, asked))
        usage = sum((item.usage for item in checked), usage)
        results.append(_summed(agent_id, settings, checked, known))
    return Replay(results=results, usd=usage.usd, calls=usage.calls)


def _messages(world: World, request: ReplayRequest, agent_id: str) -> list[Message]:
    found = world.messages(request.window, agent_id=agent_id)
    if not found:
        raise NothingError(f"agent {agent_id!r} has no stored message in this window; ingest some, or widen --window")
    return found if request.newest is None else found[-request.newest :]


def _summed(agent_id: str, settings: CorrectionSettings, checked: Sequence[ReplayedCheck], known: Known) -> GateReplay:
    scored = [(item.score, known.is_good(item.message)) for item in checked if item.score is not None]
    present = settings.action_gate_threshold
    return GateReplay(
        agent_id=agent_id,
        enabled=settings.action_gate_enabled,
        threshold=present,
        messages=len(checked),
        measured=len(scored),
        unmeasured=dict(sorted(Counter(item.reason for item in checked if item.score is None).items())),
        good=sum(good is True for _, good in scored),
        out=sum(good is False for _, good in scored),
        held=[held_at(threshold, scored) for threshold in thresholds(present)] if scored else [],
        judges=dict(sorted(Counter(item.model or "" for item in checked if item.score is not None).items())),
    )
