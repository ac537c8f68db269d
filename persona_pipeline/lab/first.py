"""A first look at exported messages, without a judge, a key or a world: the agents, and what changed.

The voice of an agent's later messages is compared with that of its earlier ones.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from math import ceil
from pathlib import Path
from typing import Any

from persona_pipeline.base.documents.json import rfc3339, visible
from persona_pipeline.base.documents.yaml import to_yaml
from persona_pipeline.base.errors import ConfigError, did_you_mean
from persona_pipeline.base.status import Result
from persona_pipeline.evaluation.voice import VoiceState, followed_text
from persona_pipeline.guard.baselines.golden import BASELINES
from persona_pipeline.guard.known_drift import KnownDrift, drift_path
from persona_pipeline.scoring.style.likeness import (
    Likeness,
    VoiceFinding,
    fleet_likeness,
    text_vectors,
    voice_similarity,
)
from persona_pipeline.scoring.style.model import (
    ENOUGH_CONVERSATIONS,
    ENOUGH_OWN,
    FEWEST_OWN,
    HORIZON,
    WINDOWS,
    VoiceModel,
    everyday,
    learn_voice,
    talk_numbers,
)
from persona_pipeline.scoring.style.monitor import LearntVoice, follow_voice
from persona_pipeline.scoring.text.agreement import ENGLISH, language_of
from persona_pipeline.scoring.text.repetition import MOST_HISTORY, NGRAM_LENGTHS, stretch_share
from persona_pipeline.scoring.text.said_again import said_again_statistics
from persona_pipeline.world.messages.files import IMPORTED, message_lines
from persona_pipeline.world.models import Message
from persona_pipeline.world.names import Aliases, same_name
from persona_pipeline.world.personas import agent_id_of
from persona_pipeline.world.world import template_languages, template_world

# Of more agents than this the others are left out: each one's voice takes a second or two to learn.
MOST_AGENTS = 50
# Where all speakers are quiet, an agent writes at least this share of the busiest speaker's messages.
_SHARE = 0.1
_LOOKED_AT, _TYPICAL, _LEAST_LENGTH, _MOST_LENGTH = 100, 3, 20, 200
# A voice is learnt from at most this number of messages, or a third of a longer history.
_MOST_LEARNT = 800
# Most agents that are compared pair by pair, and the newest messages of each.
_MOST_VOICES, _COMPARED = 30, 300


@dataclass(frozen=True)
class Cast:
    """The speakers of an export.

    Attributes:
        names: agents' display names by id; ``languages``: codes by id, ``unknown`` where it is not known.
        people: number of messages of each other speaker, by name.
        why: how agents were separated from people, in words; ``left_out``: agents beyond the first 50.
        messages: of all speakers, oldest first; agents' under their ids.
        parts: by agent, the messages for learning its voice and the later ones: halves, up to two thirds where only those make 100
            in twenty conversations; of more than 1,600 the first 800, or a third.
    """

    names: Mapping[str, str]
    languages: Mapping[str, str]
    people: Mapping[str, int]
    why: str
    left_out: Sequence[str]
    messages: Sequence[Message]
    parts: Mapping[str, tuple[Sequence[Message], Sequence[Message]]]


def cast_of(messages: Sequence[Message], agents: Sequence[str] = (), people: Sequence[str] = ()) -> Cast:
    """Separate agents from people: by the given names, else by the export's roles, else by the number of messages and
    conversations.

    Args:
        messages: of all speakers, oldest first.
        agents, people: names as in the export; with agents named, all others are people.

    Raises:
        ConfigError: no message is by a named speaker, or no speaker can be an agent.
    """
    said: dict[str, list[Message]] = {}
    for message in messages:
        said.setdefault(same_name(message.agent_id), []).append(message)
    names = {key: Counter(item.agent_id for item in own).most_common(1)[0][0] for key, own in said.items()}
    for option, name in (*(("--agent", name) for name in agents), *(("--people", name) for name in people)):
        if same_name(name) not in said:
            raise ConfigError(f"{option} {name}: no message is by {name!r}{did_you_mean(name, sorted(names.values()))}")
    chosen, why = _chosen(said, {same_name(name) for name in agents}, {same_name(name) for name in people})
    if not chosen:
        raise ConfigError("nobody is left who could be an agent; name one with --agent NAME")
    ordered = sorted(chosen, key=lambda key: (-len(said[key]), key))
    ids = _ids({key: names[key] for key in ordered[:MOST_AGENTS]}, said.keys())
    aliases = Aliases(frozenset(ids.values()), ids)
    everything = [aliases.owned(message) for message in messages]
    own: dict[str, list[Message]] = {agent_id: [] for agent_id in ids.values()}
    for message in everything:
        if message.agent_id in own and message.text.strip():
            own[message.agent_id].append(message)
    return Cast(
        names={agent_id: names[key] for key, agent_id in ids.items()},
        languages={agent_id: language_of([item.text for item in listed]) for agent_id, listed in own.items()},
        people={names[key]: len(own) for key, own in said.items() if key not in chosen},
        why=why,
        left_out=[names[key] for key in ordered[MOST_AGENTS:]],
        messages=everything,
        parts={agent_id: _parted(listed) for agent_id, listed in own.items()},
    )


def closest_voices(cast: Cast) -> str:
    """Return a sentence on the two agents that write most alike; "" for fewer than two agents and for more than 30."""
    spoken = {agent_id: [m.text for m in later[-_COMPARED:]] for agent_id, (_, later) in cast.parts.items()}
    alike = voice_similarity(spoken) if len(spoken) <= _MOST_VOICES else {}
    pair = max(alike, key=lambda pair: alike[pair], default=())
    return f"Closest: {' and '.join(cast.names[agent_id] for agent_id in pair)}." if pair else ""


def _parted(said: Sequence[Message]) -> tuple[Sequence[Message], Sequence[Message]]:
    half = min(len(said) // 2, max(len(said) // 3, _MOST_LEARNT))
    places = (half, *(len(said) * share // 12 for share in (7, 8)))
    enough = (n for n in places if n >= ENOUGH_OWN and len(set(talk_numbers(said[:n]))) >= ENOUGH_CONVERSATIONS)
    learnt = next(enough, half)
    return said[:learnt], said[learnt:]


def _chosen(
    said: Mapping[str, Sequence[Message]], agents: Collection[str], people: Collection[str]
) -> tuple[set[str], str]:
    """Return the agents, and how they were recognised."""
    if agents:
        return {*agents} - {*people}, "named by --agent"
    roles = {key: Counter(role for item in own if (role := _is_agents(item)) is not None) for key, own in said.items()}
    marked = {key for key, found in roles.items() if found[True] > found[False]}
    if marked - {*people}:
        return marked - {*people}, "from the roles in the export"
    others = {key: own for key, own in said.items() if key not in people and not roles[key]}
    talks = {key: len({item.conversation for item in own}) for key, own in others.items()}
    usual = {key for key, own in others.items() if len(own) >= FEWEST_OWN and talks[key] > 1}
    if usual:
        return usual, f"the export has no roles, so each speaker with {FEWEST_OWN} messages in several conversations"
    most = max(map(len, others.values()), default=0)
    return {key for key, own in others.items() if len(own) >= most * _SHARE}, "the export has no roles: all speakers"


def _is_agents(message: Message) -> bool | None:
    """Return whether a message is an agent's by what its program says of it, None where it says nothing."""
    extras = message.extras
    if extras.get("role") in ("assistant", "user"):
        return extras["role"] == "assistant"
    if isinstance(extras.get("is_user"), bool):
        return not extras["is_user"]
    if "span_id" in extras:
        # A message to an agent is by its caller.
        return "told" not in extras
    return True if extras.get("bot_id") else None


