"""Runs in the store: ``evaluation_runs`` with its comparison and ``evaluation_scores``, written in one transaction."""

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from persona_pipeline.baselines import BaselineComparison
from persona_pipeline.evaluation.history import NEWEST_LAST, newest_ids, summary_of
from persona_pipeline.evaluation.outlines import message_scores_of, outline_of
from persona_pipeline.evaluation.report import AgentReport, Finding, expenses_of
from persona_pipeline.evaluation.results import AgentEvaluation, total_usage, uuid_from
from persona_pipeline.propositions import ALL_DIMENSIONS
from persona_pipeline.scoring.results import DimensionEvaluation, PropositionResult
from persona_pipeline.store import Store, tables, upsert
from persona_pipeline.world.evaluated_windows import record_window
from persona_pipeline.world.models import Window

_RUNS, _SCORES = tables.evaluation_runs, tables.evaluation_scores
MOST_SNIPPET = 2000
_JUDGED_BY = ("judge_model", "judge_models", "prompt_version", "prompt_versions")


@dataclass(frozen=True)
class SavedRun:
    """A run as it is stored, whole: its scores and their comparison.

    Attributes:
        comparison, findings: None and nothing while dimensions of the run are still to come.
        whole: every dimension the agent has propositions of is in it.
        read_at: when its messages were read.
    """

    evaluation: AgentEvaluation
    comparison: BaselineComparison | None = None
    findings: Sequence[Finding] = ()
    whole: bool = True
    read_at: datetime | None = None

    @property
    def report(self) -> AgentReport | None:
        """The report as it was when the run was saved, with what it cost then; None when it was not compared yet."""
        if self.comparison is None:
            return None
        return AgentReport(
            evaluation=self.evaluation,
            comparison=self.comparison,
            findings=list(self.findings),
            expenses=expenses_of(self.evaluation.agent_id, self.evaluation.dimensions.values()),
        )


def save_run(store: Store, run: SavedRun) -> None:
    """Write a run with its scores, its comparison and its window in one transaction; the same inputs write the same rows."""
    evaluation, run_id = run.evaluation, uuid.UUID(run.evaluation.run_id)
    with store.begin() as connection:
        _write_run(store, connection, run_id, run)
        _write_scores(store, connection, run_id, evaluation.dimensions)
        if not evaluation.synthetic:
            window = Window(end=evaluation.window_end, start=evaluation.window_start)
            record_window(store, connection, evaluation.agent_id, window, read_at=run.read_at)


def load_run(store: Store, run_id: str) -> SavedRun | None:
    """Return a run as it was saved; None when there is none."""
    with store.connect() as connection:
        row = connection.execute(sa.select(_RUNS).where(_RUNS.c.id == uuid.UUID(run_id))).one_or_none()
    return _saved_run(row) if row is not None and row.result else None


def latest_runs(store: Store, agent_id: str, *, since: datetime | None = None) -> list[SavedRun]:
    """Return an agent's runs by window end, oldest window first: of each window the newest whole run, else the newest of a part.

    Runs whose claims and reasons were forgotten are left out.
    """
    query = _finished(agent_id).where(_RUNS.c.result.is_not(None)).order_by(*NEWEST_LAST)
    if since is not None:
        query = query.where(_RUNS.c.window_end >= since)
    with store.connect() as connection:
        by_window = {row.window_end: row for row in connection.execute(query)}
    return [_saved_run(row) for row in by_window.values()]


def newest_run(store: Store, agent_id: str) -> SavedRun | None:
    """Return the newest run of an agent's newest window, a whole one before one of a part; None when it was never evaluated."""
    query = _finished(agent_id).order_by(*(column.desc() for column in NEWEST_LAST)).limit(1)
    with store.connect() as connection:
        row = connection.execute(query).one_or_none()
    return _saved_run(row) if row is not None else None


def newest_p_values(store: Store) -> dict[str, float]:
    """Return the smallest p-value of each agent's newest comparison, by agent; those without a test are left out."""
    newest = newest_ids()
    query = sa.select(_RUNS.c.agent_id, _RUNS.c.comparison["p_value"].as_float()).where(_RUNS.c.id.in_(newest))
    with store.connect() as connection:
        return {agent_id: p for agent_id, p in connection.execute(query) if p is not None}


def mark_baseline(store: Store, run_id: str) -> None:
    """Mark the run as the one the agent's baseline was taken from, and no other of the agent's."""
    with store.begin() as connection:
        agent = sa.select(_RUNS.c.agent_id).where(_RUNS.c.id == uuid.UUID(run_id)).scalar_subquery()
        connection.execute(
            sa.update(_RUNS).where(_RUNS.c.agent_id == agent).values(is_baseline=_RUNS.c.id == uuid.UUID(run_id))
        )


