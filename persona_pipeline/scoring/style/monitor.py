"""Monitor of an agent's messages: raises an alarm when they no longer fit its voice. The store keeps learnt voices."""

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError
from sqlalchemy.engine import Connection

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store, among, upsert
from persona_pipeline.scoring.style.features import FEATURES, NEAREST_OF
from persona_pipeline.scoring.style.model import WINDOWS, VoiceModel, learn_voice
from persona_pipeline.scoring.text.tokens import tokenize
from persona_pipeline.world.models import Message, Persona

# The level that raises an alarm, and the level below which the alarm ends.
ALARM, OVER = 1.0, 0.5
# An alarm of a short window ends only after this number of messages fit again.
_FEWEST_OVER = 10
_LOOKS_BACK = max(WINDOWS)
_QUOTED, _MOST_MOVED = 3, 3
# Smallest reported shift, in standard deviations of a message.
_MOVED = 0.4


@dataclass(frozen=True)
class VoiceReading:
    """A message, and the alarm level of the newest messages up to it: 0 to 1; also 0 where an alarm ended."""

    message: Message
    level: float


@dataclass(frozen=True)
class VoiceAlarm:
    """An agent that no longer sounds like itself.

    Attributes:
        raised_at: the message that raised the alarm; began_at: the first message that most likely belongs to the change.
        messages: number of the agent's messages from ``began_at`` to ``raised_at``, inclusive.
        quotes: the messages least like the agent, worst first.
        moved: the largest changes first, in standard deviations of its messages: "longer (+2.1)".
        like: the voice that the messages resemble, such as ``a stock assistant`` or another agent's id; "": unknown.
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

    @property
    def facts(self) -> dict[str, Any]:
        """The alarm as plain JSON."""

        def moment(message: Message) -> dict[str, str]:
            return {"id": message.id, "created_at": message.created_at.isoformat()}

        return {
            "agent_id": self.agent_id,
            "began_at": moment(self.began_at),
            "raised_at": moment(self.raised_at),
            "messages": self.messages,
            "quotes": [{"id": message.id, "text": message.text} for message in self.quotes],
            "moved": list(self.moved),
            "like": self.like,
        }


@dataclass
class VoiceWatch:
    """Follows the messages of an agent. A change raises one alarm, until the agent has its voice back."""

    model: VoiceModel
    _before: list[str] = field(default_factory=list)
    _since: list[tuple[Message, Any]] = field(default_factory=list)
    # Window and test of the current alarm, and the number of messages before it can end.
    _raised: tuple[int, int] | None = None
    _until_end: int = 0

    def __post_init__(self) -> None:
        self._before = list(self.model.latest)

    def read(self, messages: Sequence[Message]) -> tuple[list[VoiceReading], list[VoiceAlarm]]:
        """Return the readings of the agent's next messages, oldest first, and the alarms they raise."""
        readings, alarms = list[VoiceReading](), list[VoiceAlarm]()
        if not self.model.limits or not messages:
            return [VoiceReading(message, 0.0) for message in messages], alarms
        rows = self.model.rows([message.text for message in messages], self._before)
        self._before = [*self._before, *(message.text for message in messages)][-NEAREST_OF:]
        levels, start = self._levels(rows), 0
        for place, (message, row) in enumerate(zip(messages, rows, strict=True)):
            self._since.append((message, row))
            here = levels[place - start]
            level, (window, test) = here.max(), np.unravel_index(here.argmax(), here.shape)
            self._until_end -= 1
            if self._raised and self._until_end <= 0 and here[self._raised] < OVER:
                self._raised, self._since = None, []
                levels, start, level = self._levels(rows[place + 1 :]), place + 1, 0.0
            elif level >= ALARM and self._raised is None:
                ends = max(int(window), WINDOWS.index(_FEWEST_OVER))
                self._raised, self._until_end = (ends, int(test)), WINDOWS[ends]
                alarms.append(self._alarm(WINDOWS[window]))
            readings.append(VoiceReading(message, ALARM if self._raised else min(float(level), ALARM)))
        self._since = self._since[-_LOOKS_BACK:]
        return readings, alarms

    def _levels(self, rows: Any) -> Any:
        """Return the level at each of the next messages (messages x windows x tests)."""
        known = [row for _, row in self._since]
        if not len(rows):
            return np.zeros((0, len(WINDOWS), 1))
        every = np.array([*known, *rows])
        return np.stack([self.model.level(every, window) for window in WINDOWS], axis=1)[len(known) :]

    def _alarm(self, window: int) -> VoiceAlarm:
        since = self._since[-_LOOKS_BACK:]
        messages, rows = [message for message, _ in since], np.array([row for _, row in since])
        shift = self.model.shift(rows[-window:])
        # 0 like its own messages, 1 like the newest; the change began where messages became more like the newest.
        changed = (rows @ shift - self.model.mean @ shift) / (shift @ shift)
        length = int(np.cumsum(changed[::-1] - 0.5).argmax()) + 1
        messages, changed, shift = messages[-length:], changed[-length:], self.model.shift(rows[-length:])
        order = np.argsort(-changed, kind="stable")[:_QUOTED]
        return VoiceAlarm(
            agent_id=self.model.provenance.agent_id,
            raised_at=messages[-1],
            began_at=messages[0],
            messages=length,
            quotes=tuple(messages[place] for place in order),
            moved=tuple(moved(shift)),
            like=self.model.nearest([message.text for message in messages]),
        )


