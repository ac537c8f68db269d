"""The cost of a run, split by whom and what it was spent on."""

import pytest

from persona_pipeline.guard.report import Expense, RunReport
from persona_pipeline.judging.verdict import Usage
from persona_pipeline.reporting.page import Table
from persona_pipeline.reporting.pages.evaluation import cost_tables
from persona_pipeline.reporting.terminal import cell_text
from tests.reporting.sample import sample_report


def written(table: Table) -> list[list[str]]:
    """Return the rows of a table as they are written."""
    return [[cell_text(cell) for cell in row.cells] for row in table.rows]


def test_every_table_has_the_sum_of_the_run() -> None:
    report = sample_report()
    tables = cost_tables(report)
    assert [table.label for table in tables] == ["Cost by agent", "Cost by dimension", "Cost by mechanism"]
    usage = report.usage
    processed = usage.input_tokens + usage.cache_creation_tokens
    for table in tables:
        numbers = [[float(value.strip("$").replace(",", "")) for value in row[1:]] for row in written(table)]
        sums = [sum(column) for column in zip(*numbers, strict=True)]
        assert sums[1:] == [usage.calls, processed, usage.cache_read_tokens, usage.output_tokens]
        assert sums[0] == pytest.approx(usage.usd, abs=0.0005)


def test_a_table_of_one_row_would_repeat_the_sum() -> None:
    expense = Expense(mechanism="evaluation", agent_id="jim", dimension="fluency", usage=Usage(calls=2, usd=0.1))
    assert cost_tables(RunReport(expenses=[expense])) == cost_tables(RunReport()) == []


def test_one_unknown_price_leaves_the_others_known() -> None:
    expenses = [
        Expense(mechanism="evaluation", agent_id="jim", usage=Usage(calls=2, usd=None)),
        Expense(mechanism="evaluation", agent_id="pam", usage=Usage(calls=1, usd=0.5)),
    ]
    report = RunReport(expenses=expenses)
    assert report.usage.usd is None
    assert [row[:2] for row in written(cost_tables(report)[0])] == [["pam", "$0.5000"], ["jim", "unknown"]]
