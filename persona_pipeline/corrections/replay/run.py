"""A replay from beginning to end: stored messages, what is known of them, the corrections, and what thresholds do."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy.engine import Connection

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
from persona_pipeline.corrections.nudges import (
    CHANNEL_WINDOW,
    OWN_HISTORY,
    OWN_WINDOW,
    AntiConvergence,
    RepetitionSuppression,
    catchphrases_in,
)
from persona_pipeline.corrections.records import GateCall, PriorAttempts, recent_messages
from persona_pipeline.corrections.replay.thresholds import (
    CheckCost,
    CorrectionKind,
    CorrectionReplay,
    MeasuredMessage,
    Replay,
    area,
    risk_threshold,
    thresholds,
    touched_by,
)
from persona_pipeline.corrections.statistics import GateStatistics, correction_statistics
from persona_pipeline.judging.estimate import Estimate, estimate_questions
from persona_pipeline.judging.open import RECORDINGS, OpenedJudge
from persona_pipeline.judging.providers.base import ModelOptions
from persona_pipeline.judging.recordings.replay import RecordedBackend
from persona_pipeline.judging.verdict import Backend, Question, Usage
from persona_pipeline.scoring.results import final_score, weighted_mean
from persona_pipeline.scoring.text.agreement import world_lexicon
from persona_pipeline.scoring.text.said_again import LOOK_BACK
from persona_pipeline.world.models import CorrectionSettings, Message, Window
from persona_pipeline.world.propositions.loading import PROPOSITIONS, find_proposition_set
from persona_pipeline.world.propositions.models import ADHERENCE, FLUENCY
from persona_pipeline.world.world import World

# From here on people's mean score (0-9) of a message says that it is in character.
GOOD_FROM = 5.0
_WORDS = {"good": True, "bad": False}


@dataclass(frozen=True)
class Known:
    """What is known of messages.

    ``marked``: by a message's id, from a file. ``labelled``: by a message's id, from people's labels. ``good_until``,
    ``bad_from``: messages sent until then, or from then on, which somebody vouches for or gives up.
    """

    marked: Mapping[str, bool] = field(default_factory=dict)
    labelled: Mapping[str, bool] = field(default_factory=dict)
    good_until: datetime | None = None
    bad_from: datetime | None = None

    def is_good(self, message: Message) -> bool | None:
        """Return whether a message is good; None: nothing is known of it."""
        for known in (self.marked, self.labelled):
            if message.id in known:
                return known[message.id]
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


def labelled_messages(world: World, agent_ids: Sequence[str]) -> dict[str, bool]:
    """Return what people's labels say of single messages of agents, by id: of claims judged action by action.

    A message is good whose labels make a score of 5 and more, by the claims' own weights, inversion and hard mode. Raises
    ``ConfigError``: labels, recordings, persona or propositions are not valid.
    """
    from persona_pipeline.evaluation.calibrate import judged_population, world_labels
    from persona_pipeline.guard.calibration.calibrate import Rated, ballots

    written = {agent: find_proposition_set(world.root / PROPOSITIONS, ADHERENCE.name, agent) for agent in agent_ids}
    sets = {agent: claims for agent, claims in written.items() if claims is not None and claims.level == "action"}
    labels = [item for item in world_labels(world).current if item.is_persons and item.agent_id in sets] if sets else []
    if not labels:
        return {}
    said = ballots(labels)
    by_id = {(agent, claim.id): claim for agent, claims in sets.items() for claim in claims.propositions}
    scores: dict[str, list[tuple[float, float]]] = {}
    for judgment in judged_population(world, sorted({item.agent_id for item in labels}), [ADHERENCE.name]):
        people = tuple(said[judgment.key].people.values()) if judgment.key in said else ()
        agent_id = judgment.request.agent_id
        claims, claim = sets[agent_id], by_id[agent_id, judgment.request.proposition_id]
        mean = Rated(judgment.key, agent_id, ADHERENCE.name, claim.id, None, people=people).peoples if people else None
        if mean is not None:
            score = final_score(mean, inverted=claim.inverted, hard=claims.hard)
            message = judgment.request.trajectory.entries[-1].message_id
            scores.setdefault(message, []).append((score, claim.weight))
    return {
        message: weighted_mean(pairs) >= GOOD_FROM
        for message, pairs in scores.items()
        if any(weight > 0 for _, weight in pairs)
    }


_ON = CorrectionSettings(action_gate_enabled=True)
_AT_ONCE = 8


@dataclass(frozen=True)
class GateQuestion:
    """A stored message, and what the gate would have asked about it; ``reason``: why it would have asked nothing."""

    message: Message
    facts: GateFacts | None = None
    question: Question | None = None
    reason: str = ""


@dataclass(frozen=True)
class ReplayedCheck:
    """What the gate says of a stored message.

    ``score``: 0-9; None: there is none, ``reason`` says why. ``seconds``: how long the judge took; None: it was not asked.
    """

    message: Message
    score: float | None = None
    reason: str = ""
    model: str | None = None
    usage: Usage = field(default_factory=Usage)
    seconds: float | None = None


def questions_about(world: World, agent_id: str, messages: Sequence[Message]) -> list[GateQuestion]:
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
            found.append(GateQuestion(message, facts, question_of(agent_id, facts)))
        except NotJudgedError as error:
            found.append(GateQuestion(message, reason=error.reason))
    return found


async def check_messages(backend: Backend, asked: Sequence[GateQuestion]) -> list[ReplayedCheck]:
    """Return what the judge says of messages, in their order; a failed call costs its message only."""
    places = asyncio.Semaphore(_AT_ONCE)
    async with AsyncExitStack() as stack:
        opened = backend.backend if isinstance(backend, OpenedJudge) else backend
        if isinstance(opened, AbstractAsyncContextManager):
            await stack.enter_async_context(opened)

        async def check(item: GateQuestion) -> ReplayedCheck:
            async with places:
                return await _checked(backend, item)

        # The first alone: it writes the prefix to the API's cache that the others read.
        return [*await asyncio.gather(*map(check, asked[:1])), *await asyncio.gather(*map(check, asked[1:]))]


async def _checked(backend: Backend, item: GateQuestion) -> ReplayedCheck:
    if item.question is None or item.facts is None:
        return ReplayedCheck(item.message, reason=item.reason)
    started = time.monotonic()
    (answer,) = await backend.ask([item.question])
    seconds = time.monotonic() - started if answer.usage.calls and not answer.cached else None
    told = ReplayedCheck(item.message, model=answer.model, usage=answer.usage, seconds=seconds)
    try:
        return replace(told, score=reviewed(answer, item.facts).score)
    except NotJudgedError as error:
        return replace(told, reason=error.reason)


# What is found before a turn, of the messages that are looked at; None: nothing is looked at.
_Look = Callable[[Connection, Message], tuple[Sequence[Message], float | None, bool]]


def measured_turns(
    world: World, correction: CorrectionKind, agent_id: str, messages: Sequence[Message], known: Known
) -> list[MeasuredMessage | None]:
    """Return, for each message of an agent, what the correction found before it was written; None: it looked at nothing.

    A turn is good if all that was looked at and is the agent's own is known to be good, and bad if one of it is bad. It stands
    apart if it has no message in common with an earlier one that does.
    """
    look = _convergence(world) if correction is CorrectionKind.ANTI_CONVERGENCE else _repetition(world, agent_id)
    used: set[str] = set()
    found: list[MeasuredMessage | None] = []
    with world.store.connect() as connection:
        for message in messages:
            seen, value, anyway = look(connection, message)
            if value is None:
                found.append(None)
                continue
            ids = {item.id for item in seen}
            apart = used.isdisjoint(ids)
            if apart:
                used |= ids
            found.append(MeasuredMessage(value, anyway, _of_turn([known.is_good(item) for item in seen]), apart))
    return found


def _convergence(world: World) -> _Look:
    rule = AntiConvergence(CorrectionSettings(), lexicon=world_lexicon(world.root))

    def look(connection: Connection, message: Message) -> tuple[Sequence[Message], float | None, bool]:
        if message.channel is None:
            return (), None, False
        before = (message.created_at, message.id)
        seen = recent_messages(connection, CHANNEL_WINDOW, before, channel=message.channel)
        return seen, rule.ratio(seen), False

    return look


def _repetition(world: World, agent_id: str) -> _Look:
    claims = ClaimFiles(world.root, FLUENCY.name)
    rule = RepetitionSuppression(CorrectionSettings(), catchphrases=lambda agent: catchphrases_in(claims.of(agent)))

    def look(connection: Connection, message: Message) -> tuple[Sequence[Message], float | None, bool]:
        before = (message.created_at, message.id)
        said = recent_messages(connection, LOOK_BACK, before, agent_id=agent_id)
        seen = said[-OWN_WINDOW:]
        if len(seen) < 2:
            return seen, None, False
        found, again = rule.measure(agent_id, seen), rule.said_again(agent_id, said)
        if found.share or found.reasons or again:
            said = recent_messages(connection, OWN_HISTORY, before, agent_id=agent_id)
            found, again = rule.measure(agent_id, said), again and rule.said_again(agent_id, said)
        share = found.share if found.share > found.usual.share else 0.0
        return seen, share, bool(found.reasons) or again is not None

    return look


def _of_turn(known: Sequence[bool | None]) -> bool | None:
    if any(item is False for item in known):
        return False
    return True if known and all(known) else None


@dataclass(frozen=True)
class ReplayRequest:
    """What is replayed.

    ``window``: whose messages; ``newest``: only so many of each agent, the newest. ``good_until``, ``bad_from``, ``marks``: see
    ``Known``; ``marks`` is a file. ``risk``: share (0-1) of good messages that may be touched; None: no threshold is looked for.
    """

    agents: Sequence[str]
    corrections: Sequence[CorrectionKind] = tuple(CorrectionKind)
    window: Window | None = None
    newest: int | None = None
    good_until: datetime | None = None
    bad_from: datetime | None = None
    marks: Path | None = None
    risk: float | None = None


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
    """Replay corrections over stored messages; nothing is changed by it.

    ``backend``: the gate's judge; the other corrections ask nobody. Raises ``ConfigError``: an agent's files, the labels or the
    marks are not valid, or it has said nothing.
    """
    known = Known(
        read_marks(request.marks) if request.marks else {},
        labelled_messages(world, request.agents),
        request.good_until,
        request.bad_from,
    )
    results: list[CorrectionReplay] = []
    notes: list[str] = []
    usage = Usage()
    statistics = correction_statistics(world.store, request.window, agent_ids=request.agents).agents
    for agent_id in request.agents:
        settings = read_config(world.store, agent_id).settings
        messages = _messages(world, request, agent_id)
        done = statistics.get(agent_id, GateStatistics())
        if done.rejections:
            notes.append(
                f"{agent_id}: the gate sent {done.rejections} texts back in this time, which are no messages and in no share"
            )
        for correction in request.corrections:
            if correction is CorrectionKind.ACTION_GATE:
                checked = run_async(check_messages(backend, questions_about(world, agent_id, messages)))
                usage = sum((item.usage for item in checked), usage)
                items, found = _of_gate(checked, known, done)
            else:
                turns = measured_turns(world, correction, agent_id, messages, known)
                items, nothing = [item for item in turns if item is not None], turns.count(None)
                found = {"messages": len(turns), "unmeasured": {"nothing_to_look_at": nothing} if nothing else {}}
            results.append(_summed(correction, agent_id, settings, items, request.risk, found))
    return Replay(results=results, notes=notes, usd=usage.usd, calls=usage.calls)


def _messages(world: World, request: ReplayRequest, agent_id: str) -> list[Message]:
    found = world.messages(request.window, agent_id=agent_id)
    if not found:
        raise NothingError(f"agent {agent_id!r} has no stored message in this window; ingest some, or widen --window")
    return found if request.newest is None else found[-request.newest :]


# What only one correction knows of its replay, by field.
_Found = dict[str, Any]


def _of_gate(
    checked: Sequence[ReplayedCheck], known: Known, done: GateStatistics
) -> tuple[list[MeasuredMessage], _Found]:
    scored = [item for item in checked if item.score is not None]
    items = [MeasuredMessage(item.score or 0.0, good=known.is_good(item.message)) for item in scored]
    return items, {
        "messages": len(checked),
        "unmeasured": dict(sorted(Counter(item.reason for item in checked if item.score is None).items())),
        "judges": dict(sorted(Counter(item.model or "" for item in scored).items())),
        "cost": _cost(checked, done),
    }


def _summed(
    correction: CorrectionKind,
    agent_id: str,
    settings: CorrectionSettings,
    items: Sequence[MeasuredMessage],
    risk: float | None,
    found: _Found,
) -> CorrectionReplay:
    present = getattr(settings, correction.setting)
    return CorrectionReplay(
        correction=correction,
        agent_id=agent_id,
        enabled=getattr(settings, f"{correction}_enabled"),
        threshold=present,
        measured=len(items),
        anyway=sum(item.anyway for item in items),
        good=sum(item.good is True for item in items),
        bad=sum(item.good is False for item in items),
        touched=[touched_by(correction, items, value) for value in thresholds(correction, present)] if items else [],
        area=area(correction, items),
        risk=None if risk is None else risk_threshold(correction, items, risk),
        **found,
    )


def _cost(checked: Sequence[ReplayedCheck], done: GateStatistics) -> CheckCost | None:
    """Return what a check takes: of the gate as it ran in this time, else of this replay; None: neither is known."""
    if done.checks:
        latency = done.latency_ms
        return CheckCost(
            source="the gate as it ran in this time",
            checks=done.checks,
            usd=done.usd_per_check,
            p50_ms=latency and latency.p50,
            p95_ms=latency and latency.p95,
        )
    asked = [item for item in checked if item.seconds is not None]
    if not asked:
        return None
    times = sorted(item.seconds * 1000 for item in asked if item.seconds is not None)
    usage = sum((item.usage for item in asked), Usage())
    p50, p95 = (times[min(len(times) - 1, int(share * len(times)))] for share in (0.5, 0.95))
    usd = None if usage.usd is None else usage.usd / len(asked)
    return CheckCost(source="the calls of this replay", checks=len(asked), usd=usd, p50_ms=p50, p95_ms=p95)
