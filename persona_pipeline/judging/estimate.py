"""What a run would take before it is paid for: calls, tokens, dollars."""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from persona_pipeline.judging.anthropic import questions_about
from persona_pipeline.judging.canaries import with_canaries
from persona_pipeline.judging.connection import connect
from persona_pipeline.judging.options import AnthropicOptions
from persona_pipeline.judging.prices import BATCH_FACTOR, estimated_tokens, price
from persona_pipeline.judging.prompt import plain_json
from persona_pipeline.judging.questions import Question
from persona_pipeline.judging.request import Prefix, RequestStyle, prefix_of, traits_of
from persona_pipeline.judging.verdict import JudgeRequest, Usage
from persona_pipeline.settings import get_settings

log = logging.getLogger(__name__)

# Of an answer with short evidence and reasons; thinking at low effort on top.
_ANSWER_TOKENS = 300
_THINKING_TOKENS = 150
_COUNTED_AT_ONCE = 8


@dataclass(frozen=True)
class Estimate:
    """What a list of questions is expected to take.

    Attributes:
        usage: expected tokens, calls and price (None: the model has no known price), prefixes cached where that helps.
        worst_usd: price if nothing is cached and every answer uses all its tokens.
        counted: input was counted by the API; otherwise it is guessed from its length.
    """

    model: str
    usage: Usage
    worst_usd: float | None
    counted: bool

    @property
    def batch_usd(self) -> float | None:
        """Expected price through message batches."""
        return None if self.usage.usd is None else self.usage.usd * BATCH_FACTOR

    def __str__(self) -> str:
        usage = self.usage
        total = usage.input_tokens + usage.cache_creation_tokens + usage.cache_read_tokens
        how = "counted by the API" if self.counted else "guessed from the length of the text"
        calls = f"{usage.calls} call{'s' if usage.calls != 1 else ''}"
        lines = [
            f"{calls} to {self.model}: about {total:,} input tokens ({how}), of them {usage.cache_read_tokens:,} read "
            f"from the cache, and about {usage.output_tokens:,} output tokens"
        ]
        if usage.usd is None or self.worst_usd is None or self.batch_usd is None:
            lines.append(f"no price is known for {self.model}")
        else:
            lines.append(
                f"about ${usage.usd:.4f}, at most ${self.worst_usd:.4f}; as a message batch about ${self.batch_usd:.4f}"
            )
        return "\n".join(lines)


def estimate(
    requests: Sequence[JudgeRequest], *, options: AnthropicOptions | None = None, grouping: int = 1
) -> Estimate:
    """Return what judging these requests is expected to take if nothing of it is cached as a judgment.

    Tokens are counted by the API where there is a key, which costs nothing; else, or if that fails, guessed.
    """
    options = options or AnthropicOptions.from_settings(get_settings())
    shown = [request for request in requests if request.trajectory.entries]
    asking = questions_about(with_canaries(shown), max_tokens=options.max_tokens, grouping=grouping)
    return estimate_questions([question for _, question in asking], options)


def estimate_questions(questions: Sequence[Question], options: AnthropicOptions) -> Estimate:
    """Return what asking these questions is expected to take; see ``estimate``."""
    style = RequestStyle(options.model, options.effort)
    groups: dict[Prefix, list[Question]] = {}
    for question in questions:
        groups.setdefault(prefix_of(style, question), []).append(question)
    counted = _counted([members[0] for members in groups.values()], style, options)
    total, worst = Usage(), 0.0
    for place, (shared, members) in enumerate(groups.items()):
        prefix = counted[place] if counted else shared.tokens
        for index, question in enumerate(members):
            asks = estimated_tokens(question.ask)
            output = min(
                question.max_tokens,
                (_ANSWER_TOKENS * question.ask.count('"proposition_id"') or _ANSWER_TOKENS)
                + (_THINKING_TOKENS if traits_of(options.model).thinking and question.thinking else 0),
            )
            usage = Usage(input_tokens=prefix + asks, output_tokens=output, calls=1)
            if len(members) > 1 and prefix >= traits_of(options.model).cache_minimum:
                cached = {"cache_creation_tokens" if index == 0 else "cache_read_tokens": prefix}
                usage = Usage(input_tokens=asks, output_tokens=output, calls=1, **cached)
            total += replace(usage, usd=price(usage, options.model))
            most = Usage(input_tokens=prefix + asks, output_tokens=question.max_tokens)
            worst += price(most, options.model) or 0.0
    return Estimate(options.model, total, None if total.usd is None else worst, counted is not None)


def _counted(questions: Sequence[Question], style: RequestStyle, options: AnthropicOptions) -> list[int] | None:
    """Return the tokens of each question's shared prefix as the API counts them, None where it cannot be asked."""
    if not questions or not options.provider.counts_tokens or not options.has_credentials():
        return None
    try:
        # In a thread: the caller may stand in an event loop.
        with ThreadPoolExecutor(max_workers=1) as pool:
            return pool.submit(asyncio.run, _count(questions, style, options)).result()
    except Exception as error:
        log.warning("tokens could not be counted (%s); they are guessed from the length", type(error).__name__)
        return None


async def _count(questions: Sequence[Question], style: RequestStyle, options: AnthropicOptions) -> list[int]:
    places = asyncio.Semaphore(_COUNTED_AT_ONCE)
    async with connect(options) as client:

        async def count(question: Question) -> int:
            body = style.body(question)
            countable = {key: value for key, value in body.items() if key != "max_tokens"}
            async with places, asyncio.timeout(options.deadline):
                total = (await client.messages.count_tokens(**countable)).input_tokens
            return max(0, total - estimated_tokens(plain_json(question.ask)))

        return list(await asyncio.gather(*map(count, questions)))
