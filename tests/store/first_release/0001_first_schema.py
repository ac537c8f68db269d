"""The first schema: spec/2 with provenance columns."""

import sqlalchemy as sa
from alembic import op

from persona_pipeline.base.database.tables import JsonColumn, TextArray, UtcDateTime, random_uuid

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "agents",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("display_name", sa.Text(), nullable=False),
        sa.Column("persona", sa.Text(), nullable=True),
        sa.Column("persona_hash", sa.Text(), nullable=True),
        sa.Column("updated_at", UtcDateTime(), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_agents")),
        schema="persona",
    )
    op.create_table(
        "channels",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("created_at", UtcDateTime(), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_channels")),
        schema="persona",
    )
    op.create_table(
        "judge_batches",
        sa.Column("id", sa.Uuid(), server_default=random_uuid(), nullable=False),
        sa.Column("batch_id", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), server_default="submitting", nullable=False),
        sa.Column("requests", JsonColumn, nullable=False),
        sa.Column("summary", JsonColumn, nullable=True),
        sa.Column("created_at", UtcDateTime(), server_default=sa.func.now(), nullable=False),
        sa.Column("ended_at", UtcDateTime(), nullable=True),
        sa.CheckConstraint(
            "status IN ('submitting', 'submitted', 'collected', 'failed')", name=op.f("ck_judge_batches_status")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_judge_batches")),
        sa.UniqueConstraint("batch_id", name=op.f("uq_judge_batches_batch_id")),
        schema="persona",
    )
    op.create_table(
        "judgments",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("subject_key", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=True),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("prompt_version", sa.Text(), nullable=False),
        sa.Column("answer", JsonColumn, nullable=False),
        sa.Column("token_usage", JsonColumn, nullable=True),
        sa.Column("usd", sa.Float(), nullable=True),
        sa.Column("created_at", UtcDateTime(), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_judgments")),
        schema="persona",
    )
    op.create_index(op.f("ix_judgments_subject_key"), "judgments", ["subject_key"], unique=False, schema="persona")
    op.create_table(
        "message_sources",
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("content_hash", sa.Text(), nullable=False),
        sa.Column("problems", JsonColumn, nullable=True),
        sa.Column("updated_at", UtcDateTime(), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("path", name=op.f("pk_message_sources")),
        schema="persona",
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.Uuid(), server_default=random_uuid(), nullable=False),
        sa.Column("created_at", UtcDateTime(), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
        schema="persona",
    )
    op.create_table(
        "suite_runs",
        sa.Column("id", sa.Uuid(), server_default=random_uuid(), nullable=False),
        sa.Column("suite", sa.Text(), nullable=False),
        sa.Column("suite_hash", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=True),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("score", sa.Float(), nullable=True),
        sa.Column("result", JsonColumn, nullable=False),
        sa.Column("created_at", UtcDateTime(), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_suite_runs")),
        schema="persona",
    )
    op.create_index(
        op.f("ix_suite_runs_suite_created_at"), "suite_runs", ["suite", "created_at"], unique=False, schema="persona"
    )
    op.create_table(
        "agent_evaluation_config",
        sa.Column("id", sa.Uuid(), server_default=random_uuid(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("action_gate_enabled", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("action_gate_threshold", sa.REAL(), server_default="5.0", nullable=False),
        sa.Column("anti_convergence_enabled", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("convergence_threshold", sa.REAL(), server_default="0.6", nullable=False),
        sa.Column("repetition_suppression_enabled", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("repetition_threshold", sa.REAL(), server_default="0.3", nullable=False),
        sa.Column("max_correction_attempts", sa.Integer(), server_default="2", nullable=False),
        sa.Column("updated_at", UtcDateTime(), server_default=sa.func.now(), nullable=False),
        sa.Column("source", sa.Text(), server_default="persona", nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["persona.agents.id"], name=op.f("fk_agent_evaluation_config_agent_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_agent_evaluation_config")),
        sa.UniqueConstraint("agent_id", name=op.f("uq_agent_evaluation_config_agent_id")),
        schema="persona",
    )
    op.create_table(
        "correction_logs",
        sa.Column("id", sa.Uuid(), server_default=random_uuid(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Uuid(), nullable=True),
        sa.Column("original_text", sa.Text(), nullable=False),
        sa.Column("corrected_text", sa.Text(), nullable=True),
        sa.Column("score", sa.REAL(), nullable=False),
        sa.Column("threshold", sa.REAL(), nullable=False),
        sa.Column("reasoning", sa.Text(), nullable=False),
        sa.Column("attempt_number", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("token_usage", JsonColumn, nullable=True),
        sa.Column("created_at", UtcDateTime(), server_default=sa.func.now(), nullable=False),
        sa.Column("action_id", sa.Text(), nullable=True),
        sa.Column("judge_model", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "outcome IN ('corrected', 'passed_after_retry', 'forced_through')", name=op.f("ck_correction_logs_outcome")
        ),
        sa.CheckConstraint("score BETWEEN 0 AND 9", name=op.f("ck_correction_logs_score")),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["persona.agents.id"], name=op.f("fk_correction_logs_agent_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["run_id"], ["persona.runs.id"], name=op.f("fk_correction_logs_run_id"), ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_correction_logs")),
        schema="persona",
    )
    op.create_index(
        op.f("ix_correction_logs_agent_id_created_at"),
        "correction_logs",
        ["agent_id", "created_at"],
        unique=False,
        schema="persona",
    )
    op.create_table(
        "evaluation_runs",
        sa.Column("id", sa.Uuid(), server_default=random_uuid(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), server_default="pending", nullable=False),
        sa.Column("dimensions", TextArray, nullable=False),
        sa.Column("window_start", UtcDateTime(), nullable=True),
        sa.Column("window_end", UtcDateTime(), nullable=True),
        sa.Column("sample_size", sa.Integer(), nullable=False),
        sa.Column("overall_score", sa.REAL(), nullable=True),
        sa.Column("is_baseline", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("token_usage", JsonColumn, nullable=True),
        sa.Column("created_at", UtcDateTime(), server_default=sa.func.now(), nullable=False),
        sa.Column("completed_at", UtcDateTime(), nullable=True),
        sa.Column("persona_hash", sa.Text(), nullable=True),
        sa.Column("messages_hash", sa.Text(), nullable=True),
        sa.Column("judge", sa.Text(), nullable=True),
        sa.Column("judge_model", sa.Text(), nullable=True),
        sa.Column("prompt_version", sa.Text(), nullable=True),
        sa.Column("synthetic", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("result", JsonColumn, nullable=True),
        sa.CheckConstraint(
            "status IN ('pending', 'running', 'completed', 'failed')", name=op.f("ck_evaluation_runs_status")
        ),
        sa.CheckConstraint("overall_score BETWEEN 0 AND 9", name=op.f("ck_evaluation_runs_overall_score")),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["persona.agents.id"], name=op.f("fk_evaluation_runs_agent_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_evaluation_runs")),
        schema="persona",
    )
    op.create_index(
        op.f("ix_evaluation_runs_agent_id_created_at"),
        "evaluation_runs",
        ["agent_id", "created_at"],
        unique=False,
        schema="persona",
    )
    op.create_table(
        "gate_checks",
        sa.Column("id", sa.Uuid(), server_default=random_uuid(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("action_id", sa.Text(), nullable=False),
        sa.Column("attempt_number", sa.Integer(), nullable=False),
        sa.Column("decision", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("score", sa.REAL(), nullable=True),
        sa.Column("latency_ms", sa.REAL(), nullable=False),
        sa.Column("token_usage", JsonColumn, nullable=True),
        sa.Column("usd", sa.Float(), nullable=True),
        sa.Column("created_at", UtcDateTime(), server_default=sa.func.now(), nullable=False),
        sa.CheckConstraint("score BETWEEN 0 AND 9", name=op.f("ck_gate_checks_score")),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["persona.agents.id"], name=op.f("fk_gate_checks_agent_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_gate_checks")),
        schema="persona",
    )
    op.create_index(
        op.f("ix_gate_checks_agent_id_created_at"),
        "gate_checks",
        ["agent_id", "created_at"],
        unique=False,
        schema="persona",
    )
    op.create_table(
        "message_windows",
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("window_start", UtcDateTime(), nullable=True),
        sa.Column("window_end", UtcDateTime(), nullable=False),
        sa.Column("messages_hash", sa.Text(), nullable=False),
        sa.Column("sample_size", sa.Integer(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), server_default=sa.func.now(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["persona.agents.id"], name=op.f("fk_message_windows_agent_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("agent_id", name=op.f("pk_message_windows")),
        schema="persona",
    )
    op.create_table(
        "proposition_sets",
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("dimension", sa.Text(), nullable=False),
        sa.Column("content_hash", sa.Text(), nullable=False),
        sa.Column("content", JsonColumn, nullable=True),
        sa.Column("updated_at", UtcDateTime(), server_default=sa.func.now(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["persona.agents.id"], name=op.f("fk_proposition_sets_agent_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("agent_id", "dimension", name=op.f("pk_proposition_sets")),
        schema="persona",
    )
    op.create_table(
        "run_messages",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("channel_id", sa.Text(), nullable=True),
        sa.Column("recipient_id", sa.Text(), nullable=True),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Uuid(), nullable=True),
        sa.Column("synthetic", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("source", sa.Text(), nullable=True),
        sa.Column("created_at", UtcDateTime(), server_default=sa.func.now(), nullable=False),
        sa.CheckConstraint(
            "(channel_id IS NULL) <> (recipient_id IS NULL)", name=op.f("ck_run_messages_channel_or_recipient")
        ),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["persona.agents.id"], name=op.f("fk_run_messages_agent_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["channel_id"], ["persona.channels.id"], name=op.f("fk_run_messages_channel_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["run_id"], ["persona.runs.id"], name=op.f("fk_run_messages_run_id"), ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run_messages")),
        schema="persona",
    )
    op.create_index(
        op.f("ix_run_messages_agent_id_created_at"),
        "run_messages",
        ["agent_id", "created_at"],
        unique=False,
        schema="persona",
    )
    op.create_index(
        op.f("ix_run_messages_channel_id_created_at"),
        "run_messages",
        ["channel_id", "created_at"],
        unique=False,
        schema="persona",
    )
    op.create_index(op.f("ix_run_messages_created_at"), "run_messages", ["created_at"], unique=False, schema="persona")
    op.create_table(
        "baseline_comparisons",
        sa.Column("evaluation_run_id", sa.Uuid(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("regressed", sa.Boolean(), nullable=False),
        sa.Column("comparison", JsonColumn, nullable=False),
        sa.Column("findings", JsonColumn, nullable=False),
        sa.Column("updated_at", UtcDateTime(), server_default=sa.func.now(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["persona.agents.id"], name=op.f("fk_baseline_comparisons_agent_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["evaluation_run_id"],
            ["persona.evaluation_runs.id"],
            name=op.f("fk_baseline_comparisons_evaluation_run_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("evaluation_run_id", name=op.f("pk_baseline_comparisons")),
        schema="persona",
    )
    op.create_index(
        op.f("ix_baseline_comparisons_agent_id"), "baseline_comparisons", ["agent_id"], unique=False, schema="persona"
    )
    op.create_table(
        "evaluation_scores",
        sa.Column("id", sa.Uuid(), server_default=random_uuid(), nullable=False),
        sa.Column("evaluation_run_id", sa.Uuid(), nullable=False),
        sa.Column("dimension", sa.Text(), nullable=False),
        sa.Column("proposition_id", sa.Text(), nullable=False),
        sa.Column("score", sa.REAL(), nullable=True),
        sa.Column("raw", sa.REAL(), nullable=True),
        sa.Column("unscored_reason", sa.Text(), nullable=True),
        sa.Column("reasoning", sa.Text(), nullable=False),
        sa.Column("context_snippet", sa.Text(), nullable=True),
        sa.Column("created_at", UtcDateTime(), server_default=sa.func.now(), nullable=False),
        sa.Column("proposition_set_hash", sa.Text(), nullable=True),
        sa.Column("input_hash", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "(score IS NULL) <> (unscored_reason IS NULL)", name=op.f("ck_evaluation_scores_scored_or_unscored")
        ),
        sa.CheckConstraint("raw BETWEEN 0 AND 9", name=op.f("ck_evaluation_scores_raw")),
        sa.CheckConstraint("score BETWEEN 0 AND 9", name=op.f("ck_evaluation_scores_score")),
        sa.ForeignKeyConstraint(
            ["evaluation_run_id"],
            ["persona.evaluation_runs.id"],
            name=op.f("fk_evaluation_scores_evaluation_run_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_evaluation_scores")),
        sa.UniqueConstraint(
            "evaluation_run_id",
            "dimension",
            "proposition_id",
            name=op.f("uq_evaluation_scores_evaluation_run_id_dimension_proposition_id"),
        ),
        schema="persona",
    )
    op.create_index(
        op.f("ix_evaluation_scores_evaluation_run_id_dimension"),
        "evaluation_scores",
        ["evaluation_run_id", "dimension"],
        unique=False,
        schema="persona",
    )


def downgrade() -> None:
    op.drop_index(
        op.f("ix_evaluation_scores_evaluation_run_id_dimension"), table_name="evaluation_scores", schema="persona"
    )
    op.drop_table("evaluation_scores", schema="persona")
    op.drop_index(op.f("ix_baseline_comparisons_agent_id"), table_name="baseline_comparisons", schema="persona")
    op.drop_table("baseline_comparisons", schema="persona")
    op.drop_index(op.f("ix_run_messages_created_at"), table_name="run_messages", schema="persona")
    op.drop_index(op.f("ix_run_messages_channel_id_created_at"), table_name="run_messages", schema="persona")
    op.drop_index(op.f("ix_run_messages_agent_id_created_at"), table_name="run_messages", schema="persona")
    op.drop_table("run_messages", schema="persona")
    op.drop_table("proposition_sets", schema="persona")
    op.drop_table("message_windows", schema="persona")
    op.drop_index(op.f("ix_gate_checks_agent_id_created_at"), table_name="gate_checks", schema="persona")
    op.drop_table("gate_checks", schema="persona")
    op.drop_index(op.f("ix_evaluation_runs_agent_id_created_at"), table_name="evaluation_runs", schema="persona")
    op.drop_table("evaluation_runs", schema="persona")
    op.drop_index(op.f("ix_correction_logs_agent_id_created_at"), table_name="correction_logs", schema="persona")
    op.drop_table("correction_logs", schema="persona")
    op.drop_table("agent_evaluation_config", schema="persona")
    op.drop_index(op.f("ix_suite_runs_suite_created_at"), table_name="suite_runs", schema="persona")
    op.drop_table("suite_runs", schema="persona")
    op.drop_table("runs", schema="persona")
    op.drop_table("message_sources", schema="persona")
    op.drop_index(op.f("ix_judgments_subject_key"), table_name="judgments", schema="persona")
    op.drop_table("judgments", schema="persona")
    op.drop_table("judge_batches", schema="persona")
    op.drop_table("channels", schema="persona")
    op.drop_table("agents", schema="persona")
