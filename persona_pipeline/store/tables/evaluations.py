"""What was judged: runs with their scores, the suites' runs, judgments and batches of them."""

import sqlalchemy as sa

from persona_pipeline.store.tables.columns import SCHEMA, agent_column, created_at, metadata, uuid_key
from persona_pipeline.store.types import JsonColumn, TextArray, UtcDateTime

evaluation_runs = sa.Table(
    "evaluation_runs",
    metadata,
    uuid_key(),
    agent_column(),
    sa.Column("status", sa.Text(), nullable=False, server_default="pending"),
    sa.Column("dimensions", TextArray, nullable=False),
    sa.Column("window_start", UtcDateTime()),
    sa.Column("window_end", UtcDateTime()),
    sa.Column("sample_size", sa.Integer(), nullable=False),
    sa.Column("overall_score", sa.REAL()),
    sa.Column("is_baseline", sa.Boolean(), nullable=False, server_default=sa.false()),
    sa.Column("token_usage", JsonColumn),
    created_at(),
    sa.Column("completed_at", UtcDateTime()),
    # Provenance; `result` is the evaluation as JSON, exact where REAL is not.
    sa.Column("persona_hash", sa.Text()),
    sa.Column("messages_hash", sa.Text()),
    sa.Column("judge", sa.Text()),
    sa.Column("judge_model", sa.Text()),
    sa.Column("prompt_version", sa.Text()),
    sa.Column("synthetic", sa.Boolean(), nullable=False, server_default=sa.false()),
    # NULL: forgotten, as old runs are when a setting says so; the columns below stay.
    sa.Column("result", JsonColumn),
    # `result` without claims and their reasons: what a page of many agents says of each (evaluation.history).
    sa.Column("outline", JsonColumn),
    # Adherence of single messages, by id, where claims judge them one by one; what fades in long conversations is read off it.
    sa.Column("message_scores", JsonColumn),
    # What a history is drawn from, exact and short: overall and dimension scores, how they were judged (evaluation.history.Point).
    sa.Column("summary", JsonColumn),
    # Every dimension the agent has propositions of is in it.
    sa.Column("whole", sa.Boolean(), nullable=False, server_default=sa.true()),
    # The comparison with the baseline and its findings, as evaluation.report.AgentReport without the evaluation.
    sa.Column("regressed", sa.Boolean()),
    sa.Column("comparison", JsonColumn),
    sa.Column("findings", JsonColumn),
    sa.Index(None, "agent_id", "created_at"),
    # All that is asked of every run to find the newest: documents are long, and on SQLite a column behind one is read through it.
    sa.Index(
        "ix_evaluation_runs_newest",
        "agent_id",
        "window_end",
        "whole",
        "completed_at",
        "id",
        "status",
        "synthetic",
        "overall_score",
    ),
    sa.CheckConstraint("status IN ('pending', 'running', 'completed', 'failed')", name="status"),
    sa.CheckConstraint("overall_score BETWEEN 0 AND 9", name="overall_score"),
)

evaluation_scores = sa.Table(
    "evaluation_scores",
    metadata,
    uuid_key(),
    sa.Column(
        "evaluation_run_id",
        sa.Uuid(),
        sa.ForeignKey(f"{SCHEMA}.evaluation_runs.id", ondelete="CASCADE"),
        nullable=False,
    ),
    sa.Column("dimension", sa.Text(), nullable=False),
    sa.Column("proposition_id", sa.Text(), nullable=False),
    sa.Column("score", sa.REAL()),
    sa.Column("raw", sa.REAL()),
    sa.Column("unscored_reason", sa.Text()),
    sa.Column("reasoning", sa.Text(), nullable=False),
    sa.Column("context_snippet", sa.Text()),
    created_at(),
    sa.Column("proposition_set_hash", sa.Text()),
    sa.Column("input_hash", sa.Text()),
    sa.Index(None, "evaluation_run_id", "dimension"),
    sa.UniqueConstraint("evaluation_run_id", "dimension", "proposition_id"),
    sa.CheckConstraint("(score IS NULL) <> (unscored_reason IS NULL)", name="scored_or_unscored"),
    sa.CheckConstraint("score BETWEEN 0 AND 9", name="score"),
    sa.CheckConstraint("raw BETWEEN 0 AND 9", name="raw"),
)

suite_runs = sa.Table(
    "suite_runs",
    metadata,
    uuid_key(),
    sa.Column("suite", sa.Text(), nullable=False),
    sa.Column("suite_hash", sa.Text(), nullable=False),
    sa.Column("target", sa.Text()),
    sa.Column("verdict", sa.Text(), nullable=False),
    sa.Column("score", sa.Float()),
    sa.Column("result", JsonColumn, nullable=False),
    created_at(),
    sa.Index(None, "suite", "created_at"),
)

judgments = sa.Table(
    "judgments",
    metadata,
    # SHA-256 of the whole request, endpoint, API version, prompt version and sample.
    sa.Column("key", sa.Text(), primary_key=True),
    sa.Column("subject_key", sa.Text(), nullable=False),
    sa.Column("kind", sa.Text(), nullable=False),
    sa.Column("agent_id", sa.Text()),
    sa.Column("model", sa.Text(), nullable=False),
    sa.Column("prompt_version", sa.Text(), nullable=False),
    sa.Column("answer", JsonColumn, nullable=False),
    sa.Column("token_usage", JsonColumn),
    sa.Column("usd", sa.Float()),
    created_at(),
    sa.Index(None, "subject_key"),
)

judge_batches = sa.Table(
    "judge_batches",
    metadata,
    uuid_key(),
    # NULL until the API has answered the submission.
    sa.Column("batch_id", sa.Text(), unique=True),
    sa.Column("status", sa.Text(), nullable=False, server_default="submitting"),
    sa.Column("requests", JsonColumn, nullable=False),
    sa.Column("summary", JsonColumn),
    created_at(),
    sa.Column("ended_at", UtcDateTime()),
    sa.CheckConstraint("status IN ('submitting', 'submitted', 'collected', 'failed')", name="status"),
)
