"""The cost of a run, split by whom and what it was spent on."""

import pytest

from persona_pipeline.evaluation.report import Expense, RunReport
from persona_pipeline.reporting.costs import cost_tables
from persona_pipeline.scoring.results import UsageSummary, add_usage
from tests.reporting.sample import sample_report


def test_every_table_has_the_sum_of_the_run() -> None:
    report = sample_report()
    tables = cost_tables(report)
    assert [table.title for table in tables] == ["Agent", "Dimension", "Mechanism"]
    for table in tables:
        assert add_usage(row.usage for row in table.rows).model_dump() == pytest.approx(report.usage.model_dump())


def test_the_dearest_comes_first_under_its_name() -> None:
    agents = cost_tables(sample_report())[0]
    assert agents.rows[0].name == "Michael Scott"
    assert agents.rows[0].values == ("$0.0201", "19", "12,350", "9,850", "1,600")


def test_a_table_of_one_row_would_repeat_the_sum() -> None:
    expense = Expense(mechanism="evaluation", agent_id="jim", dimension="fluency", usage=UsageSummary(calls=2, usd=0.1))
    assert cost_tables(RunReport(expenses=[expense])) == []
    assert cost_tables(RunReport()) == []


def test_one_unknown_price_leaves_the_others_known() -> None:
    expenses = [
        Expense(mechanism="evaluation", agent_id="jim", usage=UsageSummary(calls=2, usd=None)),
        Expense(mechanism="evaluation", agent_id="pam", usage=UsageSummary(calls=1, usd=0.5)),
    ]
    report = RunReport(expenses=expenses)
    assert report.usage.usd is None
    assert [(row.name, row.values[0]) for row in cost_tables(report)[0].rows] == [
        ("pam", "$0.5000"),
        ("jim", "unknown"),
    ]
