"""How an agent's voice stands: learnt once, followed message by message, and what changed around an alarm. Asks no judge."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from persona_pipeline.base.documents.json import rfc3339
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.guard.report import Finding
from persona_pipeline.scoring.voice_alarm.learning import FEWEST_OWN, HORIZON, MOST_OTHERS, MOST_OWN
from persona_pipeline.scoring.voice_alarm.model import (
    BEFORE,
    KnownChange,
    VoiceChange,
    VoiceKind,
    VoiceModel,
    VoiceReading,
    follow_voice,
    voice_change,
)
from persona_pipeline.scoring.voice_alarm.storing import LearntVoice, current_voice, learn_stored_voice
from persona_pipeline.world.cards.files import CARDS, CardFormat, example_messages
from persona_pipeline.world.changes import FOLDERS, Commit, commits_between
from persona_pipeline.world.messages.store import message_counts, read_messages
from persona_pipeline.world.models import Message, Window
from persona_pipeline.world.runs import maker_rows
from persona_pipeline.world.world import World

MOST_QUOTED, MOST_QUOTES = 80, 2
_HASH_DIGITS = 8
# A window begins after its start: this is what stands between that and its first message.
_INSTANT = timedelta(microseconds=1)


@dataclass(frozen=True)
class VoiceState:
    """What an agent's messages say of its voice up to the end of a window.

    Attributes:
        learnt: the voice; without a model, why there is none.
        own: messages of its own it can be learnt from, while it is not; ``examples``: how many of them its character card made up.
        readings: of its newest messages, oldest first: all since the voice was learnt, of many the newest 500 to 1000.
        alarms: those raised in the window, and the one that stands at its end; oldest first.
        stands: the last of them stands: the agent does not sound like itself.
    """

    learnt: LearntVoice
    own: int = 0
    readings: tuple[VoiceReading, ...] = ()
    alarms: tuple[VoiceChange, ...] = ()
    stands: bool = False
    examples: int = 0

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
        """How the voice stands, in words."""
        since = self.learnt.since
        anew = f"; its persona changed, and what it said up to {since.isoformat()} no longer counts" if since else ""
        if self.learnt.model is None:
            made_up = f", {self.examples} of them examples of its character card" if self.examples else ""
            return f"not learnt yet: {self.own} of {FEWEST_OWN} messages{made_up}{anew}"
        if examples := self.learnt.model.provenance.examples:
            of_all = f"{examples} of the {self.learnt.model.provenance.messages} messages it was learnt from"
            anew += f"; {of_all} are examples of its character card (`watch --relearn` learns it from what it says)"
        if self.alarms:
            ended = "" if self.stands else "; it has its voice back"
            return f"{self.alarms[-1].alarm.text}{ended}{anew}"
        if not self.readings:
            return f"learnt, and nothing said since{anew}"
        return f"sounds like itself in the {len(self.readings)} messages that were read{anew}"


def voice_state(world: World, agent_id: str, window: Window, *, learn: bool = False) -> VoiceState:
    """Return how an agent's voice stands at the end of a window, as it was learnt before.

    Args:
        learn: learn it if it is not: from what was said before the window, after a change of persona from all said since.

    Raises:
        ConfigError: the agent has no persona in the store.
    """
    # A window of everything has nothing before it to learn from.
    before = window.start or datetime.min.replace(tzinfo=UTC)
    state = learn_voice_before(world, agent_id, before) if learn else _known(world, agent_id, before)
    return state if state.learnt.model is None else _followed(world, state.learnt, window)


def learn_voice_before(world: World, agent_id: str, moment: datetime, *, again: bool = False) -> VoiceState:
    """Return an agent's voice, learnt from what was said up to a moment if it is not yet; nothing is followed.

    After a change of persona it is learnt from all that was said since, as soon as that is enough.

    Args:
        again: learn anew although it is learnt.

    Raises:
        ConfigError: the agent has no persona in the store.
    """
    state = _known(world, agent_id, moment)
    learnt = state.learnt
    if state.learnable or (again and learnt.model is not None):
        span = _span(world, learnt, moment)
        history = [*_examples(world, agent_id, span), *_history(world, agent_id, span)]
        found = learn_stored_voice(world.store, agent_id, learnt.persona_hash, history, again=again)
        return VoiceState(replace(found, note=learnt.note), state.own)
    return state


def _known(world: World, agent_id: str, moment: datetime) -> VoiceState:
    newest = read_messages(world.store, Window(world.horizon), agent_id=agent_id, limit=1)
    persona = world.persona(agent_id)
    learnt = current_voice(world.store, agent_id, persona.hash, newest[0].created_at if newest else None)
    if learnt.model is not None:
        return VoiceState(learnt)
    span = _span(world, learnt, moment)
    examples = len(_examples(world, agent_id, span))
    return VoiceState(learnt, _said(world, agent_id, span) + examples, examples=examples)


def _said(world: World, agent_id: str, span: Window) -> int:
    return message_counts(world.store, span, agent_id=agent_id).get(agent_id, 0)


def _examples(world: World, agent_id: str, span: Window) -> list[Message]:
    """Return what the agent's character card lets it say, as long as it has said too little itself to be learnt from."""
    if _said(world, agent_id, span) >= FEWEST_OWN:
        return []
    return example_messages(world.root, agent_id, span.start)


