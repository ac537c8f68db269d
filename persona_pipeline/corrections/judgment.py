"""The facts of a check, gathered from the store, and the judge's answer; both are bounded in time."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

from persona_pipeline.base.calls import AgentBreakers, Breaker
from persona_pipeline.base.database import tables
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.corrections.background import DaemonPool, QueueFullError
from persona_pipeline.corrections.configuration import read_config
from persona_pipeline.corrections.prompt import Review, gate_question, review_of
from persona_pipeline.corrections.records import Before, GateCall, PriorAttempts, action_trajectory, prior_attempts
from persona_pipeline.judging.verdict import Answer, Backend, Blame, Question, Unscored, Usage
from persona_pipeline.scoring.facts.known import load_canon
from persona_pipeline.world.models import CorrectionSettings, Trajectory
from persona_pipeline.world.personas import is_agent_id
from persona_pipeline.world.propositions.loading import (
    PROPOSITIONS,
    find_proposition_set,
    load_proposition_set,
    proposition_files_hash,
)
from persona_pipeline.world.propositions.models import (
    ACTION_LEVEL_WINDOW_DEFAULTS,
    ADHERENCE,
    PropositionSet,
    claim_variables,
)
from persona_pipeline.world.world import World

Value = TypeVar("Value")
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class GateFacts:
    """All inputs of an action's judgment. ``canon``: the facts that people have set for the agent, one per line."""

    settings: CorrectionSettings
    persona: str
    canon: tuple[str, ...]
    propositions: PropositionSet
    trajectory: Trajectory
    variables: Mapping[str, str]
    prior: PriorAttempts


class ClaimFiles:
    """Each agent's claims of a dimension, parsed again only when a file has changed."""

    def __init__(self, root: Path, dimension: str) -> None:
        self._root, self._dimension = root, dimension
        self._known: dict[str, tuple[str, PropositionSet | None]] = {}

    def of(self, agent_id: str) -> PropositionSet | None:
        """Return an agent's set, None where it has none; ConfigError: a file is not valid."""
        digest = proposition_files_hash(self._root, self._dimension, agent_id)
        known = self._known.get(agent_id)
        if known is None or known[0] != digest:
            found = find_proposition_set(self._root / PROPOSITIONS, self._dimension, agent_id)
            known = self._known[agent_id] = (digest, found)
        return known[1]


_LONGEST_SHARED_SECONDS = 0.25


@dataclass
class _SharedRead:
    lock: threading.Lock = field(default_factory=threading.Lock)
    began: float = float("-inf")
    value: Any = None


class SharedReads:
    """Shared reads of simultaneous checks: one of them reads a value, after all of them have asked for it."""

    def __init__(self) -> None:
        self._of = lru_cache(maxsize=200)(lambda _: _SharedRead())

    def since(self, asked: float, key: object, read: Callable[[], Value]) -> Value:
        """Return the value of a key that was read after a moment (``time.monotonic``), here or in another thread."""
        known = self._of(key)
        if not known.lock.acquire(timeout=_LONGEST_SHARED_SECONDS):
            # The reading thread may hang.
            return read()
        try:
            if known.began < asked:
                began = time.monotonic()
                known.value = read()
                known.began = began
            return known.value
        finally:
            known.lock.release()


def _alone(_: object, read: Callable[[], Value]) -> Value:
    return read()


def gather_facts(
    world: World,
    claims: ClaimFiles,
    call: GateCall,
    given: CorrectionSettings | None,
    before: Before | None = None,
    share: Callable[..., Any] = _alone,
) -> GateFacts | None:
    """Return the facts of a check, or None when the agent's gate is off. Earlier attempts are looked up if they are not known.

    ``claims``: of adherence. ``given``: used instead of the stored settings. ``before``: the place of a stored message, see
    ``action_trajectory``. ``share``: shares reads with other checks, by key. Raises ``ConfigError``: the agent has no persona or no
    valid propositions.
    """
    agent_id, channel, recipient = call.place
    settings: CorrectionSettings = given or share(
        (agent_id, "settings"), lambda: read_config(world.store, agent_id).settings
    )
    if not settings.action_gate_enabled:
        return None
    own = share((agent_id, "claims"), lambda: claims.of(agent_id))
    found = own or load_proposition_set(world.root / PROPOSITIONS, ADHERENCE.name, agent_id)
    found = found.about_messages()
    if not found.propositions:
        raise ConfigError(f"agent {agent_id!r} has no adherence propositions that a message can be checked against")
    first_n, last_n = found.window(ACTION_LEVEL_WINDOW_DEFAULTS)
    known, whole_channel = call.known, found.target_type == "environment"

    def said() -> tuple[sa.Row[Any], Trajectory]:
        with world.store.connect() as connection:
            row = connection.execute(sa.select(tables.agents).where(tables.agents.c.id == agent_id)).one_or_none()
            if row is None or row.persona is None:
                raise ConfigError(f"agent {agent_id!r} has no persona in the store; write personas/{agent_id}.yaml")
            return row, action_trajectory(
                connection, call, whole_channel=whole_channel, first_n=first_n, last_n=last_n, before=before
            )

    row, trajectory = share((agent_id, whole_channel and channel, recipient, first_n, last_n), said)
    # Of the same scope all but the action itself is the same.
    action = replace(trajectory.entries[-1], text=call.words, channel=channel)
    trajectory = Trajectory((*trajectory.items[:-1], action))
    if call.attempt > 1 and known.first_text is None:
        with world.store.connect() as connection:
            known = prior_attempts(connection, agent_id, call.action_id)
    canon = share((agent_id, "canon"), lambda: _canon_lines(world, agent_id))
    names = {"agent_name": row.display_name}
    if channel is not None:
        names["channel_name"] = channel
    if recipient is not None:
        names["recipient_name"] = trajectory.entries[-1].recipient or recipient
    return GateFacts(settings, row.persona, canon, found, trajectory, claim_variables(names), known)


