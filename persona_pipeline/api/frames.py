"""Results as data frames, one row per scored item. An unscored value is missing (NaN), never a number."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.guard.report import RunReport
from persona_pipeline.reporting.view import AgentRow, ReportView, ScoreCell
from persona_pipeline.scoring.messages.verdicts import MessageVerdict, MessageVerdicts
from persona_pipeline.scoring.results import PropositionResult, QuotedEvidence
from persona_pipeline.suites.grading.results import AssertResult, SuiteResult, TestResult
from persona_pipeline.suites.running.history import Comparison, Pair

if TYPE_CHECKING:
    import pandas as pd

# Each column is declared once: its name, its type, and its value.
_TIME = "datetime64[us, UTC]"
# A column of text keeps this type even if it is empty.
_TEXT = "object"

_AGENTS: Mapping[str, tuple[str, Callable[[AgentRow], Any]]] = {
    "agent": (_TEXT, lambda row: row.agent_id),
    "status": (_TEXT, lambda row: row.status.name),
    "overall": ("float64", lambda row: row.overall),
    "baseline": ("float64", lambda row: row.overall_baseline),
    "delta": ("float64", lambda row: row.overall_delta),
    "n_scored": ("int64", lambda row: row.n_scored),
    "n_expected": ("int64", lambda row: row.n_expected),
    "messages": ("int64", lambda row: row.report.evaluation.sample_size),
    "window_start": (_TIME, lambda row: row.report.evaluation.window_start),
    "window_end": (_TIME, lambda row: row.report.evaluation.window_end),
    "judge": (_TEXT, lambda row: row.report.evaluation.provenance.get("judge")),
    "run_id": (_TEXT, lambda row: row.report.evaluation.run_id),
}
_DIMENSIONS: Mapping[str, tuple[str, Callable[[AgentRow, ScoreCell], Any]]] = {
    "agent": (_TEXT, lambda row, cell: row.agent_id),
    "dimension": (_TEXT, lambda row, cell: cell.dimension),
    "score": ("float64", lambda row, cell: cell.score),
    "unscored": (_TEXT, lambda row, cell: _why_not(cell)),
    "baseline": ("float64", lambda row, cell: cell.baseline),
    "delta": ("float64", lambda row, cell: cell.delta),
    "delta_low": ("float64", lambda row, cell: _interval(cell)[0]),
    "delta_high": ("float64", lambda row, cell: _interval(cell)[1]),
    "p_value": ("float64", lambda row, cell: cell.comparison.p_value if cell.comparison else None),
    "status": (_TEXT, lambda row, cell: cell.status),
    "n_scored": ("int64", lambda row, cell: cell.n_scored),
    "n_expected": ("int64", lambda row, cell: cell.n_expected),
    "samples": ("int64", lambda row, cell: cell.evaluation.samples if cell.evaluation else 0),
    "window_start": (_TIME, lambda row, cell: row.report.evaluation.window_start),
    "window_end": (_TIME, lambda row, cell: row.report.evaluation.window_end),
    "judge": (_TEXT, lambda row, cell: row.report.evaluation.provenance.get("judge")),
    "run_id": (_TEXT, lambda row, cell: row.report.evaluation.run_id),
}
_CLAIMS: Mapping[str, tuple[str, Callable[[ScoreCell, PropositionResult, str], Any]]] = {
    "agent": (_TEXT, lambda cell, item, run_id: cell.agent_id),
    "dimension": (_TEXT, lambda cell, item, run_id: cell.dimension),
    "claim_id": (_TEXT, lambda cell, item, run_id: item.id),
    "claim": (_TEXT, lambda cell, item, run_id: item.claim),
    "score": ("float64", lambda cell, item, run_id: item.score),
    "raw": ("float64", lambda cell, item, run_id: item.raw),
    "unscored": (_TEXT, lambda cell, item, run_id: item.unscored),
    "weight": ("float64", lambda cell, item, run_id: item.weight),
    "inverted": ("bool", lambda cell, item, run_id: item.inverted),
    "computed": ("bool", lambda cell, item, run_id: item.algorithmic),
    "baseline": ("float64", lambda cell, item, run_id: _claim_baseline(cell, item)),
    "delta": ("float64", lambda cell, item, run_id: _claim_delta(cell, item)),
    "quote": (_TEXT, lambda cell, item, run_id: (quote := _quote(item)) and quote.quote),
    "message_id": (_TEXT, lambda cell, item, run_id: (quote := _quote(item)) and quote.message_id),
    "reasoning": (_TEXT, lambda cell, item, run_id: item.reasoning),
    "recommendation": (_TEXT, lambda cell, item, run_id: item.recommendation),
    "run_id": (_TEXT, lambda cell, item, run_id: run_id),
}
_MESSAGES: Mapping[str, tuple[str, Callable[[MessageVerdicts, MessageVerdict, str], Any]]] = {
    "agent": (_TEXT, lambda read, item, run_id: read.agent_id),
    "message_id": (_TEXT, lambda read, item, run_id: item.message),
    "conversation": (_TEXT, lambda read, item, run_id: item.conversation),
    "said_at": (_TIME, lambda read, item, run_id: item.said_at),
    "verdict": (_TEXT, lambda read, item, run_id: item.verdict.value),
    "claims": (_TEXT, lambda read, item, run_id: "; ".join(item.claims) or None),
    "quote": (_TEXT, lambda read, item, run_id: item.quote or None),
    "reason": (_TEXT, lambda read, item, run_id: item.reason or None),
    "judge_model": (_TEXT, lambda read, item, run_id: read.model),
    "prompt_version": (_TEXT, lambda read, item, run_id: read.prompt_version),
    "run_id": (_TEXT, lambda read, item, run_id: run_id),
}
_TESTS: Mapping[str, tuple[str, Callable[[TestResult], Any]]] = {
    "id": (_TEXT, lambda test: test.id),
    "test": (_TEXT, lambda test: test.test_id),
    "target": (_TEXT, lambda test: test.target),
    "score": ("float64", lambda test: test.score),
    "verdict": (_TEXT, lambda test: test.verdict.value),
    "error": (_TEXT, lambda test: str(test.error) if test.error else None),
    "answer": (_TEXT, lambda test: test.best.output.text if test.best.output else None),
    "n_scored": ("int64", lambda test: test.coverage[0]),
    "n_expected": ("int64", lambda test: test.coverage[1]),
    "cost_usd": ("float64", lambda test: test.best.cost_usd),
    "duration_ms": ("float64", lambda test: test.best.output.duration_ms if test.best.output else None),
}
_ASSERTS: Mapping[str, tuple[str, Callable[[TestResult, AssertResult], Any]]] = {
    "id": (_TEXT, lambda test, item: test.id),
    "test": (_TEXT, lambda test, item: test.test_id),
    "target": (_TEXT, lambda test, item: test.target),
    "assert": (_TEXT, lambda test, item: item.name),
    "type": (_TEXT, lambda test, item: item.type),
    "score": ("float64", lambda test, item: item.score),
    "verdict": (_TEXT, lambda test, item: item.verdict.value),
    "weight": ("float64", lambda test, item: item.weight),
    "required": ("bool", lambda test, item: item.required is not False),
    "misses": (_TEXT, lambda test, item: "; ".join(item.misses)),
    "reasoning": (_TEXT, lambda test, item: item.reasoning),
    "error": (_TEXT, lambda test, item: str(item.error) if item.error else None),
}
_PAIRS: Mapping[str, tuple[str, Callable[[Pair], Any]]] = {
    "id": (_TEXT, lambda pair: pair.id),
    "before": ("float64", lambda pair: pair.a),
    "after": ("float64", lambda pair: pair.b),
    "delta": ("float64", lambda pair: pair.delta),
    "verdict_before": (_TEXT, lambda pair: pair.verdict_a),
    "verdict_after": (_TEXT, lambda pair: pair.verdict_b),
}


def report_frame(report: RunReport, by: str) -> "pd.DataFrame":
    """Return a report with one row per ``agent``, ``dimension``, ``claim`` or ``message`` with a verdict.

    Raises ``ConfigError``: the kind of row is unknown.
    """
    _check(by, "agent", "dimension", "claim", "message")
    rows = ReportView(report).rows
    if by == "agent":
        return _frame(_AGENTS, ((row,) for row in rows))
    if by == "dimension":
        return _frame(_DIMENSIONS, ((row, cell) for row in rows for cell in row.cells))
    if by == "message":
        read = ((row.messages, row.report.evaluation.run_id) for row in rows if row.messages)
        return _frame(_MESSAGES, ((own, item, run_id) for own, run_id in read for item in own.verdicts))
    claims = (
        (cell, item, row.report.evaluation.run_id)
        for row in rows
        for cell in row.cells
        if cell.evaluation
        for item in cell.evaluation.propositions.values()
    )
    return _frame(_CLAIMS, claims)


def suite_frame(result: SuiteResult, by: str) -> "pd.DataFrame":
    """Return a suite's run with one row per ``test`` or ``assert``; ConfigError: the kind of row is unknown."""
    _check(by, "test", "assert")
    if by == "test":
        return _frame(_TESTS, ((test,) for test in result.tests))
    return _frame(_ASSERTS, ((test, item) for test in result.tests for item in test.best.results))


