"""State of an agent's voice, followed message by message."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Literal

from persona_pipeline.base.documents.json import rfc3339
from persona_pipeline.base.text import shortened
from persona_pipeline.guard.known_drift import KnownDrift
from persona_pipeline.guard.report import Finding
from persona_pipeline.scoring.style.model import (
    ENOUGH_CONVERSATIONS,
    ENOUGH_OWN,
    FEWEST_OWN,
    HORIZON,
    MOST_OTHERS,
    MOST_OWN,
    VoiceProvenance,
)
from persona_pipeline.scoring.style.monitor import (
    LearntVoice,
    VoiceAlarm,
    VoiceReading,
    VoiceWatch,
    current_voice,
    follow_voice,
    learnt_from,
    stored_voice,
    write_voices,
)
from persona_pipeline.scoring.text.tokens import UNKNOWN
from persona_pipeline.world.messages.store import MessageLog, count_messages, read_messages
from persona_pipeline.world.models import Message, Persona, Window, grouped
from persona_pipeline.world.world import World

MOST_QUOTED, MOST_QUOTES = 80, 2
# A window excludes its start, so it begins this long before its first message.
_INSTANT = timedelta(microseconds=1)


@dataclass(frozen=True)
class VoiceState:
    """An agent's voice up to the end of a window.

    Attributes:
        learnt: the voice; without a model, why there is none.
        own: number of messages it can be learnt from.
        readings: of its newest messages, oldest first: all since the voice was learnt, at most the newest 500 to 1000.
        alarms: raised in the window, and one that lasts until its end; oldest first.
        stands: the last alarm lasts: the agent does not sound like itself.
        is_new: the stored voice differs.
        drifts: all times up to the end of the window in which it did not sound like itself.
    """

    learnt: LearntVoice
    own: int = 0
    readings: tuple[VoiceReading, ...] = ()
    alarms: tuple[VoiceAlarm, ...] = ()
    stands: bool = False
    is_new: bool = False
    drifts: tuple[KnownDrift, ...] = ()

    @property
    def agent_id(self) -> str:
        """Whose voice it is."""
        return self.learnt.agent_id

    @property
    def learnable(self) -> bool:
        """Whether there is enough to learn the voice from that is not learnt yet."""
        return self.learnt.model is None and self.own >= FEWEST_OWN

    @property
    def text(self) -> str:
        """The state in words."""
        since = self.learnt.since
        anew = f"; its persona changed, and what it said up to {since.isoformat()} no longer counts" if since else ""
        if self.learnt.model is None:
            if self.learnable:
                return f"not learnt yet, `evaluate` and `watch` learn it: {self.own} messages are enough{anew}"
            return f"not learnt yet: {self.own} of {FEWEST_OWN} messages{anew}"
        known = self.learnt.model.provenance
        if self.alarms:
            ended = "" if self.stands else "; it has its voice back"
            return f"{self.alarms[-1].text}{ended}; {_learnt_from(known)}{anew}"
        if not self.learnt.model.tells:
            return f"cannot tell: {_too_little(known)}{anew}"
        if not self.readings:
            return f"learnt, and nothing said since{anew}"
        return f"sounds like itself in the {len(self.readings)} messages that were read{anew}"


def _too_little(known: VoiceProvenance) -> str:
    missing = []
    if known.conversations < ENOUGH_CONVERSATIONS:
        missing.append(f"{known.conversations} of about {ENOUGH_CONVERSATIONS} conversations")
    if known.messages < ENOUGH_OWN:
        missing.append(f"{known.messages} of {ENOUGH_OWN} messages")
    return f"too little history ({', '.join(missing)})"


def _no_everyday(language: str) -> str:
    if language == UNKNOWN:
        return "its language is unknown, so there is no everyday language to compare with"
    return f"there is no everyday language for {language}; write background/{language}.txt"


def _learnt_from(known: VoiceProvenance) -> str:
    talks = f"{known.conversations} conversation{'s' if known.conversations != 1 else ''}"
    return f"learnt from {known.messages} of its messages in {talks}"


def followed_text(state: VoiceState, start: datetime | None = None) -> list[str]:
    """Return since when a voice is followed (None: since it was learnt), how soon a change shows, and what does not show."""
    name, model = state.agent_id, state.learnt.model
    if model is None:
        return [f"{name}: not followed, and no change is seen: its voice is {state.text}"]
    known = model.provenance
    if not model.limits:
        return [f"{name}: not followed: {_too_little(known)}"]
    since = f"{max(start or known.until, state.learnt.follows_from or known.until):%Y-%m-%d %H:%M} UTC"
    rivals = [n for other, n in model.delays.items() if other]
    stock = model.delays.get("")
    towards = [f"everyday language ({known.language}) after about {stock} messages"] if stock else []
    if rivals:
        span = f"{min(rivals)}" if min(rivals) == max(rivals) else f"{min(rivals)} to {max(rivals)}"
        towards.append(f"{', '.join(filter(None, model.delays))} after about {span}")
    noticed = f"; a change is noticed towards {'; '.join(towards)}" if towards else ""
    found = [f"{name}: followed since {since}{noticed}; {_learnt_from(known)}"]
    if not model.tells:
        found.append(f"{name}: {_too_little(known)}: a smaller change is not seen")
    if not model.rivals:
        found.append(
            f"{name}: a change into another person's voice is not seen (`persona-pipeline evaluate` asks a judge)"
        )
    if "" not in model.delays:
        why = (
            "it is too close to everyday language, or too little is known of it"
            if known.everyday
            else _no_everyday(known.language)
        )
        found.append(f"{name}: a change into a stock assistant may not be seen: {why}")
    return found


def voice_findings(state: VoiceState) -> list[Finding]:
    """Return a finding for each alarm: a warning that names the first message and asks for the judge where it began."""
    return [
        Finding(
            kind="voice_alarm",
            message=f"{alarm.text}: {_quoted(alarm)}",
            remedy=f"ask the judge about it: `{_command(alarm)}`",
            agent_id=state.agent_id,
        )
        for alarm in state.alarms
    ]


def alarm_window(alarm: VoiceAlarm) -> Window:
    """Return the window of an alarm: from the first message that sounds different to the one that raised it."""
    return Window(end=alarm.raised_at.created_at, start=alarm.began_at.created_at - _INSTANT)


def followed(learnt: LearntVoice, messages: Sequence[Message], window: Window) -> VoiceState:
    """Compare an agent's messages since its voice was learnt with it."""
    assert learnt.model is not None
    readings, alarms = follow_voice(learnt.model, messages)
    drifts = [
        KnownDrift(
            agent_id=alarm.agent_id,
            since=alarm.began_at.created_at,
            until=_last_of(readings, alarm),
            found=f"the voice alarm: {alarm.text}",
        )
        for alarm in alarms
    ]
    stands = bool(drifts) and drifts[-1].until is None
    shown = [alarm for alarm in alarms if alarm.raised_at.created_at in window or (stands and alarm is alarms[-1])]
    return VoiceState(learnt, readings=tuple(readings), alarms=tuple(shown), stands=stands, drifts=tuple(drifts))


