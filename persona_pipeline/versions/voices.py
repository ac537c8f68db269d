"""What changed around an alarm about an agent's voice, which no judge is needed for."""

from persona_pipeline.errors import ConfigError
from persona_pipeline.evaluation.read import resolve_window
from persona_pipeline.evaluation.voice import voice_state
from persona_pipeline.world import World

NOTHING = "nothing is known to have changed around it: it may be the model that answers, which no file tells"


def voice_lines(world: World, agent_id: str) -> tuple[str, ...]:
    """Return, for each alarm of the newest week, what caused it as far as it is known; nothing where the voice was never learnt."""
    try:
        world.sync_persona(agent_id)
        world.sync_messages()
        state = voice_state(world, agent_id, resolve_window(world, "7d", None))
    except ConfigError:
        # Without a persona, or a message, it has no voice.
        return ()
    found = []
    for alarm in state.alarms:
        changes = [change.what for change in alarm.changes]
        if not changes:
            cause = NOTHING
        elif len(changes) == 1:
            cause = f"one thing changed around it: {changes[0]}"
        else:
            cause = f"cannot tell which: {len(changes)} things changed around it: {'; '.join(changes)}"
        found.append(f"{alarm.alarm.text}; {cause}")
    return tuple(found)
