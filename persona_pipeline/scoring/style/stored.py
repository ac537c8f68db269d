"""The learnt voices that the store keeps: one for each agent, with those of its earlier personas."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path

import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError
from sqlalchemy.engine import Connection

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store, among, upsert
from persona_pipeline.scoring.style.features import words_of
from persona_pipeline.scoring.style.model import VoiceModel, learn_voice
from persona_pipeline.world.models import Message, Persona

_TABLE = tables.voice_models
# Up to this share of its words a persona may be mended and keeps its voice: five misspelt words are up to .07, a sentence
# put in another's place .06 (most .23), half of it at least .32, and another persona .76, on six personas of 70 to 250 words.
_MENDED = 0.2
_MOST_FORMER = 3


@dataclass(frozen=True)
class LearntVoice:
    """What is known of an agent's voice.

    Attributes:
        model: None while there is too little to learn from.
        since: messages up to here belong to an earlier persona and are not learnt from; None: all count.
        note: what a reader should know, such as that the voice is being learnt anew; empty when there is nothing to say.
        persona: the text it began with.
        former: voices of earlier personas, the latest first; ``left``: when the newest message was sent as such a one was replaced.
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
        """Messages after this are held against it; None: all."""
        starts = [self.since, self.model.provenance.until if self.model else None]
        return max((start for start in starts if start), default=None)


def stored_voice(store: Store, agent_id: str) -> LearntVoice | None:
    """Return an agent's voice as it was stored; None when none was, or by a version that this one cannot read."""
    return stored_voices(store, [agent_id]).get(agent_id)


def stored_voices(store: Store, agent_ids: Collection[str]) -> dict[str, LearntVoice]:
    """Return the voices of some agents as they were stored, by agent; see ``stored_voice``."""
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
    """Return what is known of the voice of an agent's present persona.

    One whose text was hardly changed keeps its voice, one that was brought back has it back, and any other's starts over from here.

    Args:
        known: as it was stored.
        newest: when the newest message was sent; what was said up to then belongs to the earlier persona.
    """
    name, own_hash = persona.agent_id, persona.hash
    if known is None:
        return LearntVoice(name, own_hash, None, persona=persona.persona)
    if known.persona_hash == own_hash:
        return known
    candidates = [known, *known.former]
    matched = (
        SequenceMatcher(None, words_of(c.persona), words_of(persona.persona), autojunk=False) for c in candidates
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
        # What it said in between, if anything, was another's.
        nearest = replace(nearest, since=nearest.since if newest == nearest.left else newest, left=None)
    left = replace(known, former=(), left=newest)
    former = [item for item in (left, *known.former) if item.model is not None and item.persona != nearest.persona]
    return replace(nearest, persona_hash=own_hash, note=note, former=tuple(former[:_MOST_FORMER]))


def learnt_from(known: LearntVoice, history: Sequence[Message], root: Path | None = None) -> LearntVoice:
    """Return a voice as it is learnt from what was said since it started over; without a model where that is too little.

    ``history``: of everybody, oldest first, up to where the agent is taken to have been itself; ``root``: see ``learn_voice``.
    """
    usable = [message for message in history if known.since is None or message.created_at > known.since]
    return replace(known, model=learn_voice(known.agent_id, usable, persona_hash=known.persona_hash, root=root))


def write_voices(connection: Connection, voices: Sequence[LearntVoice]) -> None:
    """Keep voices, one an agent, each with those of its earlier personas."""
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
