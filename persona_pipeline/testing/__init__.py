"""For tests of your own: judges that answer what you say, a server that speaks the Messages API, worlds piece by piece."""

from persona_pipeline.testing.judges import ScriptedJudge
from persona_pipeline.testing.messages_server import (
    ANSWER,
    Call,
    Cut,
    Hang,
    MessagesServer,
    Reply,
    Reset,
    Trickle,
    message,
    status,
    verdicts,
)
from persona_pipeline.testing.worlds import WorldBuilder, write_small_world

__all__ = [
    "ANSWER",
    "Call",
    "Cut",
    "Hang",
    "MessagesServer",
    "Reply",
    "Reset",
    "ScriptedJudge",
    "Trickle",
    "WorldBuilder",
    "message",
    "status",
    "verdicts",
    "write_small_world",
]
