"""What the gate did, as sums that add up: a day's tally is the sum of its checks, a year's that of its days."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, exp, log
from typing import Any, Self

from persona_pipeline.corrections.decision import Action

# Latencies are kept in classes: of whole milliseconds up to here, of 2 % width above.
_WHOLE = 200
_GROWTH = log(1.02)
_SUMS = (
    "actions",
    "passed",
    "passed_after_retry",
    "forced",
    "shadowed",
    "would_hold",
    "corrected",
    "checks",
    "rejections",
    "input_tokens",
    "output_tokens",
    "cache_creation_tokens",
    "cache_read_tokens",
    "usd",
    "priced",
)
_TOKENS = ("input_tokens", "output_tokens", "cache_creation_tokens", "cache_read_tokens")


@dataclass
class Tally:
    """Sums over checks. An action is one message over all its attempts; it ends with the check that sends it.

    Attributes:
        shadowed: actions that a gate only watched; ``would_hold`` of them were below the threshold.
        reasons: actions sent without a score, by why.
        latencies: checks by class of latency; ``highest`` is exact, in milliseconds.
        priced: checks whose price is known; ``usd`` is the sum of their prices.
    """

    actions: int = 0
    passed: int = 0
    passed_after_retry: int = 0
    forced: int = 0
    shadowed: int = 0
    would_hold: int = 0
    corrected: int = 0
    checks: int = 0
    rejections: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_tokens: int = 0
    cache_read_tokens: int = 0
    usd: float = 0.0
    priced: int = 0
    highest: float = 0.0
    reasons: Counter[str] = field(default_factory=Counter)
    latencies: Counter[int] = field(default_factory=Counter)

    def add(self, check: Any, *, first: bool) -> None:
        """Count a row of ``gate_checks``; ``first``: it is the first of its action."""
        rejected = check.decision == Action.RETRY and not check.shadow
        self.actions += first
        self.checks += 1
        self.rejections += rejected
        self.corrected += first and rejected
        if check.shadow:
            self.shadowed += 1
            self.would_hold += check.decision != Action.COMMIT
        elif check.decision == Action.FORCE:
            self.forced += 1
        elif not rejected and check.reason is not None:
            self.reasons[check.reason] += 1
        elif not rejected:
            self.passed += check.attempt_number == 1
            self.passed_after_retry += check.attempt_number != 1
        usage: Mapping[str, int] = check.token_usage or {}
        for name in _TOKENS:
            setattr(self, name, getattr(self, name) + usage.get(name, 0))
        if check.usd is not None:
            self.usd += check.usd
            self.priced += 1
        self.latencies[_class_of(check.latency_ms)] += 1
        self.highest = max(self.highest, check.latency_ms)

    def merge(self, other: Self) -> None:
        """Add the sums of another tally."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.highest = max(self.highest, other.highest)
        self.reasons.update(other.reasons)
        self.latencies.update(other.latencies)

    def latency(self, share: float) -> float:
        """Return the latency in milliseconds that a share (0-1) of the checks stays within, by nearest rank, to 2 %."""
        rank, passed = ceil(share * self.checks), 0
        for level in sorted(self.latencies):
            passed += self.latencies[level]
            if passed >= rank:
                return min(_latency_of(level), self.highest)
        return self.highest

    def to_json(self) -> dict[str, Any]:
        sums = {name: getattr(self, name) for name in (*_SUMS, "highest")}
        return sums | {"reasons": dict(self.reasons), "latencies": {str(k): v for k, v in self.latencies.items()}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        # Days that were summed up by an earlier version know nothing of what came later.
        sums = {name: data.get(name, 0) for name in (*_SUMS, "highest")}
        latencies = Counter({int(level): count for level, count in data["latencies"].items()})
        return cls(**sums, reasons=Counter(data["reasons"]), latencies=latencies)


def _class_of(milliseconds: float) -> int:
    if milliseconds <= _WHOLE:
        return ceil(milliseconds)
    return _WHOLE + ceil(log(milliseconds / _WHOLE) / _GROWTH)


def _latency_of(level: int) -> float:
    """The upper end of a class."""
    return float(level) if level <= _WHOLE else _WHOLE * exp((level - _WHOLE) * _GROWTH)
