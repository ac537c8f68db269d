"""What the gate did to messages on their way out, and how it is set for each agent."""

import sqlalchemy as sa

from persona_pipeline.store.tables.columns import SCHEMA, agent_column, created_at, metadata, uuid_key
from persona_pipeline.store.types import JsonColumn

correction_logs = sa.Table(
    "correction_logs",
    metadata,
    uuid_key(),
    agent_column(),
    sa.Column("run_id", sa.Uuid(), sa.ForeignKey(f"{SCHEMA}.runs.id", ondelete="SET NULL")),
    sa.Column("original_text", sa.Text(), nullable=False),
    sa.Column("corrected_text", sa.Text()),
    sa.Column("score", sa.REAL(), nullable=False),
    sa.Column("threshold", sa.REAL(), nullable=False),
    sa.Column("reasoning", sa.Text(), nullable=False),
    sa.Column("attempt_number", sa.Integer(), nullable=False),
    sa.Column("outcome", sa.Text(), nullable=False),
    sa.Column("token_usage", JsonColumn),
    created_at(),
    sa.Column("action_id", sa.Text()),
    sa.Column("judge_model", sa.Text()),
    sa.Index(None, "agent_id", "created_at"),
    sa.CheckConstraint("outcome IN ('corrected', 'passed_after_retry', 'forced_through')", name="outcome"),
    sa.CheckConstraint("score BETWEEN 0 AND 9", name="score"),
)

gate_checks = sa.Table(
    "gate_checks",
    metadata,
    uuid_key(),
    agent_column(),
    # One action is one message on its way out, over all its attempts.
    sa.Column("action_id", sa.Text(), nullable=False),
    sa.Column("attempt_number", sa.Integer(), nullable=False),
    sa.Column("decision", sa.Text(), nullable=False),
    # Why it passed without a score: disabled, timeout, api_error, database, ...; NULL for a judged one.
    sa.Column("reason", sa.Text()),
    sa.Column("score", sa.REAL()),
    sa.Column("latency_ms", sa.REAL(), nullable=False),
    sa.Column("token_usage", JsonColumn),
    sa.Column("usd", sa.Float()),
    created_at(),
    # The agent's corrections only watched: the text went out whatever stands under decision.
    sa.Column("shadow", sa.Boolean(), nullable=False, server_default=sa.false()),
    # Whether the row is part of its day's tally in gate_days.
    sa.Column("counted", sa.Boolean(), nullable=False, server_default=sa.false()),
    sa.Index(None, "agent_id", "created_at"),
    sa.Index(None, "agent_id", "action_id"),
    sa.Index(
        "ix_gate_checks_uncounted",
        "created_at",
        sqlite_where=sa.text("counted = 0"),
        postgresql_where=sa.text("NOT counted"),
    ),
    sa.CheckConstraint("score BETWEEN 0 AND 9", name="score"),
)

gate_days = sa.Table(
    "gate_days",
    metadata,
    # What an agent's gate did on one UTC day, summed up from gate_checks; an action counts where it began.
    agent_column(primary_key=True),
    sa.Column("day", sa.Date(), primary_key=True),
    sa.Column("tally", JsonColumn, nullable=False),
)

gate_bypasses = sa.Table(
    "gate_bypasses",
    metadata,
    # Texts that went out, or may have, without a row in gate_checks: refused requests, unknown agents, a gate that is off.
    uuid_key(),
    sa.Column("reason", sa.Text(), nullable=False),
    # As the request said; not necessarily an agent's.
    sa.Column("agent_id", sa.Text()),
    sa.Column("count", sa.Integer(), nullable=False),
    created_at(),
    sa.Index(None, "created_at"),
)

agent_evaluation_config = sa.Table(
    "agent_evaluation_config",
    metadata,
    uuid_key(),
    agent_column(unique=True),
    sa.Column("action_gate_enabled", sa.Boolean(), nullable=False, server_default=sa.false()),
    sa.Column("action_gate_threshold", sa.REAL(), nullable=False, server_default="5.0"),
    sa.Column("anti_convergence_enabled", sa.Boolean(), nullable=False, server_default=sa.false()),
    sa.Column("convergence_threshold", sa.REAL(), nullable=False, server_default="0.6"),
    sa.Column("repetition_suppression_enabled", sa.Boolean(), nullable=False, server_default=sa.false()),
    sa.Column("repetition_threshold", sa.REAL(), nullable=False, server_default="0.3"),
    sa.Column("max_correction_attempts", sa.Integer(), nullable=False, server_default="2"),
    sa.Column("shadow_mode", sa.Boolean(), nullable=False, server_default=sa.false()),
    created_at("updated_at"),
    # Where the row came from: 'persona' (its file) or 'api' (set by command line or service, which then wins).
    sa.Column("source", sa.Text(), nullable=False, server_default="persona"),
)
