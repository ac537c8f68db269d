"""How alike the agents of a run write: what the report's voice map is drawn from."""

from collections.abc import Sequence
from typing import Any

from persona_pipeline.scoring.text.nearness import voice_convergence
from persona_pipeline.scoring.text.tokens import pairwise_similarity, vocabulary_stats
from persona_pipeline.scoring.text.voices import voice_map, voice_similarity
from persona_pipeline.world import World
from persona_pipeline.world.models import Window

# Pairs grow with the square of the agents; a map of more is no map.
MOST_AGENTS = 30
EARLIER_WINDOWS = 4


def voice_statistics(world: World, agent_ids: Sequence[str], window: Window) -> dict[str, Any]:
    """Return the agents' voices, where they stand on a map, and how alike each two are.

    Of each pair: vocabulary Jaccard and character n-gram cosine (0-1), and ``z``, how much nearer the two have come than they
    were in earlier windows, as a standard normal quantile. Agents without messages in the window are left out; so is everything
    when there are fewer than two or more than 30 agents.
    """
    if not 2 <= len(agent_ids) <= MOST_AGENTS:
        return {}
    spoken = _spoken(world, agent_ids, window)
    if len(spoken) < 2:
        return {}
    # Oldest first; all pairs are read off one look at the voices, which takes as long for two as for all.
    near = voice_convergence(spoken, _earlier(world, sorted(spoken), window)[::-1])
    words, characters = pairwise_similarity(spoken), voice_similarity(spoken)
    places = {point.agent_id: {"x": point.x, "y": point.y} for point in voice_map(spoken)}
    return {
        "agents": {
            agent_id: {**vars(vocabulary_stats(texts)), "messages": len(texts), **places.get(agent_id, {})}
            for agent_id, texts in spoken.items()
        },
        "pairs": [
            {
                "a": a,
                "b": b,
                "vocabulary": words[a, b],
                "characters": characters.get((a, b)),
                "z": pair.z if (pair := near.pairs.get((a, b))) else None,
            }
            for a, b in sorted(words)
        ],
    }


def _earlier(world: World, agent_ids: Sequence[str], window: Window) -> list[dict[str, list[str]]]:
    found = []
    before = window.previous()
    while before is not None and len(found) < EARLIER_WINDOWS:
        spoken = _spoken(world, agent_ids, before)
        if not spoken:
            break
        found.append(spoken)
        before = before.previous()
    return found


def _spoken(world: World, agent_ids: Sequence[str], window: Window) -> dict[str, list[str]]:
    spoken = {agent_id: [m.text for m in world.messages(window, agent_id=agent_id)] for agent_id in agent_ids}
    return {agent_id: texts for agent_id, texts in spoken.items() if texts}
