"""What the world says: agents, where they speak, their claims, and the windows that were judged."""

import sqlalchemy as sa

from persona_pipeline.store.tables.columns import agent_column, created_at, metadata, uuid_key
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
