"""Ask which messages of an agent are in character, and read the answer.

A call shows whole conversations with at most 40 messages of the agent. Code checks the answer: each message has one verdict, and
a message that is out contains its quote.
"""

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from persona_pipeline.base.documents.json import content_hash, list_schema, object_schema
from persona_pipeline.base.text import shortened
from persona_pipeline.judging.claims import TEXT_SCHEMA, TEXTS, checked_quote, plain_json, reads_as_injection
from persona_pipeline.judging.verdict import Answer, Ask, Question, Unscored, Usage
from persona_pipeline.scoring.messages.verdicts import (
    MessageVerdict,
    MessageVerdicts,
    Role,
    SaidLine,
    WorstMessage,
    in_order,
    share_in_character,
)
from persona_pipeline.world.models import Entry, Message, Persona, Trajectory, conversations, grouped
from persona_pipeline.world.propositions.models import Proposition, PropositionSet, claim_variables, fill_template

KIND = "messages"
# Limits of a call: judged messages, and shown characters.
MOST_ASKED, MOST_CHARACTERS = 40, 24_000
# Number of entries shown before a message as context, and characters shown of each entry.
CONTEXT, _LONGEST = 5, 8_000
# Number of worst messages of an agent, and characters of the lines shown with them.
MOST_WORST, _LONGEST_LINE = 5, 500
_TOKENS = 6_144
_TEXTS: Mapping[str, str] = tomllib.loads((Path(__file__).parent / "data/rules.toml").read_text("utf-8"))
_VERDICT = {"id": TEXT_SCHEMA, "verdict": {**TEXT_SCHEMA, "enum": [role.value for role in Role]}}
_WHY = {"id": TEXT_SCHEMA, "claims": list_schema(TEXT_SCHEMA), "quote": TEXT_SCHEMA, "reason": TEXT_SCHEMA}
_SCHEMA = object_schema({"verdicts": list_schema(object_schema(_VERDICT)), "why": list_schema(object_schema(_WHY))})
PROMPT_VERSION = f"{KIND}-1-{content_hash([_TEXTS, _SCHEMA])[:8]}"
# No character writes this message. A judge that finds it in character follows instructions in the messages.
_NONSENSE = " ".join(TEXTS["rare_words"].split()[::13])
_CANARY = "canary"
_DIRECT = "direct message"


@dataclass(frozen=True)
class Character:
    """An agent as the judge sees it.

    Attributes:
        name: its display name; ``names``: display names of others, by id.
        persona: None: not shown.
        claims: claims of adherence.
    """

    agent_id: str
    name: str
    persona: str | None
    claims: Sequence[Proposition] = ()
    names: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def context(self) -> tuple[str, ...]:
        """Persona and claims as reference blocks. Claim ids are neutral, because a real id may reveal the right answer."""
        variables = claim_variables({"agent_name": self.name}) | {"action": "the message"}
        claims = [
            {"id": f"c{place}", "claim": fill_template(item.claim, variables)}
            | ({"bad_habit": True} if item.inverted else {})
            for place, item in enumerate(self.claims, 1)
        ]
        said = (
            "" if self.persona is None else f"Persona of the agent, as JSON:\n{plain_json({'persona': self.persona})}"
        )
        return tuple(filter(None, (said, f"Claims about the agent, as JSON:\n{plain_json(claims)}")))

    def claim_ids(self, neutral: Sequence[str]) -> tuple[str, ...]:
        """Return the ids of the known claims that an answer names."""
        known = {f"c{place}": item.id for place, item in enumerate(self.claims, 1)}
        return tuple(dict.fromkeys(known[name] for name in neutral if name in known))


def character_of(persona: Persona, adherence: PropositionSet, names: Mapping[str, str] | None = None) -> Character:
    """Return an agent as the judge of its messages sees it; ``names``: display names of others, by id."""
    shown = persona.persona if adherence.include_personas else None
    claims = adherence.about_messages().propositions
    return Character(persona.agent_id, persona.display_name, shown, claims, names or {})


@dataclass(frozen=True)
class Talk:
    """A conversation, or a part of a long one, with the messages to judge in it.

    ``key``: the place and start of the conversation. ``entries``: the shown messages of all speakers, in order.
    """

    key: str
    entries: Sequence[Message]
    asked: frozenset[str]
    omitted: int = 0

    @property
    def place(self) -> str:
        """The place of the conversation, as the judge sees it."""
        channel = self.entries[0].channel
        return _DIRECT if channel is None else f"#{channel}"

    @property
    def size(self) -> int:
        """Number of shown characters."""
        return sum(min(len(entry.text), _LONGEST) for entry in self.entries)


