"""What ``RunReport.statistics`` may hold beside the scores, typed. Every key is optional; a malformed one raises ``ConfigError``.

history      {agent_id: [HistoryPoint, ...]} in time order
trends       {agent_id: {dimension: Trend}}
fading       {agent_id: [FadingSeen, ...]}, one for each version of its persona and signal
voice_map    VoiceMap
voice_alarms {agent_id: VoiceSeen}
suites       [SuiteSummary, ...]
corrections  {agent_id: CorrectionSummary}
"""

from datetime import datetime
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from persona_pipeline.baselines.trend import Trend
from persona_pipeline.errors import ConfigError, Problem
from persona_pipeline.evaluation.report import RunReport
from persona_pipeline.scoring.fading import CurvePoint, SurvivalPoint

if TYPE_CHECKING:
    from persona_pipeline.corrections.statistics import CorrectionStatistics


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


class FadingSeen(_Section):
    """How a character fares by turn, as ``scoring.fading.Fading`` tells it.

    ``version``: of the persona; ``signal``: what was scored.
    """

    version: str = ""
    signal: str = "adherence"
    conversations: int
    lost: int
    longest: int
    curve: list[CurvePoint] = Field(default_factory=list)
    survival: list[SurvivalPoint] = Field(default_factory=list)
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


_HISTORY = TypeAdapter(dict[str, list[HistoryPoint]])
_TRENDS = TypeAdapter(dict[str, dict[str, Trend]])
_FADING = TypeAdapter(dict[str, list[FadingSeen]])
_SUITES = TypeAdapter(list[SuiteSummary])
_VOICE_MAP = TypeAdapter(VoiceMap)
_VOICE_ALARMS = TypeAdapter(dict[str, VoiceSeen])


def history(report: RunReport) -> dict[str, list[HistoryPoint]]:
    """Return each agent's scores over windows, oldest first; empty when the run has none."""
    points = _read(report, "history", _HISTORY, {})
    return {agent: sorted(series, key=lambda point: point.window_end) for agent, series in points.items()}


def trends(report: RunReport) -> dict[str, dict[str, Trend]]:
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