def _last_of(readings: Sequence[VoiceReading], alarm: VoiceAlarm) -> datetime | None:
    """Return when an agent said the last message that does not sound like it, None while it goes on."""
    # The level is 1 during an alarm, and 0 at its end.
    pairs = ((last, now) for last, now in pairwise(readings) if now.message.created_at > alarm.raised_at.created_at)
    return next((last.message.created_at for last, now in pairs if now.level <= 0), None)


def _quoted(alarm: VoiceAlarm) -> str:
    quotes = alarm.quotes[:MOST_QUOTES]
    return ", ".join(f"{shortened(message.text, MOST_QUOTED)!r} ({message.id})" for message in quotes)


def _command(alarm: VoiceAlarm) -> str:
    window = alarm_window(alarm)
    assert window.start is not None
    since, as_of = (rfc3339(moment, exact=True) for moment in (window.start, window.end))
    return f"persona-pipeline evaluate --agents {shlex.quote(alarm.agent_id)} --since {since} --as-of {as_of}"


def voice_at(
    world: World, persona: Persona, stored: LearntVoice | None, window: Window, *, learn: bool = False
) -> VoiceState:
    """Return the state of an agent's ``stored`` voice at the end of a window.

    ``learn``: learn it where it is missing, from messages before the window; after a change of persona from all since.
    """
    # A window of everything has nothing before it to learn from.
    before = window.start or datetime.min.replace(tzinfo=UTC)
    state = learnt_voice(world, persona, stored, before, learn=learn)
    if state.learnt.model is None:
        return state
    said = messages_to_follow(world, state.learnt, min(window.end, world.horizon))
    return replace(followed(state.learnt, said, window), is_new=state.is_new)


