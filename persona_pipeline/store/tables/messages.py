"""What agents said, which files it came from and how far they were read, and how much of it there is."""

import sqlalchemy as sa

from persona_pipeline.store.tables.columns import SCHEMA, agent_column, created_at, metadata
from persona_pipeline.store.types import JsonColumn, UtcDateTime

run_messages = sa.Table(
    "run_messages",
    metadata,
    sa.Column("id", sa.Text(), primary_key=True),
    agent_column(),
    sa.Column("channel_id", sa.Text(), sa.ForeignKey(f"{SCHEMA}.channels.id", ondelete="CASCADE")),
    sa.Column("recipient_id", sa.Text()),
    sa.Column("text", sa.Text(), nullable=False),
    sa.Column("run_id", sa.Uuid(), sa.ForeignKey(f"{SCHEMA}.runs.id", ondelete="SET NULL")),
    sa.Column("synthetic", sa.Boolean(), nullable=False, server_default=sa.false()),
    # The file it came from, one of the world's relative to it; NULL when the agents' runtime wrote it.
    sa.Column("source", sa.Text()),
    # Where it stands in that file, and the number of the reading that found it there; NULL: nobody knows.
    sa.Column("line", sa.Integer()),
    sa.Column("reading", sa.Integer()),
    # What its source calls the agent and the recipient, where that is an alias; NULL: as they are called here.
    sa.Column("speaker", sa.Text()),
    sa.Column("addressee", sa.Text()),
    # What else its source says of it. Not JSONB, which writes numbers in another way than they were read.
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

removed_messages = sa.Table(
    "removed_messages",
    metadata,
    # Messages a person took out: as long as their files say the same of them, they stay out.
    sa.Column("id", sa.Text(), primary_key=True),
    sa.Column("content_hash", sa.Text(), nullable=False),
    created_at(),
)

message_sources = sa.Table(
    "message_sources",
    metadata,
    # How far each of the world's message files has been read: `content_hash` is that of its first `size` bytes, `lines` lines.
    sa.Column("path", sa.Text(), primary_key=True),
    sa.Column("content_hash", sa.Text(), nullable=False),
    sa.Column("problems", JsonColumn),
    created_at("updated_at"),
    # NULL: read whole by a release that did not note how far.
    sa.Column("size", sa.BigInteger()),
    sa.Column("lines", sa.Integer(), nullable=False, server_default="0"),
    # The file as it looked when it was read to its end; NULL: it was not.
    sa.Column("seen", sa.Text()),
    # Counts the times it was read from its start; what an earlier one found and the last did not is gone from the file.
    sa.Column("reading", sa.Integer(), nullable=False, server_default="0"),
    sa.Column("unfinished", sa.Boolean(), nullable=False, server_default=sa.false()),
)

message_copies = sa.Table(
    "message_copies",
    metadata,
    # Ids that stand in a file too and whose message comes from another: it is read again when that one lets go of them.
    sa.Column("id", sa.Text(), primary_key=True),
    sa.Column("path", sa.Text(), primary_key=True),
    sa.Index(None, "path"),
)

message_changes = sa.Table(
    "message_changes",
    metadata,
    # Whose messages of which day were written, edited or removed since they were counted. Triggers write it, whoever wrote them.
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), sa.Identity(), primary_key=True),
    sa.Column("agent_id", sa.Text(), nullable=False),
    sa.Column("day", sa.Date(), nullable=False),
    sa.Index(None, "agent_id", "day"),
)

message_days = sa.Table(
    "message_days",
    metadata,
    # What an agent said on a UTC day: how many messages, and the sum of their digests modulo 2**63.
    sa.Column("agent_id", sa.Text(), primary_key=True),
    sa.Column("day", sa.Date(), primary_key=True),
    sa.Column("messages", sa.Integer(), nullable=False),
    sa.Column("digest", sa.BigInteger(), nullable=False),
)

message_totals = sa.Table(
    "message_totals",
    metadata,
    # The sums over an agent's days, and what of them changed outside every window it was evaluated on.
    sa.Column("agent_id", sa.Text(), primary_key=True),
    sa.Column("messages", sa.BigInteger(), nullable=False),
    sa.Column("digest", sa.BigInteger(), nullable=False),
    sa.Column("newest", UtcDateTime()),
    sa.Column("unjudged_messages", sa.BigInteger(), nullable=False, server_default="0"),
    sa.Column("unjudged_digest", sa.BigInteger(), nullable=False, server_default="0"),
)
