"""Learnt voices in the store: one an agent, kept until its persona changes, then learnt anew from what it says from there on."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa
from pydantic import ValidationError

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store, among, upsert
from persona_pipeline.scoring.voice_alarm.learning import FEWEST_OWN, learn_voice
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


def current_voice(store: Store, agent_id: str, persona_hash: str, newest: datetime | None) -> LearntVoice:
    """Return what is known of the voice of an agent's present persona; if that has changed, the voice starts over from here.

    Args:
        newest: when the newest message was sent; what was said up to then belongs to the earlier persona.
    """
    known = stored_voice(store, agent_id)
    if known is None:
        return LearntVoice(agent_id, persona_hash, None)
    if known.persona_hash == persona_hash:
        return known
    learnt = LearntVoice(agent_id, persona_hash, None, newest or known.since, _changed(agent_id))
    _write(store, learnt)
    return learnt


def _changed(agent_id: str) -> str:
    return f"the persona of {agent_id} has changed: its voice is learnt anew from what it says from now on"


def learn_stored_voice(
    store: Store, agent_id: str, persona_hash: str, history: Sequence[Message], *, again: bool = False
) -> LearntVoice:
    """Return the agent's voice, learnt from ``history`` and stored if there is none yet, or none of this persona.

    Args:
        history: messages of everybody, oldest first, up to where the agent is taken to have been itself.
        again: learn anew although there is one.
    """
    known = stored_voice(store, agent_id)
    if known is not None and known.persona_hash == persona_hash and known.model is not None and not again:
        return known
    since, note = (None, "") if known is None else (known.since, "")
    if known is not None and known.persona_hash != persona_hash:
        # What was said under the earlier persona is another voice.
        since = max((message.created_at for message in history), default=known.since)
        note = _changed(agent_id)
    usable = [message for message in history if since is None or message.created_at > since]
    model = learn_voice(agent_id, usable, persona_hash=persona_hash)
    if model is None:
        own = sum(message.agent_id == agent_id for message in usable)
        missing = f"{agent_id} has {own} messages to learn its voice from, {FEWEST_OWN} are needed"
        note = f"{note}; {missing}" if note else missing
    learnt = LearntVoice(agent_id, persona_hash, model, since, note)
    _write(store, learnt)
    return learnt


def _write(store: Store, learnt: LearntVoice) -> None:
    row = {
        "agent_id": learnt.agent_id,
        "persona_hash": learnt.persona_hash,
        "since": learnt.since,
        "model": None if learnt.model is None else learnt.model.model_dump(mode="json"),
    }
    with store.begin() as connection:
        upsert(store, connection, _TABLE, [row], key=["agent_id"])
