"""What a report shows beside the scores: history, voices, corrections, suites."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from persona_pipeline.evaluation.history import score_history
from persona_pipeline.evaluation.voices import voice_statistics
from persona_pipeline.store import Store, tables
from persona_pipeline.world import World
from persona_pipeline.world.models import Window


def report_sections(
    world: World, agent_ids: Sequence[str], window: Window, *, since: datetime | None = None
) -> dict[str, Any]:
    """Return the report's statistics by section; a section that has nothing to say is left out."""
    from persona_pipeline.corrections.statistics import correction_statistics

    corrections = correction_statistics(world.store, window, agent_ids=agent_ids)
    sections: dict[str, Any] = {
        "history": score_history(world.store, agent_ids, until=window.end, since=since),
        "voice_map": voice_statistics(world, agent_ids, window),
        "suites": _suite_summaries(world.store),
    }
    if corrections.agents:
        sections["corrections"] = corrections.model_dump(mode="json")
    return {name: section for name, section in sections.items() if section}


def _suite_summaries(store: Store) -> list[dict[str, Any]]:
    with store.connect() as connection:
        if connection.execute(sa.select(tables.suite_runs.c.id).limit(1)).first() is None:
            return []
    # Here, because loading the suites takes a quarter of a second that few runs need.
    from persona_pipeline.suites.results.storage import latest_suite_summaries

    return latest_suite_summaries(store)
