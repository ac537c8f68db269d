"""Asking a model: requests, shared prefixes, budgets and retries."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from persona_pipeline.base.calls import AgentBreakers, Breaker
from persona_pipeline.judging.cache import JudgmentCache
from persona_pipeline.judging.claims import plain_json
from persona_pipeline.judging.judge import Claims, OpenedJudge
from persona_pipeline.judging.model.messages import (
    Prefix,
    RequestStyle,
    cached_tokens,
    prefix_of,
    read_response,
    request_key,
    traits_of,
)
from persona_pipeline.judging.money import Budget, Reservation, estimated_tokens, require_price
from persona_pipeline.judging.pace import Cost, Limit, Pacer
from persona_pipeline.judging.progress import Progress
from persona_pipeline.judging.providers.base import CallError, ModelOptions, UnderWay, connect, send
from persona_pipeline.judging.verdict import UNKNOWN_USAGE, Answer, Blame, Question, Unscored, Usage
from persona_pipeline.world.models import grouped


@dataclass(frozen=True)
class Call:
    """A question in the form a model is asked in. ``key`` is the judgment's."""

    question: Question
    style: RequestStyle
    key: str
    prefix: Prefix


# Tokens that an answer is expected to have, and the margin by which a prefix may have more tokens than its length says.
_ANSWER_TOKENS = 400.0
_GENEROUS = 1.5


class SharedClient:
    """The client of all callers in one event loop. The first caller opens it, and the last one closes it.

    Attributes:
        places: one for each call that may be under way.
    """

    def __init__(self, options: ModelOptions, pacer: Pacer) -> None:
        self._connect = lambda: connect(options, pacer)
        self._width = max(1, options.width)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._users = 0
        self.places = asyncio.Semaphore(self._width)
        self.client: Any = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            # Connections and semaphores belong to the loop that made them.
            self._loop, self._users, self.client = loop, 0, None
            self.places = asyncio.Semaphore(self._width)
        mine = self.client = self.client or self._connect()
        self._users += 1
        try:
            yield
        finally:
            if self.client is mine:
                self._users -= 1
                if not self._users:
                    self.client = None
                    await mine.close()


log = logging.getLogger(__name__)

_REJECTED = (400, 422)
# A server that rejects plain requests too has another complaint than structured output.
_FALLBACK_TRIES = 2


def live_judge(backend: "ModelBackend", grouping: int = 1) -> OpenedJudge:
    """Return a judge that puts everything to a model; claims in groups of ``grouping``."""
    return OpenedJudge(backend, Claims(backend.options.max_tokens, grouping))


