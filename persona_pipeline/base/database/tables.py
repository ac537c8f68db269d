"""The tables (spec/2), with provenance columns, and the types of their columns. Migrations are written against these."""

import uuid
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.elements import Grouping
from sqlalchemy.sql.functions import GenericFunction

JsonColumn = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
TextArray = sa.JSON().with_variant(ARRAY(sa.Text()), "postgresql")


class UtcDateTime(sa.TypeDecorator[datetime]):
    """``timestamptz``; SQLite keeps UTC. Naive times are refused, so that no machine's zone slips in."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Any) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"time {value} has no offset")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Any) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class gen_random_uuid(GenericFunction[uuid.UUID]):  # noqa: N801 - reads as the SQL function it is
    """The server's own random uuid, as a column default."""

    type = sa.Uuid()
    inherit_cache = True


@compiles(gen_random_uuid, "sqlite")
def _sqlite_uuid(element: Any, compiler: Any, **options: Any) -> str:
    return "(lower(hex(randomblob(16))))"


# The revision of the tables. A new column, table or index needs a new one; ``schema.py`` adds them to existing stores.
HEAD = "0017"
SCHEMA = "persona"
# On Postgres the tables have a separate schema, since Dagster has a `runs` table too. For SQLite engine.py maps it away.
metadata = sa.MetaData(
    schema=SCHEMA,
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    },
)


def _table(name: str, *parts: sa.schema.SchemaItem) -> sa.Table:
    return sa.Table(name, metadata, *parts)


def _columns(kind: Any, *names: str, **options: Any) -> list[sa.Column]:
    return [sa.Column(name, kind, **options) for name in names]


def _flags(*names: str) -> list[sa.Column]:
    return _columns(sa.Boolean(), *names, nullable=False, server_default=sa.false())


def uuid_key() -> sa.Column[uuid.UUID]:
    return sa.Column("id", sa.Uuid(), primary_key=True, default=uuid.uuid4, server_default=gen_random_uuid())


def created_at(name: str = "created_at") -> sa.Column:
    return sa.Column(name, UtcDateTime(), nullable=False, server_default=sa.func.now())


def agent_column(foreign_key: str | None = None, **options: Any) -> sa.Column[str]:
    refers = sa.ForeignKey(f"{SCHEMA}.agents.id", name=foreign_key, ondelete="CASCADE")
    return sa.Column("agent_id", sa.Text(), refers, nullable=False, **options)


def run_column(**options: Any) -> sa.Column[uuid.UUID]:
    refers = sa.ForeignKey(f"{SCHEMA}.evaluation_runs.id", ondelete="CASCADE")
    return sa.Column("evaluation_run_id", sa.Uuid(), refers, nullable=False, **options)


agents = _table(
    "agents",
    sa.Column("id", sa.Text(), primary_key=True),
    sa.Column("display_name", sa.Text(), nullable=False),
    # NULL: a speaker without a persona file, such as a person in a channel.
    sa.Column("persona", sa.Text()),
    sa.Column("persona_hash", sa.Text()),
    created_at("updated_at"),
)

channels = _table("channels", sa.Column("id", sa.Text(), primary_key=True), created_at())

runs = _table("runs", uuid_key(), created_at())

message_windows = _table(
    "message_windows",
    # Every window an agent was evaluated on. Bounds never move: a later evaluation adds a row, and the newest is "now".
    sa.Column("id", sa.Uuid(), primary_key=True),
    agent_column(),
    sa.Column("window_start", UtcDateTime()),
    sa.Column("window_end", UtcDateTime(), nullable=False),
    # When messages in it came, changed or went after it was evaluated; NULL: they did not.
    sa.Column("touched_at", UtcDateTime()),
    created_at("updated_at"),
    sa.Index(None, "agent_id", "window_end"),
    sa.Index(None, "window_end"),
)

voice_models = _table(
    "voice_models",
    agent_column(sa.schema.conv("fk_voice_models_agent_id_agents"), primary_key=True),
    sa.Column("persona_hash", sa.Text(), nullable=False),
    # Messages up to here belong to an earlier persona.
    sa.Column("since", UtcDateTime()),
    # The voice as it was learnt, with those of earlier personas: ``scoring.style.monitor.LearntVoice``.
    sa.Column("model", JsonColumn),
    created_at("updated_at"),
)


