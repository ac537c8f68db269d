"""What tests of scores that leave have in common: a conversation that was traced, and an emitter that is made anew."""

from persona_pipeline.base.settings import get_settings
from persona_pipeline.base.telemetry import emitter, made_emitter
from persona_pipeline.importing.traces.messages import keep_pieces
from persona_pipeline.world import World
from tests.support.spans import chat, request
from tests.traces.test_keeping import pieces

TRACE, SPAN = f"{7:032x}", f"{2:016x}"


def traced(world: World) -> World:
    """Let Ann answer once in a conversation that comes as a trace."""
    given = {"gen_ai.agent.name": "ann", "gen_ai.conversation.id": "c", "gen_ai.response.id": "resp_9"}
    keep_pieces(world, pieces(request(chat(2, ["Tea?"], "I suppose.", trace=7, given=given))))
    return world


def forget() -> None:
    """Let settings be read and the emitter be made again."""
    get_settings.cache_clear()
    made_emitter.cache_clear()


def flush() -> None:
    """Wait until everything is sent."""
    sender = emitter(get_settings())
    assert sender is not None
    sender.close(240)
