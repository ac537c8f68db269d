"""Stored voices: kept while the persona is the same, learnt again when it changes."""

from dataclasses import replace
from datetime import timedelta

import pytest

from persona_pipeline.base.database.engine import Store
from persona_pipeline.scoring.style.model import VoiceModel
from persona_pipeline.scoring.style.monitor import (
    LearntVoice,
    current_voice,
    follow_voice,
    learnt_from,
    stored_voice,
    write_voices,
)
from persona_pipeline.world.messages.store import write_messages
from persona_pipeline.world.models import Persona
from tests.scoring.style.test_monitor import HISTORY, MONDAY, learnt, said


@pytest.fixture(scope="module")
def model() -> VoiceModel:
    return learnt(HISTORY)


def keep(store: Store, voice: LearntVoice) -> None:
    with store.begin() as connection:
        write_voices(connection, [voice])


ANN = Persona(
    "ann", "Ann", "Ann runs the harbour office. She talks loudly, in long sentences, about boats and her seven cousins."
)
WORDS = ANN.persona.split()
OTHER = Persona(
    "ann", "Ann", "A quiet archivist from the hills who answers with one word and never greets anybody at all."
)


@pytest.fixture(scope="module")
def first() -> LearntVoice:
    """Ann's voice as it is learnt first."""
    return learnt_from(current_voice(None, ANN, None), HISTORY)


def test_the_stored_voice_is_kept_until_the_persona_changes(store: Store, first: LearntVoice) -> None:
    write_messages(store, HISTORY)
    assert first.model is not None
    assert first.note == ""
    keep(store, first)
    assert stored_voice(store, "ann") == current_voice(stored_voice(store, "ann"), ANN, None) == first

    changed = current_voice(first, OTHER, HISTORY[-1].created_at)
    assert changed.model is None
    assert "persona of ann has changed" in changed.note
    assert learnt_from(changed, HISTORY).model is None
    keep(store, changed)
    later = said("lazy", 60, 10, MONDAY + timedelta(days=60))
    known = current_voice(stored_voice(store, "ann"), OTHER, None)
    anew = learnt_from(known, [*HISTORY, *later])
    keep(store, anew)
    assert anew.model is not None
    assert anew.model.provenance.messages == 60
    assert stored_voice(store, "ann") == anew
    _, alarms = follow_voice(anew.model, said("lazy", 40, 11))
    assert alarms == []


@pytest.mark.parametrize("said_between", [False, True])
@pytest.mark.parametrize("learnt_between", [False, True])
def test_a_persona_that_is_brought_back_has_its_voice_back(
    store: Store, first: LearntVoice, said_between: bool, learnt_between: bool
) -> None:
    write_messages(store, HISTORY)
    newest = HISTORY[-1].created_at
    other = current_voice(first, OTHER, newest)
    if learnt_between:
        other = replace(other, model=first.model)
    keep(store, other)
    later = newest + timedelta(days=9) if said_between else newest
    back = current_voice(stored_voice(store, "ann"), ANN, later)
    assert (back.model, back.persona_hash) == (first.model, ANN.hash)
    assert "its earlier voice goes on" in back.note
    # Nothing that stood in its messages is forgotten, and none of another persona's count.
    assert first.model is not None
    assert back.follows_from == (later if said_between else first.model.provenance.until)
    assert len(back.former) == learnt_between
    keep(store, back)
    again = current_voice(stored_voice(store, "ann"), OTHER, later)
    assert (again.model is not None) == learnt_between


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (WORDS, True),
        ([word.replace("cousins", "cousns") for word in WORDS], True),
        ([*WORDS[:3], "port", *WORDS[4:]], True),
        ([*WORDS[:9], *OTHER.persona.split()[9:]], False),
        (OTHER.persona.split(), False),
    ],
)
@pytest.mark.parametrize("name", ["Ann", "Ann the Loud"])
def test_a_mended_persona_keeps_its_voice_and_a_rewritten_one_does_not(
    model: VoiceModel, words: list[str], kept: bool, name: str
) -> None:
    known = LearntVoice("ann", ANN.hash, model, persona=ANN.persona)
    found = current_voice(known, Persona("ann", name, " ".join(words)), MONDAY)
    assert (found.model is not None) == kept
    assert (found.since is None) == kept
    assert ("keeps its voice" in found.note) == (kept and (words != WORDS or name != "Ann"))


def test_many_small_mends_are_measured_together(model: VoiceModel) -> None:
    found, words = LearntVoice("ann", ANN.hash, model, persona=ANN.persona), list(WORDS)
    place = 0
    for place in range(len(words)):
        words[place] = f"other{place}"
        found = current_voice(found, Persona("ann", "Ann", " ".join(words)), MONDAY)
        if found.model is None:
            break
    assert 2 <= place <= len(words) // 2


@pytest.mark.parametrize("earlier", ["version 1", "no model of ours"])
def test_what_another_version_stored_is_learnt_anew(store: Store, model: VoiceModel, earlier: str) -> None:
    from persona_pipeline.base.database import tables

    write_messages(store, HISTORY)
    row = model.model_dump(mode="json")
    assert row["provenance"]["version"] > 1
    row = (
        {"kind": "oracle"}
        if earlier == "no model of ours"
        else row | {"provenance": row["provenance"] | {"version": 1}}
    )
    with store.begin() as connection:
        connection.execute(tables.voice_models.insert().values(agent_id="ann", persona_hash="p1", model=row))
    assert stored_voice(store, "ann") is None
    keep(store, learnt_from(current_voice(None, ANN, None), HISTORY))
    kept = stored_voice(store, "ann")
    assert kept is not None
    assert kept.model is not None and kept.model.limits == model.limits
