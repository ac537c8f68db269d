"""Follows an agent's messages: an alarm when they no longer fit its voice, with what moved and since when."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from persona_pipeline.scoring.style.features import FEATURES, NEAREST_OF, STOCK
from persona_pipeline.scoring.style.model import WINDOWS, VoiceModel
from persona_pipeline.world.models import Message

# The level that raises an alarm, and the one below which the agent has its voice back.
ALARM, OVER = 1.0, 0.5
# An alarm of a short window ends only when so many messages fit again.
_FEWEST_OVER = 10
_LOOKS_BACK = max(WINDOWS)
_QUOTED, _MOST_MOVED = 3, 3
# In standard deviations of a message: less did not move, and so much nearer to stock language reads like it.
_MOVED, _LIKE_STOCK = 0.4, -1.0


@dataclass(frozen=True)
class VoiceReading:
    """One message, and how near the newest messages up to it come to an alarm: 0 to 1; 0 also where an alarm ended."""

    message: Message
    level: float
    alarm: bool


@dataclass(frozen=True)
class VoiceAlarm:
    """An agent that no longer sounds like itself.

    Attributes:
        raised_at: the message that raised the alarm; began_at: the first message that most likely belongs to the change.
        messages: the agent's messages from one to the other, both included.
        quotes: those of them that are least like the agent, worst first.
        moved: what changed, most first, in standard deviations of its messages: "longer (+2.1)".
        like: what the messages read like, such as ``a stock assistant`` or another agent's id; "" for nothing known.
    """

    agent_id: str
    raised_at: Message
    began_at: Message
    messages: int
    quotes: tuple[Message, ...]
    moved: tuple[str, ...] = ()
    like: str = ""

    @property
    def text(self) -> str:
        """The alarm as one sentence, without the quotes."""
        began, raised = self.began_at, self.raised_at
        return (
            f"{self.agent_id} has not sounded like itself since message {began.id} ({began.created_at.isoformat()})"
            f"{f', and reads like {self.like}' if self.like else ''}: {', '.join(self.moved)}; "
            f"noticed at {raised.id} after {self.messages} of its messages"
        )


@dataclass
class VoiceWatch:
    """Follows one agent's messages as they come. One change is one alarm, until the agent has its voice back."""

    model: VoiceModel
    _before: list[str] = field(default_factory=list)
    _since: list[tuple[Message, Any]] = field(default_factory=list)
    # The test and the window of the alarm that is raised.
    _raised: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        self._before = list(self.model.latest)

    def read(self, messages: Sequence[Message]) -> tuple[list[VoiceReading], list[VoiceAlarm]]:
        """Return the readings of the agent's next messages, oldest first, and the alarms they raise."""
        readings, alarms = list[VoiceReading](), list[VoiceAlarm]()
        rows = self.model.rows([message.text for message in messages], self._before) if messages else ()
        self._before = [*self._before, *(message.text for message in messages)][-NEAREST_OF:]
        levels, start = self._levels(rows), 0
        for place, (message, row) in enumerate(zip(messages, rows, strict=True)):
            self._since.append((message, row))
            level, (window, test) = (
                levels[place - start].max(),
                np.unravel_index(levels[place - start].argmax(), levels.shape[1:]),
            )
            if self._raised and self._is_over(levels[place - start]):
                self._raised, self._since = None, []
                levels, start, level = self._levels(rows[place + 1 :]), place + 1, 0.0
            elif level >= ALARM and self._raised is None:
                self._raised = int(window), int(test)
                alarms.append(self._alarm(int(test)))
            alarmed = self._raised is not None
            readings.append(VoiceReading(message, ALARM if alarmed else min(float(level), ALARM), alarmed))
        self._since = self._since[-_LOOKS_BACK:]
        return readings, alarms

    def _levels(self, rows: Any) -> Any:
        """Return the level at each of the next messages (messages x windows x tests)."""
        known = [row for _, row in self._since]
        if not len(rows):
            return np.zeros((0, len(WINDOWS), 1))
        every = np.array([*known, *rows])
        return np.stack([self.model.level(every, window) for window in WINDOWS], axis=1)[len(known) :]

    def _is_over(self, levels: Any) -> bool:
        assert self._raised is not None
        window, test = self._raised
        long = max(window, WINDOWS.index(_FEWEST_OVER))
        return bool(levels[long, test] < OVER)

    def _alarm(self, test: int) -> VoiceAlarm:
        messages, rows = [message for message, _ in self._since], np.array([row for _, row in self._since])
        # The change began where the messages since then are the least likely.
        lengths = range(WINDOWS[0], min(len(rows), _LOOKS_BACK) + 1)
        likely = [
            self.model.evidence(rows[-length:].mean(axis=0, keepdims=True), length)[0, test] for length in lengths
        ]
        length = lengths[int(np.argmax(likely))]
        messages, rows = messages[-length:], rows[-length:]
        shift = self.model.shift(rows)
        order = np.argsort(-(rows @ shift), kind="stable")[:_QUOTED]
        texts = [message.text for message in messages]
        rival = self.model.rivals[test - 2] if test >= 2 else ""
        return VoiceAlarm(
            agent_id=self.model.provenance.agent_id,
            raised_at=messages[-1],
            began_at=messages[0],
            messages=length,
            quotes=tuple(messages[place] for place in order),
            moved=tuple(moved(shift)),
            like=rival or (self.model.nearest_stock(texts) if shift[STOCK] <= _LIKE_STOCK else ""),
        )


def moved(shift: Any) -> list[str]:
    """Return what moved in words, most first, of the shifts of ``FEATURES``."""
    order = sorted(range(len(FEATURES)), key=lambda n: -abs(shift[n]))
    kept = [n for n in order if abs(shift[n]) >= _MOVED] or order[:1]
    return [f"{FEATURES[n].more if shift[n] > 0 else FEATURES[n].less} ({shift[n]:+.1f})" for n in kept[:_MOST_MOVED]]


def follow_voice(model: VoiceModel, messages: Iterable[Message]) -> tuple[list[VoiceReading], list[VoiceAlarm]]:
    """Return the readings of an agent's messages, oldest first, and the alarms they raise. Other agents' are skipped."""
    return VoiceWatch(model).read([item for item in messages if item.agent_id == model.provenance.agent_id])


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
    """An alarm, and the changes from three days before it began until it was raised: the five nearest to its beginning, nearest
    first."""

    alarm: VoiceAlarm
    changes: tuple[KnownChange, ...] = ()

    @property
    def text(self) -> str:
        """The finding in words, without quotes."""
        if not self.changes:
            return f"{self.alarm.text}; nothing is known to have changed around it"
        listed = "; ".join(f"{change.what} ({change.at.isoformat()})" for change in self.changes)
        return f"{self.alarm.text}; around it changed: {listed}"


def voice_change(alarm: VoiceAlarm, changes: Sequence[KnownChange]) -> VoiceChange:
    """Return an alarm with those of the changes, in any order, that may have caused it."""
    began, raised = alarm.began_at.created_at, alarm.raised_at.created_at
    around = [change for change in changes if began - BEFORE <= change.at <= raised]
    nearest = sorted(around, key=lambda change: (abs(began - change.at), change.what))
    return VoiceChange(alarm, tuple(nearest[:MOST_CHANGES]))
