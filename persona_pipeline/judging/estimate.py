"""Estimate of a run before it is paid: calls, tokens, the expected price and the highest."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from persona_pipeline.base.calls import run_async
from persona_pipeline.base.database.engine import Store
from persona_pipeline.judging.cache import JudgmentCache
from persona_pipeline.judging.claims import plain_json, questions_of
from persona_pipeline.judging.judge import canaries_for
from persona_pipeline.judging.model.messages import RequestStyle, keys_of, prefix_of, traits_of
from persona_pipeline.judging.money import BATCH_FACTOR, estimated_tokens, price
from persona_pipeline.judging.providers.base import ModelOptions, connect
from persona_pipeline.judging.verdict import JudgeRequest, Question, Usage
from persona_pipeline.world.models import grouped

log = logging.getLogger(__name__)

_COUNTED_AT_ONCE = 8
# Of an answer on a claim or another question, and of the thinking before it where there is some.
_ANSWER_TOKENS, _THINKING_TOKENS = 300, 150
# How far input may be above counted tokens, and above tokens guessed by its length.
_COUNTED, _GUESSED = 1.1, 1.8
# A verdict without a verified quote is asked for again; so is a cut-off answer, with twice the room.
_TWICE = 2
_CUT_OFF = 3


@dataclass(frozen=True)
class Estimate:
    """What a list of questions is expected to take.

    Attributes:
        usage: expected tokens, calls and price (None: the model has no known price), prefixes cached where that helps.
        worst_usd: the price if nothing is cached, every answer uses all its tokens, is cut off once, and is asked for twice.
        batch_usd: the expected price through message batches; None: it is not known, or the provider has no batches.
        counted: input was counted by the API; otherwise it is guessed from its length.
        uncounted: why it was not counted, in words.
        known: how many judgments recordings or the store already hold; they are in nothing of the above.
    """

    model: str
    usage: Usage
    worst_usd: float | None
    batch_usd: float | None
    counted: bool
    uncounted: str = ""
    known: int = 0

    @property
    def usd(self) -> float | None:
        """The expected price."""
        return self.usage.usd

    def __str__(self) -> str:
        usage = self.usage
        if not usage.calls:
            known = f" (all {self.known} judgments are in the store)" if self.known else ""
            return f"nothing to judge: $0{known}"
        total = usage.input_tokens + usage.cache_creation_tokens + usage.cache_read_tokens
        why = f": {self.uncounted}" if self.uncounted else ""
        how = "counted by the API" if self.counted else f"guessed from the length of the text{why}"
        calls = f"{usage.calls} call{'s' if usage.calls != 1 else ''}"
        lines = [
            f"{calls} to {self.model}: about {total:,} input tokens ({how}), of them {usage.cache_read_tokens:,} read "
            f"from the cache, and about {usage.output_tokens:,} output tokens"
        ]
        if self.known:
            lines.append(f"{self.known} judgments are recorded or in the store and cost nothing")
        if self.usd is None or self.worst_usd is None:
            lines.append(f"no price is known for {self.model}")
        else:
            batches = f"; as message batches about {dollars(self.batch_usd)}" if self.batch_usd else ""
            lines.append(f"about {dollars(self.usd)}, at most {dollars(self.worst_usd)}{batches}")
        return "\n".join(lines)


def estimate(
    requests: Sequence[JudgeRequest],
    *,
    options: ModelOptions,
    grouping: int | None = None,
    store: Store | None = None,
    count: bool = True,
    also: Sequence[Question] = (),
) -> Estimate:
    """Return what judging these requests is expected to take.

    Tokens are counted by the API where there is a key, which costs nothing; else, or if that fails, guessed.

    Args:
        count: False: guess the tokens instead of asking the API.
        grouping: claims per call; None: as the options say.
        also: questions of other kinds.
        store: what it already answers is not asked. None: nothing is known.
    """
    questions = [*claim_questions(requests, options, grouping), *also]
    style = RequestStyle(options.model, options.effort)
    asked = questions if store is None else _unanswered(questions, options, store)
    groups = grouped(asked, lambda question: prefix_of(style, question))
    first = [members[0] for members in groups.values()] if count else []
    counted, uncounted = _counted(first, style, options)
    sums = _Sums(options, _COUNTED if counted else _GUESSED)
    for place, (shared, members) in enumerate(groups.items()):
        sums.add(counted[place] if counted else shared.tokens, members)
    priced = sums.usage.usd is not None
    return Estimate(
        options.model,
        sums.usage,
        sums.worst_usd if priced else None,
        sums.batch_usd if priced and options.provider.has_batches else None,
        counted is not None,
        uncounted,
        known=len(questions) - len(asked),
    )


def claim_questions(
    requests: Sequence[JudgeRequest], options: ModelOptions, grouping: int | None = None
) -> list[Question]:
    """Return the first questions to a live judge about claims, canaries included. Claims without entries are left out."""
    shown = [request for request in requests if request.trajectory.entries]
    shown += [canary.request for canary in canaries_for(shown, options.canaries)]
    asking = questions_of(shown, max_tokens=options.max_tokens, grouping=grouping or options.grouping)
    return [question for _, question in asking]


class _Sums:
    """Adds up what groups of questions with one prefix take."""

    def __init__(self, options: ModelOptions, off: float) -> None:
        self.model, self.prices, self.off = options.model, options.prices, off
        self.traits = traits_of(options.model)
        self.usage, self.uncached, self.worst_usd = Usage(), 0.0, 0.0

    def add(self, prefix: int, members: Sequence[Question]) -> None:
        is_cached = len(members) > 1 and prefix >= self.traits.cache_minimum
        for index, question in enumerate(members):
            asks, output = estimated_tokens(question.ask), self._output(question)
            whole = Usage(input_tokens=prefix + asks, output_tokens=output, calls=1)
            expected = whole
            if is_cached:
                cached = {"cache_creation_tokens" if index == 0 else "cache_read_tokens": prefix}
                expected = Usage(input_tokens=asks, output_tokens=output, calls=1, **cached)
            self.usage += replace(expected, usd=price(expected, self.model, prices=self.prices))
            self.uncached += self._price(whole)
            most = int((prefix + asks) * self.off) * _TWICE
            worst = Usage(cache_creation_tokens=most, output_tokens=question.max_tokens * _CUT_OFF)
            self.worst_usd += _TWICE * self._price(worst)

    @property
    def batch_usd(self) -> float:
        """The price through batches, which find about half of the shared prefixes in the cache."""
        return BATCH_FACTOR * ((self.usage.usd or 0.0) + self.uncached) / 2

    def _output(self, question: Question) -> int:
        """Return the tokens of the answer to a question."""
        claims = max(1, question.ask.count('"proposition_id"'))
        thought = _THINKING_TOKENS if self.traits.thinking and question.thinking else 0
        return min(question.max_tokens, _ANSWER_TOKENS * claims + thought)

    def _price(self, usage: Usage) -> float:
        return price(usage, self.model, prices=self.prices) or 0.0


def dollars(usd: float) -> str:
    """Return US dollars, to a hundredth of a cent below one dollar."""
    return "$0" if usd == 0 else f"${usd:.2f}" if usd >= 1 else f"${usd:.4f}"


def _unanswered(questions: Sequence[Question], options: ModelOptions, store: Store) -> list[Question]:
    keys = keys_of(questions, options)
    known = JudgmentCache(store).find(zip(keys, questions, strict=True))
    return [question for key, question in zip(keys, questions, strict=True) if key not in known]


def _counted(questions: Sequence[Question], style: RequestStyle, options: ModelOptions) -> tuple[list[int] | None, str]:
    """Return the tokens of each question's shared prefix as the API counts them; None where it cannot be asked, and why."""
    if not questions:
        return None, ""
    if not options.provider.counts_tokens:
        return None, f"{options.provider.name} counts none beforehand"
    if not options.has_credentials():
        return None, "there is no key to ask the API with"
    try:
        return run_async(_count(questions, style, options)), ""
    except Exception as error:
        status = getattr(error, "status_code", None)
        why = (
            f"{options.endpoint} does not count tokens (HTTP {status})"
            if status in (404, 405, 501)
            else f"{options.endpoint} could not be asked ({f'HTTP {status}' if status else type(error).__name__})"
        )
        log.warning("tokens could not be counted: %s; they are guessed from the length", why)
        return None, why


async def _count(questions: Sequence[Question], style: RequestStyle, options: ModelOptions) -> list[int]:
    places = asyncio.Semaphore(_COUNTED_AT_ONCE)
    async with connect(options) as client:

        async def count(question: Question) -> int:
            body = style.body(question)
            countable = {key: value for key, value in body.items() if key != "max_tokens"}
            async with places, asyncio.timeout(options.deadline):
                total = (await client.messages.count_tokens(**countable)).input_tokens
            return max(0, total - estimated_tokens(plain_json(question.ask)))

        return list(await asyncio.gather(*map(count, questions)))
