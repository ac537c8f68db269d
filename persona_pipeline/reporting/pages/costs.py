"""What a run cost and whom it was spent on, and what its scores rest on."""

from collections.abc import Callable, Mapping
from typing import Any

from persona_pipeline.guard.report import Expense, RunReport
from persona_pipeline.reporting.page import Cell, Column, Facts, PageRow, Table
from persona_pipeline.reporting.text import format_usd
from persona_pipeline.reporting.view import dimension_label
from persona_pipeline.scoring.results import UsageSummary, add_usage

_COLUMNS = ("Cost", "Calls", "Input tokens", "From the cache", "Output tokens")
_MECHANISMS = {
    "evaluation": "Judging",
    "confirmation": "Judging again what fell",
    "history": "Judging earlier windows",
    "synthetic": "Generating conversations",
}
_HASH_LENGTH, _LONGEST = 12, 60


def cost_tables(report: RunReport, most: int | None = None) -> list[Table]:
    """Return a run's expenses by agent, by dimension and by what was done, the dearest first; each table has the same sum.

    A grouping of one row says no more than the sum and is left out.

    Args:
        most: rows of a table; the last one is the sum of those left out.
    """
    names = {agent_id: agent.evaluation.display_name for agent_id, agent in report.agents.items()}
    groupings: dict[str, Callable[[Expense], str]] = {
        "Agent": lambda expense: names.get(expense.agent_id, expense.agent_id),
        "Dimension": lambda expense: dimension_label(expense.dimension) if expense.dimension else "–",
        "Mechanism": lambda expense: _MECHANISMS.get(expense.mechanism, expense.mechanism),
    }
    tables = []
    for title, name_of in groupings.items():
        rows = _grouped(report.expenses, name_of)
        if most is not None and len(rows) > most:
            others = add_usage(usage for _, usage in rows[most - 1 :])
            rows = [*rows[: most - 1], (f"{len(rows) - most + 1} others", others)]
        if len(rows) > 1:
            columns = [Column(title, number=False), *map(Column, _COLUMNS)]
            tables.append(Table(f"Cost by {title.lower()}", columns, [_row(name, usage) for name, usage in rows]))
    return tables


def _grouped(expenses: list[Expense], name_of: Callable[[Expense], str]) -> list[tuple[str, UsageSummary]]:
    groups: dict[str, list[UsageSummary]] = {}
    for expense in expenses:
        groups.setdefault(name_of(expense), []).append(expense.usage)
    rows = [(name, add_usage(parts)) for name, parts in groups.items()]
    return sorted(rows, key=lambda row: (-(row[1].usd or 0), -row[1].calls, row[0]))


def _row(name: str, usage: UsageSummary) -> PageRow:
    # Input tokens are those that were processed, cached ones not among them.
    processed = usage.input_tokens + usage.cache_creation_tokens
    counts = (usage.calls, processed, usage.cache_read_tokens, usage.output_tokens)
    values = (format_usd(usage.usd), *(f"{count:,}" for count in counts))
    return PageRow([name, *(Cell(value, own=True) for value in values)])


def usage_facts(usage: UsageSummary) -> Facts:
    """Return tokens and price; a run that called no judge says so in one line."""
    if not usage.calls:
        return Facts([("Judge calls", "none: recorded or cached judgments cost nothing")])
    cached = f"{usage.cache_read_tokens:,} read, {usage.cache_creation_tokens:,} written"
    return Facts(
        [
            ("Judge calls", f"{usage.calls:,}"),
            ("Cost", format_usd(usage.usd)),
            ("Input tokens", f"{usage.input_tokens:,}"),
            ("Output tokens", f"{usage.output_tokens:,}"),
            ("Cached input tokens", cached),
        ]
    )


def provenance_facts(report: RunReport) -> Facts:
    """Return the run's provenance, keys in order, nested objects joined with dots; the windows that were evaluated come first."""
    windows = {
        f"{agent.evaluation.window_start:%Y-%m-%d %H:%M} to {agent.evaluation.window_end:%Y-%m-%d %H:%M} UTC"
        if agent.evaluation.window_start
        else f"everything up to {agent.evaluation.window_end:%Y-%m-%d %H:%M} UTC"
        for agent in report.agents.values()
    }
    evaluated = [("Evaluated window", window) for window in sorted(windows)]
    return Facts(evaluated + named_values(report.provenance))


def named_values(values: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return nested values under names as a person writes them, in their order."""
    return [(_spelled(name), value) for name, value in _flat(values)]


def scalar_facts(statistics: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the numbers and short texts of a dimension's statistics; lists and long texts are left to the JSON report."""
    return [
        (_spelled(name), _scalar(round(value, 4) if isinstance(value, float) else value))
        for name, value in sorted(statistics.items())
        if isinstance(value, int | float | str) and len(str(value)) <= _LONGEST
    ]


def _flat(value: Any, prefix: str = "") -> list[tuple[str, str]]:
    if isinstance(value, dict):
        return [
            pair
            for key in sorted(value, key=str)
            for pair in _flat(value[key], f"{prefix}.{key}" if prefix else str(key))
        ]
    if isinstance(value, list | tuple | set):
        return [(prefix, ", ".join(_scalar(item) for item in value) or "none")]
    return [(prefix, _scalar(value))]


def _scalar(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = str(value)
    is_hash = len(text) == 64 and all(character in "0123456789abcdef" for character in text)
    return text[:_HASH_LENGTH] if is_hash else text


def _spelled(name: str) -> str:
    return (name[:1].upper() + name[1:]).replace("_", " ")