@dataclass(frozen=True)
class MessageCall:
    """One call with conversations of an agent. ``again``: the first answer was incomplete."""

    character: Character
    talks: Sequence[Talk]
    again: bool = False

    @cached_property
    def asked(self) -> list[tuple[Message, str]]:
        """The messages to judge, each with the key of its conversation, in the shown order."""
        return [(entry, talk.key) for talk in self.talks for entry in talk.entries if entry.id in talk.asked]

    @cached_property
    def is_suspicious(self) -> bool:
        """Whether a shown text reads like an instruction to a judge."""
        return any(reads_as_injection(entry.text) for talk in self.talks for entry in talk.entries)

    @cached_property
    def _numbered(self) -> Trajectory:
        own = tuple(Entry("agent", message.text, message.id) for message, _ in self.asked)
        return Trajectory((*own, Entry("agent", _NONSENSE, _CANARY)) if self.is_suspicious else own)

    def _shown(self) -> Iterator[dict[str, Any]]:
        ids = {entry.message_id: f"m{place}" for place, entry in enumerate(self._numbered.entries, 1)}
        for number, talk in enumerate(self.talks, 1):
            before = [{"omitted": talk.omitted}] if talk.omitted else []
            shown = [self._entry(entry, ids.get(entry.id)) for entry in talk.entries]
            yield {
                "conversation": number,
                "place": talk.place,
                "entries": [*before, *shown],
            }
        if self.is_suspicious:
            said = [{"id": ids[_CANARY], "text": _NONSENSE}]
            yield {"conversation": len(self.talks) + 1, "place": _DIRECT, "entries": said}

    def _entry(self, message: Message, local_id: str | None) -> dict[str, str]:
        character, text = self.character, message.text
        if len(text) > _LONGEST:
            text = f"{text[: _LONGEST - 1000]} [...] {text[-1000:]}"
        if local_id is not None:
            return {"id": local_id, "text": text}
        is_own = message.agent_id == character.agent_id
        return {
            "from": character.name if is_own else character.names.get(message.agent_id, message.agent_id),
            "text": text,
        }

    @cached_property
    def question(self) -> Question:
        """The question for the judge."""
        character, shown = self.character, list(self._shown())
        content = [character.context, shown, *(["again"] if self.again else [])]
        ids = ", ".join(f"m{place}" for place in range(1, len(self._numbered.entries) + 1))
        return Question(
            kind=KIND,
            subject={"kind": KIND, "agent_id": character.agent_id, "shown": content_hash(content)},
            label=f"messages of {character.agent_id}",
            system=_TEXTS["rules"],
            context=character.context,
            # Other conversations follow with the same persona and claims.
            context_recurs=True,
            evidence=plain_json(shown),
            ask=_TEXTS["ask"].format(ids=ids) + (_TEXTS["again"] if self.again else ""),
            schema=_SCHEMA,
            max_tokens=_TOKENS,
            agent_id=character.agent_id,
            prompt_version=PROMPT_VERSION,
        )

    def verdicts(self, data: Mapping[str, Any]) -> tuple[list[MessageVerdict], Unscored | None]:
        """Return the valid verdicts of an answer, and the reason if the whole answer is rejected.

        A message gets no verdict if the answer has none or contradictory ones, or if it is out and does not contain its quote.
        """
        given = grouped(data["verdicts"], lambda item: str(item["id"]))
        why = {str(item["id"]): item for item in reversed(data["why"])}
        found = list[MessageVerdict]()
        for place, entry in enumerate(self._numbered.entries, 1):
            roles = {Role(item["verdict"]) for item in given.get(f"m{place}", ())}
            if len(roles) != 1:
                continue
            (role,), reason = roles, why.get(f"m{place}")
            if entry.message_id == _CANARY:
                if role is Role.IN:
                    return [], Unscored.COMPROMISED
                continue
            message, key = self.asked[place - 1]
            told = {"message": message.id, "conversation": key, "said_at": message.created_at, "verdict": role}
            if role is not Role.IN and reason:
                quoted = checked_quote(self._numbered, f"m{place}", reason["quote"])
                told["quote"] = quoted.quote if quoted.verified else ""
                told["claims"] = self.character.claim_ids(reason["claims"])
                told["reason"] = " ".join(reason["reason"].split())
            if role is Role.OUT and not told.get("quote"):
                continue
            found.append(MessageVerdict.model_validate(told))
        return found, None

    def without(self, known: Sequence[MessageVerdict]) -> "MessageCall":
        """Return a second call for the messages without a verdict."""
        have = {item.message for item in known}
        talks = [Talk(talk.key, talk.entries, talk.asked - have, talk.omitted) for talk in self.talks]
        return MessageCall(self.character, [talk for talk in talks if talk.asked], again=True)


