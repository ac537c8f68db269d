"""What a report shows beside the scores: gathered from a world into ``RunReport.statistics``, and read from there.

Every key of ``Statistics`` is optional; besides there is ``corrections``, which its own room reads. A malformed one raises
``ConfigError``.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import sqlalchemy as sa
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store
from persona_pipeline.base.errors import not_valid
from persona_pipeline.evaluation.history import overall_points, points_of, score_history
from persona_pipeline.evaluation.plan import history_of
from persona_pipeline.evaluation.voice import VoiceState, voice_state
from persona_pipeline.guard.report import AgentEvaluation, RunReport
from persona_pipeline.scoring.style.likeness import Voices, nearness, voice_similarity
from persona_pipeline.scoring.style.monitor import ALARM
from persona_pipeline.scoring.text.agreement import language_of
from persona_pipeline.scoring.text.tokens import pairwise_similarity, vocabulary_stats
from persona_pipeline.world.models import Window
from persona_pipeline.world.runs import overall_rows, summary_rows
from persona_pipeline.world.world import World

if TYPE_CHECKING:
    from persona_pipeline.corrections.statistics import CorrectionStatistics

# Windows that are drawn of an agent of which only a line is shown.
_MOST_DRAWN = 24
# Pairs grow with the square of the agents; a map of more is no map.
_MOST_VOICES = 30

Read = TypeVar("Read", bound=BaseModel)


def gather(world: World, report: RunReport, *, since: datetime | None = None) -> RunReport:
    """Return the report with what stands beside its scores, history ``since`` then only; what has nothing to say is left out."""
    from persona_pipeline.corrections.statistics import correction_statistics

    if not report.agents:
        return report
    agent_ids = [agent_id for agent_id, item in report.agents.items() if not item.outlined]
    newest = max((item.evaluation for item in report.agents.values()), key=lambda item: item.window_end)
    window = _window_of(newest)
    with world.store.together():
        corrections = correction_statistics(world.store, window, agent_ids=list(report.agents))
        sections: dict[str, Any] = {
            "history": {
                **_outlined_history(world.store, report, window.end),
                **score_history(
                    points_of(agent_ids, summary_rows(world.store, agent_ids, until=window.end, since=since))
                ),
            },
            "voice_map": _voice_statistics(world, agent_ids, window),
            "voice_alarms": _voice_alarm_statistics(world, report),
            "suites": _suite_summaries(world.store),
        }
    if corrections.agents:
        sections["corrections"] = corrections.model_dump(mode="json")
    report.statistics |= {name: section for name, section in sections.items() if section}
    return report


def _window_of(evaluation: AgentEvaluation) -> Window:
    return Window(end=evaluation.window_end, start=evaluation.window_start)


def _outlined_history(store: Store, report: RunReport, until: datetime) -> dict[str, list[dict[str, Any]]]:
    outlined = [agent_id for agent_id, item in report.agents.items() if item.outlined]
    found = overall_points(outlined, overall_rows(store, until=until, most=_MOST_DRAWN)) if outlined else {}
    return {
        agent_id: [{"window_end": end, "overall": overall} for end, overall in values.items()]
        for agent_id, values in found.items()
    }


def _suite_summaries(store: Store) -> list[dict[str, Any]]:
    with store.connect() as connection:
        if connection.execute(sa.select(tables.suite_runs.c.id).limit(1)).first() is None:
            return []
    # Here, because loading the suites takes a quarter of a second that few runs need.
    from persona_pipeline.suites.running.history import latest_suite_summaries

    return latest_suite_summaries(store)


def _voice_alarm_statistics(world: World, report: RunReport) -> dict[str, Any]:
    """Return the voices of a run's agents that are learnt, or being learnt anew; of more than 30 agents, of those with an alarm."""
    alarmed = [finding.agent_id for finding in report.all_findings() if finding.kind == "voice_alarm"]
    few = len(report.agents) <= _MOST_VOICES
    asked = list(report.agents) if few else sorted({*filter(None, alarmed)})[:_MOST_VOICES]
    evaluations = [report.agents[agent_id].evaluation for agent_id in asked]
    states = [voice_state(world, item.agent_id, _window_of(item)) for item in evaluations if not item.synthetic]
    return {state.agent_id: voice_section(state) for state in states if state.learnt.model or state.learnt.since}


def voice_section(state: VoiceState) -> dict[str, Any]:
    """Return how a voice stands as plain JSON, as ``sections.VoiceSeen`` reads it."""
    from persona_pipeline.corrections.voices import alarm_facts

    model = state.learnt.model
    return {
        "text": state.text,
        "threshold": ALARM if model and model.limits else None,
        "learnt_from": model.provenance.model_dump(mode="json") if model else {},
        "sum": round(state.readings[-1].level, 4) if state.readings else None,
        "alarms": [
            {
                **alarm_facts(found.alarm),
                "text": found.alarm.text,
                "changes": [{"at": change.at.isoformat(), "what": change.what} for change in found.changes],
            }
            for found in state.alarms
        ],
        "stands": state.stands,
    }


def _voice_statistics(world: World, agent_ids: Sequence[str], window: Window) -> dict[str, Any]:
    """Return the agents' voices, where they stand on a map, and how alike each two are.

    Of each pair: vocabulary Jaccard and character n-gram cosine (0-1), and ``z``, how much nearer the two have come than they
    were in the four windows before, as a standard normal quantile, where they are alike enough for that to matter. Agents
    without messages in the window are left out; so is everything when there are fewer than two or more than 30 agents.
    """
    if not 2 <= len(agent_ids) <= _MOST_VOICES:
        return {}
    spoken = _spoken(world, agent_ids, window)
    span = replace(history_of(window), end=window.start) if window.start else None
    return voices_alike(spoken, _spoken(world, sorted(spoken), span) if span else {}, world.display_names())


