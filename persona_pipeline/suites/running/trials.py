"""Several attempts at one test, and the one score that comes of them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from persona_pipeline.suites.asserts.grades import SuiteVerdict, reaches, verdict_of
from persona_pipeline.suites.format.field_types import PASS
from persona_pipeline.suites.format.models import Trials
from persona_pipeline.suites.results.intervals import mean_interval
from persona_pipeline.suites.results.suite_result import Attempt


@dataclass(frozen=True)
class Outcome:
    """The score of several attempts. ``best``: the attempt that is shown; ``score`` None: an error."""

    score: float | None
    verdict: SuiteVerdict
    best: Attempt
    attempts: Sequence[Attempt]
    aggregation: Mapping[str, Any]
    cost_limited: bool = False
    notes: Sequence[str] = ()


def run_trials(trials: Trials, attempt: Callable[[int], Attempt]) -> Outcome:
    """Make attempts until the strategy is satisfied, the count is reached or the money is spent, and put them together."""
    attempts: list[Attempt] = []
    spent, limited, notes = 0.0, False, []
    for number in range(trials.count):
        attempts.append(attempt(number))
        cost = attempts[-1].cost_usd
        if trials.cost_limit_usd is not None and cost is None and not notes:
            notes.append("an attempt reported no cost, so the cost limit could not count it")
        spent += cost or 0.0
        limited = trials.cost_limit_usd is not None and spent >= trials.cost_limit_usd
        if limited or (trials.strategy == "pass_at_k" and _passed(attempts[-1])):
            break
    return _outcome(trials.strategy, attempts, limited, notes)


def _passed(attempt: Attempt) -> bool:
    return attempt.score is not None and reaches(attempt.score, PASS)


def _outcome(strategy: str, attempts: Sequence[Attempt], limited: bool, notes: Sequence[str]) -> Outcome:
    scored = [attempt for attempt in attempts if attempt.score is not None]
    scores = [attempt.score for attempt in scored if attempt.score is not None]
    best = max(scored, key=lambda item: item.score or 0.0) if scored else attempts[0]
    aggregation: dict[str, Any] = {"strategy": strategy}
    if strategy == "pass_at_k":
        passed = sum(_passed(attempt) for attempt in attempts)
        aggregation |= {"passed_attempts": passed, "total_attempts": len(attempts)}
        # One pass decides. Without one, an attempt that could not be judged might have been it.
        score = max(scores) if passed or (scores and len(scores) == len(attempts)) else None
    elif len(scores) < len(attempts):
        score = None
    elif strategy == "mean" or len(scores) < 2:
        mean = math.fsum(scores) / len(scores)
        score = mean
        aggregation |= {"mean": mean, "min": min(scores), "max": max(scores)}
    else:
        mean, lower, upper, spread = mean_interval(scores)
        lower, upper = max(0.0, lower), min(1.0, upper)
        score = lower
        aggregation |= {"mean": mean, "ci95_lower": lower, "ci95_upper": upper, "stddev": spread}
    verdict = SuiteVerdict.ERROR if score is None else verdict_of(score)
    if score is None:
        failed = next(attempt for attempt in attempts if attempt.score is None)
        best = best if scored else failed
    return Outcome(score, verdict, best, attempts, aggregation, limited, notes)
