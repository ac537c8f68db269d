"""What people see of an asset in the UI: numbers to plot, tables, Markdown, small pictures."""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from persona_pipeline.evaluation.history import HistoryValue
from persona_pipeline.guard.baselines.models import BaselineComparison
from persona_pipeline.guard.report import AgentEvaluation, AgentReport, Conclusion, Finding, RunReport
from persona_pipeline.reporting.pages import evaluation as pages
from persona_pipeline.reporting.pages.evaluation import cost_tables
from persona_pipeline.reporting.render import table_records
from persona_pipeline.reporting.statistics import VoiceSeen
from persona_pipeline.reporting.text import (
    format_delta,
    format_score,
    markdown_code,
    markdown_text,
    one_line,
    unscored_label,
)
from persona_pipeline.reporting.view import ReportView, dimension_label, estimate_text, people_lines, verdict_label
from persona_pipeline.scoring.results import DimensionEvaluation, UsageSummary
from persona_pipeline.world.models import Message, Persona, Window
from persona_pipeline.world.propositions.models import PropositionSet

Metadata = dict[str, Any]
MOST_ROWS, MOST_FINDINGS, MOST_AGENTS = 20, 50, 50
MOST_TEXT = 300


def persona_metadata(persona: Persona) -> Metadata:
    """Return who the agent is and which corrections are on."""
    return {
        "display_name": persona.display_name,
        "persona": dg.MetadataValue.md(paragraphs(persona.persona)),
        "corrections": dg.MetadataValue.json(persona.corrections.model_dump()),
    }


def messages_metadata(messages: Sequence[Message], window: Window) -> Metadata:
    """Return the size and bounds of a window, and its newest messages."""
    rows = [
        {"time": f"{m.created_at:%Y-%m-%d %H:%M}", "where": m.conversation, "text": m.text[:MOST_TEXT]}
        for m in messages[: -MOST_ROWS - 1 : -1]
    ]
    return {
        "dagster/row_count": len(messages),
        "window_start": window.start.isoformat() if window.start else "the first message",
        "window_end": window.end.isoformat(),
        "newest_messages": table(rows, ("time", "where", "text")),
    }


def propositions_metadata(propositions: PropositionSet | None) -> Metadata:
    """Return the merged claims as a table."""
    if propositions is None:
        return {"propositions": 0, "status": "no propositions for this agent"}
    rows = [
        {"id": p.id, "claim": p.claim, "weight": p.weight, "wanted": "must not hold" if p.inverted else "should hold"}
        for p in propositions.propositions
    ]
    return {
        "propositions": len(rows),
        "anti_patterns": sum(p.inverted for p in propositions.propositions),
        "claims": table(rows, ("id", "claim", "weight", "wanted")),
    }


def score_metadata(evaluation: DimensionEvaluation | None) -> Metadata:
    """Return a dimension's score, coverage, cost and propositions, the worst first."""
    if evaluation is None:
        return {"status": "no propositions for this agent"}
    rows = [
        {
            "id": item.id,
            "score": format_score(item.score) if item.score is not None else unscored_label(item.unscored),
            "claim": item.claim[:MOST_TEXT],
            "reasoning": (item.reasoning or item.detail)[:MOST_TEXT],
        }
        for item in sorted(
            evaluation.propositions.values(), key=lambda item: item.score if item.score is not None else -1
        )
    ]
    found: Metadata = {
        "judged": f"{evaluation.n_scored} of {evaluation.n_expected}",
        "coverage": evaluation.coverage,
        "propositions": table(rows, ("id", "score", "claim", "reasoning")),
        "statistics": dg.MetadataValue.json(evaluation.statistics),
        **usage_metadata(evaluation.usage),
    }
    if evaluation.score is None:
        return {"unscored": unscored_label(evaluation.unscored), **found}
    return {"score": round(evaluation.score, 4), **found}


def voice_metadata(name: str, section: Mapping[str, Any]) -> Metadata:
    """Return how a voice stands: the sum as a plot, the alarms with their lines, and what the voice was learnt from."""
    seen = VoiceSeen.model_validate(section)
    alarms = [
        {
            "began": f"{alarm.began_at.id} ({alarm.began_at.created_at:%Y-%m-%d %H:%M})",
            "raised": f"{alarm.raised_at.id} ({alarm.raised_at.created_at:%Y-%m-%d %H:%M})",
            "lines": one_line("; ".join(quote.text for quote in alarm.quotes), MOST_TEXT),
            "changed": one_line("; ".join(change.what for change in alarm.changes), MOST_TEXT) or "nothing is known",
        }
        for alarm in seen.alarms
    ]
    picture = pages.voice_alarm_picture(name, seen)
    return {
        "voice": seen.text,
        "alarm": seen.stands,
        **({"voice_alarm_plot": dg.MetadataValue.md(picture)} if picture else {}),
        **({"alarms": table(alarms, ("began", "raised", "lines", "changed"))} if alarms else {}),
        **({"threshold": round(seen.threshold, 4)} if seen.threshold is not None else {}),
        **({"sum": round(seen.sums[-1].sum, 4)} if seen.sums else {}),
        **({"learnt_from": dg.MetadataValue.json(seen.learnt_from)} if seen.learnt_from else {}),
    }


