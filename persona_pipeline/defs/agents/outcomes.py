"""Outcomes of an agent's assets: their version, and their metadata for the UI."""

from collections.abc import Sequence

import dagster as dg

from persona_pipeline.base.documents.json import content_hash
from persona_pipeline.base.status import Result
from persona_pipeline.defs import metadata
from persona_pipeline.defs.agents.verdicts import AgentVerdict
from persona_pipeline.defs.platform.assets import AssetOutcome
from persona_pipeline.evaluation.voice import VoiceState
from persona_pipeline.guard.findings import judge_check
from persona_pipeline.guard.report import AgentReport
from persona_pipeline.judging.verdict import unscored_label
from persona_pipeline.reporting.text import format_score
from persona_pipeline.scoring.results import DimensionEvaluation
from persona_pipeline.world.models import Message, Window
from persona_pipeline.world.speakers import NameMatch


def messages_metadata(window: Window, said: Sequence[Message], names: NameMatch) -> metadata.Metadata:
    """Return the size and bounds of a window, and the ``names`` in it that match no persona."""
    odd = [{"what": line} for line in names.warnings()]
    return {
        "dagster/row_count": len(said),
        "window_start": window.start.isoformat() if window.start else "the first message",
        "window_end": window.end.isoformat(),
        **({"names_that_do_not_match": metadata.table(odd, ("what",))} if odd else {}),
    }


def scores_outcome(evaluation: DimensionEvaluation | None, spec: dg.AssetSpec) -> AssetOutcome:
    """Return a dimension's score, coverage, cost and its worst propositions; None: the agent has no propositions of it."""
    if evaluation is None:
        return AssetOutcome(content_hash([spec.code_version, None]), {"status": "no claims for this agent"})
    rows = [
        {
            "score": format_score(item.score) if item.score is not None else unscored_label(item.unscored),
            "claim": f"{item.id}: {item.claim}",
            "reasoning": item.reasoning or item.detail,
        }
        for item in sorted(
            evaluation.propositions.values(), key=lambda item: item.score if item.score is not None else -1
        )[: metadata.MOST_SHOWN]
    ]
    found: metadata.Metadata = {
        "judged": f"{evaluation.n_scored} of {evaluation.n_expected}",
        "coverage": evaluation.coverage,
        "worst_propositions": metadata.table(rows, ("score", "claim", "reasoning")),
        **metadata.usage_metadata(evaluation.usage),
    }
    if evaluation.score is None:
        found = {"unscored": unscored_label(evaluation.unscored), **found}
    else:
        found = {"score": round(evaluation.score, 4), **found}
    # The judge is part of the version: an equal score by another judge would otherwise stay out of date.
    content = evaluation.model_dump(mode="json", exclude={"usage"})
    return AssetOutcome(content_hash([spec.code_version, content]), found)


def voice_outcome(state: VoiceState) -> AssetOutcome:
    """Return the state of a voice: how near it is to an alarm, the alarms with their lines, and what it was learnt from."""

    def place(message: Message) -> str:
        return f"{message.id} ({message.created_at:%Y-%m-%d %H:%M})"

    alarms = [
        {
            "began": place(alarm.began_at),
            "raised": place(alarm.raised_at),
            "lines": "; ".join(quote.text for quote in alarm.quotes),
        }
        for alarm in state.alarms
    ]
    level = round(state.readings[-1].level, 4) if state.readings else None
    learnt = state.learnt.model.provenance.model_dump(mode="json") if state.learnt.model else None
    facts = {
        "voice": state.text,
        "alarm": state.stands,
        **({"alarms": metadata.table(alarms, ("began", "raised", "lines"))} if alarms else {}),
        **({} if level is None else {"level": level}),
        **({"learnt_from": dg.MetadataValue.json(learnt)} if learnt else {}),
    }
    return AssetOutcome(content_hash([state.text, state.stands, alarms, level, learnt]), facts)


def verdict_outcome(report: AgentReport) -> AssetOutcome:
    """Return a run's conclusion, its scores, which Dagster draws over time, its cost, the comparison and the findings."""
    run, comparison = report.evaluation, report.comparison
    scored = {name: item.score for name, item in run.dimensions.items() if item.score is not None}
    detectable = [item.power.detectable for item in comparison.dimensions.values() if item.power]
    facts = {
        **metadata.conclusion_metadata(report.conclusion),
        **({} if run.overall is None else {"overall": round(run.overall, 4)}),
        **{f"score/{name}": round(score, 4) for name, score in scored.items()},
        "messages": run.sample_size,
        **metadata.messages_metadata(run),
        "window_end": run.window_end.isoformat(),
        "evaluation_run": run.run_id,
        **metadata.usage_metadata(run.usage),
        "comparison": metadata.comparison_table(comparison),
        "regressions": len(comparison.regressions),
        "proposition_drops": len(comparison.drops),
        **({"detectable_drop": round(max(detectable), 2)} if detectable else {}),
        "judge": judge_check(report).text,
        **({"p_values_corrected": comparison.families} if comparison.families else {}),
        **metadata.findings_metadata(report.findings),
    }
    version = content_hash(run.model_dump(mode="json", exclude={"usage"}))[:32]
    return AssetOutcome(content_hash([version, comparison.model_dump(mode="json")]), facts)


def in_character_outcome(line: AgentVerdict) -> AssetOutcome | None:
    """Return the outcome of ``in_character``; None: this is not shown for the agent. Downstream assets stay fresh meanwhile."""
    if line.exit_codes or line.conclusion.verdict is not Result.HELD:
        return None
    found = {**metadata.conclusion_metadata(line.conclusion), "evaluation_run": line.run_id or ""}
    return AssetOutcome(content_hash(line.label), found)