def _ids(names: Mapping[str, str], speakers: Collection[str]) -> dict[str, str]:
    """Return an id for each agent: the Latin letters of its name, unlike the names of other speakers."""
    found: dict[str, str] = {}
    for number, (key, name) in enumerate(names.items(), start=1):
        stem = agent_id_of(name) or f"agent-{number}"
        candidates = (stem if n == 1 else f"{stem[:60]}-{n}" for n in count(1))
        taken = {*found.values(), *speakers} - {key}
        found[key] = next(candidate for candidate in candidates if candidate not in taken)
    return found


def world_files(cast: Cast) -> dict[str, str]:
    """Return the files of a world of these agents, text by path.

    They are personas to complete, default claims in the agents' languages (else English), and the messages as they were read.
    """
    known = template_languages()
    spoken = {agent_id: code if code in known else ENGLISH for agent_id, code in cast.languages.items()}
    templates = {code: template_world(code) for code in dict.fromkeys(spoken.values())}
    main = Counter(spoken.values()).most_common(1)[0][0]
    texts = {
        path: text
        for path, text in templates[main].items()
        if path.partition("/")[0] not in ("personas", "messages", "propositions", "README.md")
    }
    for agent_id, name in cast.names.items():
        texts[f"personas/{agent_id}.yaml"] = _persona(cast, agent_id, name)
    for path, text in chain.from_iterable(templates[code].items() for code in templates):
        folder, _, file = path.rpartition("/")
        if not (folder.startswith("propositions/") and file == "_default.yaml"):
            continue
        if len(templates) == 1:
            texts[path] = text
            continue
        # An agent's claims are added to the default ones, so with several languages each agent has its own.
        for agent_id, code in spoken.items():
            body = templates[code][path].replace("\npropositions:", f"\nagent_id: {agent_id}\npropositions:", 1)
            texts[f"{folder}/{agent_id}.yaml"] = body
    return {**texts, IMPORTED: message_lines(cast.messages)}