# So that a long canon does not crowd out the claims.
_MOST_CANON = 20


def _canon_lines(world: World, agent_id: str) -> tuple[str, ...]:
    try:
        return tuple(fact.line for fact in load_canon(world.root, agent_id)[:_MOST_CANON])
    except ConfigError as error:
        # The message is checked without the canon.
        _LOGGER.warning("the gate leaves out the canon of %r: %s", agent_id, error)
        return ()


DATABASE, CIRCUIT_OPEN, CONFIGURATION, INTERNAL_ERROR = "database", "circuit_open", "configuration", "internal_error"
MOST_AT_ONCE = 100
TOO_LONG, OVERLOAD = "too_long", "overload"
# Of the text and its context: about the limit of the largest model. Longer texts would delay other checks.
_MOST_CHARACTERS = 1_000_000
_OUTAGES = (Unscored.TIMEOUT, Unscored.API_ERROR)
# The share of the time left for which a check waits for a slot. The rest is for the judge.
_SHARE_FOR_WAITING = 0.8


class NotJudgedError(Exception):
    """The score is missing; ``reason`` is the word by which statistics count it."""

    def __init__(self, reason: str, detail: str = "", usage: Usage | None = None) -> None:
        super().__init__(f"{reason} {detail}".strip())
        self.reason, self.usage = reason, usage or Usage()


def question_of(agent_id: str, facts: GateFacts) -> Question:
    """Return the question to the judge about an action; NotJudgedError: the text is too long for a judge."""
    size = sum(len(entry.text) for entry in facts.trajectory.entries)
    if size > _MOST_CHARACTERS:
        raise NotJudgedError(TOO_LONG, f"{size:,} characters")
    return gate_question(
        facts.propositions.propositions,
        facts.trajectory,
        agent_id=agent_id,
        persona=facts.persona if facts.propositions.include_personas else None,
        canon=facts.canon,
        variables=facts.variables,
    )


def reviewed(answer: Answer, facts: GateFacts) -> Review:
    """Return the review in an answer; NotJudgedError: it has no verdicts, or no claim applies."""
    if answer.data is None:
        reason = answer.unscored or Unscored.INVALID_OUTPUT
        raise NotJudgedError(reason.value, answer.detail, answer.usage)
    review = review_of(answer.data, facts.propositions, facts.trajectory, facts.variables)
    if review.score is None:
        raise NotJudgedError(Unscored.NOT_APPLICABLE.value, "no claim applies", answer.usage)
    return review


