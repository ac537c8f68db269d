"""What the gate does with a score: commit, ask again, or let the text through after enough attempts."""

from dataclasses import dataclass, field
from enum import StrEnum

from persona_pipeline.judging.verdict import Usage

# A mean of 5 can come out as 4.999999999999999; it reaches a threshold of 5.
_TOLERANCE = 1e-9


class Action(StrEnum):
    """What the caller does: send the text, have the agent write it again with the feedback, or send it all the same."""

    COMMIT = "commit"
    RETRY = "retry"
    FORCE = "force"


class Outcome(StrEnum):
    """How one check ended. The three with a row in ``correction_logs`` are spec/2's own.

    ``passed``: first try. ``corrected``: this text was rejected and feedback given. ``passed_after_retry``: a
    later attempt reached the threshold. ``forced_through``: still below it after the last attempt.
    ``fail_open``: no score, so it passes. ``disabled``: the agent has no gate. ``shadow``: the gate only watches.
    """

    PASSED = "passed"
    CORRECTED = "corrected"
    PASSED_AFTER_RETRY = "passed_after_retry"
    FORCED_THROUGH = "forced_through"
    FAIL_OPEN = "fail_open"
    DISABLED = "disabled"
    SHADOW = "shadow"


@dataclass(frozen=True)
class GateDecision:
    """The answer to one check. ``text`` is always the text that was checked: the gate never writes.

    Attributes:
        feedback: for the agent's next attempt, None unless ``action`` is retry.
        score: weighted mean of the propositions, 0-9; None when there is none.
        reason: why there is no score (``timeout``, ``api_error``, ``database``, ...), None for a judged text.
        action_id: the same for all attempts at one message.
        attempt: 1 for the first text.
        latency_ms: wall-clock time of the check.
        would: what a gate that only watches would have said; None: it does not only watch, or the judge has not answered yet.
    """

    action: Action
    outcome: Outcome
    text: str
    feedback: str | None = None
    score: float | None = None
    threshold: float | None = None
    reason: str | None = None
    action_id: str = ""
    attempt: int = 1
    latency_ms: float = 0.0
    usage: Usage = field(default_factory=Usage)
    would: Action | None = None

    @property
    def sends(self) -> bool:
        """Whether the text goes out now."""
        return self.action is not Action.RETRY


def decide(score: float | None, threshold: float, *, attempt: int, max_attempts: int) -> Action:
    """Return what to do with a text.

    ``score``: 0-9; None (there is no score) always commits. ``attempt``: 1-based; so many texts, this one included, were written
    for the action. ``max_attempts``: rejections with feedback before the text goes through.
    """
    if score is None or score >= threshold - _TOLERANCE:
        return Action.COMMIT
    return Action.RETRY if attempt <= max_attempts else Action.FORCE


def outcome_of(action: Action, attempt: int) -> Outcome:
    if action is Action.RETRY:
        return Outcome.CORRECTED
    if action is Action.FORCE:
        return Outcome.FORCED_THROUGH
    return Outcome.PASSED if attempt == 1 else Outcome.PASSED_AFTER_RETRY
