"""Runs without their claims and reasons: what a page of many agents says of each, read from short columns."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from persona_pipeline.baselines import BaselineComparison
from persona_pipeline.evaluation.history import newest_ids
from persona_pipeline.evaluation.report import AgentReport, Finding, Result, expenses_of
from persona_pipeline.evaluation.results import AgentEvaluation
from persona_pipeline.scoring.fading import message_scores
from persona_pipeline.store import Store, tables

_RUNS = tables.evaluation_runs


def outline_of(evaluation: AgentEvaluation) -> dict[str, Any]:
    """Return an evaluation as plain JSON, without claims and statistics."""
    return evaluation.model_dump(mode="json", exclude={"dimensions": {"__all__": {"propositions", "statistics"}}})


def message_scores_of(evaluation: AgentEvaluation) -> dict[str, float] | None:
    """Return the adherence (0-9) of single messages by id; None where none was judged by itself."""
    adherence = evaluation.dimensions.get("adherence")
    return message_scores(adherence) or None if adherence else None


def newest_outlines(
    store: Store, agent_ids: Collection[str] | None = None, *, since: datetime | None = None
) -> dict[str, AgentReport]:
    """Return the newest compared run of each agent without its claims, by agent; one query, whatever the runs before it.

    Args:
        agent_ids: None for all.
        since: windows that end before are left out.
    """
    columns = (_RUNS.c.agent_id, _RUNS.c.outline, _RUNS.c.comparison, _RUNS.c.findings)
    query = (
        sa.select(*columns)
        .where(_RUNS.c.id.in_(newest_ids()), _RUNS.c.comparison.is_not(None), _RUNS.c.outline.is_not(None))
        .order_by(_RUNS.c.agent_id)
    )
    if since is not None:
        query = query.where(_RUNS.c.window_end >= since)
    with store.connect() as connection:
        rows = connection.execute(query).all()
    wanted = None if agent_ids is None else set(agent_ids)
    return {row.agent_id: _report(row) for row in rows if wanted is None or row.agent_id in wanted}


def by_need(reports: Mapping[str, AgentReport]) -> list[str]:
    """Return the agents by how much they need a look: those that fell, those with other findings, the others; each by name."""

    def need(agent_id: str) -> tuple[int, str]:
        verdict, found = reports[agent_id].conclusion.verdict, reports[agent_id].findings
        return (0 if verdict is Result.FELL else 1 if verdict is Result.CANNOT_TELL else 2 if found else 3, agent_id)

    return sorted(reports, key=need)


def _report(row: sa.Row) -> AgentReport:
    evaluation = AgentEvaluation.model_validate(row.outline)
    return AgentReport(
        evaluation=evaluation,
        comparison=BaselineComparison.model_validate(row.comparison),
        findings=[Finding.model_validate(finding) for finding in row.findings or ()],
        expenses=expenses_of(evaluation.agent_id, evaluation.dimensions.values()),
        outlined=True,
    )