def readings_of(character: Character, said: Sequence[Message], most: int) -> tuple[list[MessageCall], int]:
    """Return the calls about an agent's messages in a window, and the number of older messages left out.

    Args:
        said: messages of all speakers in the places where the agent spoke, in order of time.
        most: maximum number of judged messages of the agent; the newest, by whole conversations.
    """
    talks = grouped(zip(said, conversations(said), strict=True), lambda pair: pair[1])
    places = [[message for message, _ in pairs] for pairs in talks.values()]
    own = {id(place): [item for item in place if item.agent_id == character.agent_id] for place in places}
    spoken = sorted((place for place in places if own[id(place)]), key=lambda place: own[id(place)][-1].created_at)
    parts, left = list[Talk](), most
    for place in reversed(spoken):
        newest = own[id(place)][-left:] if left == most else own[id(place)]
        if len(newest) > left:
            break
        left -= len(newest)
        parts[:0] = _parts(place, {item.id for item in newest})
    asked = sum(len(part.asked) for part in parts)
    return _packed(character, parts), sum(map(len, own.values())) - asked


def _parts(place: Sequence[Message], asked: set[str]) -> list[Talk]:
    """Return a conversation as parts of at most 40 judged messages, each with the entries before it."""
    key = f"{place[0].conversation} {place[0].created_at.isoformat()}"
    where = [index for index, message in enumerate(place) if message.id in asked]
    parts, shown, ids = list[Talk](), dict[int, Message](), set[str]()
    for index in where:
        around = {at: place[at] for at in range(max(0, index - CONTEXT), index + 1)}
        if ids and (len(ids) == MOST_ASKED or _talk(key, shown | around, ids).size > MOST_CHARACTERS):
            parts.append(_talk(key, shown, ids))
            shown, ids = {}, set()
        shown |= around
        ids.add(place[index].id)
    return [*parts, _talk(key, shown, ids)]


def _talk(key: str, shown: Mapping[int, Message], ids: set[str]) -> Talk:
    return Talk(key, list(shown.values()), frozenset(ids), omitted=min(shown))


def _packed(character: Character, parts: Sequence[Talk]) -> list[MessageCall]:
    """Return calls of whole parts, in order of time, so that a new conversation does not change earlier calls."""
    calls = list[list[Talk]]()
    for part in parts:
        last = calls[-1] if calls else []
        asked = sum(len(talk.asked) for talk in last) + len(part.asked)
        if last and asked <= MOST_ASKED and sum(talk.size for talk in last) + part.size <= MOST_CHARACTERS:
            last.append(part)
        else:
            calls.append([part])
    return [MessageCall(character, talks) for talks in calls]


async def read_messages(asked: Sequence[tuple[Sequence[MessageCall], int]], ask: Ask) -> list[MessageVerdicts]:
    """Return the verdicts of agents or windows from one batch of calls; a second batch asks once more for missing verdicts.

    ``asked``: results of ``readings_of``, each with at least one call.
    """
    every = [reading for readings, _ in asked for reading in readings]
    answers = await ask([reading.question for reading in every]) if every else []
    read = [_CallRead.of(reading, answer) for reading, answer in zip(every, answers, strict=True)]
    again = [item for item in read if item.is_incomplete]
    seconds = await ask([item.rest.question for item in again]) if again else []
    for item, answer in zip(again, seconds, strict=True):
        item.add(_CallRead.of(item.rest, answer))
    results, every_read = list[MessageVerdicts](), iter(read)
    for readings, left_out in asked:
        results.append(_joined([next(every_read) for _ in readings], left_out))
    return results


