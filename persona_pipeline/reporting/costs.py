"""Who a run's money was spent on: by agent, by dimension and by what was done."""

from collections.abc import Callable
from dataclasses import dataclass

from persona_pipeline.evaluation.report import Expense, RunReport
from persona_pipeline.reporting.view import dimension_label, format_usd
from persona_pipeline.scoring.results import UsageSummary, add_usage

COLUMNS = ("Cost", "Calls", "Input tokens", "From the cache", "Output tokens")
_MECHANISMS = {
    "evaluation": "Judging",
    "confirmation": "Judging again what fell",
    "history": "Judging earlier windows",
    "synthetic": "Generating conversations",
}


@dataclass(frozen=True)
class CostRow:
    """What was spent on one agent, dimension or mechanism."""

    name: str
    usage: UsageSummary

    @property
    def values(self) -> tuple[str, ...]:
        """The texts under ``COLUMNS``; input tokens are those that were processed, cached ones not among them."""
        usage = self.usage
        counts = (
            usage.calls,
            usage.input_tokens + usage.cache_creation_tokens,
            usage.cache_read_tokens,
            usage.output_tokens,
        )
        return (format_usd(usage.usd), *(f"{count:,}" for count in counts))


@dataclass(frozen=True)
class CostTable:
    """The expenses of a run in one grouping, the dearest first. Every table of a run has the same sum."""

    title: str
    rows: list[CostRow]

    def shortened(self, most: int) -> "CostTable":
        """Return the table with at most so many rows, the last one the sum of those left out."""
        if len(self.rows) <= most:
            return self
        kept, others = self.rows[: most - 1], self.rows[most - 1 :]
        return CostTable(self.title, [*kept, CostRow(f"{len(others)} others", add_usage(r.usage for r in others))])


def cost_tables(report: RunReport) -> list[CostTable]:
    """Return the tables that split the cost; a grouping of one row says no more than the sum and is left out."""
    names = {agent_id: agent.evaluation.display_name for agent_id, agent in report.agents.items()}
    groupings: dict[str, Callable[[Expense], str]] = {
        "Agent": lambda expense: names.get(expense.agent_id, expense.agent_id),
        "Dimension": lambda expense: dimension_label(expense.dimension) if expense.dimension else "–",
        "Mechanism": lambda expense: _MECHANISMS.get(expense.mechanism, expense.mechanism),
    }
    tables = [CostTable(title, _grouped(report.expenses, name_of)) for title, name_of in groupings.items()]
    return [table for table in tables if len(table.rows) > 1]


def _grouped(expenses: list[Expense], name_of: Callable[[Expense], str]) -> list[CostRow]:
    groups: dict[str, list[UsageSummary]] = {}
    for expense in expenses:
        groups.setdefault(name_of(expense), []).append(expense.usage)
    rows = [CostRow(name, add_usage(parts)) for name, parts in groups.items()]
    return sorted(rows, key=lambda row: (-(row.usage.usd or 0), -row.usage.calls, row.name))
