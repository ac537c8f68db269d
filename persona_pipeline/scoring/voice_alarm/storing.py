"""Learnt voices in the store: one an agent, kept until its persona changes, then learnt anew from what it says from there on."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

import sqlalchemy as sa
from pydantic import ValidationError
from sqlalchemy.engine import Connection

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store, among, upsert
from persona_pipeline.scoring.voice_alarm.learning import learn_voice
from persona_pipeline.scoring.voice_alarm.model import VoiceModel
from persona_pipeline.world.models import Message

_TABLE = tables.voice_models


@dataclass(frozen=True)
class LearntVoice:
    """What is known of an agent's voice.

    Attributes:
        model: None while there is too little to learn from.
        since: messages up to here belong to an earlier persona and are not learnt from; None: all count.
        note: what a reader should know, such as that the voice is being learnt anew; empty when there is nothing to say.
    """

    agent_id: str
    persona_hash: str
    model: VoiceModel | None
    since: datetime | None = None
    note: str = ""


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
            model = None if row.model is None else VoiceModel.model_validate(row.model)
            found[row.agent_id] = LearntVoice(row.agent_id, row.persona_hash, model, row.since)
    return found


def current_voice(known: LearntVoice | None, agent_id: str, persona_hash: str, newest: datetime | None) -> LearntVoice:
    """Return what is known of the voice of an agent's present persona; if that has changed, the voice starts over from here.

    Args:
        known: as it was stored.
        newest: when the newest message was sent; what was said up to then belongs to the earlier persona.
    """
    if known is None:
        return LearntVoice(agent_id, persona_hash, None)
    if known.persona_hash == persona_hash:
        return known
    note = f"the persona of {agent_id} has changed: its voice is learnt anew from what it says from now on"
    return LearntVoice(agent_id, persona_hash, None, newest or known.since, note)


def learnt_from(known: LearntVoice, history: Sequence[Message]) -> LearntVoice:
    """Return a voice as it is learnt from what was said since it started over; without a model where that is too little.

    Args:
        history: messages of everybody, oldest first, up to where the agent is taken to have been itself.
    """
    usable = [message for message in history if known.since is None or message.created_at > known.since]
    return replace(known, model=learn_voice(known.agent_id, usable, persona_hash=known.persona_hash))


def write_voices(connection: Connection, voices: Sequence[LearntVoice]) -> None:
    """Keep voices, one an agent."""
    rows = [
        {
            "agent_id": item.agent_id,
            "persona_hash": item.persona_hash,
            "since": item.since,
            "model": None if item.model is None else item.model.model_dump(mode="json"),
        }
        for item in voices
    ]
    upsert(connection, _TABLE, rows, key=["agent_id"])
