"""How many of an agent's messages do not sound like it, by the check that labels of its voice train."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from persona_pipeline.guard.labels.check import CheckError, Interval, NoCheck, VoiceCheck, world_checks
from persona_pipeline.guard.labels.files import LABELS
from persona_pipeline.guard.labels.voice import load_voice_labels
from persona_pipeline.guard.report import Finding
from persona_pipeline.world.messages.store import read_messages
from persona_pipeline.world.models import Message, Window
from persona_pipeline.world.world import World

# Of an agent's newest messages so many tell of what it says that nobody labelled.
MOST_BESIDE, MOST_QUOTES, _LONGEST_QUOTE = 300, 3, 80
# A window in which surely more of the messages are off is a finding.
FAR_OFF = 0.1


@dataclass(frozen=True)
class CheckedVoice:
    """The check of an agent's voice, held against its messages of a window.

    Attributes:
        error: how often the check is wrong; None: there is no check.
        messages, called: how many messages the window has, and how many the check calls off.
        share: 95 % interval of the share (0-1) of the window's messages that are off, corrected for the check's error.
        worst: the messages called off, the least like the agent first; at most three.
    """

    agent_id: str
    check: VoiceCheck | NoCheck
    error: CheckError | None = None
    messages: int = 0
    called: int = 0
    share: Interval = (0.0, 1.0)
    worst: tuple[Message, ...] = ()

    @property
    def text(self) -> str:
        """What the check says of the window, and how far it can be believed."""
        if self.error is None or isinstance(self.check, NoCheck):
            return f"the check of its voice {self.check}"
        said = f"{self.check} {self.error}"
        if not self.messages:
            return f"no messages to check; {said}"
        low, high = self.share
        share = f"{low:.0%} to {high:.0%} of {self.messages} messages do not sound like it (95 %)"
        return f"{share}, {self.called} were called off; {said}"


def checked_voices(world: World, windows: Iterable[tuple[str, Window]]) -> dict[str, CheckedVoice]:
    """Return how the messages of agents' windows sound to the check of each; agents nobody labelled are left out.

    Raises:
        ConfigError: the world's ``labels/voice.jsonl`` does not load.
    """
    spans = dict(windows)
    found = {}
    labelled = {label.text for label in load_voice_labels(world.rules_root / LABELS)}
    for agent_id, check in world_checks(world.rules_root, list(spans)).items():
        span = spans[agent_id]
        end = min(span.end, world.horizon)
        if isinstance(check, NoCheck):
            found[agent_id] = CheckedVoice(agent_id, check)
            continue
        here = _scored(check, read_messages(world.store, Window(end, span.start), agent_id=agent_id, limit=MOST_BESIDE))
        beside = read_messages(world.store, Window(end), agent_id=agent_id, limit=MOST_BESIDE)
        error = check.error([score for score, _ in _scored(check, (m for m in beside if m.text not in labelled))])
        off = sorted((item for item in here if item[0] < 0.5), key=lambda item: item[0])
        found[agent_id] = CheckedVoice(
            *(agent_id, check, error, len(here), len(off)),
            share=error.share_off(len(off), len(here)) if here else (0.0, 1.0),
            worst=tuple(message for _, message in off[:MOST_QUOTES]),
        )
    return found


def _scored(check: VoiceCheck, messages: Iterable[Message]) -> list[tuple[float, Message]]:
    return [(check.score(message.text), message) for message in messages if message.text.strip()]


def check_findings(found: CheckedVoice) -> Sequence[Finding]:
    """Return a warning where surely more than a tenth of a window's messages do not sound like the agent."""
    if found.error is None or not found.messages or found.share[0] <= FAR_OFF:
        return ()
    quotes = ", ".join(f"{_short(message.text)!r} ({message.id})" for message in found.worst)
    return (
        Finding(
            kind="voice_check",
            message=f"{found.agent_id}: {found.text}: {quotes}",
            remedy="read them; where the check is wrong, label some of them",
            command=f"persona-pipeline label {shlex.quote(found.agent_id)} --voice",
            agent_id=found.agent_id,
        ),
    )


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE].rstrip()}…"
