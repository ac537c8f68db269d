"""What exported messages tell without a judge: an agent's earlier ones are taken for its voice, the later ones held against it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil
from pathlib import Path
from typing import Any

from persona_pipeline.base.documents.json import rfc3339
from persona_pipeline.base.status import Result
from persona_pipeline.evaluation.voice import VoiceState, followed_text
from persona_pipeline.guard.baselines.golden import BASELINES
from persona_pipeline.guard.known_drift import KnownDrift, drift_path
from persona_pipeline.lab.first.cast import Cast, typical_lines
from persona_pipeline.scoring.text.likeness import Likeness, VoiceFinding, fleet_likeness
from persona_pipeline.scoring.text.repetition import MOST_HISTORY, NGRAM_LENGTHS, stretch_share
from persona_pipeline.scoring.text.said_again import said_again_statistics
from persona_pipeline.scoring.voice_alarm.learning import FALSE_ALARMS, HORIZON, LearntVoice, everyday, learn_voice
from persona_pipeline.scoring.voice_alarm.model import VoiceModel, follow_voice
from persona_pipeline.world.models import Message

# Messages of others that voices are learnt beside, of all agents together: what keeps fifty of them under a minute.
_MOST_OTHERS, _FEWEST_OTHERS = 60_000, 600


@dataclass(frozen=True)
class FirstFinding:
    """Something that changed.

    Attributes:
        kind: ``voice_alarm``, ``clone``, ``style_clone`` or ``merged``. ``text``: one sentence.
        lines: an earlier line beside one of now, as they were written.
        since: id and time of the first message that sounds different; ``counted``: so many do, of so many from there on.
        drift: the time in which the agent is known to be out of character, as the world keeps it.
    """

    kind: str
    text: str
    lines: tuple[tuple[str, str], ...]
    drift: KnownDrift
    since: tuple[str, str] | None = None
    counted: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class AgentLook:
    """What is told of an agent.

    Attributes:
        learnt, followed: how many messages its voice was learnt from, and held against.
        untold: why a change of its voice cannot be told; "" where it can. ``rests_on``: what it was held against, in sentences.
        said_again: see ``said_again_statistics``. ``repeated``: share (0-1) of word triples that stand in another of twenty
            messages around, before and now; None: too little was said.
    """

    agent_id: str
    name: str
    language: str
    learnt: int
    followed: int
    untold: str
    rests_on: Sequence[str]
    said_again: Mapping[str, Any]
    repeated: Sequence[float | None]
    findings: Sequence[FirstFinding]

    @property
    def result(self) -> Result:
        """Its verdict: what cannot be told is no pass."""
        return Result.FELL if self.findings else Result.CANNOT_TELL if self.untold else Result.HELD


def first_look(cast: Cast, *, dated: bool = True) -> list[AgentLook]:
    """Return what is told of each agent without a judge.

    All agents and all stretches of 500 messages together raise a false alarm as rarely as one stretch does elsewhere: in 5 % of
    exports, as far as that is known.

    Args:
        dated: False where times were made up: then messages are told by their number.
    """
    stretches = sum(ceil(len(later) / HORIZON) for _, later in cast.parts.values())
    places, alike, found = {message.id: place for place, message in enumerate(cast.messages)}, _alike(cast), []
    for agent_id, (earlier, later) in cast.parts.items():
        model = None
        if earlier:
            before = _beside(cast.messages[: places[earlier[-1].id] + 1], agent_id, _MOST_OTHERS // len(cast.parts))
            model = learn_voice(agent_id, before, false_alarms=FALSE_ALARMS / stretches)
        state = VoiceState(
            LearntVoice(agent_id, "", model), len(earlier), is_new=True, language=cast.languages[agent_id]
        )
        shares = [stretch_share([m.text for m in part[-MOST_HISTORY:]], NGRAM_LENGTHS[0]) for part in (earlier, later)]
        findings = [
            *_voice_finding(cast, model, later, dated),
            *(_alike_finding(cast, item, later) for item in alike[agent_id]),
        ]
        again, rests_on = said_again_statistics(earlier, later), followed_text(state)
        who = agent_id, cast.names[agent_id], cast.languages[agent_id], len(earlier), len(later)
        found.append(AgentLook(*who, _untold(state, len(later)), rests_on, again, shares, findings))
    return found


def overall(looks: Sequence[AgentLook]) -> Result:
    """Return the verdict of all: held where somebody could be told and nothing was found; the others are named, not counted."""
    results = {item.result for item in looks}
    return next((item for item in (Result.FELL, Result.HELD) if item in results), Result.CANNOT_TELL)


def _beside(messages: Sequence[Message], agent_id: str, most: int) -> list[Message]:
    """Return an agent's messages with some of the others', of all times."""
    others = [item for item in messages if item.agent_id != agent_id]
    kept = {item.id for item in others[:: max(1, ceil(len(others) / max(most, _FEWEST_OTHERS)))]}
    return [item for item in messages if item.agent_id == agent_id or item.id in kept]


def _untold(state: VoiceState, followed: int) -> str:
    model = state.learnt.model
    if model is None or not model.tells:
        return state.text
    # A stock assistant is what most turn into: who would not be seen to become one is not said to have held.
    delays = [side.delay for side in model.sides if side.everyday] or [side.delay for side in model.sides]
    return (
        f"a change shows after about {min(delays):.0f} messages, {followed} are left" if followed < min(delays) else ""
    )


def _voice_finding(cast: Cast, model: VoiceModel | None, later: Sequence[Message], dated: bool) -> list[FirstFinding]:
    """Return the longest time in which an agent did not sound like itself, if there is one."""
    readings, alarms = follow_voice(model, later) if model else ([], [])
    spans = []
    for alarm in alarms:
        began, raised = later.index(alarm.began_at), later.index(alarm.raised_at)
        over = next((place for place in range(raised, len(later)) if readings[place].sum == 0), len(later))
        spans.append((over - began, began, alarm))
    if not spans:
        return []
    length, began, alarm = max(spans, key=lambda item: item[0])
    hits = sum(reading.step > 0 for reading in readings[began : began + length])
    earlier, first = cast.parts[alarm.agent_id][0], later[began]

    def moment(place: int) -> str:
        of_all = f"message {len(earlier) + place + 1} of {len(earlier) + len(later)}"
        return f"{later[place].created_at:%-d %B %Y}" if dated else of_all

    is_over = began + length < len(later)
    when = f"from {moment(began)} to {moment(began + length - 1)}" if is_over else f"since {moment(began)}"
    like = f"sounds like {cast.names.get(alarm.like, alarm.like)}" if alarm.like else "does not sound like itself"
    text = f"{when} {cast.names[alarm.agent_id]} {like}: {hits} of {length} messages"
    pairs = zip(typical_lines([item.text for item in earlier]), (item.text for item in alarm.quotes), strict=False)
    since = first.id, rfc3339(first.created_at)
    # The longest time is shown; a baseline must span none of them.
    last = max(place + long for long, place, _ in spans)
    drift = KnownDrift(
        agent_id=alarm.agent_id,
        since=later[min(place for _, place, _ in spans)].created_at,
        until=later[last - 1].created_at if last < len(later) else None,
        found=f"`try` found: {text}",
    )
    return [FirstFinding("voice_alarm", text, tuple(pairs), drift, since, (hits, length))]


def drift_of(look: AgentLook) -> KnownDrift | None:
    """Return the time in which an agent is known to be out of character: from its earliest finding to its last; None: none."""
    drifts = sorted((finding.drift for finding in look.findings), key=lambda drift: drift.since)
    ends = [drift.until for drift in drifts if drift.until]
    return drifts[0].model_copy(update={"until": max(ends) if len(ends) == len(drifts) else None}) if drifts else None


def drift_files(drifts: Iterable[KnownDrift]) -> dict[str, str]:
    """Return the files in which a world keeps drifts, text by path."""
    folder = Path(BASELINES)
    return {drift_path(folder, drift.agent_id).as_posix(): f"{drift.model_dump_json(indent=2)}\n" for drift in drifts}


def _alike(cast: Cast) -> Mapping[str, Sequence[VoiceFinding]]:
    earlier, said = (
        sorted(
            chain.from_iterable(part[n] for part in cast.parts.values()), key=lambda item: (item.created_at, item.id)
        )
        for n in (0, 1)
    )
    nobodys = {line for _, later in cast.parts.values() for _, line in everyday([item.text for item in later])[1]}
    return fleet_likeness(said, earlier, cast.names.keys(), of=cast.names.keys(), everyday=sorted(nobodys))


def _alike_finding(cast: Cast, found: VoiceFinding, later: Sequence[Message]) -> FirstFinding:
    name, other = cast.names[found.agent_id], cast.names[found.other]
    text = {
        Likeness.CLONE: f"{name} says lines that {other} said first: {found.strength:.0%} of its longer ones",
        Likeness.STYLE: f"{name} has come to sound like {other}",
        Likeness.MERGED: f"{name} and {other} have come to sound alike",
    }[found.kind]
    # Halves are compared: since when is not known more exactly.
    drift = KnownDrift(agent_id=found.agent_id, since=later[0].created_at, found=f"`try` found: {text}")
    return FirstFinding(found.kind.value, text, tuple((theirs, ours) for ours, theirs in found.lines), drift)