def _span(world: World, learnt: LearntVoice, moment: datetime) -> Window:
    return Window(world.horizon, learnt.since) if learnt.since else Window(min(moment, world.horizon))


def followed_text(model: VoiceModel, start: datetime) -> list[str]:
    """Return what following a voice rests on, and what it cannot see, a sentence each."""
    known = model.provenance
    since = max(start, known.until).isoformat()
    learnt = f"learnt from {known.messages} of its messages until {known.until.isoformat()}"
    if model.kind is VoiceKind.DELTA:
        return [
            f"{known.agent_id}: followed since {since} against its own history alone, {learnt}",
            f"{known.agent_id}: one agent alone: no second voice to compare with; a change into a stock assistant is not seen "
            "(`persona-pipeline evaluate` asks a judge)",
        ]
    others = ", ".join(side.other for side in model.sides if side.other)
    return [
        f"{known.agent_id}: followed since {since} against {others or 'the other voices'}, {learnt} and {known.others} of others",
        f"{known.agent_id}: a change into a voice unlike these, such as a stock assistant's, may not be seen "
        "(`persona-pipeline evaluate` asks a judge)",
    ]


def voice_findings(state: VoiceState) -> list[Finding]:
    """Return a finding for each alarm: a warning that names the first message and asks for the judge where it began."""
    return [
        Finding(
            kind="voice_alarm",
            message=f"{found.text}: {_quoted(found)}",
            remedy=f"ask the judge about it: `{_command(found)}`",
            agent_id=state.agent_id,
        )
        for found in state.alarms
    ]


def alarm_window(found: VoiceChange) -> Window:
    """Return the window of an alarm: from the first message that sounds different to the one that raised it."""
    return Window(end=found.alarm.raised_at.created_at, start=found.alarm.began_at.created_at - _INSTANT)


def _followed(world: World, learnt: LearntVoice, window: Window) -> VoiceState:
    assert learnt.model is not None
    end = min(window.end, world.horizon)
    readings, alarms = follow_voice(learnt.model, messages_to_follow(world, learnt, end))
    # The sum is held at the threshold while an alarm stands, and at 0 it is over.
    stands = bool(alarms) and all(
        reading.sum > 0 for reading in readings if reading.message.created_at > alarms[-1].raised_at.created_at
    )
    shown = [alarm for alarm in alarms if alarm.raised_at.created_at in window or (stands and alarm is alarms[-1])]
    changes = [
        change
        for alarm in shown
        for change in _changes(
            world, learnt.agent_id, Window(alarm.raised_at.created_at, alarm.began_at.created_at - BEFORE)
        )
    ]
    runs = list(_new_runs([reading.message for reading in readings]))
    found = tuple(voice_change(alarm, sorted({*changes, *runs}, key=lambda item: item.at)) for alarm in shown)
    return VoiceState(learnt, readings=tuple(readings), alarms=found, stands=stands)