class ModelBackend:
    """Asks a provider's model. Failures become unscored answers; only cancellation gets out.

    One instance serves one thread; it may be used in any number of event loops, one after the other. Inside
    ``async with`` its connections stay open between calls.

    Args:
        cache: judgments paid for earlier; None: everything is asked.
        budget: limit in dollars; None: no limit.
        progress: is updated with every answer; None: no display.

    Raises:
        ConfigError: a key, a package or a setting is missing, or a budget for a model without a known price.

    Attributes:
        spent: what its calls took.
        batched: the cost of answers from message batches that were first used here.
    """

    live = True

    def __init__(
        self,
        options: ModelOptions | None = None,
        *,
        cache: JudgmentCache | None = None,
        budget: Budget | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.options = options or ModelOptions()
        self.options.require_usable()
        if budget:
            require_price(self.options.model, self.options.prices)
        self.cache = cache
        self.budget = budget
        self.spent = Usage()
        self.batched = Usage()
        self.progress = progress
        self.pacer = Pacer(self.options.per_minute)
        self.breaker = Breaker(threshold=self.options.breaker_threshold)
        self.refused = AgentBreakers(threshold=self.options.breaker_threshold)
        rejects = cache is not None and cache.rejects_structured_output(self.options.endpoint, self.options.model)
        self.style = RequestStyle(self.options.model, self.options.effort, structured=not rejects)
        self._run_ends: float | None = None
        self._fallbacks_rejected = 0
        # Prefixes that the API's cache holds.
        self._warm: set[Prefix] = set()
        self._client = SharedClient(self.options, self.pacer)
        self._stack = AsyncExitStack()

    @property
    def name(self) -> str:
        return self.options.name

    @property
    def notes(self) -> tuple[str, ...]:
        """What a report should say of how this backend had to work."""
        notes = []
        if not self.style.structured:
            notes.append(
                f"{self.options.endpoint} rejects structured output for {self.options.model}: "
                "answers are prompted JSON, strictly validated"
            )
        if self.batched.calls:
            price = "an unknown price" if self.batched.usd is None else f"${self.batched.usd:.4f}"
            notes.append(f"{self.batched.calls} judgments came from message batches, for {price}")
        return tuple(notes)

    def with_model(self, model: str) -> "ModelBackend":
        """Return a backend that asks another model, with the same cache and budget."""
        return ModelBackend(replace(self.options, model=model), cache=self.cache, budget=self.budget)

    async def __aenter__(self) -> "ModelBackend":
        await self._stack.enter_async_context(self._client.opened())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """Return an answer to every question, in their order; equal questions are asked once."""
        calls = [self._prepare(question, self.style) for question in questions]
        answers = self.cache.find((call.key, call.question) for call in calls) if self.cache else {}
        self._charge(answers)
        if self.progress:
            self.progress.knew(len(answers))
        pending = {call.key: call for call in calls if call.key not in answers}
        if pending:
            if self._run_ends is None and self.options.run_deadline is not None:
                self._run_ends = time.monotonic() + self.options.run_deadline
            shown = self.progress.shown(len(pending)) if self.progress else nullcontext()
            async with self._client.opened(), shown:

                async def answer(call: Call) -> bool:
                    answers[call.key] = await self._answer(call, shared=call.prefix in shared)
                    if self.progress:
                        self.progress.heard(answers[call.key])
                    return answers[call.key].data is not None

                async def asked(group: Sequence[Call]) -> None:
                    # The first call goes alone, so that the others find its prefix in the API's cache; a second one if it fails.
                    rest = deque(group)
                    for _ in range(2 if group[0].prefix in shared else 0):
                        if not rest or await answer(rest.popleft()):
                            break
                    await asyncio.gather(*map(answer, rest))

                by_prefix = grouped(pending.values(), lambda call: call.prefix)
                shared = {prefix for prefix, group in by_prefix.items() if self._is_cacheable(group)}
                try:
                    async with asyncio.TaskGroup() as tasks:
                        for group in by_prefix.values():
                            tasks.create_task(asked(group))
                finally:
                    # Paid answers are kept also when the run is stopped.
                    if self.cache:
                        self.cache.flush()
        # What several share is charged to the first.
        firsts = {call.key: place for place, call in reversed([*enumerate(calls)])}
        return [
            answers[call.key] if firsts[call.key] == place else replace(answers[call.key], usage=Usage(), cached=True)
            for place, call in enumerate(calls)
        ]

    def _charge(self, answers: dict[str, Answer]) -> None:
        """Charge the first users of answers from message batches."""
        due = self.cache.charge(answers) if self.cache and answers else {}
        for key, usage in due.items():
            answers[key] = replace(answers[key], usage=usage)
            self.spent += usage
            self.batched += usage

    def _prepare(self, question: Question, style: RequestStyle) -> Call:
        prefix = prefix_of(style, question)
        key = request_key(prefix, question, self.options.endpoint, provider=self.options.provider)
        return Call(question, style, key, prefix)

    def _is_cacheable(self, group: Sequence[Call]) -> bool:
        """Whether the API is to cache what these calls share."""
        first = group[0]
        if len(group) == 1 and not first.question.context_recurs:
            return False
        # A mark on too short a prefix costs nothing; one that is missing costs every claim its transcript.
        expected = cached_tokens(first.style, first.question) * _GENEROUS
        return expected >= traits_of(self.options.model).cache_minimum

    def _cost(self, call: Call) -> Cost:
        """What a call takes of the server's limits: where input is counted alone, tokens read from the cache do not count."""
        asks = estimated_tokens(call.question.ask)
        return {
            Limit.REQUESTS: 1,
            Limit.INPUT_TOKENS: asks + (0 if call.prefix in self._warm else call.prefix.tokens),
            Limit.OUTPUT_TOKENS: _ANSWER_TOKENS,
            Limit.TOKENS: asks + call.prefix.tokens + call.question.max_tokens,
        }

    async def _answer(self, call: Call, *, shared: bool) -> Answer:
        async with self._client.places:
            agent_id = call.question.agent_id
            # The agent's breaker comes first: a request that is not sent must not be the endpoint's trial.
            if why := self.refused.refusal(agent_id):
                return Answer(unscored=Unscored.API_ERROR, detail=why, blame=Blame.REQUEST)
            if why := self.breaker.refusal():
                return Answer(unscored=Unscored.API_ERROR, detail=why, blame=Blame.ENDPOINT)
            now, latest = time.monotonic(), self._run_ends or float("inf")
            if now >= latest:
                detail = f"not asked: the run's deadline of {self.options.run_deadline:g} s has passed"
                return Answer(unscored=Unscored.TIMEOUT, detail=detail)
            under_way = UnderWay(min(now + self.options.deadline, latest), latest, self._cost(call))
            try:
                answer = await self._attempt(call, under_way, shared=shared)
            except Exception as error:
                log.exception("judging %s failed", call.question.label)
                answer = Answer(unscored=Unscored.API_ERROR, detail=f"{type(error).__name__}: {error}"[:200])
            self.spent += answer.usage
            return answer

    async def _attempt(self, call: Call, under_way: UnderWay, *, shared: bool) -> Answer:
        try:
            answer = await self._paid(call, under_way, shared=shared)
        except CallError as error:
            if error.status not in _REJECTED or error.reason is Unscored.REFUSAL or not self._may_fall_back(call):
                return error.answer
            call = self._prepare(call.question, replace(call.style, structured=False))
            try:
                answer = await self._paid(call, under_way, shared=shared)
            except CallError as second:
                self._fallbacks_rejected += second.status in _REJECTED
                return error.answer
            self._note_rejection()
        if answer.unscored is Unscored.TRUNCATED:
            longer = replace(call.question, max_tokens=2 * call.question.max_tokens)
            try:
                second = await self._paid(replace(call, question=longer), under_way, shared=shared)
            except CallError as error:
                second = error.answer
            if second.unscored is Unscored.BUDGET:
                return answer
            answer = replace(second, usage=answer.usage + second.usage)
        if answer.data is not None and self.cache:
            # Nothing is awaited between the response and its write: a kill loses only calls under way.
            await self.cache.keep(call.key, call.question, answer)
        return answer

    async def _paid(self, call: Call, under_way: UnderWay, *, shared: bool) -> Answer:
        """Make one call within the budget, repeated while only the server's limits prevent it; CallError: no message came."""
        started = time.monotonic()
        while True:
            await self._wait_for_leave(under_way)
            asked = time.monotonic()
            try:
                return await self._sent(call, under_way, shared=shared)
            except CallError as error:
                if error.throttled and self._is_worth_waiting(under_way, started):
                    continue
                if error.status in (401, 404):
                    remedy = f"set PERSONA_JUDGE_MODEL to a model of {self.options.endpoint}, not {self.options.model}"
                    error.detail += f"; {self.options.provider.key_help if error.status == 401 else remedy}"
                if error.blame is Blame.REQUEST and not error.fatal:
                    self.breaker.succeeded()
                    self.refused.failed(call.question.agent_id, error.detail)
                else:
                    silent = error.reason is Unscored.TIMEOUT
                    self.breaker.failed(
                        error.signature, error.detail, fatal=error.fatal, started=asked if silent else None
                    )
                raise

    def _is_worth_waiting(self, under_way: UnderWay, started: float) -> bool:
        idle, ahead = self.pacer.idle(since=started), self.pacer.wait(under_way.cost)
        return max(idle, ahead) <= self.options.patience and time.monotonic() + ahead < under_way.latest

    async def _wait_for_leave(self, under_way: UnderWay) -> None:
        seconds = self.pacer.wait(under_way.cost)
        now = time.monotonic()
        if now + seconds >= under_way.latest:
            detail = f"not asked: the server's limits leave no room before the run's deadline of {self.options.run_deadline:g} s"
            raise CallError(detail, "limits", Unscored.TIMEOUT, usage=Usage())
        if seconds > self.options.patience:
            raise CallError(f"not asked: the server asks to wait for {seconds:.0f} s", "limits", usage=Usage())
        await under_way.wait(self.pacer)

    async def _sent(self, call: Call, under_way: UnderWay, *, shared: bool) -> Answer:
        body = call.style.body(call.question, cache_ttl=self.options.cache_ttl if shared else None)
        reservation: Reservation | None = None
        if self.budget:
            text, most = plain_json(body), body["max_tokens"]
            worst = self.budget.worst_price(text, most, self.options.model, self.options.prices)
            reservation = await self.budget.reserve(worst)
            if reservation is None:
                detail = f"not asked: it could pass the limit of {self.budget.limit(worst)}"
                return Answer(unscored=Unscored.BUDGET, detail=detail)
        usage = UNKNOWN_USAGE
        try:
            message = await send(self.options.provider, self._client.client, body, under_way)
            answer = read_response(
                message, call.question, requested_model=self.options.model, prices=self.options.prices
            )
            usage = answer.usage
        except CallError as error:
            usage = error.usage
            raise
        finally:
            if reservation:
                reservation.settle(usage.usd)
        if answer.unscored in (Unscored.API_ERROR, Unscored.INVALID_OUTPUT):
            self.breaker.failed(str(answer.unscored), answer.detail)
        else:
            self.breaker.succeeded()
            self.refused.succeeded(call.question.agent_id)
        if shared and not call.question.context_recurs:
            self._warm.add(call.prefix)
        return answer

    def _may_fall_back(self, call: Call) -> bool:
        if self.options.is_anthropic or not call.style.structured:
            return False
        return not self.style.structured or self._fallbacks_rejected < _FALLBACK_TRIES

    def _note_rejection(self) -> None:
        if self.style.structured:
            self.style = replace(self.style, structured=False)
            log.warning("%s", self.notes[0])
            if self.cache:
                self.cache.note_rejection(self.options.endpoint, self.options.model)
