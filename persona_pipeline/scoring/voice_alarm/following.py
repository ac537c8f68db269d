"""Holds an agent's messages against its voice, one after another: a one-sided CUSUM (Page, 1954) that knows where it began."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import fmean
from typing import Any

import numpy as np

from persona_pipeline.scoring.voice_alarm.model import VoiceModel
from persona_pipeline.world.models import Message

_QUOTED = 3


@dataclass(frozen=True)
class VoiceReading:
    """Of one message: what it adds to the sum, the sum after it (never below 0), and whether the sum is at the threshold."""

    message: Message
    step: float
    sum: float
    alarm: bool


@dataclass(frozen=True)
class VoiceAlarm:
    """An agent that no longer sounds like itself.

    Attributes:
        raised_at: the message at which the sum reached the threshold.
        began_at: the first message after the sum was last at zero: where the change most likely began.
        messages: how many of the agent's messages that took, ``began_at`` and ``raised_at`` included.
        quotes: the messages among them that are least like the agent, worst first.
        mean_step: mean of what they added to the sum; ``usual_step`` of the agent's own messages (below 0).
    """

    agent_id: str
    raised_at: Message
    began_at: Message
    messages: int
    quotes: tuple[Message, ...]
    mean_step: float
    usual_step: float

    @property
    def text(self) -> str:
        """The alarm as one sentence, without the quotes."""
        began, raised = self.began_at, self.raised_at
        return (
            f"{self.agent_id} has not sounded like itself since message {began.id} ({began.created_at.isoformat()}); "
            f"noticed at {raised.id} after {self.messages} of its messages"
        )


@dataclass
class VoiceWatch:
    """Follows one agent's messages as they come. One change is one alarm: the next can only come once the sum was at zero."""

    model: VoiceModel
    alarmed: bool = False
    _sums: list[float] = field(default_factory=list)
    # How many messages each side's sum has been above zero; what they were.
    _spells: list[int] = field(default_factory=list)
    _since: list[tuple[Message, list[float]]] = field(default_factory=list)
    _latest: deque[str] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._sums = [0.0] * len(self.model.sides)
        self._spells = [0] * len(self.model.sides)

    @property
    def sum(self) -> float:
        """The highest of the sides' sums."""
        return max(self._sums)

    def read(self, message: Message) -> tuple[VoiceReading, VoiceAlarm | None]:
        """Return the reading of the agent's next message, and the alarm if it raises one."""
        self._latest.append(message.text)
        while len(self._latest) > self.model.stretch:
            self._latest.popleft()
        steps = [float(step) for step in self.model.steps(tuple(self._latest))]
        # Held at the threshold, so that an agent that has its voice back is soon believed.
        self._sums = [
            min(max(0.0, total + step), self.model.threshold) for total, step in zip(self._sums, steps, strict=True)
        ]
        self._spells = [spell + 1 if total > 0 else 0 for spell, total in zip(self._spells, self._sums, strict=True)]
        leading = max(range(len(steps)), key=lambda side: (self._sums[side], steps[side]))
        reading = VoiceReading(message, steps[leading], self.sum, self.sum >= self.model.threshold)
        if self.sum == 0.0:
            self.alarmed = False
            self._since.clear()
            return reading, None
        if self.alarmed:
            return reading, None
        self._since = [*self._since, (message, steps)][-max(self._spells) :]
        if not reading.alarm:
            return reading, None
        self.alarmed = True
        return reading, self._alarm(leading)

    def _alarm(self, side: int) -> VoiceAlarm:
        since = [(message, steps[side]) for message, steps in self._since[-self._spells[side] :]]
        worst = sorted(since, key=lambda item: -item[1])[:_QUOTED]
        return VoiceAlarm(
            agent_id=self.model.provenance.agent_id,
            raised_at=since[-1][0],
            began_at=since[0][0],
            messages=len(since),
            quotes=tuple(message for message, _ in worst),
            mean_step=fmean(step for _, step in since),
            usual_step=self.model.sides[side].usual,
        )


def follow_voice(model: VoiceModel, messages: Iterable[Message]) -> tuple[list[VoiceReading], list[VoiceAlarm]]:
    """Return the readings of an agent's messages, oldest first, and the alarms they raise. Other agents' are passed over."""
    watch = VoiceWatch(model)
    readings: list[VoiceReading] = []
    alarms: list[VoiceAlarm] = []
    for message in messages:
        if message.agent_id == model.provenance.agent_id:
            reading, alarm = watch.read(message)
            readings.append(reading)
            if alarm:
                alarms.append(alarm)
    return readings, alarms


def highest_sums(steps: Any) -> Any:
    """Return the highest that any side's sum comes to over each sequence (sequence x message x side)."""
    totals = np.zeros((steps.shape[0], steps.shape[2]))
    highest = np.zeros(steps.shape[0])
    for number in range(steps.shape[1]):
        totals = np.maximum(0.0, totals + steps[:, number])
        highest = np.maximum(highest, totals.max(axis=1))
    return highest


# Changes this long before the first message that sounds different may have caused it.
BEFORE = timedelta(days=3)
MOST_CHANGES = 5


@dataclass(frozen=True)
class KnownChange:
    """Something that changed at a time: a commit, an edited persona, another model."""

    at: datetime
    what: str


@dataclass(frozen=True)
class VoiceChange:
    """An alarm, and the changes between three days before it began and when it was raised, the five nearest to its
    beginning, the nearest first."""

    alarm: VoiceAlarm
    changes: tuple[KnownChange, ...] = ()

    @property
    def text(self) -> str:
        """The finding in words, without quotes."""
        if not self.changes:
            return f"{self.alarm.text}; nothing is known to have changed around it"
        listed = "; ".join(f"{change.what} ({change.at.isoformat()})" for change in self.changes)
        return f"{self.alarm.text}; around it changed: {listed}"


def voice_changes(
    model: VoiceModel, messages: Sequence[Message], changes: Sequence[KnownChange] = ()
) -> list[VoiceChange]:
    """Hold an agent's messages against its voice and return what a report should say, oldest first.

    Args:
        messages: oldest first; those the voice was learnt from, and other agents', are passed over.
        changes: what is known to have changed, in any order.
    """
    fresh = [message for message in messages if message.created_at > model.provenance.until]
    _, alarms = follow_voice(model, fresh)
    return [voice_change(alarm, changes) for alarm in alarms]


def voice_change(alarm: VoiceAlarm, changes: Sequence[KnownChange]) -> VoiceChange:
    """Return an alarm with those of the changes, in any order, that may have caused it."""
    began, raised = alarm.began_at.created_at, alarm.raised_at.created_at
    around = [change for change in changes if began - BEFORE <= change.at <= raised]
    nearest = sorted(around, key=lambda change: (abs(began - change.at), change.what))
    return VoiceChange(alarm, tuple(nearest[:MOST_CHANGES]))