def pairs_frame(comparison: Comparison) -> "pd.DataFrame":
    """Return two runs of a suite with one row per test that both have."""
    return _frame(_PAIRS, ((pair,) for pair in comparison.pairs))


def _check(by: str, *names: str) -> None:
    if by not in names:
        raise ConfigError(f"there is no row a {by!r}; use {' or '.join(map(repr, names))}")


def _frame(columns: Mapping[str, tuple[str, Callable[..., Any]]], rows: Iterable[tuple[Any, ...]]) -> "pd.DataFrame":
    import pandas as pd

    found = list(rows)

    def series(kind: str, value: Callable[..., Any]) -> "pd.Series":
        values = [value(*row) for row in found]
        if kind == _TIME:
            return pd.to_datetime(pd.Series(values, dtype=_TEXT), utc=True).astype(_TIME)
        return pd.Series(values, dtype=kind)

    # A frame without rows has its columns and their types.
    return pd.DataFrame({name: series(*column) for name, column in columns.items()}, columns=list(columns))


def _why_not(cell: ScoreCell) -> str | None:
    if cell.score is not None:
        return None
    return (cell.evaluation.unscored if cell.evaluation else None) or "not_evaluated"


def _interval(cell: ScoreCell) -> tuple[float | None, float | None]:
    return (cell.comparison.interval if cell.comparison else None) or (None, None)


def _claim_delta(cell: ScoreCell, item: PropositionResult) -> float | None:
    dropped = (drop.delta for drop in cell.drops if drop.proposition_id == item.id)
    test = cell.comparison.claims.get(item.id) if cell.comparison else None
    return next(dropped, test.delta if test else None)


def _claim_baseline(cell: ScoreCell, item: PropositionResult) -> float | None:
    delta = _claim_delta(cell, item)
    return None if delta is None or item.score is None else item.score - delta


def _quote(item: PropositionResult) -> QuotedEvidence | None:
    return next((found for found in item.evidence if found.verified), None) or next(iter(item.evidence), None)
