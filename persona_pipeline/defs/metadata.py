"""Metadata of assets in the UI: numbers to plot, tables, Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from persona_pipeline.base.status import STATUSES
from persona_pipeline.guard.baselines.models import BaselineComparison
from persona_pipeline.guard.report import AgentEvaluation, Conclusion, Finding, RunReport
from persona_pipeline.judging.verdict import Usage
from persona_pipeline.reporting.pages import evaluation as pages
from persona_pipeline.reporting.render import table_records
from persona_pipeline.reporting.text import format_delta, format_score, markdown_text, one_line
from persona_pipeline.reporting.view import ReportView
from persona_pipeline.world.propositions.models import dimension_label

Metadata = dict[str, Any]
MOST_FINDINGS, MOST_AGENTS = 50, 50
MOST_TEXT, MOST_LINES = 300, 5
# What every evaluation says of every agent stays in the event log; the whole is in the store, the report and the viewer.
MOST_SHOWN = 3


def conclusion_metadata(conclusion: Conclusion) -> Metadata:
    """Return the conclusion in the words of the reports, its reason, and the command that would decide an open verdict."""
    why = {"reason": conclusion.reason, "command": conclusion.command}
    return {"verdict": conclusion.status.word, **{name: text for name, text in why.items() if text}}


def messages_metadata(evaluation: AgentEvaluation) -> Metadata:
    """Return the share (0-1) of messages in character, which Dagster plots, and a sentence about it."""
    messages = evaluation.messages
    if messages is None or messages.share.share is None:
        return {}
    return {
        "in_character": messages.text(evaluation.display_name),
        "share/in_character": round(messages.share.share, 4),
        **({"agreement": str(messages.agreement)} if messages.agreement else {}),
    }


def comparison_table(comparison: BaselineComparison) -> dg.MarkdownMetadataValue:
    """Return a row a dimension: baseline, now, change."""
    rows = [
        {
            "dimension": dimension_label(item.dimension),
            "baseline": format_score(item.baseline),
            "now": format_score(item.current),
            "change": format_delta(item.delta),
            "status": STATUSES[item.status].word,
        }
        for item in comparison.dimensions.values()
    ]
    return table(rows, ("dimension", "baseline", "now", "change", "status"))


def scores_table(report: RunReport) -> dg.MarkdownMetadataValue:
    """Return the table of scores that every report shows, of at most 50 agents."""
    view = ReportView(report)
    return table(*table_records(pages.scores_table(view, view.rows[:MOST_AGENTS])))


def usage_metadata(usage: Usage) -> Metadata:
    """Return calls, tokens and, where it is known, the price; nothing if no call was paid for."""
    if not usage.calls:
        return {}
    return {f"judge/{key}": value for key, value in vars(usage).items() if value is not None}


def findings_metadata(findings: Sequence[Finding]) -> Metadata:
    """Return findings as a number and, where there are any, a table of at most 50."""
    rows = [{"kind": finding.kind.replace("_", " "), "what": finding.text} for finding in findings]
    return {"findings": len(findings), **_what_is_wrong(rows)}


def _what_is_wrong(rows: Sequence[Mapping[str, str]]) -> Metadata:
    return {"what_is_wrong": table(rows[:MOST_FINDINGS], tuple(rows[0]))} if rows else {}


def listed(lines: Sequence[str], most: int) -> list[str]:
    """Return the first lines as a Markdown list, and how many more there are."""
    return [f"- {line}" for line in lines[:most]] + ([f"- and {len(lines) - most} more"] if len(lines) > most else [])


def check_result(
    name: str, wrong: Sequence[str], facts: Metadata, *, passed: bool | None = None, **more: Any
) -> dg.AssetCheckResult:
    """Return the result of a check; description and table list the failures. ``passed`` None: it passes without failures."""
    return dg.AssetCheckResult(
        check_name=name,
        passed=not wrong if passed is None else passed,
        description="\n".join(listed([one_line(line, MOST_TEXT) for line in wrong], MOST_LINES)) or "Nothing is wrong.",
        metadata={"found": len(wrong), **facts, **_what_is_wrong([{"what": line} for line in wrong])},
        **{"severity": dg.AssetCheckSeverity.ERROR, **more},
    )


def table(rows: Sequence[Mapping[str, str | float]], columns: Sequence[str]) -> dg.MarkdownMetadataValue:
    """Return a Markdown table without columns that are empty in every row.

    It takes a third of the space of Dagster's own tables in the event log.
    """
    filled = [name for name in columns if not rows or any(row.get(name) not in ("", None) for row in rows)]
    cells = [
        filled,
        [":--"] * len(filled),
        *([markdown_text(str(row.get(name, "")), MOST_TEXT) for name in filled] for row in rows),
    ]
    return dg.MetadataValue.md("\n".join(f"| {' | '.join(line)} |" for line in cells))
