"""The world that traces come into."""

import pytest
import sqlalchemy as sa

from persona_pipeline.base.database import tables
from persona_pipeline.world import World


@pytest.fixture
def world(opened: World) -> World:
    """A world in which nothing was said."""
    with opened.store.begin() as connection:
        for table in (tables.run_messages, tables.trace_pieces, tables.removed_messages):
            connection.execute(sa.delete(table))
    return opened