def said_alike(text: sa.ColumnElement[str]) -> dict[str, sa.ColumnElement[str]]:
    """Return how a line begins and how it ends, by which others that begin or end so are found.

    The numbers are literals: of parameters no database knows that its index is meant.
    """
    one, most, rest = map(sa.literal_column, ("1", "16", "15"))
    ending = sa.func.substr(text, sa.func.length(text) - rest)
    return {
        "opening": sa.func.substr(text, one, most),
        "ending": Grouping(sa.case((sa.func.length(text) > most, ending), else_=text)),
    }


run_messages = _table(
    "run_messages",
    sa.Column("id", sa.Text(), primary_key=True),
    agent_column(),
    sa.Column("channel_id", sa.Text(), sa.ForeignKey(f"{SCHEMA}.channels.id", ondelete="CASCADE")),
    sa.Column("recipient_id", sa.Text()),
    sa.Column("text", sa.Text(), nullable=False),
    sa.Column("run_id", sa.Uuid(), sa.ForeignKey(f"{SCHEMA}.runs.id", ondelete="SET NULL")),
    sa.Column("synthetic", sa.Boolean(), nullable=False, server_default=sa.false()),
    # The file it came from, one of the world's relative to it; NULL when the agents' runtime wrote it.
    sa.Column("source", sa.Text()),
    # Its line in that file, and the number of the reading that found it there; NULL: not known.
    sa.Column("line", sa.Integer()),
    sa.Column("reading", sa.Integer()),
    # Names of the agent and the recipient in the source, where they are aliases; NULL: the same names as here.
    sa.Column("speaker", sa.Text()),
    sa.Column("addressee", sa.Text()),
    # Further fields of the source. Not JSONB, which changes how numbers are written.
    sa.Column("extras", sa.JSON(none_as_null=True)),
    created_at(),
    sa.Index(None, "agent_id", "created_at"),
    sa.Index(None, "channel_id", "created_at"),
    sa.Index(None, "created_at"),
    sa.Index(None, "recipient_id"),
    sa.Index(None, "source"),
    *(
        sa.Index(
            None,
            name,
            named,
            sqlite_where=sa.text(f"{name} IS NOT NULL"),
            postgresql_where=sa.text(f"{name} IS NOT NULL"),
        )
        for name, named in (("speaker", "agent_id"), ("addressee", "recipient_id"))
    ),
    sa.CheckConstraint("(channel_id IS NULL) <> (recipient_id IS NULL)", name="channel_or_recipient"),
)
for _name, _part in said_alike(run_messages.c.text).items():
    sa.Index(f"ix_run_messages_{_name}", _part, run_messages.c.created_at)

removed_messages = _table(
    "removed_messages",
    # Messages a person took out: as long as their files say the same of them, they stay out.
    sa.Column("id", sa.Text(), primary_key=True),
    sa.Column("content_hash", sa.Text(), nullable=False),
    created_at(),
)

message_sources = _table(
    "message_sources",
    # How far each of the world's message files has been read: `content_hash` is that of its first `size` bytes, `lines` lines.
    sa.Column("path", sa.Text(), primary_key=True),
    sa.Column("content_hash", sa.Text(), nullable=False),
    sa.Column("problems", JsonColumn),
    created_at("updated_at"),
    # NULL: not read yet, or by a release that did not note how far.
    sa.Column("size", sa.BigInteger()),
    sa.Column("lines", sa.Integer(), nullable=False, server_default="0"),
    # The digest of the whole file that was read to its end; NULL: it was not.
    sa.Column("seen", sa.Text()),
    # Number of readings from its start. Messages that the last reading did not find are gone from the file.
    sa.Column("reading", sa.Integer(), nullable=False, server_default="0"),
)

message_changes = _table(
    "message_changes",
    # A row for each time that a message was written, edited or removed, until it is counted. Triggers write it.
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), sa.Identity(), primary_key=True),
    sa.Column("agent_id", sa.Text(), nullable=False),
    sa.Column("said_at", UtcDateTime(), nullable=False),
)

message_revisions = _table(
    "message_revisions",
    # How often what an agent said has changed, without changes outside every window it was evaluated on.
    sa.Column("agent_id", sa.Text(), primary_key=True),
    sa.Column("revision", sa.BigInteger(), nullable=False),
)

