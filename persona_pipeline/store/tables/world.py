"""What the world says: agents, where they speak, their messages and claims, and the windows that were judged."""

import sqlalchemy as sa

from persona_pipeline.store.tables.columns import SCHEMA, agent_column, created_at, metadata, uuid_key
from persona_pipeline.store.types import JsonColumn, UtcDateTime

agents = sa.Table(
    "agents",
    metadata,
    sa.Column("id", sa.Text(), primary_key=True),
    sa.Column("display_name", sa.Text(), nullable=False),
    # NULL: somebody who speaks but has no persona file, such as a person in a channel.
    sa.Column("persona", sa.Text()),
    sa.Column("persona_hash", sa.Text()),
    created_at("updated_at"),
)

channels = sa.Table("channels", metadata, sa.Column("id", sa.Text(), primary_key=True), created_at())

runs = sa.Table("runs", metadata, uuid_key(), created_at())

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
    # What its source calls the agent and the recipient, where that is an alias; NULL: as they are called here.
    sa.Column("speaker", sa.Text()),
    sa.Column("addressee", sa.Text()),
    created_at(),
    sa.Index(None, "agent_id", "created_at"),
    sa.Index(None, "channel_id", "created_at"),
    sa.Index(None, "created_at"),
    sa.Index(None, "recipient_id"),
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
    sa.Column("path", sa.Text(), primary_key=True),
    sa.Column("content_hash", sa.Text(), nullable=False),
    sa.Column("problems", JsonColumn),
    created_at("updated_at"),
)

proposition_sets = sa.Table(
    "proposition_sets",
    metadata,
    agent_column(primary_key=True),
    sa.Column("dimension", sa.Text(), primary_key=True),
    sa.Column("content_hash", sa.Text(), nullable=False),
    # NULL: the dimension has no propositions for this agent.
    sa.Column("content", JsonColumn),
    created_at("updated_at"),
)

message_windows = sa.Table(
    "message_windows",
    metadata,
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

voice_models = sa.Table(
    "voice_models",
    metadata,
    agent_column(primary_key=True),
    sa.Column("persona_hash", sa.Text(), nullable=False),
    # Messages up to here belong to an earlier persona.
    sa.Column("since", UtcDateTime()),
    # NULL while there is too little to learn from.
    sa.Column("model", JsonColumn),
    created_at("updated_at"),
)