def moved(shift: Any) -> list[str]:
    """Return the largest of the shifts of ``FEATURES`` in words, largest first."""
    order = sorted(range(len(FEATURES)), key=lambda n: -abs(shift[n]))
    kept = [n for n in order if abs(shift[n]) >= _MOVED] or order[:1]
    return [f"{FEATURES[n].more if shift[n] > 0 else FEATURES[n].less} ({shift[n]:+.1f})" for n in kept[:_MOST_MOVED]]


def follow_voice(model: VoiceModel, messages: Iterable[Message]) -> tuple[list[VoiceReading], list[VoiceAlarm]]:
    """Return the readings of an agent's messages, oldest first, and the alarms they raise. Other agents' are skipped."""
    return VoiceWatch(model).read([item for item in messages if item.agent_id == model.provenance.agent_id])


_TABLE = tables.voice_models
# A persona keeps its voice if at most this share of its words changes. On six personas of 70 to 250 words: five misspelt words are
# up to .07, a moved sentence .06 (at most .23), half of the text at least .32, another persona .76.
_MENDED = 0.2
_MOST_FORMER = 3


@dataclass(frozen=True)
class LearntVoice:
    """An agent's voice with its persona and history.

    Attributes:
        model: None while there are too few messages to learn from.
        since: messages up to this time belong to an earlier persona and are not used; None: all count.
        note: a note for the user, such as that the voice is being learnt again; empty without one.
        persona: the text at its start.
        former: voices of earlier personas, latest first; ``left``: time of the newest message when this voice was replaced.
    """

    agent_id: str
    persona_hash: str
    model: VoiceModel | None
    since: datetime | None = None
    note: str = ""
    persona: str = ""
    former: tuple["LearntVoice", ...] = ()
    left: datetime | None = None

    @property
    def follows_from(self) -> datetime | None:
        """Messages after this time are compared with the voice; None: all."""
        starts = [self.since, self.model.provenance.until if self.model else None]
        return max((start for start in starts if start), default=None)


def stored_voice(store: Store, agent_id: str) -> LearntVoice | None:
    """Return the stored voice of an agent; None when there is none, or when this version cannot read it."""
    return stored_voices(store, [agent_id]).get(agent_id)


def stored_voices(store: Store, agent_ids: Collection[str]) -> dict[str, LearntVoice]:
    """Return the stored voices of agents, by agent; see ``stored_voice``."""
    with store.connect() as connection:
        rows = connection.execute(sa.select(_TABLE).where(among(_TABLE.c.agent_id, agent_ids))).all()
    found = {}
    for row in rows:
        with suppress(ValidationError):
            found[row.agent_id] = _stored().validate_python(row.model)
    return found


@cache
def _stored() -> TypeAdapter[LearntVoice]:
    return TypeAdapter(LearntVoice)


def current_voice(known: LearntVoice | None, persona: Persona, newest: datetime | None) -> LearntVoice:
    """Return the voice of an agent's current persona.

    A persona with a small edit keeps its voice, a restored persona gets its earlier voice back, and a new one starts over.

    Args:
        known: the stored voice.
        newest: time of the newest message; messages up to then belong to the earlier persona.
    """
    name, own_hash = persona.agent_id, persona.hash
    if known is None:
        return LearntVoice(name, own_hash, None, persona=persona.persona)
    if known.persona_hash == own_hash:
        return known
    candidates = [known, *known.former]
    matched = (
        SequenceMatcher(None, tokenize(c.persona), tokenize(persona.persona), autojunk=False) for c in candidates
    )
    shares = [1 - found.ratio() for found in matched]
    share, nearest = min(zip(shares, candidates, strict=True), key=lambda item: item[0])
    if share > _MENDED:
        note = f"the persona of {name} has changed: its voice is learnt anew from what it says from now on"
        nearest = LearntVoice(name, own_hash, None, newest or known.since, persona=persona.persona)
    elif nearest is known:
        note = f"the persona of {name} was mended ({share:.0%} of its words): it keeps its voice"
        return replace(known, persona_hash=own_hash, note=note)
    else:
        note = f"the persona of {name} is as it was before: its earlier voice goes on"
        # Messages in between, if any, belong to another persona.
        nearest = replace(nearest, since=nearest.since if newest == nearest.left else newest, left=None)
    left = replace(known, former=(), left=newest)
    former = [item for item in (left, *known.former) if item.model is not None and item.persona != nearest.persona]
    return replace(nearest, persona_hash=own_hash, note=note, former=tuple(former[:_MOST_FORMER]))


def learnt_from(known: LearntVoice, history: Sequence[Message], root: Path | None = None) -> LearntVoice:
    """Return a voice learnt from the messages since its start; without a model if they are too few.

    ``history``: messages of all agents, oldest first, up to the end of the intact voice; ``root``: see ``learn_voice``.
    """
    usable = [message for message in history if known.since is None or message.created_at > known.since]
    return replace(known, model=learn_voice(known.agent_id, usable, persona_hash=known.persona_hash, root=root))


def write_voices(connection: Connection, voices: Sequence[LearntVoice]) -> None:
    """Store voices, one per agent, each with the voices of its earlier personas."""
    rows = [
        {
            "agent_id": item.agent_id,
            "persona_hash": item.persona_hash,
            "since": item.since,
            "model": _stored().dump_python(replace(item, note=""), mode="json"),
        }
        for item in voices
    ]
    upsert(connection, _TABLE, rows, key=["agent_id"])