class ActionJudge:
    """Gathers the facts of an action and has it judged.

    Args:
        settings: instead of each agent's stored ones.
        most_at_once: checks that may be judged at once; the others wait for a place, and without one they are not judged.
        breaking: of the breakers: ``threshold`` failures in a row after which the store, the judge or, for an agent whose requests
            it will not have, that agent's judge is not asked for ``cooldown`` seconds; then one check tries.
    """

    def __init__(
        self,
        world: World,
        backend: Backend,
        settings: CorrectionSettings | None,
        most_at_once: int,
        breaking: Mapping[str, Any],
    ) -> None:
        self._world, self._backend, self._settings = world, backend, settings
        self._claims = ClaimFiles(world.root, ADHERENCE.name)
        self._reads, self._shared = DaemonPool(8, "gate-read"), SharedReads()
        self._database, self._judge = Breaker(**breaking), Breaker(**breaking)
        self._agents = AgentBreakers(**breaking)
        self._places = CheckSlots(most_at_once)

    async def facts(self, call: GateCall) -> GateFacts | None:
        """Return the facts of an action; None when the agent's gate is off.

        NotJudgedError: the store does not answer in time or fails, or the agent's files are not valid.
        """
        if not is_agent_id(call.agent_id):
            raise NotJudgedError(CONFIGURATION, "no such agent")
        started = time.monotonic()
        if started >= call.ends:
            raise NotJudgedError(OVERLOAD, "its time was over before its turn came")
        breaker = self._database
        if refusal := breaker.refusal():
            raise NotJudgedError(DATABASE, refusal)
        try:
            share = partial(self._shared.since, started)
            job = self._reads.run(lambda: gather_facts(self._world, self._claims, call, self._settings, share=share))
            facts = await within(job, call.ends)
        except ConfigError as error:
            breaker.succeeded()
            raise NotJudgedError(CONFIGURATION, str(error)) from error
        except QueueFullError as error:
            breaker.abandoned()
            raise NotJudgedError(OVERLOAD, str(error)) from error
        except Exception as error:
            # A database that has answered others meanwhile is not down.
            waited = started if isinstance(error, TimeoutError) else None
            breaker.failed("database", type(error).__name__, started=waited)
            raise NotJudgedError(DATABASE, f"{type(error).__name__}: {error}") from error
        breaker.succeeded()
        return facts

    async def answer(self, call: GateCall, facts: GateFacts) -> Answer:
        """Return the judge's answer on an action; NotJudgedError: none is there in time, or there is too much to read."""
        question = question_of(call.agent_id, facts)
        now = time.monotonic()
        async with self._places.one(now + _SHARE_FOR_WAITING * (call.ends - now)):
            return await self._asked(call, question)

    async def _asked(self, call: GateCall, question: Question) -> Answer:
        # The agent's own first: a request that is not sent must not be the endpoint's trial.
        if refusal := self._agents.refusal(call.agent_id) or self._judge.refusal():
            raise NotJudgedError(CIRCUIT_OPEN, refusal)
        started = time.monotonic()
        try:
            (answer,) = await within(self._backend.ask([question]), call.ends)
        except TimeoutError as error:
            self._judge.failed("judge", "no answer within the deadline", started=started)
            # The server may have worked on it, and may charge for it.
            usage = Usage(calls=1, usd=None)
            raise NotJudgedError(Unscored.TIMEOUT.value, "no answer within the deadline", usage) from error
        except Exception as error:
            self._judge.failed("judge", type(error).__name__)
            raise NotJudgedError(Unscored.API_ERROR.value, f"{type(error).__name__}: {error}") from error
        self._note(call.agent_id, answer, started)
        return answer

    def _note(self, agent_id: str, answer: Answer, started: float) -> None:
        if answer.unscored in _OUTAGES and answer.blame is not Blame.REQUEST:
            self._judge.failed("judge", answer.detail, started=started if answer.unscored is Unscored.TIMEOUT else None)
            return
        self._judge.succeeded()
        if answer.data is not None:
            self._agents.succeeded(agent_id)
        else:
            self._agents.failed(agent_id, answer.detail)


class CheckSlots:
    """A limit on checks at once. A check that would wait too long is refused.

    The newest waiting check is served first, so that at overload some are judged in time instead of all too late.
    """

    def __init__(self, most: int) -> None:
        self._free = most
        self._waiting: list[asyncio.Future[None]] = []

    @asynccontextmanager
    async def one(self, ends: float) -> AsyncIterator[None]:
        """Hold a place that is of use until a moment (``time.monotonic``); NotJudgedError: none was free in time (``overload``)."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(ends)
        try:
            if time.monotonic() > ends:
                raise NotJudgedError(OVERLOAD, "its turn came too late")
            yield
        finally:
            self._hand_on()

    async def _wait(self, ends: float) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(ends - time.monotonic()):
                await turn
        except BaseException as error:
            if turn in self._waiting:
                self._waiting.remove(turn)
            elif turn.done() and not turn.cancelled():
                self._hand_on()
            if isinstance(error, TimeoutError):
                raise NotJudgedError(OVERLOAD, "no place was free in time") from None
            raise

    def _hand_on(self) -> None:
        while self._waiting:
            turn = self._waiting.pop()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


# Turns of the event loop that lie between giving up and the answer on its way, and the most that is kept back for them: one long
# turn must not give up checks that have time left.
_TURNS, _MOST_KEPT_BACK_SECONDS = 3, 0.75
# Below this the rest is waited for in one go.
_LAST_LOOK_SECONDS = 0.2


async def within(work: Awaitable[Value], ends: float) -> Value:
    """Return the result of some work, or raise TimeoutError at a moment (``time.monotonic``).

    The work is cancelled then, but not awaited: work that ignores its cancellation does not delay the caller. Where the event loop
        is
    late, the moment is earlier by that delay, so that the caller has its answer in time.
    """
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    late = 0.0
    try:
        while not task.done():
            began = time.monotonic()
            left = ends - min(_TURNS * late, _MOST_KEPT_BACK_SECONDS) - began
            pause = left if left < _LAST_LOOK_SECONDS else left / 2
            await asyncio.wait({task}, timeout=max(0.0, pause))
            if pause == left or pause <= 0:
                break
            late = max(0.0, time.monotonic() - began - pause)
    finally:
        if not task.done():
            task.cancel()
    if not task.done() or task.cancelled():
        raise TimeoutError
    return task.result()