def voices_alike(spoken: Voices, before: Voices, names: Mapping[str, str]) -> dict[str, Any]:
    """Return how some agents write and how alike each two are, as ``VoiceMap`` reads it.

    ``spoken``: their texts, oldest first; ``before``: what the same agents said earlier; ``names``: what they are called.
    """
    if not 2 <= len(spoken) <= _MOST_VOICES:
        return {}
    # All pairs are read off one look at the voices, which takes as long for two as for all.
    near = nearness(spoken, before)
    words, characters = pairwise_similarity(spoken), voice_similarity(spoken)
    return {
        "agents": {
            agent_id: {
                "name": names[agent_id],
                **vars(vocabulary_stats(texts)),
                "language": language_of(texts),
                "messages": len(texts),
            }
            for agent_id, texts in spoken.items()
        },
        "pairs": [
            {
                "a": a,
                "b": b,
                "vocabulary": words[a, b],
                "characters": characters.get((a, b)),
                "z": pair.z if (pair := near.pairs.get((a, b))) and pair.close else None,
            }
            for a, b in sorted(words)
        ],
    }


def _spoken(world: World, agent_ids: Sequence[str], window: Window) -> dict[str, list[str]]:
    spoken = {agent_id: [m.text for m in world.messages(window, agent_id=agent_id)] for agent_id in agent_ids}
    return {agent_id: texts for agent_id, texts in spoken.items() if texts}


class _Section(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


class HistoryPoint(_Section):
    """An agent's scores (0-9, None: unscored) in the window that ends at ``window_end``."""

    window_end: datetime
    overall: float | None = None
    dimensions: dict[str, float | None] = Field(default_factory=dict)


class Voice(_Section):
    """How one agent writes; what else is known of it stands in the JSON alone."""

    name: str = ""


class VoicePair(_Section):
    """How alike two agents write: Jaccard of their vocabularies and cosine of their cased character 2-4-gram TF-IDF vectors (0-1).

    ``z``: how much nearer they have come than they were, in standard deviations; None: not known, or too unlike to have merged.
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

    @property
    def names(self) -> dict[str, str]:
        """What each agent is called; two of one name have their ids beside it."""
        names = {name: self.agents[name].name or name if name in self.agents else name for name in self.ids}
        times = Counter(names.values())
        return {key: name if times[name] == 1 else f"{name} ({key})" for key, name in names.items()}


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
    """An alarm as ``scoring.style.monitor.VoiceAlarm`` has it, and what changed around it."""

    began_at: SaidAt
    raised_at: SaidAt
    quotes: list[SaidAt] = Field(default_factory=list)
    changes: list[ChangeSeen] = Field(default_factory=list)


class VoiceSeen(_Section):
    """How an agent's voice stands, as ``evaluation.voice.VoiceState`` tells it; ``learnt_from``: as its provenance has it.

    ``threshold``: None while the voice is not learnt, or tells nothing. ``sum``: how near the newest messages are to an alarm, 0 to
    the threshold.
    """

    text: str
    threshold: float | None = None
    learnt_from: dict[str, Any] = Field(default_factory=dict)
    sum: float | None = None
    alarms: list[AlarmSeen] = Field(default_factory=list)
    stands: bool = False


class SuiteFailure(_Section):
    """A test of a suite that did not pass. ``score`` 0-1; ``reason``: the first assert that was missed, or the error."""

    id: str
    verdict: str
    score: float | None = None
    reason: str = ""


class SuiteSummary(_Section):
    """One run of one eval suite. ``tests`` counts them by verdict (pass, borderline, fail, error); ``score`` 0-1; ``earlier``: the
    share (0-1) of tests that passed in runs before, the newest first.
    """

    suite: str
    target: str | None = None
    verdict: str
    score: float | None = None
    tests: dict[str, int] = Field(default_factory=dict)
    failures: list[SuiteFailure] = Field(default_factory=list)
    earlier: list[float] = Field(default_factory=list)


def _in_time_order(points: list[HistoryPoint]) -> list[HistoryPoint]:
    return sorted(points, key=lambda point: point.window_end)


class Statistics(_Section):
    """What a run's report shows beside the scores, by agent; what was not gathered is empty."""

    history: dict[str, Annotated[list[HistoryPoint], AfterValidator(_in_time_order)]] = Field(default_factory=dict)
    voice_map: VoiceMap = Field(default_factory=VoiceMap)
    voice_alarms: dict[str, VoiceSeen] = Field(default_factory=dict)
    suites: list[SuiteSummary] = Field(default_factory=list)

    @classmethod
    def of(cls, report: RunReport) -> "Statistics":
        """Return what a run's report has of them."""
        return _read(cls, {name: value for name, value in report.statistics.items() if value}, "")


def corrections(report: RunReport) -> "CorrectionStatistics | None":
    """Return what the runtime corrections did; None when the run does not say, or no action was checked."""
    if not report.statistics.get("corrections"):
        return None
    from persona_pipeline.corrections.statistics import CorrectionStatistics

    found = _read(CorrectionStatistics, report.statistics["corrections"], "corrections.")
    return found if found.total.actions else None


def _read(shape: type[Read], data: Mapping[str, Any], place: str) -> Read:
    try:
        return shape.model_validate(data)
    except ValidationError as error:
        raise not_valid(error, f"report: statistics.{place}{{name}}: {{why}}") from None
