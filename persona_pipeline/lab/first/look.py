"""What exported messages tell without a judge: an agent's earlier ones are taken for its voice, the later ones held against it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from persona_pipeline.base.documents.json import rfc3339
from persona_pipeline.base.errors import Result
from persona_pipeline.evaluation.voice import VoiceState, followed_text
from persona_pipeline.lab.first.cast import Cast, typical_lines
from persona_pipeline.scoring.text.likeness import Likeness, VoiceFinding, fleet_likeness
from persona_pipeline.scoring.text.repetition import MOST_HISTORY, NGRAM_LENGTHS, stretch_share
from persona_pipeline.scoring.text.said_again import said_again_statistics
from persona_pipeline.scoring.voice_alarm.background import everyday
from persona_pipeline.scoring.voice_alarm.learning import (
    FALSE_ALARMS,
    FEWEST_CONVERSATIONS,
    FEWEST_OWN,
    FEWEST_UNMARKED,
    HORIZON,
    SURE,
    LearntVoice,
    learn_voice,
)
from persona_pipeline.scoring.voice_alarm.model import VoiceAlarm, VoiceModel, VoiceReading, follow_voice
from persona_pipeline.world.models import Message

# Messages of others that voices are learnt beside, of all agents together: what keeps fifty of them under a minute.
_MOST_OTHERS, _FEWEST_OTHERS = 60_000, 600
NEEDED = (
    f"a voice takes {2 * FEWEST_OWN} messages in {2 * FEWEST_CONVERSATIONS} conversations, half of them to learn it from, or "
    f"{2 * FEWEST_UNMARKED} where no channel and no pause tells conversations apart"
)


@dataclass(frozen=True)
class FirstFinding:
    """Something that changed.

    Attributes:
        kind: ``voice_alarm``, ``clone``, ``style_clone``, ``merged`` or ``said_again``.
        text: one sentence. ``lines``: an earlier line beside one of now, both as they were written.
        since: id and time of the first message that sounds different; ``counted``: so many do, of so many since then.
    """

    kind: str
    agent_id: str
    text: str
    lines: tuple[tuple[str, str], ...]
    since: tuple[str, str] | None = None
    counted: tuple[int, int] | None = None


@dataclass(frozen=True)
class AgentLook:
    """What is told of an agent.

    Attributes:
        reason: why its voice cannot be told; "" where it can. ``rests_on``: what it was held against, in sentences.
        learnt, followed: how many messages its voice was learnt from, and held against.
        said_again: see ``said_again_statistics``. ``repeated``: share (0-1) of word triples that stand in another of twenty
            neighbouring messages, before and now; None: too little was said.
    """

    agent_id: str
    learnt: int
    followed: int
    reason: str = ""
    rests_on: tuple[str, ...] = ()
    said_again: Mapping[str, Any] = field(default_factory=dict)
    repeated: tuple[float | None, float | None] = (None, None)
    findings: tuple[FirstFinding, ...] = ()

    @property
    def result(self) -> Result:
        """Its verdict; what cannot be told is no finding and no pass."""
        return Result.FELL if self.findings else Result.CANNOT_TELL if self.reason else Result.HELD


@dataclass(frozen=True)
class FirstLook:
    """What is told of all. ``earlier``, ``later``: texts by agent, for the map of voices."""

    agents: tuple[AgentLook, ...]
    earlier: Mapping[str, Sequence[str]]
    later: Mapping[str, Sequence[str]]

    @property
    def findings(self) -> list[FirstFinding]:
        """All of them: voices that are lost first, of those the longest."""
        found = [item for agent in self.agents for item in agent.findings]
        return sorted(found, key=lambda item: (item.kind != "voice_alarm", -(item.counted or (0, 0))[0]))

    @property
    def result(self) -> Result:
        """The run's verdict: held where somebody could be told and nothing was found; who cannot be told is named, not counted."""
        results = {agent.result for agent in self.agents}
        return next((item for item in (Result.FELL, Result.HELD) if item in results), Result.CANNOT_TELL)


