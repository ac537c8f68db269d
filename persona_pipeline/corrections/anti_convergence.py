"""Anti-convergence: when a channel has been agreeing with itself, the next speaker is nudged back to its own voice."""

from collections.abc import Callable, Sequence

from persona_pipeline.corrections.guidance import Intervention, Nudge, guidance_block
from persona_pipeline.corrections.nudges import Nudges
from persona_pipeline.scoring.text.agreement import AgreementLexicon, agreement_ratio, no_lexicon, unread_language
from persona_pipeline.world.models import CorrectionSettings, Message

WINDOW = 10

SettingsOf = Callable[[str], CorrectionSettings]


class AntiConvergence:
    """Looks for agreement in the last ten messages of a channel. No judge, no database, nothing remembered.

    Args:
        settings: of all agents, or a function from an agent's id, such as ``StoredSettings``.
        nudges: by default the texts that come with the package.
        lexicon: by default English.
    """

    def __init__(
        self,
        settings: CorrectionSettings | SettingsOf,
        *,
        nudges: Nudges | None = None,
        lexicon: AgreementLexicon | None = None,
    ) -> None:
        self._settings_of: SettingsOf = settings if callable(settings) else lambda _: settings
        self._nudges = nudges or Nudges.load()
        self._lexicon = lexicon

    def nudge(self, agent_id: str, messages: Sequence[Message | str], *, agent_name: str = "") -> str | None:
        """Return the block to append to the agent's prompt for its next turn, or None.

        Args:
            messages: of one channel, oldest first; the last ten count. Direct messages never lead to a nudge.
        """
        found = self.find(agent_id, messages, agent_name=agent_name)
        return guidance_block([found]) if found and not self._settings_of(agent_id).shadow_mode else None

    def ratio(self, messages: Sequence[Message | str]) -> float | None:
        """Return the share (0-1) of agreeing messages that the threshold is held against; None: there is nothing to look at."""
        latest = messages[-WINDOW:]
        if not latest or any(_is_direct(message) for message in latest) or self.unread(messages):
            return None
        return agreement_ratio([_text(message) for message in latest], self._lexicon)

    def unread(self, messages: Sequence[Message | str]) -> str:
        """Return why agreement in the last ten messages of a channel cannot be read, so that it never fires; "": it can."""
        language = unread_language([_text(message) for message in messages[-WINDOW:]], self._lexicon)
        return no_lexicon(language) if language else ""

    def find(self, agent_id: str, messages: Sequence[Message | str], *, agent_name: str = "") -> Nudge | None:
        """Return the nudge behind the block, with the agreement ratio that led to it."""
        settings = self._settings_of(agent_id)
        ratio = self.ratio(messages) if settings.anti_convergence_enabled else None
        if ratio is None or not ratio > settings.convergence_threshold:
            return None
        latest = messages[-WINDOW:]
        variables = {"agent_name": agent_name or agent_id}
        channels = {message.channel for message in latest if isinstance(message, Message)}
        if len(channels) == 1 and (channel := channels.pop()) is not None:
            variables["channel_name"] = channel
        text = self._nudges.choose(agent_id, _text(latest[-1]), variables=variables)
        return Nudge(Intervention.ANTI_CONVERGENCE, text, ratio, settings.convergence_threshold)


def _text(message: Message | str) -> str:
    return message if isinstance(message, str) else message.text


def _is_direct(message: Message | str) -> bool:
    return isinstance(message, Message) and message.is_direct
