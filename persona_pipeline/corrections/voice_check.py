"""The check of a voice while agents run: asked before a message goes out, learnt behind everybody's back, never waited for."""

import logging
import time
from contextlib import suppress
from pathlib import Path

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.files import look_of
from persona_pipeline.corrections.background import DaemonPool, QueueFullError
from persona_pipeline.guard.labels.check import NoCheck, VoiceCheck, world_checks
from persona_pipeline.guard.labels.files import LABELS, VOICE

# Half of the nine points of a score: what the check calls off.
VOICE_THRESHOLD = 4.5
VOICE_FEEDBACK = (
    "Your message was not sent. It does not sound like you: people said of messages like it that they are not in your voice. "
    "Say the same in your own words and way of speaking, and send it again."
)
# A voice is told from so much of a text; more would take longer than the gate may.
_MOST_READ = 1000
_LOGGER = logging.getLogger(__name__)


class LearntChecks:
    """The checks of a world's agents, by its labels, which are looked at again after ``seconds``. Safe to share by threads."""

    def __init__(self, root: Path, *, seconds: float = 5.0) -> None:
        self._root, self._seconds = root, seconds
        self._pool = DaemonPool(1, "voice-checks")
        self._known: dict[str, tuple[str, VoiceCheck | None]] = {}
        self._looked: dict[str, float] = {}

    def score(self, agent_id: str, text: str) -> float | None:
        """Return how much a text sounds like an agent, 0-9; None: no check, or not learnt yet. Never waits or raises."""
        try:
            self._look(agent_id)
            check = self._known.get(agent_id, (None, None))[1]
            return None if check is None else 9 * check.score(text[:_MOST_READ])
        except Exception as error:
            _LOGGER.warning("the voice of %r is not checked: %s", agent_id, type(error).__name__)
            return None

    def wait(self, seconds: float = 10.0) -> bool:
        """Wait until what is being learnt is learnt; return whether that was so in time."""
        return self._pool.wait_idle(seconds)

    def _look(self, agent_id: str) -> None:
        now = time.monotonic()
        if now - self._looked.get(agent_id, -self._seconds) < self._seconds:
            return
        self._looked[agent_id] = now
        try:
            self._pool.submit(lambda: self._learn(agent_id))
        except (QueueFullError, RuntimeError):
            self._looked.pop(agent_id)

    def _learn(self, agent_id: str) -> None:
        path = self._root / LABELS / f"{VOICE}.jsonl"
        # What is wrong with the labels is for evaluate and validate to say.
        with suppress(ConfigError, OSError):
            look = look_of(path.stat()) if path.exists() else ""
            if self._known.get(agent_id, (None, None))[0] != look:
                check = world_checks(self._root, [agent_id]).get(agent_id)
                self._known[agent_id] = look, None if isinstance(check, NoCheck) else check
