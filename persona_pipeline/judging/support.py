"""Does a verdict stand on the transcript? One all of whose quotes are not there does not."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from persona_pipeline.judging.verdict import Unscored, Verdict

# Share of quotes that fail above which the judge itself is in doubt.
MOST_FAILING_QUOTES = 0.2


def is_unsupported(verdict: Verdict) -> bool:
    """Whether a verdict gives quotes and none of them stands where it says. Without quotes it may: absence cannot be quoted."""
    answered = verdict.unscored is None or verdict.unscored.is_answer
    return answered and bool(verdict.evidence) and not any(quote.verified for quote in verdict.evidence)


def unsupported(verdict: Verdict, detail: str) -> Verdict:
    """Return the verdict as ``unscored(unsupported)``; its quotes stay, to be looked at."""
    return replace(verdict, score=None, unscored=Unscored.UNSUPPORTED, ideas=(), detail=detail)


@dataclass(frozen=True)
class QuoteHealth:
    """How the quotes of a run stand up: how many there are, how many fail, and how many verdicts have none."""

    quotes: int = 0
    failing: int = 0
    verdicts_without: int = 0

    @property
    def failing_share(self) -> float:
        """Share (0-1) of the quotes that fail; 0 without quotes."""
        return self.failing / self.quotes if self.quotes else 0.0

    @property
    def is_doubtful(self) -> bool:
        """Whether more fail than a judge that can judge would get wrong: the finding ``judge_health``."""
        return self.failing_share > MOST_FAILING_QUOTES


def quote_health(verified: Iterable[Iterable[bool]]) -> QuoteHealth:
    """Return the health of a run from its verdicts on what the judge answered: for each, which of its quotes are verified."""
    lists = [list(quotes) for quotes in verified]
    return QuoteHealth(
        quotes=sum(map(len, lists)),
        failing=sum(not good for quotes in lists for good in quotes),
        verdicts_without=sum(not quotes for quotes in lists),
    )