def _persona(cast: Cast, agent_id: str, name: str) -> str:
    earlier, later = cast.parts[agent_id]
    aliases = dict.fromkeys(item.speaker for item in (*earlier, *later) if item.speaker)
    text = (
        f"{visible(name)} writes in the language {cast.languages[agent_id]}. Describe how {visible(name)} writes: who it is, how "
        "long its sentences are, which words it likes, and what it never does."
    )
    data = {"agent_id": agent_id, "display_name": visible(name), "persona": text}
    # Later lines may be what it has become.
    typical = typical_lines([item.text for item in earlier or later])
    return (
        f"# Drafted from {len(earlier) + len(later)} messages, without a model. Replace the text of persona with a description.\n"
        f"{to_yaml({**data, **({'aliases': list(aliases)} if aliases else {})})}# Lines that are typical of it:\n"
        + "".join(f"# - {visible(line)}\n" for line in typical)
    )


def typical_lines(texts: Sequence[str]) -> list[str]:
    """Return the lines that are most like all the others: of the newest hundred, those of 20 to 200 characters where there are."""
    newest = [text for text in dict.fromkeys(texts) if text.strip()][-_LOOKED_AT:]
    fitting = [text for text in newest if _LEAST_LENGTH <= len(text) <= _MOST_LENGTH] or newest
    if not fitting:
        return []
    rows = text_vectors([text[:_MOST_LENGTH] for text in fitting])
    order = (-(rows @ rows.mean(axis=0))).argsort(kind="stable")
    return [fitting[place][:_MOST_LENGTH] for place in order[:_TYPICAL]]


# Messages of others for learning voices, of all agents together: fifty agents take less than a minute.
_MOST_OTHERS, _FEWEST_OTHERS = 60_000, 600


@dataclass(frozen=True)
class FirstFinding:
    """Something that changed.

    Attributes:
        kind: ``voice_alarm``, ``clone``, ``style_clone`` or ``merged``. ``text``: one sentence.
        lines: pairs of an earlier and a later line, as they were written.
        since: id and time of the first message that sounds different; ``messages``: number of such messages.
        drift: the time in which the agent is out of character, as the world keeps it.
    """

    kind: str
    text: str
    lines: tuple[tuple[str, str], ...]
    drift: KnownDrift
    since: tuple[str, str] | None = None
    messages: int = 0


@dataclass(frozen=True)
class AgentLook:
    """The result for one agent.

    Attributes:
        learnt, followed: number of messages for learning its voice, and of later ones.
        untold: why a change of its voice cannot be seen; "" where it can. ``rests_on``: what it was compared with, in sentences.
        said_again: see ``said_again_statistics``. ``repeated``: share (0-1) of word triples that are in another of twenty messages
            around, before and now; None: there is too little text.
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
        """Its verdict: an inconclusive result does not pass."""
        return Result.FELL if self.findings else Result.CANNOT_TELL if self.untold else Result.HELD


def first_look(cast: Cast, *, dated: bool = True) -> list[AgentLook]:
    """Return the result for each agent, without a judge.

    All agents and all stretches of 500 messages together raise a false alarm in about 5 % of exports, as one stretch does
    elsewhere.

    Args:
        dated: False where times are made up: then messages have numbers instead.
    """
    stretches = sum(ceil(len(later) / HORIZON) for _, later in cast.parts.values())
    places, alike, found = {message.id: place for place, message in enumerate(cast.messages)}, _alike(cast), []
    for agent_id, (earlier, later) in cast.parts.items():
        model = None
        if earlier:
            before = _beside(cast.messages[: places[earlier[-1].id] + 1], agent_id, _MOST_OTHERS // len(cast.parts))
            model = learn_voice(agent_id, before, looks=max(1, stretches))
        state = VoiceState(LearntVoice(agent_id, "", model), len(earlier), is_new=True)
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
    """Return the verdict of all: held if at least one agent is conclusive and nothing was found."""
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
    delay = model.delays.get("", min(model.delays.values(), default=WINDOWS[-1]))
    return f"a change shows after about {delay} messages, {followed} are left" if followed < delay else ""


def _voice_finding(cast: Cast, model: VoiceModel | None, later: Sequence[Message], dated: bool) -> list[FirstFinding]:
    """Return the longest time in which an agent did not sound like itself, if there is one."""
    readings, alarms = follow_voice(model, later) if model else ([], [])
    spans = []
    for alarm in alarms:
        began, raised = later.index(alarm.began_at), later.index(alarm.raised_at)
        over = next((place for place in range(raised, len(later)) if readings[place].level == 0), len(later))
        spans.append((over - began, began, alarm))
    if not spans:
        return []
    length, began, alarm = max(spans, key=lambda item: item[0])
    earlier, first = cast.parts[alarm.agent_id][0], later[began]

    def moment(place: int) -> str:
        of_all = f"message {len(earlier) + place + 1} of {len(earlier) + len(later)}"
        return f"{later[place].created_at:%-d %B %Y}" if dated else of_all

    is_over = began + length < len(later)
    when = f"from {moment(began)} to {moment(began + length - 1)}" if is_over else f"since {moment(began)}"
    like = f"sounds like {cast.names.get(alarm.like, alarm.like)}" if alarm.like else "does not sound like itself"
    text = f"{when} {cast.names[alarm.agent_id]} {like}: {', '.join(alarm.moved)}"
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
    return [FirstFinding("voice_alarm", text, tuple(pairs), drift, since, length)]


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
