"""Repetition suppression: when an agent's last messages repeat one another, it is told which phrases to leave out."""

import json
from collections.abc import Callable, Sequence

from persona_pipeline.corrections.anti_convergence import SettingsOf
from persona_pipeline.corrections.guidance import Intervention, Nudge, guidance_block
from persona_pipeline.propositions.models import Catchphrase
from persona_pipeline.scoring.text.repetition import Repetition, excessive_repetition, find_repetition
from persona_pipeline.world.models import CorrectionSettings, Message

WINDOW = 5
_MOST_PHRASES = 8
_MOST_CHARACTERS = 200

CatchphrasesOf = Callable[[str], Sequence[Catchphrase]]


class RepetitionSuppression:
    """Looks for repetition in an agent's last five messages. No judge, no database, nothing remembered.

    Args:
        settings: of all agents, or a function from an agent's id, such as ``StoredSettings``.
        catchphrases: an agent's; by default none is exempt.
    """

    def __init__(
        self, settings: CorrectionSettings | SettingsOf, *, catchphrases: CatchphrasesOf | None = None
    ) -> None:
        self._settings_of: SettingsOf = settings if callable(settings) else lambda _: settings
        self._catchphrases_of = catchphrases or (lambda _: ())

    def check(self, agent_id: str, messages: Sequence[Message | str]) -> str | None:
        """Return the block to append to the agent's prompt for its next turn, or None.

        Args:
            messages: oldest first, from all channels; the agent's own last five count (texts are taken to be
                its own).
        """
        found = self.find(agent_id, messages)
        return guidance_block([found]) if found and not self._settings_of(agent_id).shadow_mode else None

    def measure(self, agent_id: str, messages: Sequence[Message | str]) -> Repetition:
        """Return how far the agent's last messages repeat one another, too much or not."""
        return find_repetition(_own(agent_id, messages), self._catchphrases_of(agent_id))

    def find(self, agent_id: str, messages: Sequence[Message | str]) -> Nudge | None:
        """Return the nudge behind the block, with the share of repetition (which an opener, phrase or copy does not need)."""
        settings = self._settings_of(agent_id)
        if not settings.repetition_suppression_enabled:
            return None
        latest = _own(agent_id, messages)
        catchphrases = self._catchphrases_of(agent_id)
        repetition = excessive_repetition(latest, settings.repetition_threshold, catchphrases)
        if repetition is None:
            return None
        return Nudge(
            Intervention.REPETITION, _text(repetition, latest), repetition.share, settings.repetition_threshold
        )


def _own(agent_id: str, messages: Sequence[Message | str]) -> list[str]:
    own = [m if isinstance(m, str) else m.text for m in messages if isinstance(m, str) or m.agent_id == agent_id]
    return own[-WINDOW:]


def _text(repetition: Repetition, messages: Sequence[str]) -> str:
    count = len(messages)
    lines = [
        "Your last messages repeat themselves. Say what you have to say in new words, and leave these phrases out:"
    ]
    lines += [f'- "{_cut(item.phrase)}" (in {item.messages} of {count})' for item in repetition.phrases[:_MOST_PHRASES]]
    if repetition.openers:
        lines.append("Begin differently from:")
        lines += [f'- "{_cut(item.phrase)} ..." (begins {item.messages} of {count})' for item in repetition.openers]
    lines.append("What you wrote last, oldest first:")
    lines += [f"- {json.dumps(_cut(message), ensure_ascii=False)}" for message in messages]
    return "\n".join(lines)


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 3]}..."