def first_look(cast: Cast, *, dated: bool = True) -> FirstLook:
    """Return what is told of agents without a judge.

    The first half of an agent's messages is taken for its voice, of more than 1,600 the first 800 or a third. All agents and all
    stretches of 500 later messages together raise a false alarm as rarely as one stretch does elsewhere (5 %, as far as known).

    Args:
        dated: False where times were made up: then messages are told by their number.
    """
    own = {agent_id: cast.own(agent_id) for agent_id in cast.names}
    parts = {agent_id: _parted(said) for agent_id, said in own.items()}
    stretches = sum(ceil(len(later) / HORIZON) for _, later in parts.values())
    alike = _alike(cast, parts)
    places = {message.id: place for place, message in enumerate(cast.messages)}
    found = []
    for agent_id, (earlier, later) in parts.items():
        model = None
        if earlier and len(later) > 0:
            before = _beside(cast.messages[: places[earlier[-1].id] + 1], agent_id, _MOST_OTHERS // len(parts))
            model = learn_voice(agent_id, before, false_alarms=FALSE_ALARMS / stretches)
        texts = [[item.text for item in part] for part in (earlier, later)]
        again = said_again_statistics(earlier, later)
        shares = [stretch_share(part[-MOST_HISTORY:], NGRAM_LENGTHS[0]) for part in texts]
        findings = [
            *_voice_findings(cast, model, own[agent_id], later, dated),
            *(_likeness_finding(cast, item) for item in alike[agent_id]),
            *([_said_again_finding(cast, agent_id, again)] if again["often"] else []),
        ]
        rests_on = followed_text(VoiceState(LearntVoice(agent_id, "", model), len(earlier))) if model else []
        reason = _untold(model, len(earlier), len(later))
        found.append(
            AgentLook(
                agent_id,
                len(earlier),
                len(later),
                reason,
                tuple(rests_on),
                again,
                (shares[0], shares[1]),
                tuple(findings),
            )
        )
    texts_of = [{name: [item.text for item in part[n]] for name, part in parts.items()} for n in (0, 1)]
    return FirstLook(tuple(found), *texts_of)


def _parted(said: Sequence[Message]) -> tuple[Sequence[Message], Sequence[Message]]:
    learnt = min(len(said) // 2, max(len(said) // 3, SURE))
    return said[:learnt], said[learnt:]


def _beside(messages: Sequence[Message], agent_id: str, most: int) -> list[Message]:
    """Return an agent's messages with some of the others', of all times."""
    others = sum(item.agent_id != agent_id for item in messages)
    step, number, kept = max(1, ceil(others / max(most, _FEWEST_OTHERS))), 0, []
    for item in messages:
        number += item.agent_id != agent_id
        if item.agent_id == agent_id or number % step == 0:
            kept.append(item)
    return kept


def _untold(model: VoiceModel | None, learnt: int, followed: int) -> str:
    """Return why an agent's voice cannot be told, "" where it can."""
    if learnt < FEWEST_OWN:
        return f"{learnt + followed} messages are too few"
    if model is None:
        return "no other agent says enough, and there is no everyday language to hold it against"
    if not model.tells:
        known = model.provenance
        return (
            f"{known.messages} messages in {known.conversations} conversations do not tell a change from how it varies"
        )
    soonest = min(side.delay for side in model.sides)
    return f"{followed} messages to follow, a change takes about {soonest:.0f}" if followed < soonest else ""


def _voice_findings(
    cast: Cast, model: VoiceModel | None, own: Sequence[Message], later: Sequence[Message], dated: bool
) -> list[FirstFinding]:
    """Return the longest time in which an agent did not sound like itself, if there is one."""
    readings, alarms = follow_voice(model, later) if model else ([], [])
    if not alarms:
        return []
    spans = [(alarm, _span(alarm, readings)) for alarm in alarms]
    alarm, span = max(spans, key=lambda item: len(item[1]))
    hits = sum(reading.step > 0 for reading in span)
    began, ended = span[0].message, span[-1].message
    is_over = ended is not readings[-1].message

    def moment(message: Message) -> str:
        return f"{message.created_at:%-d %B %Y}" if dated else f"message {own.index(message) + 1} of {len(own)}"

    when = f"from {moment(began)} to {moment(ended)}" if is_over else f"since {moment(began)}"
    like = f"sounds like {cast.names.get(alarm.like, alarm.like)}" if alarm.like else "does not sound like itself"
    text = f"{when} {cast.names[alarm.agent_id]} {like}: {hits} of {len(span)} messages"
    usual = typical_lines([item.text for item in own[: len(own) - len(later)]])
    lines = tuple(zip(usual, (item.text for item in alarm.quotes), strict=False))
    return [
        FirstFinding(
            "voice_alarm", alarm.agent_id, text, lines, (began.id, rfc3339(began.created_at)), (hits, len(span))
        )
    ]


def _span(alarm: VoiceAlarm, readings: Sequence[VoiceReading]) -> Sequence[VoiceReading]:
    """Return the readings from where an alarm began to where it was over, or to the end."""
    ids = [reading.message.id for reading in readings]
    began, raised = ids.index(alarm.began_at.id), ids.index(alarm.raised_at.id)
    over = next((place for place in range(raised, len(readings)) if readings[place].sum == 0), len(readings))
    return readings[began:over]


def _alike(
    cast: Cast, parts: Mapping[str, tuple[Sequence[Message], Sequence[Message]]]
) -> Mapping[str, Sequence[VoiceFinding]]:
    said, earlier = (
        sorted((item for part in parts.values() for item in part[n]), key=lambda item: (item.created_at, item.id))
        for n in (1, 0)
    )
    nobodys = {line for part in parts.values() for _, line in everyday([item.text for item in part[1]])[1]}
    return fleet_likeness(said, earlier, cast.names.keys(), of=cast.names.keys(), everyday=sorted(nobodys))


def _likeness_finding(cast: Cast, found: VoiceFinding) -> FirstFinding:
    name, other = cast.names[found.agent_id], cast.names[found.other]
    text = {
        Likeness.CLONE: f"{name} says lines that {other} said first: {found.strength:.0%} of its longer ones",
        Likeness.STYLE: f"{name} has come to sound like {other}",
        Likeness.MERGED: f"{name} and {other} have come to sound alike",
    }[found.kind]
    lines = tuple((theirs, ours) for ours, theirs in found.lines)
    return FirstFinding(found.kind.value, found.agent_id, text, lines)


def _said_again_finding(cast: Cast, agent_id: str, found: Mapping[str, Any]) -> FirstFinding:
    before, lines = found["before"], sorted(found["lines"], key=lambda item: -item["strength"])
    text = (
        f"{cast.names[agent_id]} says again what it said before: {found['said_again']} of {found['messages']} messages, "
        f"{before['said_again']} of {before['messages']} before"
    )
    pairs = tuple((item["earlier_line"], item["line"]) for item in lines[:3])
    return FirstFinding("said_again", agent_id, text, pairs, None, (found["said_again"], found["messages"]))
