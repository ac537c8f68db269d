"""The tables (spec/2), with provenance columns. Migrations are written against these."""

from persona_pipeline.store.tables.columns import SCHEMA, metadata
from persona_pipeline.store.tables.corrections import (
    agent_evaluation_config,
    correction_logs,
    gate_bypasses,
    gate_checks,
    gate_days,
)
from persona_pipeline.store.tables.evaluations import (
    evaluation_runs,
    evaluation_scores,
    judge_batches,
    judgments,
    suite_runs,
)
from persona_pipeline.store.tables.messages import (
    message_changes,
    message_copies,
    message_days,
    message_sources,
    message_totals,
    removed_messages,
    run_messages,
    trace_pieces,
)
from persona_pipeline.store.tables.work import evaluations_asked, leases, remembered, spending_days
from persona_pipeline.store.tables.world import (
    agents,
    channels,
    message_windows,
    proposition_sets,
    runs,
    voice_models,
)

__all__ = [
    "SCHEMA",
    "agent_evaluation_config",
    "agents",
    "channels",
    "correction_logs",
    "evaluation_runs",
    "evaluation_scores",
    "evaluations_asked",
    "gate_bypasses",
    "gate_checks",
    "gate_days",
    "judge_batches",
    "judgments",
    "leases",
    "message_changes",
    "message_copies",
    "message_days",
    "message_sources",
    "message_totals",
    "message_windows",
    "metadata",
    "proposition_sets",
    "remembered",
    "removed_messages",
    "run_messages",
    "runs",
    "spending_days",
    "suite_runs",
    "trace_pieces",
    "voice_models",
]