@dataclass
class _CallRead:
    """Result of a call: verdicts, answers, and the reason for missing verdicts."""

    reading: MessageCall
    answers: list[Answer]
    verdicts: list[MessageVerdict]
    reason: Unscored | None
    detail: str = ""

    @classmethod
    def of(cls, reading: MessageCall, answer: Answer) -> "_CallRead":
        if answer.data is None:
            return cls(reading, [answer], [], answer.unscored, answer.detail)
        found, compromised = reading.verdicts(answer.data)
        detail = "the judge found nonsense in character: it obeys what it reads" if compromised else ""
        return cls(reading, [answer], found, compromised, detail)

    @property
    def is_incomplete(self) -> bool:
        """Whether the answer lacks verdicts, so that a second call may help."""
        return self.reason is None and len(self.verdicts) < len(self.reading.asked)

    @property
    def rest(self) -> MessageCall:
        return self.reading.without(self.verdicts)

    def add(self, second: "_CallRead") -> None:
        self.answers += second.answers
        self.verdicts += second.verdicts
        if len(self.verdicts) < len(self.reading.asked):
            self.reason = second.reason or Unscored.UNSUPPORTED
            self.detail = second.detail or "asked twice, the judge gave no verdict with a quote that is in the message"


def _joined(read: Sequence[_CallRead], left_out: int) -> MessageVerdicts:
    unscored = Counter[str]()
    for item in read:
        if item.reason:
            unscored[item.reason.value] += len(item.reading.asked) - len(item.verdicts)
    answers = [answer for item in read for answer in item.answers]
    models = sorted({answer.model for answer in answers if answer.model})
    verdicts = in_order([verdict for item in read for verdict in item.verdicts])
    return MessageVerdicts(
        agent_id=read[0].reading.character.agent_id,
        verdicts=verdicts,
        share=share_in_character(verdicts),
        unscored=dict(+unscored),
        detail=next((item.detail for item in read if item.detail), ""),
        left_out=left_out,
        model=", ".join(models) or None,
        prompt_version=", ".join(sorted({answer.prompt_version for answer in answers if answer.prompt_version}))
        or None,
        usage=sum((answer.usage for answer in answers), Usage()),
    )


def worst_messages(
    read: MessageVerdicts, series: Sequence[MessageVerdict], said: Sequence[Message]
) -> list[WorstMessage]:
    """Return at most five messages out of character: most broken claims first, then newest first.

    Args:
        read: the verdicts on the window.
        series: verdicts on the agent's messages up to the end of the window, the source of the examples. An example is older than
            its message and than the drift, and from the same place where possible.
        said: messages of all speakers in the places where the agent spoke, in order of time. Only these messages can be answered
            messages or examples.
    """
    out = [item for item in read.verdicts if item.verdict is Role.OUT]
    out.sort(key=lambda item: (len(item.claims), item.said_at, item.message), reverse=True)
    if not out:
        return []
    texts, answered, used = {message.id: message for message in said}, _answered(read.agent_id, said), set[str]()
    right = [texts[item.message] for item in series if item.verdict is Role.IN and item.message in texts]
    found = list[WorstMessage]()
    for item in out[:MOST_WORST]:
        example = _example(item, [one for one in right if _is_before(one, item, read)], used)
        used |= {example.id} if example else set()
        found.append(WorstMessage(verdict=item, answered=_line(answered.get(item.message)), example=_line(example)))
    return found


def _answered(agent_id: str, said: Sequence[Message]) -> dict[str, Message]:
    """Return the last message of another speaker in the conversation, by id of the agent's message."""
    found, latest = dict[str, Message](), dict[int, Message]()
    for message, conversation in zip(said, conversations(said), strict=True):
        if message.agent_id != agent_id:
            latest[conversation] = message
        elif conversation in latest:
            found[message.id] = latest[conversation]
    return found


def _is_before(message: Message, item: MessageVerdict, read: MessageVerdicts) -> bool:
    return message.created_at < min(item.said_at, read.drift.since if read.drift else item.said_at)


def _example(item: MessageVerdict, before: Sequence[Message], used: set[str]) -> Message | None:
    """Return the newest message of the same place, preferably one that is not an example yet."""
    place = item.conversation.rpartition(" ")[0]
    rank = [
        (message.conversation == place, message.id not in used, message.created_at, message.id) for message in before
    ]
    return before[rank.index(max(rank))] if rank else None


def _line(message: Message | None) -> SaidLine | None:
    if message is None:
        return None
    quote = shortened(message.text, _LONGEST_LINE - 1)
    return SaidLine(message_id=message.id, speaker=message.agent_id, quote=quote)
