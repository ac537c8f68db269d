"""What a report shows beside the scores: history, voices, corrections."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from persona_pipeline.evaluation.history import score_history
from persona_pipeline.evaluation.voices import voice_statistics
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
    }
    if corrections.agents:
        sections["corrections"] = corrections.model_dump(mode="json")
    return {name: section for name, section in sections.items() if section}