def messages_to_follow(world: World, learnt: LearntVoice, end: datetime) -> list[Message]:
    """Return an agent's messages since its voice was learnt, of many the newest 500 to 1000: the sum soon forgets.

    They begin at a multiple of 500, so that an alarm stays where it is while messages come.
    """
    assert learnt.model is not None
    agent_id, span = learnt.agent_id, Window(end, learnt.model.provenance.until)
    if span.start is not None and span.start >= end:
        return []
    count = message_counts(world.store, span, agent_id=agent_id).get(agent_id, 0)
    skipped = max(0, count // HORIZON - 1) * HORIZON
    return read_messages(world.store, span, agent_id=agent_id, limit=count - skipped)


def _history(world: World, agent_id: str, span: Window) -> list[Message]:
    own = read_messages(world.store, span, agent_id=agent_id, limit=MOST_OWN)
    everybody = read_messages(world.store, span, limit=MOST_OWN + MOST_OTHERS)
    messages = {message.id: message for message in (*own, *everybody)}.values()
    return sorted(messages, key=lambda message: (message.created_at, message.id))


def _changes(world: World, agent_id: str, span: Window) -> Iterator[KnownChange]:
    """Yield what is known to have changed in a span of time: commits, and what evaluations saw of persona and judge."""
    assert span.start is not None
    try:
        commits = commits_between(world.root, span.start, span.end)
    except ConfigError:
        # A world without git has no commits.
        commits = []
    for commit in commits:
        if touched := _touched(commit, agent_id):
            yield KnownChange(commit.at, f"commit {commit.id} ({touched}): {commit.subject}")
    rows = maker_rows(world.store, agent_id, span.end)
    for before, now in pairwise(rows):
        if now.window_end <= span.start:
            continue
        if before.persona_hash and now.persona_hash and before.persona_hash != now.persona_hash:
            yield KnownChange(
                now.window_end, f"persona {before.persona_hash[:_HASH_DIGITS]} became {now.persona_hash[:_HASH_DIGITS]}"
            )
        if before.judge_model and now.judge_model and before.judge_model != now.judge_model:
            yield KnownChange(now.window_end, f"the judge's model {before.judge_model} became {now.judge_model}")


def _touched(commit: Commit, agent_id: str) -> str:
    """Return which files of a commit may change how an agent speaks: its persona, and what is no part of a world."""
    own = [
        f"personas/{agent_id}.yaml",
        f"personas/{agent_id}.yml",
        *(f"{CARDS}/{agent_id}.{name}" for name in CardFormat),
    ]
    found = [path for path in commit.paths if path in own or path.partition("/")[0] not in FOLDERS]
    more = f" and {len(found) - MOST_QUOTES} more" if len(found) > MOST_QUOTES else ""
    return ", ".join(sorted(found, key=lambda path: path not in own)[:MOST_QUOTES]) + more


def _new_runs(messages: Sequence[Message]) -> Iterator[KnownChange]:
    for before, now in pairwise(messages):
        if now.run_id and now.run_id != before.run_id:
            yield KnownChange(now.created_at, f"run {now.run_id} of the agents began")


def _quoted(found: VoiceChange) -> str:
    def shown(text: str) -> str:
        return text if len(text) <= MOST_QUOTED else f"{text[:MOST_QUOTED].rstrip()}…"

    return ", ".join(f"{shown(message.text)!r} ({message.id})" for message in found.alarm.quotes[:MOST_QUOTES])


def _command(found: VoiceChange) -> str:
    window = alarm_window(found)
    assert window.start is not None
    since, as_of = (rfc3339(moment, exact=True) for moment in (window.start, window.end))
    return f"persona-pipeline evaluate --agents {shlex.quote(found.alarm.agent_id)} --since {since} --as-of {as_of}"
