"""What ``RunReport.statistics`` may hold beside the scores, typed. Every key is optional; a malformed one raises ``ConfigError``.

history      {agent_id: [HistoryPoint, ...]} in time order
voice_map    VoiceMap
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
    """An agent's scores (0-9, None: unscored) in the window that ends at ``window_end``."""

    window_end: datetime
    overall: float | None = None
    dimensions: dict[str, float | None] = Field(default_factory=dict)


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
_SUITES = TypeAdapter(list[SuiteSummary])
_EXAMPLES = TypeAdapter(dict[str, list[Correction]])
_VOICE_MAP = TypeAdapter(VoiceMap)


def history(report: RunReport) -> dict[str, list[HistoryPoint]]:
    """Return each agent's scores over windows, oldest first; empty when the run has none."""
    points = _read(report, "history", _HISTORY, {})
    return {agent: sorted(series, key=lambda point: point.window_end) for agent, series in points.items()}


def voice_map(report: RunReport) -> VoiceMap | None:
    """Return how alike the agents write; None when it was not measured for two agents at least."""
    voices = _read(report, "voice_map", _VOICE_MAP, VoiceMap())
    return voices if len(voices.ids) > 1 else None


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
