"""Anti-convergence and repetition suppression over stored messages: what each found before an agent's turn. No judge is asked."""

from collections.abc import Callable, Sequence

from sqlalchemy.engine import Connection

from persona_pipeline.corrections import anti_convergence, repetition
from persona_pipeline.corrections.anti_convergence import AntiConvergence
from persona_pipeline.corrections.history import recent_agent_messages, recent_channel_messages
from persona_pipeline.corrections.interventions import Catchphrases
from persona_pipeline.corrections.repetition import RepetitionSuppression
from persona_pipeline.corrections.replay.known import Known
from persona_pipeline.corrections.replay.measured import Measured
from persona_pipeline.corrections.replay.models import Correction
from persona_pipeline.scoring.text.agreement import world_lexicon
from persona_pipeline.world.models import CorrectionSettings, Message
from persona_pipeline.world.world import World

# What is found before a turn, of the messages that are looked at; None: nothing is looked at.
_Look = Callable[[Connection, Message], tuple[Sequence[Message], float | None, bool]]


def measured_turns(
    world: World, correction: Correction, agent_id: str, messages: Sequence[Message], known: Known
) -> list[Measured | None]:
    """Return, for each message of an agent, what the correction found before it was written; None: it looked at nothing.

    A turn is good if all that was looked at and is the agent's own is known to be good, and bad if one of it is bad. It stands
    apart if it has no message in common with an earlier one that does.
    """
    look = _convergence(world) if correction is Correction.ANTI_CONVERGENCE else _repetition(world, agent_id)
    used: set[str] = set()
    found: list[Measured | None] = []
    with world.store.connect() as connection:
        for message in messages:
            seen, value, anyway = look(connection, message)
            if value is None:
                found.append(None)
                continue
            ids = {item.id for item in seen}
            apart = used.isdisjoint(ids)
            if apart:
                used |= ids
            found.append(Measured(value, anyway, _of_turn([known.is_good(item) for item in seen]), apart))
    return found


def _convergence(world: World) -> _Look:
    rule = AntiConvergence(CorrectionSettings(), lexicon=world_lexicon(world.root))

    def look(connection: Connection, message: Message) -> tuple[Sequence[Message], float | None, bool]:
        if message.channel is None:
            return (), None, False
        before = (message.created_at, message.id)
        seen = recent_channel_messages(connection, message.channel, anti_convergence.WINDOW, before)
        return seen, rule.ratio(seen), False

    return look


def _repetition(world: World, agent_id: str) -> _Look:
    rule = RepetitionSuppression(CorrectionSettings(), catchphrases=Catchphrases(world.root).of)

    def look(connection: Connection, message: Message) -> tuple[Sequence[Message], float | None, bool]:
        seen = recent_agent_messages(connection, agent_id, repetition.WINDOW, (message.created_at, message.id))
        if len(seen) < 2:
            return seen, None, False
        found = rule.measure(agent_id, seen)
        return seen, found.share, bool(found.reasons)

    return look


def _of_turn(known: Sequence[bool | None]) -> bool | None:
    if any(item is False for item in known):
        return False
    return True if known and all(known) else None
