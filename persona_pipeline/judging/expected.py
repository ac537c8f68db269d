"""What calls are expected to take, learnt from what calls before them took: tokens, room in the API's cache, money."""

from collections.abc import Sequence

from persona_pipeline.judging.budget import Budget
from persona_pipeline.judging.calls import Call
from persona_pipeline.judging.pacing import Cost, Limit
from persona_pipeline.judging.prices import estimated_tokens, price
from persona_pipeline.judging.request import Prefix, cached_tokens, traits_of
from persona_pipeline.judging.verdict import Usage

# Of an answer, until one was seen.
_ANSWER_TOKENS = 400.0
# How many tokens one of ours may be until an answer told; how much more than what is expected a budget should have.
_GENEROUS, _TIGHT = 1.5, 2.0


class Expected:
    """Expectations of calls to one model."""

    def __init__(self, model: str) -> None:
        self.model = model
        self._warm: set[Prefix] = set()
        self._output_tokens = _ANSWER_TOKENS
        self._density = 0.0

    def learn(self, call: Call, usage: Usage, *, shared: bool) -> None:
        """Learn from what a call took; ``shared``: its prefix was marked for the API's cache."""
        self._output_tokens += (usage.output_tokens - self._output_tokens) / 10 if usage.output_tokens else 0
        if shared and not call.question.context_recurs:
            self._warm.add(call.prefix)
        sent = usage.input_tokens + usage.cache_creation_tokens + usage.cache_read_tokens
        if sent:
            self._density = sent / (call.prefix.tokens + estimated_tokens(call.question.ask))

    def is_cacheable(self, group: Sequence[Call]) -> bool:
        """Whether the API is to cache what these calls share."""
        first = group[0]
        if len(group) == 1 and not first.question.context_recurs:
            return False
        # A mark on too short a prefix costs nothing; one that is missing costs every claim its transcript.
        expected = cached_tokens(first.style, first.question) * (self._density or _GENEROUS)
        return expected >= traits_of(self.model).cache_minimum

    def is_tight(self, groups: Sequence[Sequence[Call]], budget: Budget) -> bool:
        """Whether a budget may not suffice for all of them."""
        expected = 0.0
        for group in groups:
            for place, call in enumerate(group):
                prefix = {"cache_read_tokens" if place else "cache_creation_tokens": call.prefix.tokens}
                asks, output = estimated_tokens(call.question.ask), int(self._output_tokens)
                usage = Usage(input_tokens=asks, output_tokens=output, **prefix)
                expected += price(usage, self.model) or 0.0
        return _TIGHT * expected > budget.remaining

    def cost(self, call: Call) -> Cost:
        """What a call takes of the server's limits: where input is counted alone, tokens read from the cache do not count."""
        asks = estimated_tokens(call.question.ask)
        return {
            Limit.REQUESTS: 1,
            Limit.INPUT_TOKENS: asks + (0 if call.prefix in self._warm else call.prefix.tokens),
            Limit.OUTPUT_TOKENS: self._output_tokens,
            Limit.TOKENS: asks + call.prefix.tokens + call.question.max_tokens,
        }
