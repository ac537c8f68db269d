"""What a replay of corrections brought, as values that are printed, drawn and written as JSON."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field


class Correction(StrEnum):
    """One of the three corrections, by the name of its settings."""

    ACTION_GATE = "action_gate"
    ANTI_CONVERGENCE = "anti_convergence"
    REPETITION_SUPPRESSION = "repetition_suppression"

    @property
    def setting(self) -> str:
        """The name of its threshold among an agent's settings."""
        return {"anti_convergence": "convergence", "repetition_suppression": "repetition"}.get(
            self, self
        ) + "_threshold"


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Touched(_Frozen):
    """What one threshold would have done: shares (0-1) of all, of the good and of the bad; None where there are none."""

    threshold: float
    all: float
    good: float | None = None
    bad: float | None = None


class Area(_Frozen):
    """Area under the ROC: how often a bad message looks worse than a good one (0.5: no better than chance), with 95 % interval."""

    value: float
    low: float
    high: float
    good: int
    bad: int


class RiskThreshold(_Frozen):
    """The threshold that keeps a stated risk.

    Attributes:
        risk: share (0-1) of good messages that may be touched.
        threshold: None: none keeps it, ``why`` says why.
        good: known good messages that share no text with one another; ``needed``: so many keep the risk at all.
        touched: how many of them the threshold touches; ``all`` and ``bad``: what share (0-1) of all and of the known bad messages.
    """

    risk: float
    threshold: float | None
    good: int
    needed: int
    touched: int = 0
    all: float | None = None
    bad: float | None = None
    why: str = ""


class Cost(_Frozen):
    """What a check took, from so many of them; None: not known. ``source`` says what was measured."""

    source: str
    checks: int
    usd: float | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None


class CorrectionReplay(_Frozen):
    """One correction of one agent over stored messages.

    Attributes:
        threshold: as it is set now; ``enabled``: whether the correction is on.
        messages: how many were looked at; ``measured`` of them have a score or a share, ``unmeasured``: why the others have none.
        anyway: touched whatever the threshold, by an opener, a phrase or a copy.
        touched: by threshold, the lowest first.
        judges: models that gave the scores, with how often.
    """

    correction: Correction
    agent_id: str
    enabled: bool
    threshold: float
    messages: int
    measured: int
    unmeasured: dict[str, int] = Field(default_factory=dict)
    anyway: int = 0
    good: int = 0
    bad: int = 0
    touched: list[Touched] = Field(default_factory=list)
    area: Area | None = None
    risk: RiskThreshold | None = None
    cost: Cost | None = None
    judges: dict[str, int] = Field(default_factory=dict)


class Replay(_Frozen):
    """Corrections over stored messages. ``notes`` are what has to be known to read the numbers."""

    results: list[CorrectionReplay]
    notes: list[str] = Field(default_factory=list)
    usd: float | None = 0.0
    calls: int = 0
