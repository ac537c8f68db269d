"""What the gate leaves in the store: a row a check, and a row for every rejected, retried or forced text."""

import uuid
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from persona_pipeline.corrections.decision import GateDecision, Outcome
from persona_pipeline.store import Store, tables, upsert
from persona_pipeline.world.canonical import storable

LOGGED = (Outcome.CORRECTED, Outcome.PASSED_AFTER_RETRY, Outcome.FORCED_THROUGH)
# An agent that takes longer than this to write again has forgotten what it was about.
ACTION_LIFETIME = timedelta(days=1)


@dataclass(frozen=True)
class PriorAttempts:
    """What is known of earlier attempts at an action: how many were rejected, and the text of the first."""

    rejections: int = 0
    first_text: str | None = None


@dataclass(frozen=True)
class CheckRecord:
    """One check as it is written down.

    Attributes:
        decided_at: earlier than the row where the store is slow; rows are in the order of decisions, not of writing.
    """

    agent_id: str
    decision: GateDecision
    first_text: str
    reasoning: str = ""
    judge_model: str | None = None
    run_id: uuid.UUID | None = None
    decided_at: datetime = field(default_factory=lambda: datetime.now(UTC))


def prior_attempts(connection: Connection, agent_id: str, action_id: str) -> PriorAttempts:
    """Return the earlier attempts at an action, from the rows of its rejections."""
    table = tables.correction_logs
    query = (
        sa.select(table.c.original_text)
        .where(
            table.c.agent_id == agent_id,
            table.c.created_at > datetime.now(UTC) - ACTION_LIFETIME,
            table.c.action_id == action_id,
            table.c.outcome == Outcome.CORRECTED.value,
        )
        .order_by(table.c.attempt_number)
    )
    texts = connection.execute(query).scalars().all()
    return PriorAttempts(len(texts), texts[0] if texts else None)


def write_check(store: Store, record: CheckRecord) -> None:
    """Write one check, in one transaction."""
    decision = record.decision
    usage = asdict(decision.usage)
    usd = usage.pop("usd")
    common = {"agent_id": record.agent_id, "action_id": decision.action_id, "token_usage": usage}
    common |= {"attempt_number": decision.attempt, "score": decision.score, "created_at": record.decided_at}
    with store.begin() as connection:
        connection.execute(
            sa.insert(tables.gate_checks),
            common
            | {
                "decision": (decision.would or decision.action).value,
                "shadow": decision.would is not None,
                "reason": decision.reason,
                "latency_ms": decision.latency_ms,
                "usd": usd,
            },
        )
        if decision.outcome not in LOGGED or decision.score is None or decision.threshold is None:
            return
        if record.run_id is not None:
            upsert(store, connection, tables.runs, [{"id": record.run_id}], update=False)
        original, corrected = storable(decision.text), None
        if decision.outcome is not Outcome.CORRECTED and decision.attempt > 1:
            original, corrected = storable(record.first_text), original
        connection.execute(
            sa.insert(tables.correction_logs),
            common
            | {
                "run_id": record.run_id,
                "original_text": original,
                "corrected_text": corrected,
                "threshold": decision.threshold,
                "reasoning": storable(record.reasoning),
                "outcome": decision.outcome.value,
                "judge_model": record.judge_model,
            },
        )
