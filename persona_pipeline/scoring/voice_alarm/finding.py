"""An alarm as a finding of a report: where it began, what was said, and what had changed around it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from persona_pipeline.scoring.voice_alarm.following import VoiceAlarm, follow_voice
from persona_pipeline.scoring.voice_alarm.model import VoiceModel
from persona_pipeline.world.models import Message

# Changes this long before the first message that sounds different may have caused it.
BEFORE = timedelta(days=3)
MOST_CHANGES = 5


@dataclass(frozen=True)
class Change:
    """Something that changed at a time: a commit, an edited persona, another model."""

    at: datetime
    what: str


@dataclass(frozen=True)
class VoiceChange:
    """An alarm, and the changes between three days before it began and when it was raised, the five nearest to its
    beginning, the nearest first."""

    alarm: VoiceAlarm
    changes: tuple[Change, ...] = ()

    @property
    def text(self) -> str:
        """The finding in words, without quotes."""
        if not self.changes:
            return f"{self.alarm.text}; nothing is known to have changed around it"
        listed = "; ".join(f"{change.what} ({change.at.isoformat()})" for change in self.changes)
        return f"{self.alarm.text}; around it changed: {listed}"


def voice_changes(model: VoiceModel, messages: Sequence[Message], changes: Sequence[Change] = ()) -> list[VoiceChange]:
    """Hold an agent's messages against its voice and return what a report should say, oldest first.

    Args:
        messages: oldest first; those the voice was learnt from, and other agents', are passed over.
        changes: what is known to have changed, in any order.
    """
    fresh = [message for message in messages if message.created_at > model.provenance.until]
    _, alarms = follow_voice(model, fresh)
    return [voice_change(alarm, changes) for alarm in alarms]


def voice_change(alarm: VoiceAlarm, changes: Sequence[Change]) -> VoiceChange:
    """Return an alarm with those of the changes, in any order, that may have caused it."""
    began, raised = alarm.began_at.created_at, alarm.raised_at.created_at
    around = [change for change in changes if began - BEFORE <= change.at <= raised]
    nearest = sorted(around, key=lambda change: (abs(began - change.at), change.what))
    return VoiceChange(alarm, tuple(nearest[:MOST_CHANGES]))
