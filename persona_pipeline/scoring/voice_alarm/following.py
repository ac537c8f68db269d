"""Holds an agent's messages against its voice, one after another: a one-sided CUSUM (Page, 1954) that knows where it began."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from persona_pipeline.scoring.voice_alarm.conversations import Conversations
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
    sum: float = 0.0
    alarmed: bool = False
    _since: list[tuple[Message, float]] = field(default_factory=list)
    _latest: deque[str] = field(default_factory=deque)
    _talks: Conversations = field(default_factory=Conversations)

    def read(self, message: Message) -> tuple[VoiceReading, VoiceAlarm | None]:
        """Return the reading of the agent's next message, and the alarm if it raises one."""
        self._latest.append(message.text)
        while len(self._latest) > self.model.stretch:
            self._latest.popleft()
        step = self.model.step(tuple(self._latest), self._talks.place(message))
        # Held at the threshold, so that an agent that has its voice back is soon believed.
        self.sum = min(max(0.0, self.sum + step), self.model.threshold)
        reading = VoiceReading(message, step, self.sum, self.sum >= self.model.threshold)
        if self.sum == 0.0:
            self.alarmed = False
            self._since.clear()
            return reading, None
        if self.alarmed:
            return reading, None
        self._since.append((message, step))
        if not reading.alarm:
            return reading, None
        self.alarmed = True
        return reading, self._alarm()

    def _alarm(self) -> VoiceAlarm:
        worst = sorted(self._since, key=lambda item: -item[1])[:_QUOTED]
        return VoiceAlarm(
            agent_id=self.model.provenance.agent_id,
            raised_at=self._since[-1][0],
            began_at=self._since[0][0],
            messages=len(self._since),
            quotes=tuple(message for message, _ in worst),
            mean_step=fmean(step for _, step in self._since),
            usual_step=self.model.reference - self.model.own_mean,
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


def most_sums(steps: Sequence[Sequence[float]]) -> list[float]:
    """Return the highest that the sum comes to over each sequence of steps."""
    highest = []
    for sequence in steps:
        total = top = 0.0
        for step in sequence:
            total = max(0.0, total + step)
            top = max(top, total)
        highest.append(top)
    return highest