def run_metadata(evaluation: AgentEvaluation, history: Sequence[HistoryValue] = ()) -> Metadata:
    """Return the run's scores, its history, its cost and what it came from; pictures of scores are here and nowhere else."""
    lines = ["| Dimension | Score (0–9) | Judged |", "|:--|--:|--:|"]
    for name, item in evaluation.dimensions.items():
        score = format_score(item.score) if item.score is not None else f"_{unscored_label(item.unscored)}_"
        lines.append(f"| {dimension_label(name)} | {score} | {item.n_scored} of {item.n_expected} |")
    lines.append(f"| **Overall** | **{format_score(evaluation.overall)}** | |")
    found: Metadata = {"scores": dg.MetadataValue.md("\n".join(lines))}
    picture = pages.history_picture(evaluation.display_name, history)
    if picture:
        found["score_history_plot"] = dg.MetadataValue.md(picture)
    fluency = evaluation.dimensions.get("fluency")
    if picture := pages.repetition_picture(fluency.statistics.get("repetition", {}) if fluency else {}):
        found["repetition_plot"] = dg.MetadataValue.md(picture)
    if evaluation.overall is not None:
        found["overall"] = round(evaluation.overall, 4)
    scored = {name: item.score for name, item in evaluation.dimensions.items() if item.score is not None}
    return {
        **found,
        **{f"score/{name}": round(score, 4) for name, score in scored.items()},
        "messages": evaluation.sample_size,
        "window_end": evaluation.window_end.isoformat(),
        "evaluation_run": evaluation.run_id,
        "provenance": dg.MetadataValue.json(evaluation.provenance),
        **usage_metadata(evaluation.usage),
    }


def comparison_metadata(report: AgentReport) -> Metadata:
    """Return what is concluded, the run beside its baseline, and what is wrong."""
    return {
        **conclusion_metadata(report.conclusion),
        "comparison": comparison_table(report.comparison),
        "regressions": len(report.comparison.regressions),
        "proposition_drops": len(report.comparison.drops),
        **{
            f"detectable_fall/{name}": round(item.sight.detectable, 2)
            for name, item in report.comparison.dimensions.items()
            if item.sight and item.sight.detectable is not None
        },
        "judge": "; ".join(people_lines(report.comparison.dimensions.values())),
        **({"corrected_for": report.comparison.families} if report.comparison.families else {}),
        "evaluation_run": report.evaluation.run_id,
        **findings_metadata(report.findings),
    }


def conclusion_metadata(conclusion: Conclusion) -> Metadata:
    """Return what is concluded in the words of every report, why, and the command that would decide what cannot be told."""
    why = {"reason": conclusion.reason, "command": conclusion.command}
    return {"verdict": verdict_label(conclusion), **{name: text for name, text in why.items() if text}}


def comparison_table(comparison: BaselineComparison) -> dg.TableMetadataValue:
    """Return a row a dimension: baseline, now, change."""
    rows = [
        {
            "dimension": dimension_label(item.dimension),
            "baseline": format_score(item.baseline),
            "now": format_score(item.current),
            "change": format_delta(item.delta),
            "status": _STATUS[item.status],
            "people": estimate_text(item.people),
            "can_see": item.sight.text if item.sight else "",
        }
        for item in comparison.dimensions.values()
    ]
    return table(rows, ("dimension", "baseline", "now", "change", "status", "people", "can_see"))


def scores_table(report: RunReport) -> dg.TableMetadataValue:
    """Return the table of scores that every report shows, of at most 50 agents."""
    view = ReportView(report)
    return table(*table_records(pages.scores_table(view, view.rows[:MOST_AGENTS])))


def usage_metadata(usage: UsageSummary) -> Metadata:
    """Return calls, tokens and price of what was paid for; nothing when nothing was, and no price when it is unknown."""
    if not usage.calls:
        return {}
    return {f"judge/{key}": value for key, value in usage.model_dump().items() if value is not None}


def costs_metadata(report: RunReport) -> Metadata:
    """Return who the money of a run was spent on: a table an agent, a dimension and a mechanism where there are several."""
    return {
        costs.label.lower().replace(" ", "_"): table(*table_records(costs))
        for costs in cost_tables(report, MOST_AGENTS)
    }


def findings_metadata(findings: Sequence[Finding]) -> Metadata:
    """Return findings as a number and a table, at most 50."""
    rows = [
        {"kind": finding.kind.replace("_", " "), "what": one_line(finding.text, MOST_TEXT)}
        for finding in findings[:MOST_FINDINGS]
    ]
    return {"findings": len(findings), "what_is_wrong": table(rows, ("kind", "what"))}


def paragraphs(text: str) -> str:
    """Return foreign text as Markdown that shows it as it is, blank lines kept."""
    parts = (part for part in text.split("\n\n") if part.strip())
    return "\n\n".join(markdown_text(part) for part in parts)


def problems_markdown(problems: Sequence[object]) -> str:
    """Return problems, each ``file:line:column: what and how to fix it``, as a Markdown list."""
    return "\n".join(f"- {markdown_code(str(problem))}" for problem in problems)


def table(rows: Sequence[Mapping[str, str | float]], columns: Sequence[str]) -> dg.TableMetadataValue:
    """Return rows as a table with these columns."""
    schema = dg.TableSchema(columns=[dg.TableColumn(name) for name in columns])
    return dg.MetadataValue.table([dg.TableRecord(dict(row)) for row in rows], schema=schema)


_STATUS = {
    "ok": "as before",
    "regressed": "regressed",
    "no_baseline": "no baseline",
    "unscored": "no score now",
    "incomplete": "not all judged",
    "other_judge": "another judge's baseline",
}
