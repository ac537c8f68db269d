"""Two runs of one suite, judged answer against answer: who wins how often, and how sure that is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from persona_pipeline.errors import ConfigError
from persona_pipeline.suites.asserts.context import Context
from persona_pipeline.suites.asserts.grades import Failure, UngradedError
from persona_pipeline.suites.asserts.pairwise import (
    KIND,
    Outcome,
    PairwiseOutcome,
    alike,
    both_orders,
    outcome_of,
    shown_of,
)
from persona_pipeline.suites.format.models import Suite
from persona_pipeline.suites.results.intervals import share_interval, sign_test
from persona_pipeline.suites.targets.output import OutputError, parse_output

if TYPE_CHECKING:
    from persona_pipeline.judging.questions import Question
    from persona_pipeline.suites.asserts.suite_judge import SuiteJudge

MOST_SECONDS = 3600.0


@dataclass(frozen=True)
class JudgedPair:
    """One test's answer in B against that in A: an outcome, or why there is none."""

    id: str
    found: PairwiseOutcome | None = None
    error: Failure | None = None

    def to_dict(self) -> dict[str, Any]:
        if self.found is None:
            return {"id": self.id, "outcome": None, "error": self.error and self.error.to_dict()}
        orders = [item.value for item in self.found.orders]
        return {"id": self.id, "outcome": self.found.outcome.value, "orders": orders, "reasoning": self.found.reasoning}


@dataclass(frozen=True)
class PairwiseResult:
    """B against A, judged. ``pairs``: the tests both runs have."""

    pairs: Sequence[JudgedPair]

    def count(self, outcome: Outcome) -> int:
        return sum(pair.found is not None and pair.found.outcome is outcome for pair in self.pairs)

    @property
    def wins(self) -> int:
        return self.count(Outcome.WIN)

    @property
    def losses(self) -> int:
        return self.count(Outcome.LOSS)

    @property
    def ties(self) -> int:
        return self.count(Outcome.TIE)

    @property
    def changed(self) -> int:
        """Ties because the judge's choice changed with the order."""
        return sum(pair.found is not None and not pair.found.consistent for pair in self.pairs)

    @property
    def unjudged(self) -> list[JudgedPair]:
        return [pair for pair in self.pairs if pair.found is None]

    @property
    def win_share(self) -> float | None:
        """B's share (0-1) of the tests that were won or lost, None without any."""
        decided = self.wins + self.losses
        return self.wins / decided if decided else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Exact 95 % interval of ``win_share``."""
        return share_interval(self.wins, self.wins + self.losses)

    @property
    def sign_p(self) -> float | None:
        """Two-sided p of the exact sign test over won and lost tests, None without any."""
        return sign_test(self.wins, self.losses)

    @property
    def surely_worse(self) -> bool:
        """Whether the whole interval lies below one half."""
        return self.interval is not None and self.interval[1] < 0.5

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain JSON."""
        interval = self.interval
        return {
            "summary": {
                "wins": self.wins,
                "losses": self.losses,
                "ties": self.ties,
                "order_changed": self.changed,
                "unjudged": len(self.unjudged),
                "win_share": self.win_share,
                "ci95": None if interval is None else list(interval),
                "sign_test_p": self.sign_p,
            },
            "tests": [pair.to_dict() for pair in self.pairs],
        }


def judge_pairs(
    judge: "SuiteJudge",
    a: Sequence[Mapping[str, Any]],
    b: Sequence[Mapping[str, Any]],
    suites: Mapping[str, Suite],
) -> PairwiseResult:
    """Let the judge compare the answers of two runs, test by test, in both orders; all questions are asked at once.

    Args:
        a, b: rows of results.
        suites: what was asked: the suites by what the ids of their tests begin with, ``""`` for a single one.

    Raises:
        ConfigError: a test of the runs is in none of the suites.
    """
    first, known = {row["id"]: row for row in a}, _contexts(suites)
    found: dict[str, JudgedPair] = {}
    asked: dict[str, list[Question]] = {}
    for row in b:
        if row["id"] not in first:
            continue
        key = row["id"]
        try:
            same, questions = _pair(key, first[key], row, _context(key, row.get("target"), known))
        except UngradedError as problem:
            found[key] = JudgedPair(key, error=problem.failure)
            continue
        found[key] = JudgedPair(key, same)
        if same is None:
            asked[key] = questions
    answers = judge.answers([item for questions in asked.values() for item in questions], MOST_SECONDS) if asked else []
    for index, key in enumerate(asked):
        try:
            found[key] = JudgedPair(key, outcome_of(answers[2 * index : 2 * index + 2]))
        except UngradedError as problem:
            found[key] = JudgedPair(key, error=problem.failure)
    return PairwiseResult(list(found.values()))


def _pair(
    key: str, a: Mapping[str, Any], b: Mapping[str, Any], context: Context
) -> "tuple[PairwiseOutcome | None, list[Question]]":
    """The tie of two answers that are the same, else what to ask."""
    outputs = []
    if None not in (keys := (a.get("request_key"), b.get("request_key"))) and keys[0] != keys[1]:
        raise UngradedError("stale", f"{key!r} was not asked the same in both runs")
    for row in (b, a):
        if row.get("output") is None:
            raise UngradedError("no_answer", f"{key!r} has no answer in one of the runs")
        try:
            outputs.append(parse_output(row))
        except OutputError as problem:
            raise UngradedError("invalid_response", f"{key!r}: {problem}") from problem
    new, old = outputs
    same = alike(new.text, old.text)
    label = f"{KIND} of {context.suite.name}/{context.test.id}"
    return same, [] if same else both_orders(shown_of(new, context), new.text, old.text, label=label)


def _contexts(suites: Mapping[str, Suite]) -> dict[str, Context]:
    """Every test by its id in a joined result, for what was asked."""
    return {f"{prefix}{test.id}": Context(suite, test) for prefix, suite in suites.items() for test in suite.tests}


def _context(key: str, target: Any, known: Mapping[str, Context]) -> Context:
    """The test of a row: of several targets each has its own, ``id@target``."""
    for name in (key, key.removesuffix(f"@{target}")):
        if name in known:
            return known[name]
    raise ConfigError(f"test {key!r} of the results is in none of the suites; name the one it is from with --suite")
