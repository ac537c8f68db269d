"""Evaluations in the store: ``evaluation_runs`` and ``evaluation_scores``, written idempotently in one transaction."""

import uuid
from collections.abc import Collection, Iterable
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from persona_pipeline.evaluation.cases import total_usage, uuid_from
from persona_pipeline.evaluation.results import AgentEvaluation
from persona_pipeline.propositions import ALL_DIMENSIONS
from persona_pipeline.scoring.results import DimensionEvaluation, PropositionResult
from persona_pipeline.store import Store, tables, upsert

_RUNS, _SCORES = tables.evaluation_runs, tables.evaluation_scores
MOST_SNIPPET = 2000
_JUDGED_BY = ("judge_model", "judge_models", "prompt_version", "prompt_versions")


def save_evaluation(
    store: Store, evaluation: AgentEvaluation, *, complete: bool = True, gone: Collection[str] = ()
) -> AgentEvaluation:
    """Write an evaluation and return it joined with what the run held before.

    The same inputs write the same rows. A run that was written for some dimensions keeps them and gains the others.

    Args:
        complete: False while more dimensions of the run are to come; the run's status is then ``running``.
        gone: dimensions the agent has no propositions of any more; the run loses them.
    """
    run_id = uuid.UUID(evaluation.run_id)
    with store.begin() as connection:
        known = _locked(connection, run_id)
        joined = _without(_joined(known, evaluation), gone)
        _write_run(store, connection, run_id, joined, complete)
        connection.execute(
            sa.delete(_SCORES).where(_SCORES.c.evaluation_run_id == run_id, _SCORES.c.dimension.in_(list(gone)))
        )
        _write_scores(store, connection, run_id, [i for n, i in evaluation.dimensions.items() if n not in gone])
    return joined


def load_evaluation(store: Store, run_id: str) -> AgentEvaluation | None:
    """Return a run as it was saved, exactly; None when there is none."""
    query = sa.select(_RUNS.c.result).where(_RUNS.c.id == uuid.UUID(run_id))
    with store.connect() as connection:
        result = connection.execute(query).scalar()
    return AgentEvaluation.model_validate(result) if result else None


def latest_evaluations(store: Store, agent_id: str, *, since: datetime | None = None) -> list[AgentEvaluation]:
    """Return an agent's completed runs by window end, the newest run of each window, oldest window first."""
    query = (
        sa.select(_RUNS.c.result)
        .where(_RUNS.c.agent_id == agent_id, _RUNS.c.status == "completed", _RUNS.c.synthetic.is_(False))
        .order_by(_RUNS.c.window_end, _RUNS.c.completed_at, _RUNS.c.id)
    )
    if since is not None:
        query = query.where(_RUNS.c.window_end >= since)
    with store.connect() as connection:
        results = connection.execute(query).scalars().all()
    by_window: dict[datetime, AgentEvaluation] = {}
    for result in results:
        evaluation = AgentEvaluation.model_validate(result)
        by_window[evaluation.window_end] = evaluation
    return list(by_window.values())


def newest_evaluation(store: Store, agent_id: str) -> AgentEvaluation | None:
    """Return the newest completed run of an agent's newest window; None when it was never evaluated."""
    query = (
        sa.select(_RUNS.c.result)
        .where(_RUNS.c.agent_id == agent_id, _RUNS.c.status == "completed", _RUNS.c.synthetic.is_(False))
        .order_by(_RUNS.c.window_end.desc(), _RUNS.c.completed_at.desc(), _RUNS.c.id.desc())
        .limit(1)
    )
    with store.connect() as connection:
        result = connection.execute(query).scalar()
    return AgentEvaluation.model_validate(result) if result else None


def mark_baseline(store: Store, run_id: str) -> None:
    """Mark the run as the one the agent's baseline was taken from, and no other of the agent's."""
    with store.begin() as connection:
        agent = sa.select(_RUNS.c.agent_id).where(_RUNS.c.id == uuid.UUID(run_id)).scalar_subquery()
        connection.execute(
            sa.update(_RUNS).where(_RUNS.c.agent_id == agent).values(is_baseline=_RUNS.c.id == uuid.UUID(run_id))
        )


def _locked(connection: Connection, run_id: uuid.UUID) -> AgentEvaluation | None:
    # Two dimensions of one run may be saved by two workers: on Postgres the row is locked, on SQLite the transaction is.
    if connection.dialect.name != "sqlite":
        lock = int.from_bytes(run_id.bytes[:8], "big", signed=True)
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(lock)))
    result = connection.execute(sa.select(_RUNS.c.result).where(_RUNS.c.id == run_id)).scalar()
    return AgentEvaluation.model_validate(result) if result else None


def _without(evaluation: AgentEvaluation, gone: Collection[str]) -> AgentEvaluation:
    kept = {name: item for name, item in evaluation.dimensions.items() if name not in gone}
    if len(kept) == len(evaluation.dimensions):
        return evaluation
    return evaluation.with_dimensions(kept).model_copy(update={"usage": total_usage(kept.values())})


def _joined(known: AgentEvaluation | None, evaluation: AgentEvaluation) -> AgentEvaluation:
    if known is None:
        return evaluation
    dimensions = dict(known.dimensions)
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


def _write_run(
    store: Store, connection: Connection, run_id: uuid.UUID, evaluation: AgentEvaluation, complete: bool
) -> None:
    scored = any(item.score is not None for item in evaluation.dimensions.values())
    status = ("completed" if scored else "failed") if complete else "running"
    provenance = evaluation.provenance
    row = {
        "id": run_id,
        "agent_id": evaluation.agent_id,
        "status": status,
        "dimensions": list(evaluation.dimensions),
        "window_start": evaluation.window_start,
        "window_end": evaluation.window_end,
        "sample_size": evaluation.sample_size,
        "overall_score": evaluation.overall,
        "token_usage": evaluation.usage.model_dump(),
        "completed_at": sa.func.now() if complete else None,
        "persona_hash": provenance.get("persona_hash"),
        "messages_hash": provenance.get("messages_hash"),
        "judge": provenance.get("judge"),
        "judge_model": provenance.get("judge_model"),
        "prompt_version": provenance.get("prompt_version"),
        "synthetic": evaluation.synthetic,
        "result": evaluation.model_dump(mode="json"),
    }
    statement = store.insert(_RUNS).values(row)
    changed = {name: statement.excluded[name] for name in row if name != "id"}
    connection.execute(statement.on_conflict_do_update(index_elements=["id"], set_=changed))


def _write_scores(
    store: Store, connection: Connection, run_id: uuid.UUID, dimensions: Iterable[DimensionEvaluation]
) -> None:
    for item in dimensions:
        rows = [_score_row(run_id, item, row) for row in item.propositions.values()]
        connection.execute(
            sa.delete(_SCORES).where(
                _SCORES.c.evaluation_run_id == run_id,
                _SCORES.c.dimension == item.dimension,
                _SCORES.c.proposition_id.not_in(list(item.propositions)),
            )
        )
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