trace_pieces = _table(
    "trace_pieces",
    # Spans and events about conversations, each once; kept until no more of a trace is expected.
    *_columns(sa.Text(), "trace_id", "span_id", "key", primary_key=True),
    sa.Column("piece", JsonColumn, nullable=False),
    created_at("received_at"),
    sa.Index(None, "received_at"),
)

evaluation_runs = _table(
    "evaluation_runs",
    uuid_key(),
    agent_column(),
    sa.Column("status", sa.Text(), nullable=False, server_default="pending"),
    sa.Column("dimensions", TextArray, nullable=False),
    *_columns(UtcDateTime(), "window_start", "window_end", "completed_at"),
    sa.Column("sample_size", sa.Integer(), nullable=False),
    sa.Column("overall_score", sa.REAL()),
    *_flags("is_baseline", "synthetic"),
    sa.Column("token_usage", JsonColumn),
    created_at(),
    # Provenance; `result` is the evaluation as JSON, exact where REAL is not.
    *_columns(sa.Text(), "persona_hash", "messages_hash", "judge", "judge_model", "prompt_version"),
    # NULL: forgotten, as old runs are when a setting says so; the columns below stay.
    sa.Column("result", JsonColumn),
    # `result` without claims and their reasons, for pages with all agents (evaluation.history).
    sa.Column("outline", JsonColumn),
    # What a history is drawn from, exact and short: overall and dimension scores, how they were judged (evaluation.history.Point).
    sa.Column("summary", JsonColumn),
    # Every dimension the agent has propositions of is in it.
    sa.Column("whole", sa.Boolean(), nullable=False, server_default=sa.true()),
    # The comparison with the baseline and its findings, as evaluation.report.AgentReport without the evaluation.
    sa.Column("regressed", sa.Boolean()),
    *_columns(JsonColumn, "comparison", "findings"),
    # guard.report.Conclusion, as it was decided. NULL: decided before release 0.3, or not decided yet.
    sa.Column("verdict", JsonColumn),
    sa.Index(None, "agent_id", "created_at"),
    # All that is asked of every run to find the newest: documents are long, and on SQLite a column behind one is read through it.
    sa.Index(
        "ix_evaluation_runs_newest",
        *("agent_id", "window_end", "whole", "completed_at", "id", "status", "synthetic", "overall_score"),
    ),
    sa.CheckConstraint("status IN ('pending', 'running', 'completed', 'failed')", name="status"),
    sa.CheckConstraint("overall_score BETWEEN 0 AND 9", name="overall_score"),
)

evaluation_scores = _table(
    "evaluation_scores",
    uuid_key(),
    run_column(),
    *_columns(sa.Text(), "dimension", "proposition_id", "reasoning", nullable=False),
    *_columns(sa.REAL(), "score", "raw"),
    *_columns(sa.Text(), "unscored_reason", "context_snippet", "proposition_set_hash", "input_hash"),
    created_at(),
    sa.Index(None, "evaluation_run_id", "dimension"),
    sa.UniqueConstraint("evaluation_run_id", "dimension", "proposition_id"),
    sa.CheckConstraint("(score IS NULL) <> (unscored_reason IS NULL)", name="scored_or_unscored"),
    sa.CheckConstraint("score BETWEEN 0 AND 9", name="score"),
    sa.CheckConstraint("raw BETWEEN 0 AND 9", name="raw"),
)

message_verdicts = _table(
    "message_verdicts",
    # Whether a message is in character, as a run found it.
    run_column(primary_key=True),
    sa.Column("message_id", sa.Text(), primary_key=True),
    agent_column(sa.schema.conv("fk_message_verdicts_agent_id_agents")),
    # Its place and when it began.
    sa.Column("conversation", sa.Text(), nullable=False),
    sa.Column("said_at", UtcDateTime(), nullable=False),
    *_columns(sa.Text(), "verdict", "quote", "reason", nullable=False),
    sa.Column("claims", TextArray, nullable=False),
    *_columns(sa.Text(), "judge_model", "prompt_version"),
    sa.Index(None, "agent_id", "said_at"),
    sa.CheckConstraint("verdict IN ('in', 'out', 'unclear')", name="verdict"),
)

