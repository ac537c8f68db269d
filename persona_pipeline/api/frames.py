"""Results as data frames: one row a thing that was scored. What is unscored is missing (NaN), never a number."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.guard.report import RunReport
from persona_pipeline.reporting.view import AgentRow, ReportView, ScoreCell
from persona_pipeline.scoring.results import PropositionResult
from persona_pipeline.suites.grading.results import SuiteResult
from persona_pipeline.suites.running.history import Comparison

if TYPE_CHECKING:
    import pandas as pd

_TIME = "datetime64[us, UTC]"
_COLUMNS: Mapping[str, Mapping[str, str]] = {
    "agent": {
        "agent": "str", "status": "str", "overall": "float", "baseline": "float", "delta": "float",
        "n_scored": "int", "n_expected": "int", "messages": "int", "window_start": "time", "window_end": "time",
        "judge": "str", "run_id": "str",
    },
    "dimension": {
        "agent": "str", "dimension": "str", "score": "float", "unscored": "str", "baseline": "float",
        "delta": "float", "delta_low": "float", "delta_high": "float", "p_value": "float", "status": "str",
        "n_scored": "int", "n_expected": "int", "samples": "int", "window_start": "time", "window_end": "time",
        "judge": "str", "run_id": "str",
    },
    "claim": {
        "agent": "str", "dimension": "str", "claim_id": "str", "claim": "str", "score": "float", "raw": "float",
        "unscored": "str", "weight": "float", "inverted": "bool", "computed": "bool", "baseline": "float",
        "delta": "float", "quote": "str", "message_id": "str", "reasoning": "str", "recommendation": "str",
        "run_id": "str",
    },
    "test": {
        "id": "str", "test": "str", "target": "str", "score": "float", "verdict": "str", "error": "str",
        "answer": "str", "n_scored": "int", "n_expected": "int", "cost_usd": "float", "duration_ms": "float",
    },
    "assert": {
        "id": "str", "test": "str", "target": "str", "assert": "str", "type": "str", "score": "float",
        "verdict": "str", "weight": "float", "required": "bool", "misses": "str", "reasoning": "str", "error": "str",
    },
    "pair": {
        "id": "str", "before": "float", "after": "float", "delta": "float", "verdict_before": "str",
        "verdict_after": "str",
    },
}  # fmt: skip


def report_frame(report: RunReport, by: str) -> "pd.DataFrame":
    """Return a report with one row an ``agent``, a ``dimension`` or a ``claim``.

    Raises:
        ConfigError: there are no such rows.
    """
    rows = {"agent": _agents, "dimension": _dimensions, "claim": _claims}
    return _frame(by, rows[_known(by, tuple(rows))](ReportView(report).rows))


def suite_frame(result: SuiteResult, by: str) -> "pd.DataFrame":
    """Return a suite's run with one row a ``test`` or an ``assert``.

    Raises:
        ConfigError: there are no such rows.
    """
    rows = {"test": _tests, "assert": _asserts}
    return _frame(by, rows[_known(by, tuple(rows))](result))


def pairs_frame(comparison: Comparison) -> "pd.DataFrame":
    """Return two runs of a suite with one row a test that both have."""
    rows = [
        {
            "id": pair.id,
            "before": pair.a,
            "after": pair.b,
            "delta": pair.delta,
            "verdict_before": pair.verdict_a,
            "verdict_after": pair.verdict_b,
        }
        for pair in comparison.pairs
    ]
    return _frame("pair", rows)


def _known(by: str, names: Sequence[str]) -> str:
    if by not in names:
        raise ConfigError(f"there is no row a {by!r}; use {' or '.join(map(repr, names))}")
    return by


def _frame(by: str, rows: Iterable[Mapping[str, Any]]) -> "pd.DataFrame":
    import pandas as pd

    columns, found = _COLUMNS[by], list(rows)
    # Text stays text where nothing is there, and a frame without rows has its columns and their types.
    types: dict[str, Any] = {"str": "object", "float": "float64", "int": "int64", "bool": "bool"}
    series = {
        name: pd.to_datetime(pd.Series([row[name] for row in found], dtype="object"), utc=True).astype(_TIME)
        if kind == "time"
        else pd.Series([row[name] for row in found], dtype=types[kind])
        for name, kind in columns.items()
    }
    return pd.DataFrame(series, columns=list(columns))


def _agents(rows: Iterable[AgentRow]) -> Iterator[dict[str, Any]]:
    for row in rows:
        yield {
            "agent": row.agent_id,
            "status": row.status.value,
            "overall": row.overall,
            "baseline": row.overall_baseline,
            "delta": row.overall_delta,
            "n_scored": row.n_scored,
            "n_expected": row.n_expected,
            "messages": row.report.evaluation.sample_size,
            **_of_run(row),
        }


def _dimensions(rows: Iterable[AgentRow]) -> Iterator[dict[str, Any]]:
    for row in rows:
        for cell in row.cells:
            low, high = (cell.comparison.interval if cell.comparison else None) or (None, None)
            yield {
                "agent": row.agent_id,
                "dimension": cell.dimension,
                "score": cell.score,
                "unscored": _why_not(cell),
                "baseline": cell.baseline,
                "delta": cell.delta,
                "delta_low": low,
                "delta_high": high,
                "p_value": cell.comparison.p_value if cell.comparison else None,
                "status": cell.status,
                "n_scored": cell.n_scored,
                "n_expected": cell.n_expected,
                "samples": cell.evaluation.samples if cell.evaluation else 0,
                **_of_run(row),
            }


def _claims(rows: Iterable[AgentRow]) -> Iterator[dict[str, Any]]:
    for row in rows:
        for cell in row.cells:
            tests = cell.comparison.claims if cell.comparison else {}
            fallen = {drop.proposition_id: drop for drop in cell.drops}
            for key, item in cell.evaluation.propositions.items() if cell.evaluation else ():
                test, drop = tests.get(key), fallen.get(key)
                delta = drop.delta if drop else test.delta if test else None
                yield {
                    "agent": row.agent_id,
                    "dimension": cell.dimension,
                    "delta": delta,
                    "baseline": None if delta is None or item.score is None else item.score - delta,
                    "run_id": row.report.evaluation.run_id,
                    **_claim(item),
                }


def _claim(item: PropositionResult) -> dict[str, Any]:
    quote = next((found for found in item.evidence if found.verified), None) or next(iter(item.evidence), None)
    return {
        "claim_id": item.id,
        "claim": item.claim,
        "score": item.score,
        "raw": item.raw,
        "unscored": item.unscored,
        "weight": item.weight,
        "inverted": item.inverted,
        "computed": item.algorithmic,
        "quote": quote and quote.quote,
        "message_id": quote and quote.message_id,
        "reasoning": item.reasoning,
        "recommendation": item.recommendation,
    }


def _of_run(row: AgentRow) -> dict[str, Any]:
    evaluation = row.report.evaluation
    return {
        "window_start": evaluation.window_start,
        "window_end": evaluation.window_end,
        "judge": evaluation.provenance.get("judge"),
        "run_id": evaluation.run_id,
    }


def _why_not(cell: ScoreCell) -> str | None:
    if cell.score is not None:
        return None
    return (cell.evaluation.unscored if cell.evaluation else None) or "not_evaluated"


def _tests(result: SuiteResult) -> Iterator[dict[str, Any]]:
    for test in result.tests:
        output = test.best.output
        scored, expected = test.coverage
        yield {
            "id": test.id,
            "test": test.test_id,
            "target": test.target,
            "score": test.score,
            "verdict": test.verdict.value,
            "error": str(test.error) if test.error else None,
            "answer": output.text if output else None,
            "n_scored": scored,
            "n_expected": expected,
            "cost_usd": test.best.cost_usd,
            "duration_ms": output.duration_ms if output else None,
        }


def _asserts(result: SuiteResult) -> Iterator[dict[str, Any]]:
    for test in result.tests:
        for item in test.best.results:
            yield {
                "id": test.id,
                "test": test.test_id,
                "target": test.target,
                "assert": item.name,
                "type": item.type,
                "score": item.score,
                "verdict": item.verdict.value,
                "weight": item.weight,
                "required": item.required is not False,
                "misses": "; ".join(item.misses),
                "reasoning": item.reasoning,
                "error": str(item.error) if item.error else None,
            }
