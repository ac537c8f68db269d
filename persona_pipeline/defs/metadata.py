"""What people see of an asset in the UI: numbers to plot, tables, Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from persona_pipeline.evaluation.report import Finding
from persona_pipeline.evaluation.results import AgentEvaluation
from persona_pipeline.propositions import PropositionSet
from persona_pipeline.scoring.results import DimensionEvaluation
from persona_pipeline.world.models import Message, Window

Metadata = dict[str, Any]
MOST_ROWS = 20


def messages_metadata(messages: Sequence[Message], window: Window) -> Metadata:
    """Return the size and bounds of a window, and its newest messages."""
    rows = [
        dg.TableRecord({"time": m.created_at.isoformat(), "where": m.conversation, "text": m.text[:200]})
        for m in messages[-MOST_ROWS:]
    ]
    return {
        "dagster/row_count": len(messages),
        "window_start": window.start.isoformat() if window.start else "the first message",
        "window_end": window.end.isoformat(),
        "newest_messages": _table(rows, ("time", "where", "text")),
    }


def propositions_metadata(propositions: PropositionSet | None) -> Metadata:
    """Return the merged claims as a table."""
    if propositions is None:
        return {"propositions": 0}
    rows = [
        dg.TableRecord({"id": p.id, "claim": p.claim, "weight": p.weight, "inverted": p.inverted})
        for p in propositions.propositions
    ]
    return {
        "propositions": len(rows),
        "anti_patterns": sum(p.inverted for p in propositions.propositions),
        "claims": _table(rows, ("id", "claim", "weight", "inverted")),
    }


def score_metadata(evaluation: DimensionEvaluation | None) -> Metadata:
    """Return a dimension's score, coverage, cost and propositions."""
    if evaluation is None:
        return {"status": "no propositions for this agent"}
    rows = [
        dg.TableRecord(
            {
                "id": item.id,
                "score": "" if item.score is None else round(item.score, 2),
                "raw": "" if item.raw is None else round(item.raw, 2),
                "weight": item.weight,
                "unscored": item.unscored or "",
                "reasoning": (item.reasoning or item.detail)[:300],
            }
        )
        for item in evaluation.propositions.values()
    ]
    metadata: Metadata = {
        "n_scored": evaluation.n_scored,
        "n_expected": evaluation.n_expected,
        "coverage": evaluation.coverage,
        "propositions": _table(rows, ("id", "score", "raw", "weight", "unscored", "reasoning")),
        "statistics": dg.MetadataValue.json(evaluation.statistics),
        **usage_metadata(evaluation.usage.model_dump()),
    }
    if evaluation.score is None:
        return {"unscored": evaluation.unscored or "", **metadata}
    return {"score": evaluation.score, **metadata}


def run_metadata(evaluation: AgentEvaluation) -> Metadata:
    """Return the run's scores, its cost and what it came from."""
    lines = ["| dimension | score | judged |", "|---|---|---|"]
    for name, item in evaluation.dimensions.items():
        score = f"{item.score:.2f}" if item.score is not None else f"_{item.unscored}_"
        lines.append(f"| {name} | {score} | {item.n_scored}/{item.n_expected} |")
    metadata: Metadata = {
        "scores": dg.MetadataValue.md("\n".join(lines)),
        "run_id": evaluation.run_id,
        "sample_size": evaluation.sample_size,
        "provenance": dg.MetadataValue.json(evaluation.provenance),
        **{f"score/{name}": item.score for name, item in evaluation.dimensions.items() if item.score is not None},
        **usage_metadata(evaluation.usage.model_dump()),
    }
    if evaluation.overall is not None:
        metadata["overall"] = evaluation.overall
    return metadata


def usage_metadata(usage: Mapping[str, Any]) -> Metadata:
    """Return tokens and price; an unknown price is left out rather than shown as 0."""
    return {key: value for key, value in usage.items() if value is not None}


def findings_metadata(findings: Sequence[Finding]) -> Metadata:
    """Return findings as numbers and a list."""
    lines = "\n".join(f"- **{finding.kind}** {escaped(finding.message)}" for finding in findings)
    return {"findings": len(findings), "what": dg.MetadataValue.md(lines or "nothing")}


def escaped(text: str) -> str:
    """Return foreign text that Markdown shows as it is."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>()#+-.!|@~" else c for c in text)


def _table(rows: Sequence[dg.TableRecord], columns: Sequence[str]) -> Any:
    schema = dg.TableSchema(columns=[dg.TableColumn(name) for name in columns])
    return dg.MetadataValue.table(list(rows), schema=schema)
