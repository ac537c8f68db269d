"""How alike the agents of a run write: what the report's voice map is drawn from."""

from typing import Any

from persona_pipeline.scoring.text.vocabulary import pairwise_similarity, vocabulary_stats
from persona_pipeline.scoring.text.voice import voice_similarity
from persona_pipeline.world import World
from persona_pipeline.world.models import Window

# Pairs grow with the square of the agents; a map of more is no map.
MOST_AGENTS = 30


def voice_statistics(world: World, agent_ids: list[str], window: Window) -> dict[str, Any]:
    """Return the agents' voices and how alike each two are: vocabulary Jaccard and character n-gram cosine, 0-1.

    Agents without messages in the window are left out; so is everything when there are fewer than two or more than 30 agents.
    """
    if not 2 <= len(agent_ids) <= MOST_AGENTS:
        return {}
    spoken = {agent_id: [m.text for m in world.messages(window, agent_id=agent_id)] for agent_id in agent_ids}
    spoken = {agent_id: texts for agent_id, texts in spoken.items() if texts}
    if len(spoken) < 2:
        return {}
    words, characters = pairwise_similarity(spoken), voice_similarity(spoken)
    return {
        "agents": {
            agent_id: {**vars(vocabulary_stats(texts)), "messages": len(texts)} for agent_id, texts in spoken.items()
        },
        "pairs": [
            {"a": a, "b": b, "vocabulary": words[a, b], "characters": characters.get((a, b))} for a, b in sorted(words)
        ],
    }