suite_runs = _table(
    "suite_runs",
    uuid_key(),
    *_columns(sa.Text(), "suite", "suite_hash", "verdict", nullable=False),
    sa.Column("target", sa.Text()),
    sa.Column("score", sa.Float()),
    sa.Column("result", JsonColumn, nullable=False),
    created_at(),
    sa.Index(None, "suite", "created_at"),
)

judgments = _table(
    "judgments",
    # SHA-256 of the whole request, endpoint, API version, prompt version and sample.
    sa.Column("key", sa.Text(), primary_key=True),
    *_columns(sa.Text(), "subject_key", "kind", "model", "prompt_version", nullable=False),
    sa.Column("agent_id", sa.Text()),
    sa.Column("answer", JsonColumn, nullable=False),
    sa.Column("token_usage", JsonColumn),
    sa.Column("usd", sa.Float()),
    created_at(),
    sa.Index(None, "subject_key"),
)

judge_batches = _table(
    "judge_batches",
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

correction_logs = _table(
    "correction_logs",
    uuid_key(),
    agent_column(),
    sa.Column("run_id", sa.Uuid(), sa.ForeignKey(f"{SCHEMA}.runs.id", ondelete="SET NULL")),
    *_columns(sa.Text(), "original_text", "reasoning", "outcome", nullable=False),
    *_columns(sa.Text(), "corrected_text", "action_id", "judge_model"),
    *_columns(sa.REAL(), "score", "threshold", nullable=False),
    sa.Column("attempt_number", sa.Integer(), nullable=False),
    sa.Column("token_usage", JsonColumn),
    created_at(),
    sa.Index(None, "agent_id", "created_at"),
    sa.CheckConstraint("outcome IN ('corrected', 'passed_after_retry', 'forced_through')", name="outcome"),
    sa.CheckConstraint("score BETWEEN 0 AND 9", name="score"),
)

gate_checks = _table(
    "gate_checks",
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
    # The agent's corrections only watched: the text was sent whatever the decision.
    sa.Column("shadow", sa.Boolean(), nullable=False, server_default=sa.false()),
    sa.Index(None, "agent_id", "created_at"),
    sa.Index(None, "agent_id", "action_id"),
    sa.CheckConstraint("score BETWEEN 0 AND 9", name="score"),
)

gate_bypasses = _table(
    "gate_bypasses",
    # Texts that went out, or may have, without a row in gate_checks: refused requests, unknown agents, a gate that is off.
    uuid_key(),
    sa.Column("reason", sa.Text(), nullable=False),
    # As the request said; not necessarily an agent's.
    sa.Column("agent_id", sa.Text()),
    sa.Column("count", sa.Integer(), nullable=False),
    created_at(),
    sa.Index(None, "created_at"),
)

agent_evaluation_config = _table(
    "agent_evaluation_config",
    uuid_key(),
    agent_column(unique=True),
    *_flags("action_gate_enabled", "anti_convergence_enabled", "repetition_suppression_enabled", "shadow_mode"),
    sa.Column("action_gate_threshold", sa.REAL(), nullable=False, server_default="5.0"),
    sa.Column("convergence_threshold", sa.REAL(), nullable=False, server_default="0.6"),
    sa.Column("repetition_threshold", sa.REAL(), nullable=False, server_default="0.3"),
    sa.Column("max_correction_attempts", sa.Integer(), nullable=False, server_default="2"),
    created_at("updated_at"),
    # Where the row came from: 'persona' (its file) or 'api' (set by command line or service, which then wins).
    sa.Column("source", sa.Text(), nullable=False, server_default="persona"),
)

remembered = _table(
    "remembered",
    # Short facts about the store itself: what its names were brought in line with, and its last full count.
    sa.Column("name", sa.Text(), primary_key=True),
    sa.Column("value", JsonColumn),
    created_at("updated_at"),
)

spending_days = _table(
    "spending_days",
    # US dollars all live judges together spent or set aside on a UTC day.
    sa.Column("day", sa.Date(), primary_key=True),
    sa.Column("usd", sa.Float(), nullable=False, server_default="0"),
)

evaluations_asked = _table(
    "evaluations_asked",
    # When a sensor, on whatever host, last asked for an agent's evaluation.
    sa.Column("agent_id", sa.Text(), primary_key=True),
    sa.Column("asked_at", UtcDateTime(), nullable=False),
)