def joined(known: AgentEvaluation | None, evaluation: AgentEvaluation, claimed: Collection[str]) -> AgentEvaluation:
    """Return a run's evaluation with the dimensions it held before, those left out that the agent has no propositions of."""
    if known is None:
        return evaluation
    dimensions = {name: item for name, item in known.dimensions.items() if name in claimed}
    for name, item in evaluation.dimensions.items():
        if item.usage.calls == 0 and name in dimensions:
            # Answered from the cache this time: the run did cost what it cost.
            item = item.model_copy(update={"usage": dimensions[name].usage})
        dimensions[name] = item
    ordered = {name: dimensions[name] for name in ALL_DIMENSIONS if name in dimensions}
    provenance = dict(evaluation.provenance)
    if not provenance.get("judge_models"):
        # Nobody was asked this time, so the scores are still those of whoever gave them.
        provenance |= {key: known.provenance[key] for key in _JUDGED_BY if key in known.provenance}
    return evaluation.with_dimensions(ordered).model_copy(
        update={"provenance": provenance, "usage": total_usage(ordered.values())}
    )


def _finished(agent_id: str) -> sa.Select:
    return sa.select(_RUNS).where(
        _RUNS.c.agent_id == agent_id, _RUNS.c.status == "completed", _RUNS.c.synthetic.is_(False)
    )


def _saved_run(row: sa.Row) -> SavedRun:
    return SavedRun(
        AgentEvaluation.model_validate(row.result),
        BaselineComparison.model_validate(row.comparison) if row.comparison else None,
        [Finding.model_validate(finding) for finding in row.findings or ()],
        row.whole,
    )


def _write_run(store: Store, connection: Connection, run_id: uuid.UUID, run: SavedRun) -> None:
    evaluation, provenance = run.evaluation, run.evaluation.provenance
    scored = any(item.score is not None for item in evaluation.dimensions.values())
    complete = run.comparison is not None
    row = {
        "id": run_id,
        "agent_id": evaluation.agent_id,
        "status": ("completed" if scored else "failed") if complete else "running",
        "dimensions": list(evaluation.dimensions),
        "window_start": evaluation.window_start,
        "window_end": evaluation.window_end,
        "sample_size": evaluation.sample_size,
        "overall_score": evaluation.overall,
        "token_usage": evaluation.usage.model_dump(),
        # Not the database's clock: SQLite's counts whole seconds, and the newest of two runs must be told.
        "completed_at": datetime.now(UTC) if complete else None,
        "persona_hash": provenance.get("persona_hash"),
        "messages_hash": provenance.get("messages_hash"),
        "judge": provenance.get("judge"),
        "judge_model": provenance.get("judge_model"),
        "prompt_version": provenance.get("prompt_version"),
        "synthetic": evaluation.synthetic,
        "result": evaluation.model_dump(mode="json"),
        "outline": outline_of(evaluation),
        "message_scores": message_scores_of(evaluation),
        "summary": summary_of(evaluation),
        "whole": run.whole,
        "regressed": run.comparison.regressed if run.comparison else None,
        "comparison": run.comparison.model_dump(mode="json") if run.comparison else None,
        "findings": [finding.model_dump(mode="json") for finding in run.findings] if run.comparison else None,
    }
    statement = store.insert(_RUNS).values(row)
    changed = {name: statement.excluded[name] for name in row if name != "id"}
    connection.execute(statement.on_conflict_do_update(index_elements=["id"], set_=changed))


def _write_scores(
    store: Store, connection: Connection, run_id: uuid.UUID, dimensions: Mapping[str, DimensionEvaluation]
) -> None:
    rows = [_score_row(run_id, item, row) for item in dimensions.values() for row in item.propositions.values()]
    gone = sa.delete(_SCORES).where(_SCORES.c.evaluation_run_id == run_id)
    connection.execute(gone.where(_SCORES.c.id.not_in([row["id"] for row in rows])))
    upsert(store, connection, _SCORES, rows)


def _score_row(run_id: uuid.UUID, item: DimensionEvaluation, row: PropositionResult) -> dict[str, object]:
    quotes = [quote.quote for quote in row.evidence if quote.verified]
    return {
        "id": uuid_from(f"{run_id}/{item.dimension}/{row.id}"),
        "evaluation_run_id": run_id,
        "dimension": item.dimension,
        "proposition_id": row.id,
        "score": row.score,
        "raw": row.raw,
        "unscored_reason": row.unscored,
        "reasoning": row.reasoning or row.detail,
        # Only what was found in the transcript is shown as a quote from it.
        "context_snippet": "\n".join(quotes)[:MOST_SNIPPET] or None,
        "proposition_set_hash": item.proposition_set_hash,
        "input_hash": item.input_hash,
    }
