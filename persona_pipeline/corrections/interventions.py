"""Both interventions before an agent's turn, read from the store, in bounded time and never at the price of the turn."""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from persona_pipeline.base.calls import Breaker
from persona_pipeline.base.database import tables
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.corrections.background import DaemonPool
from persona_pipeline.corrections.configuration import read_config
from persona_pipeline.corrections.judgment import ClaimFiles, within
from persona_pipeline.corrections.nudges import (
    CHANNEL_WINDOW,
    OWN_HISTORY,
    AntiConvergence,
    Nudge,
    Nudges,
    RepetitionSuppression,
    catchphrases_in,
    guidance_block,
)
from persona_pipeline.corrections.records import recent_messages
from persona_pipeline.scoring.text.agreement import AgreementLexicon, world_lexicon
from persona_pipeline.scoring.text.said_again import LOOK_BACK
from persona_pipeline.world.models import Message
from persona_pipeline.world.propositions.models import FLUENCY
from persona_pipeline.world.world import World

DEADLINE_SECONDS = 1.0
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class Guidance:
    """Guidance for an agent's next turn.

    ``withheld``: nudges that are not given, as the agent's corrections only watch. ``unread``: why agreement in the channel cannot
    be read; "": it can, or it was not looked for. ``failed``: the look-up failed, so guidance is missing.
    """

    nudges: tuple[Nudge, ...] = ()
    failed: bool = False
    withheld: tuple[Nudge, ...] = ()
    unread: str = ""

    @property
    def block(self) -> str | None:
        """The text to append to the prompt of this one turn, under its heading; None when there is nothing to say."""
        return guidance_block(self.nudges)


class Interventions:
    """Anti-convergence and repetition suppression for an agent's next turn.

    Args:
        lexicon: words of agreement; by default English and the world's ``lexicons/agreement.<language>.yaml``.
        deadline: wall-clock seconds for which a turn may wait; after that it gets no guidance.

    Raises:
        ConfigError: the world's nudges or lexicons are not valid.
    """

    def __init__(
        self,
        world: World,
        *,
        lexicon: AgreementLexicon | None = None,
        deadline: float = DEADLINE_SECONDS,
    ) -> None:
        self.world: World = world
        self.deadline: float = deadline
        self._lexicon = lexicon or world_lexicon(world.root)
        self._nudges = Nudges.load(world.root)
        self._claims = ClaimFiles(world.root, FLUENCY.name)
        self._pool = DaemonPool(4, "interventions")
        self._breaker = Breaker(threshold=5)
        # Lines already logged: once per channel is enough.
        self._said: set[tuple[str | None, str]] = set()

    async def before_turn(self, agent_id: str, *, channel: str | None = None) -> Guidance:
        """Return the guidance for an agent's next turn, from the messages stored so far.

        Args:
            channel: where the agent is about to speak; None for a direct message, which is never a reason for
                a nudge.
        """
        if self._breaker.refusal():
            return Guidance(failed=True)
        ends = time.monotonic() + self.deadline
        try:
            guidance = await within(self._pool.run(lambda: self._look(agent_id, channel)), ends)
        except ConfigError as error:
            self._breaker.succeeded()
            _LOGGER.warning("no guidance for %r: %s", agent_id, error)
            return Guidance(failed=True)
        except Exception as error:
            self._breaker.failed("database", type(error).__name__)
            _LOGGER.warning("no guidance for %r: %s", agent_id, type(error).__name__)
            return Guidance(failed=True)
        self._breaker.succeeded()
        return guidance

    def before_turn_sync(self, agent_id: str, *, channel: str | None = None) -> Guidance:
        """Like ``before_turn``, for callers without an event loop."""
        return asyncio.run(self.before_turn(agent_id, channel=channel))

    def _look(self, agent_id: str, channel: str | None) -> Guidance:
        settings = read_config(self.world.store, agent_id).settings
        heard: Sequence[Message] = ()
        own: Sequence[Message] = ()
        with self.world.store.connect() as connection:
            agents = tables.agents
            name = connection.execute(sa.select(agents.c.display_name).where(agents.c.id == agent_id)).scalar()
            if settings.anti_convergence_enabled and channel is not None:
                heard = recent_messages(connection, CHANNEL_WINDOW, channel=channel)
            if settings.repetition_suppression_enabled:
                own = recent_messages(connection, LOOK_BACK, agent_id=agent_id)
        convergence = AntiConvergence(settings, nudges=self._nudges, lexicon=self._lexicon)
        suppression = RepetitionSuppression(
            settings, catchphrases=lambda agent: catchphrases_in(self._claims.of(agent)), nudges=self._nudges
        )
        repeats = suppression.find(agent_id, own)
        if repeats:
            # Only now is it worth a look whether that is usual for the agent.
            with self.world.store.connect() as connection:
                repeats = suppression.find(agent_id, recent_messages(connection, OWN_HISTORY, agent_id=agent_id))
        found = convergence.find(agent_id, heard, agent_name=name or agent_id), repeats
        nudges = tuple(nudge for nudge in found if nudge)
        unread = convergence.unread(heard) if heard else ""
        if unread and (channel, unread) not in self._said:
            self._said.add((channel, unread))
            _LOGGER.warning("anti-convergence does not watch channel %r: %s", channel, unread)
        shadow = settings.shadow_mode
        return Guidance(() if shadow else nudges, withheld=nudges if shadow else (), unread=unread)