def learnt_voice(
    world: World, persona: Persona, stored: LearntVoice | None, moment: datetime, learn: bool | Literal["again"] = True
) -> VoiceState:
    """Return an agent's voice, learnt from messages up to a moment where it is missing; nothing is followed.

    After a change of persona it is learnt from all messages since, as soon as they are enough. Without ``learn`` it is as
    stored; ``again``: learn it even if it is stored.
    """
    agent_id = persona.agent_id
    newest = read_messages(world.store, Window(world.horizon), agent_id=agent_id, limit=1)
    learnt = current_voice(stored, persona, newest[0].created_at if newest else None)
    is_new = stored is not None and learnt is not stored
    if learnt.model is not None and learn != "again":
        return VoiceState(learnt, is_new=is_new)
    span = Window(world.horizon, learnt.since) if learnt.since else Window(min(moment, world.horizon))
    state = VoiceState(learnt, count_messages(world.store, span, agent_id), is_new=is_new)
    if not learn or not (state.learnable or learnt.model is not None):
        return state
    return VoiceState(learnt_from(learnt, _said(world, agent_id, span), world.rules_root), state.own, is_new=True)


def messages_to_follow(world: World, learnt: LearntVoice, end: datetime) -> list[Message]:
    """Return an agent's messages since its voice was learnt, at most the newest 500 to 1000.

    They begin at a multiple of 500, so that an alarm does not move when messages arrive.
    """
    assert learnt.model is not None
    agent_id, span = learnt.agent_id, Window(end, learnt.follows_from)
    if span.start is not None and span.start >= end:
        return []
    count = count_messages(world.store, span, agent_id)
    skipped = max(0, count // HORIZON - 1) * HORIZON
    return read_messages(world.store, span, agent_id=agent_id, limit=count - skipped)


def _said(world: World, agent_id: str, span: Window) -> list[Message]:
    own = read_messages(world.store, span, agent_id=agent_id, limit=MOST_OWN)
    everybody = read_messages(world.store, span, limit=MOST_OWN + MOST_OTHERS)
    return list(MessageLog.of([*own, *everybody]).messages)


def voice_state(world: World, agent_id: str, window: Window, *, learn: bool = False) -> VoiceState:
    """Return the state of an agent's voice at the end of a window, and store changes; see ``voice_at``."""
    persona, stored = world.persona(agent_id), stored_voice(world.store, agent_id)
    return _kept(world, voice_at(world, persona, stored, window, learn=learn))


def learn_voice_before(world: World, agent_id: str, moment: datetime, *, again: bool = False) -> VoiceState:
    """Return an agent's voice, learnt from messages up to a moment where it is missing, and store it."""
    persona, stored = world.persona(agent_id), stored_voice(world.store, agent_id)
    return _kept(world, learnt_voice(world, persona, stored, moment, "again" if again else True))


def _kept(world: World, state: VoiceState) -> VoiceState:
    if state.is_new:
        with world.store.begin() as connection:
            write_voices(connection, [state.learnt])
    return state


class VoiceWatches:
    """The voices of some agents and their current states.

    Voices are learnt from messages up to a moment, or stored ones are taken. ConfigError: an agent has no persona in the store.

    Attributes:
        notes: agents that cannot be followed, and why. ``follows``: for the others, the basis of the comparison and its limits.
        looked_at: number of messages compared with a voice.
    """

    def __init__(self, world: World, agent_ids: Sequence[str], moment: datetime, *, again: bool = False) -> None:
        self.notes, self.follows, self.looked_at = list[str](), list[str](), 0
        self._watches: dict[str, tuple[VoiceWatch, datetime]] = {}
        for agent_id in agent_ids:
            state = learn_voice_before(world, agent_id, moment, again=again)
            model, told = state.learnt.model, self.notes
            if state.learnt.note:
                self.notes.append(state.learnt.note)
            if model is not None:
                # A voice is not compared with the messages it was learnt from, or with those of an earlier persona.
                self._watches[agent_id] = VoiceWatch(model), state.learnt.follows_from or model.provenance.until
                told = self.follows
            told += followed_text(state, moment)

    def read(self, messages: Sequence[Message]) -> list[VoiceAlarm]:
        """Compare new messages, oldest first, with their speakers' voices."""
        alarms, by_agent = list[VoiceAlarm](), grouped(messages, lambda message: message.agent_id)
        for agent_id, (watch, start) in self._watches.items():
            said = [message for message in by_agent.get(agent_id, ()) if message.created_at > start]
            self.looked_at += len(said)
            alarms += watch.read(said)[1]
        return sorted(alarms, key=lambda alarm: (alarm.raised_at.created_at, alarm.raised_at.id))
