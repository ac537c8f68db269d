"""What each asset of an agent yields, the same whether one agent or a thousand are evaluated."""

from collections.abc import Sequence

from persona_pipeline.defs.agents.verdicts import AgentLine
from persona_pipeline.defs.pictures import metadata
from persona_pipeline.defs.platform.outcome import Outcome
from persona_pipeline.evaluation.history import HistoryValue
from persona_pipeline.evaluation.report import AgentEvaluation, AgentReport
from persona_pipeline.evaluation.voice import VoiceState
from persona_pipeline.propositions import StoredSet
from persona_pipeline.reporting.statistics import voice_section
from persona_pipeline.scoring.results import DimensionEvaluation
from persona_pipeline.world.canonical import content_hash
from persona_pipeline.world.messages import messages_hash
from persona_pipeline.world.models import Message, Persona, Window
from persona_pipeline.world.speakers import NameMatch


def persona_outcome(persona: Persona) -> Outcome:
    """Return the outcome of ``personas``."""
    return Outcome(persona.hash, metadata.persona_metadata(persona))


def messages_outcome(length: str, window: Window, said: Sequence[Message], names: NameMatch) -> Outcome:
    """Return the outcome of ``messages``; ``names``: what of speakers and personas does not match and concerns this agent."""
    version = content_hash([window.end.isoformat(), length, messages_hash(said)])
    odd = [{"what": line} for line in names.warnings()]
    wrong = {"names_that_do_not_match": metadata.table(odd, ("what",))} if odd else {}
    return Outcome(version, {**metadata.messages_metadata(said, window), **wrong})


def propositions_outcome(stored: StoredSet) -> Outcome:
    """Return the outcome of a proposition set."""
    return Outcome(stored.version, metadata.propositions_metadata(stored.propositions))


def scores_outcome(evaluation: DimensionEvaluation | None) -> Outcome:
    """Return the outcome of a dimension's scores; None: the agent has no propositions of it."""
    content = evaluation.model_dump(mode="json", exclude={"usage"}) if evaluation else None
    return Outcome(content_hash(content), metadata.score_metadata(evaluation))


def voice_outcome(state: VoiceState) -> Outcome:
    """Return the outcome of ``voices``."""
    section = voice_section(state)
    return Outcome(content_hash(section), metadata.voice_metadata(state.agent_id, section))


def run_outcome(evaluation: AgentEvaluation, history: Sequence[HistoryValue] = ()) -> Outcome:
    """Return the outcome of ``evaluation_runs``; ``history`` is drawn, oldest first."""
    version = content_hash(evaluation.model_dump(mode="json", exclude={"usage"}))
    return Outcome(version, metadata.run_metadata(evaluation, history))


def comparison_outcome(report: AgentReport) -> Outcome:
    """Return the outcome of ``baseline_comparisons``."""
    version = content_hash(report.comparison.model_dump(mode="json"))
    return Outcome(version, metadata.comparison_metadata(report))


def in_character_outcome(line: AgentLine) -> Outcome | None:
    """Return the outcome of ``in_character``; None: it drifted or cannot be told. What rests on it stays fresh meanwhile."""
    if line.exit_codes:
        return None
    found = {**metadata.conclusion_metadata(line.conclusion), "evaluation_run": line.run_id or ""}
    return Outcome(content_hash(line.label), found)
