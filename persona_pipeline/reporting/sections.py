"""What ``RunReport.statistics`` may hold beside the scores, typed. Every key is optional; a malformed one raises ``ConfigError``.

history      {agent_id: [HistoryPoint, ...]} in time order
trends       {agent_id: {dimension: TrendSeen}}
fading       {agent_id: [FadingSeen, ...]}, one for each version of its persona and signal
voice_map    VoiceMap
voice_alarms {agent_id: VoiceSeen}
suites       [SuiteSummary, ...]
corrections  {agent_id: CorrectionSummary}
"""

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from persona_pipeline.errors import ConfigError, Problem
from persona_pipeline.evaluation.report import RunReport

if TYPE_CHECKING:
    from persona_pipeline.corrections.statistics import CorrectionStatistics
    from persona_pipeline.suites.results.suite_result import SuiteResult, TestResult


class _Section(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


class HistoryPoint(_Section):
    """An agent's scores (0-9, None: unscored) in the window that ends at ``window_end``.

    ``margins``: half the width of a dimension's 95 % interval, in points; ``overall``'s stands under its name.
    """

    window_end: datetime
    overall: float | None = None
    dimensions: dict[str, float | None] = Field(default_factory=dict)
    margins: dict[str, float] = Field(default_factory=dict)


class TrendSeen(_Section):
    """A dimension that has been falling, as ``baselines.trend.Trend`` tells it."""

    began: datetime
    windows: int
    before: float
    now: float
    strength: float


class CurveSeen(_Section):
    """Mean score (0-9) at a turn over the conversations that got there, with its 95 % interval."""

    turn: int
    mean: float
    low: float | None = None
    high: float | None = None
    conversations: int


class SurvivalSeen(_Section):
    """Share (0-1) of characters still held after a turn, with its 95 % interval."""

    turn: int
    share: float
    low: float
    high: float
    at_risk: int


class FadingSeen(_Section):
    """How a character fares by turn, as ``scoring.fading.Fading`` tells it.

    ``version``: of the persona; ``signal``: what was scored.
    """

    version: str = ""
    signal: str = "adherence"
    conversations: int
    lost: int
    longest: int
    curve: list[CurveSeen] = Field(default_factory=list)
    survival: list[SurvivalSeen] = Field(default_factory=list)
    half_life: int | None = None
    half_life_low: int | None = None
    half_life_high: int | None = None
    text: str = ""


class Voice(_Section):
    """How one agent writes: shares 0-1, sentence length in words, messages it was measured on.

    ``x`` and ``y``: its place on a plane where agents who write alike stand close; only distances mean something.
    """

    unique_word_ratio: float | None = None
    average_sentence_length: float | None = None
    punctuation_density: float | None = None
    messages: int | None = None
    x: float | None = None
    y: float | None = None


class VoicePair(_Section):
    """How alike two agents write.

    Attributes:
        vocabulary: Jaccard of their vocabularies, 0-1.
        characters: cosine of their cased character 2-4-gram TF-IDF vectors, 0-1.
        z: how far ``characters`` lies above the same agents' other windows or channels, in standard deviations.
    """

    a: str
    b: str
    vocabulary: float | None = None
    characters: float | None = None
    z: float | None = None


class VoiceMap(_Section):
    """The agents' voices and how alike each two of them are."""

    agents: dict[str, Voice] = Field(default_factory=dict)
    pairs: list[VoicePair] = Field(default_factory=list)

    def pair(self, first: str, second: str) -> VoicePair | None:
        """Return the pair in either order."""
        return next((pair for pair in self.pairs if {pair.a, pair.b} == {first, second}), None)

    @property
    def ids(self) -> list[str]:
        return sorted({*self.agents, *(name for pair in self.pairs for name in (pair.a, pair.b))})


class SaidAt(_Section):
    """A message: its id, when it was sent, and its text where that is quoted."""

    id: str
    created_at: datetime | None = None
    text: str = ""


class ChangeSeen(_Section):
    """Something that changed around an alarm: a commit, a persona, a model, a run."""

    at: datetime
    what: str


class AlarmSeen(_Section):
    """An alarm as ``scoring.voice_alarm.VoiceAlarm`` tells it, and what changed around it."""

    text: str
    began_at: SaidAt
    raised_at: SaidAt
    messages: int
    quotes: list[SaidAt] = Field(default_factory=list)
    changes: list[ChangeSeen] = Field(default_factory=list)


class SumSeen(_Section):
    """The sum of a voice alarm after a message."""

    id: str
    created_at: datetime
    sum: float


class VoiceSeen(_Section):
    """How an agent's voice stands, as ``evaluation.voice.VoiceState`` tells it.

    ``threshold``: None while the voice is not learnt; ``learnt_from``: what it was learnt from, as its provenance has it.
    """

    text: str
    threshold: float | None = None
    learnt_from: dict[str, Any] = Field(default_factory=dict)
    sums: list[SumSeen] = Field(default_factory=list)
    alarms: list[AlarmSeen] = Field(default_factory=list)
    stands: bool = False


class SuiteFailure(_Section):
    """A test of a suite that did not pass. ``score`` 0-1; ``reason``: the first assert that was missed, or the error."""

    id: str
    verdict: str
    score: float | None = None
    reason: str = ""


class SuiteSummary(_Section):
    """One run of one eval suite. ``tests`` counts them by verdict (pass, borderline, fail, error); ``score`` 0-1."""

    suite: str
    target: str | None = None
    verdict: str
    score: float | None = None
    tests: dict[str, int] = Field(default_factory=dict)
    failures: list[SuiteFailure] = Field(default_factory=list)

    @classmethod
    def of(cls, result: "SuiteResult") -> "SuiteSummary":
        """Summarise a suite's result."""
        targets = {test.target for test in result.tests}
        return cls(
            suite=result.suite,
            target=targets.pop() if len(targets) == 1 else None,
            verdict=result.verdict.value,
            score=result.score,
            tests=dict(Counter(test.verdict.value for test in result.tests)),
            failures=[
                SuiteFailure(id=test.id, verdict=test.verdict.value, score=test.score, reason=_why(test))
                for test in result.tests
                if test.verdict.value != "pass"
            ],
        )


class Correction(_Section):
    """A text the gate rejected or let through by force, and what was sent instead. Scores 0-9."""

    original_text: str
    corrected_text: str | None = None
    score: float
    threshold: float
    outcome: str
    reasoning: str = ""


_HISTORY = TypeAdapter(dict[str, list[HistoryPoint]])
_TRENDS = TypeAdapter(dict[str, dict[str, TrendSeen]])
_FADING = TypeAdapter(dict[str, list[FadingSeen]])
_SUITES = TypeAdapter(list[SuiteSummary])
_EXAMPLES = TypeAdapter(dict[str, list[Correction]])
_VOICE_MAP = TypeAdapter(VoiceMap)
_VOICE_ALARMS = TypeAdapter(dict[str, VoiceSeen])


def history(report: RunReport) -> dict[str, list[HistoryPoint]]:
    """Return each agent's scores over windows, oldest first; empty when the run has none."""
    points = _read(report, "history", _HISTORY, {})
    return {agent: sorted(series, key=lambda point: point.window_end) for agent, series in points.items()}


def trends(report: RunReport) -> dict[str, dict[str, TrendSeen]]:
    """Return the dimensions that have been falling, by agent."""
    return _read(report, "trends", _TRENDS, {})


def fading(report: RunReport) -> dict[str, list[FadingSeen]]:
    """Return how each agent's character fares in long conversations, where they are long enough to tell."""
    return _read(report, "fading", _FADING, {})


def voice_map(report: RunReport) -> VoiceMap | None:
    """Return how alike the agents write; None when it was not measured for two agents at least."""
    voices = _read(report, "voice_map", _VOICE_MAP, VoiceMap())
    return voices if len(voices.ids) > 1 else None


def voice_alarms(report: RunReport) -> dict[str, VoiceSeen]:
    """Return how each agent's own voice stands, where it is learnt or being learnt."""
    return dict(sorted(_read(report, "voice_alarms", _VOICE_ALARMS, {}).items()))


def suites(report: RunReport) -> list[SuiteSummary]:
    """Return the eval suites of the run."""
    return _read(report, "suites", _SUITES, [])


def corrections(report: RunReport) -> "CorrectionStatistics | None":
    """Return what the runtime corrections did; None when the run does not say, or no action was checked."""
    if not report.statistics.get("corrections"):
        return None
    from persona_pipeline.corrections.statistics import CorrectionStatistics

    found = _read(report, "corrections", TypeAdapter(CorrectionStatistics), None)
    return found if found.total.actions else None


def correction_examples(report: RunReport) -> dict[str, list[Correction]]:
    """Return rejected texts and what became of them, by agent."""
    return dict(sorted(_read(report, "correction_examples", _EXAMPLES, {}).items()))


def _read(report: RunReport, key: str, adapter: TypeAdapter, default: Any) -> Any:
    if not report.statistics.get(key):
        return default
    try:
        return adapter.validate_python(report.statistics[key])
    except ValidationError as error:
        raise ConfigError(
            [
                Problem(f"report: statistics.{key}.{'.'.join(map(str, problem['loc']))}: {problem['msg']}")
                for problem in error.errors(include_url=False, include_input=False)
            ]
        ) from None


def _why(test: "TestResult") -> str:
    if test.error:
        return f"{test.error.reason}: {test.error.message}"
    missed = sorted((item for item in test.best.results if item.misses), key=lambda item: item.score or 0.0)
    return f"{missed[0].name}: {missed[0].misses[0]}" if missed else ""
