"""Trials: the score from repeated attempts at a test."""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from persona_pipeline.suites.format.models import PASS, TrialsFields
from persona_pipeline.suites.grading.results import (
    Attempt,
    SuiteVerdict,
    TestResult,
    reaches,
    share_interval,
    verdict_of,
)


def mean_interval(values: Sequence[float]) -> tuple[float, float, float, float]:
    """Return mean, lower and upper end of its 95 % t interval, and standard deviation (n - 1) of at least two values."""
    from scipy.special import stdtrit

    mean = math.fsum(values) / len(values)
    spread = statistics.stdev(values)
    # To three digits, as the tables of AgentV and its cases have it.
    half = round(float(stdtrit(len(values) - 1, 0.975)), 3) * spread / math.sqrt(len(values))
    return mean, mean - half, mean + half, spread


def run_trials(trials: TrialsFields, attempt: Callable[[int], Attempt], *, gated: bool = False) -> TestResult:
    """Make attempts until the verdict is certain, the count is reached or the money is spent, and combine them.

    The result's ``score`` is None for an error; ``best`` is the attempt that is shown. The caller adds the test's name.
    ``gated``: an assert is a gate, which a further attempt might miss.
    """
    attempts: list[Attempt] = []
    spent, limited, notes = 0.0, False, []
    for number in range(trials.count):
        attempts.append(attempt(number))
        cost = attempts[-1].cost_usd
        if trials.cost_limit_usd is not None and cost is None and not notes:
            notes.append("an attempt reported no cost, so the cost limit could not count it")
        spent += cost or 0.0
        limited = trials.cost_limit_usd is not None and spent >= trials.cost_limit_usd
        if limited or _certain(trials, attempts, trials.count, gated) is not None:
            break
    return _outcome(trials, attempts, gated, limited, notes)


def _certain(trials: TrialsFields, attempts: Sequence[Attempt], planned: int, gated: bool) -> float | None:
    """Return the score that decides the verdict, whatever missing or unjudged attempts would be; None: undecided.

    It is the score of the k-th best attempt if k must pass; with fewer attempts than planned, its deciding bound.
    """
    if trials.strategy != "pass_at_k" and any(item.failed_gates for item in attempts):
        return 0.0
    if trials.needed is None:
        return None
    ordered = sorted((item.score for item in attempts if item.score is not None), reverse=True)
    unknown = planned - len(ordered)
    least = [*ordered, *[0.0] * unknown][trials.needed - 1]
    most = [*[1.0] * unknown, *ordered][trials.needed - 1]
    if verdict_of(least) is not verdict_of(most):
        return None
    if reaches(least, PASS):
        return None if unknown and gated and trials.strategy != "pass_at_k" else least
    return most


def _outcome(
    trials: TrialsFields, attempts: Sequence[Attempt], gated: bool, limited: bool, notes: Sequence[str]
) -> TestResult:
    scores = [attempt.score for attempt in attempts if attempt.score is not None]
    passed = sum(reaches(score, PASS) for score in scores)
    # Without further attempts the best one counts (spec/4); how many of all would pass is unknown.
    planned = len(attempts) if trials.strategy == "pass_at_k" else trials.count
    rest = f"{len(attempts) - len(scores)} could not be judged, {trials.count - len(attempts)} were not made"
    score, why = _certain(trials, attempts, planned, gated), None
    aggregation: dict[str, Any] = {"strategy": trials.strategy}
    if trials.needed is not None:
        aggregation |= {"passed_attempts": passed, "total_attempts": len(attempts)}
        if trials.at_least is not None:
            aggregation |= {"at_least": trials.at_least, "of": trials.count}
        if score is None:
            why = (
                f"of {trials.count} attempts {passed} passed, {rest}: whether {trials.needed} would pass cannot be told"
            )
    elif score is not None or len(scores) < len(attempts):
        pass
    elif trials.strategy == "mean" or len(scores) < 2:
        score = math.fsum(scores) / len(scores)
        aggregation |= {"mean": score, "min": min(scores), "max": max(scores)}
    else:
        mean, lower, upper, spread = mean_interval(scores)
        score, upper = max(0.0, lower), min(1.0, upper)
        aggregation |= {"mean": mean, "ci95_lower": score, "ci95_upper": upper, "stddev": spread}
    if len(scores) == trials.count > 1:
        aggregation["flake_rate"] = _flake_rate(passed, trials.count)
    scored = [attempt for attempt in attempts if attempt.score is not None]
    missed = next((item for item in attempts if item.failed_gates), None) if trials.strategy != "pass_at_k" else None
    if missed is not None:
        why = f"a gate holds in every attempt, and attempt {missed.number + 1} missed one"
    elif trials.needed is not None and score is not None:
        missed = next((item for item in scored if item.score == score), None)
    best = missed or max(scored, key=lambda item: item.score or 0.0, default=attempts[0])
    if why is not None:
        aggregation["why"] = why
    verdict = SuiteVerdict.ERROR if score is None else verdict_of(score)
    return TestResult(
        "", "", score, verdict, best, attempts=attempts, aggregation=aggregation, cost_limited=limited, notes=notes
    )


def _flake_rate(passed: int, total: int) -> dict[str, float]:
    """Return the share of attempts with a different result, passed or not, than most, with its 95 % interval."""
    flakes = min(passed, total - passed)
    low, high = share_interval(flakes, total) or (0.0, 1.0)
    return {"value": flakes / total, "low": low, "high": high}
