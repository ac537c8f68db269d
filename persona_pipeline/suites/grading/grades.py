"""What an assert says about an output, and what it becomes in the results."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from persona_pipeline.suites.format.field_types import BORDERLINE, PASS

# Scores are sums of binary fractions: 1, 0.8 and 0.6 average to 0.7999999999999999, which is 0.8.
TOLERANCE = 1e-9


class SuiteVerdict(StrEnum):
    """How a test or an assert came out. ``error``: it could not be judged, which is neither a pass nor a fail."""

    PASS = "pass"
    BORDERLINE = "borderline"
    FAIL = "fail"
    ERROR = "error"


def reaches(score: float, threshold: float) -> bool:
    """Return whether a score is at least a threshold, within the tolerance."""
    return score >= threshold - TOLERANCE


def verdict_of(score: float) -> SuiteVerdict:
    """Return the verdict of a score: pass from 0.8, borderline from 0.6, else fail (spec/4)."""
    if reaches(score, PASS):
        return SuiteVerdict.PASS
    return SuiteVerdict.BORDERLINE if reaches(score, BORDERLINE) else SuiteVerdict.FAIL


def weighted_mean(pairs: Iterable[tuple[float, float]]) -> float:
    """Return sum(score * weight) / sum(weight) of (score, weight) pairs, 0 when the weights add up to 0."""
    total = weights = 0.0
    for score, weight in pairs:
        total += score * weight
        weights += weight
    return total / weights if weights else 0.0


def gate_of(required: bool | float) -> float | None:
    """Return the score a gate must reach, None for no gate."""
    if isinstance(required, bool):
        return PASS if required else None
    return required


@dataclass(frozen=True)
class Failure:
    """Why something could not be judged. ``reason`` is one word for machines, ``message`` says what to do."""

    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}" if self.message else self.reason

    def to_dict(self) -> dict[str, str]:
        return {"reason": self.reason, "message": self.message}


class UngradedError(Exception):
    """An assert cannot give a score. It becomes an ``error`` in the results, never a number."""

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(f"{reason}: {message}")
        self.failure = Failure(reason, message)


@dataclass(frozen=True, slots=True)
class Grade:
    """An assert's answer.

    Attributes:
        score: 0-1.
        hits, misses: one short sentence each.
        verdict: only where it does not follow from the score.
        details: numbers behind the score, plain JSON.
        children: results of the asserts inside this one.
        failed_gates: the gates among the children that were not met; the score is then 0.
    """

    score: float
    hits: Sequence[str] = ()
    misses: Sequence[str] = ()
    reasoning: str | None = None
    verdict: SuiteVerdict | None = None
    details: Mapping[str, Any] | None = None
    children: Sequence["AssertResult"] = ()
    failed_gates: Sequence[str] = ()

    @classmethod
    def of(cls, met: bool, hit: str, miss: str) -> "Grade":
        """Return 1 with a hit, or 0 with a miss."""
        return cls(1.0, hits=(hit,)) if met else cls(0.0, misses=(miss,))

    def negated(self) -> "Grade":
        """Return the opposite: 1 - score, hits and misses, pass and fail exchanged. Gates inside are part of what must not hold."""
        verdict = self.verdict or verdict_of(self.score)
        opposite = {SuiteVerdict.PASS: SuiteVerdict.FAIL, SuiteVerdict.FAIL: SuiteVerdict.PASS}
        return Grade(
            1.0 - self.score,
            self.misses,
            self.hits,
            self.reasoning,
            opposite.get(verdict, verdict),
            self.details,
            self.children,
        )


@dataclass(frozen=True, slots=True)
class AssertResult:
    """One assert of one test. ``score`` is None exactly when ``error`` is set. ``failed_gates``: gates among its children."""

    name: str
    type: str
    score: float | None
    weight: float
    verdict: SuiteVerdict
    required: bool | float = False
    hits: Sequence[str] = ()
    misses: Sequence[str] = ()
    reasoning: str | None = None
    details: Mapping[str, Any] | None = None
    children: Sequence["AssertResult"] = ()
    error: Failure | None = None
    failed_gates: Sequence[str] = ()

    @property
    def gate(self) -> float | None:
        """The score it must reach, None where it is no gate."""
        return gate_of(self.required)

    @property
    def gate_failed(self) -> bool:
        """Whether it, or a gate inside it, brings its test to 0. ``required: true`` is met by a pass, a number by that score."""
        if self.failed_gates:
            return True
        if self.gate is None or self.score is None:
            return False
        return self.verdict is not SuiteVerdict.PASS if self.required is True else not reaches(self.score, self.gate)

    def to_dict(self) -> dict[str, Any]:
        data: dict[str, Any] = {
            "name": self.name,
            "type": self.type,
            "score": self.score,
            "weight": self.weight,
            "verdict": self.verdict.value,
            "hits": list(self.hits),
            "misses": list(self.misses),
            "reasoning": self.reasoning,
        }
        if self.required is not False:
            data["required"] = self.required
        if self.details:
            data["details"] = dict(self.details)
        if self.failed_gates:
            data["failed_gates"] = list(self.failed_gates)
        if self.children:
            data["scores"] = [child.to_dict() for child in self.children]
        if self.error:
            data["error"] = self.error.to_dict()
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "AssertResult":
        """Return the result that ``to_dict`` wrote."""
        error = data.get("error")
        return cls(
            data["name"],
            data["type"],
            data["score"],
            data["weight"],
            SuiteVerdict(data["verdict"]),
            data.get("required", False),
            tuple(data.get("hits", ())),
            tuple(data.get("misses", ())),
            data.get("reasoning"),
            data.get("details"),
            tuple(cls.from_dict(child) for child in data.get("scores", ())),
            Failure(error["reason"], error["message"]) if error else None,
            tuple(data.get("failed_gates", ())),
        )
