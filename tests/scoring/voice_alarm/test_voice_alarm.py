import json
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from persona_pipeline.base.database.engine import Store
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.scoring.voice_alarm import learning
from persona_pipeline.scoring.voice_alarm.learning import (
    LearntVoice,
    conversations,
    current_voice,
    learn_voice,
    learnt_from,
    stored_voice,
    write_voices,
)
from persona_pipeline.scoring.voice_alarm.model import _DATA as PACKAGED
from persona_pipeline.scoring.voice_alarm.model import (
    ALARM,
    COLUMNS,
    SECTIONS,
    KnownChange,
    VoiceModel,
    everyday,
    follow_voice,
    hashed,
    highest_sums,
    languages,
    voice_change,
    words_of,
)
from persona_pipeline.world.messages.store import write_messages
from persona_pipeline.world.models import Message, Persona
from tests.scoring.style.test_voice import say

MONDAY = datetime(2026, 3, 2, 9, tzinfo=UTC)
PROJECT = Path(__file__).resolve().parents[3]


def said(styles: Sequence[tuple[str, str]], count: int, seed: int, start: datetime = MONDAY) -> list[Message]:
    """Turns of ``count`` rounds: each (agent, style) speaks once a round; five rounds are a conversation."""
    generator = random.Random(seed)
    start_of = [start + timedelta(hours=number // 5 * 3, minutes=number) for number in range(count)]
    return [
        Message(
            f"{seed}-{number}-{agent}",
            agent,
            say(style, generator),
            start_of[number],
            "general",
        )
        for number in range(count)
        for agent, style in styles
    ]


HISTORY = said([("ann", "loud"), ("bob", "terse"), ("cyd", "lazy")], 60, 1)
ALONE = [message for message in HISTORY if message.agent_id == "ann"]


def learnt(history: Sequence[Message]) -> VoiceModel:
    model = learn_voice("ann", history, persona_hash="p1")
    assert model is not None
    return model


@pytest.fixture(scope="module")
def model() -> VoiceModel:
    return learnt(HISTORY)


@pytest.mark.parametrize("style", ["terse", "lazy"])
def test_another_voice_raises_an_alarm_that_knows_where_it_began(model: VoiceModel, style: str) -> None:
    messages = said([("ann", "loud")], 30, 2) + said([("ann", style)], 10, 3, MONDAY + timedelta(days=30))
    readings, alarms = follow_voice(model, messages)
    assert len(readings) == 40
    assert alarms
    assert int(alarms[0].raised_at.id.split("-")[1]) < 6
    assert alarms[0].raised_at.id.startswith("3-")
    assert alarms[0].began_at.id == "3-0-ann"
    assert alarms[0].mean_step > 0 > alarms[0].usual_step
    assert all(quote in messages[30:] for quote in alarms[0].quotes)
    assert "has not sounded like itself since message 3-0-ann" in alarms[0].text


def test_its_own_voice_raises_none(model: VoiceModel) -> None:
    readings, alarms = follow_voice(model, said([("ann", "loud"), ("bob", "lazy")], 300, 4))
    assert alarms == []
    assert len(readings) == 300
    assert all(reading.sum < ALARM for reading in readings)


def test_one_message_alone_is_no_change_of_voice(model: VoiceModel) -> None:
    ours = [item for item in said([("ann", "loud")], 10, 9) if item.agent_id == "ann"]
    foreign = said([("bob", "terse"), ("cyd", "lazy")], 20, 8)
    for item in foreign:
        readings, alarms = follow_voice(model, [*ours, replace(item, agent_id="ann", text=f"{item.text} {item.text}")])
        assert not alarms
        assert readings[-1].sum < ALARM


def test_one_change_is_one_alarm_and_the_next_change_another(model: VoiceModel) -> None:
    spells = [said([("ann", style)], 40, seed) for seed, style in ((5, "terse"), (6, "loud"), (7, "lazy"))]
    readings, alarms = follow_voice(model, [message for spell in spells for message in spell])
    assert [alarm.began_at.id for alarm in alarms] == ["5-0-ann", "7-0-ann"]
    assert max(reading.sum for reading in readings) == ALARM
    assert readings[79].sum == 0.0


def test_a_model_read_back_from_json_gives_the_same_readings(model: VoiceModel) -> None:
    again = VoiceModel.model_validate(json.loads(json.dumps(model.model_dump(mode="json"))))
    messages = said([("ann", "lazy")], 20, 6)
    assert follow_voice(again, messages) == follow_voice(model, messages)


def test_a_hashed_message_has_the_length_scikit_learn_gives_it() -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = [message.text for message in HISTORY[:30]]
    halves = (
        {"analyzer": "char", "ngram_range": (2, 4), "lowercase": False},
        {"ngram_range": (1, 2), "token_pattern": r"\w+|[^\w\s]+"},
    )
    for half, options in enumerate(halves):
        theirs = TfidfVectorizer(sublinear_tf=True, use_idf=False, norm=None, **options).fit_transform(texts)
        ours = np.zeros((len(texts), COLUMNS))
        for row, text in zip(ours, texts, strict=True):
            columns, values = hashed(text)[half]
            np.add.at(row, columns, values)
        # Two n-grams may share a column.
        assert ours @ ours.T == pytest.approx((theirs @ theirs.T).toarray(), abs=2)


def test_what_is_learnt_from_few_conversations_raises_no_alarm(model: VoiceModel) -> None:
    assert model.tells
    few = learnt(said([("ann", "loud"), ("bob", "terse"), ("cyd", "lazy")], 45, 1))
    assert (few.provenance.conversations, few.tells) == (9, False)
    _, alarms = follow_voice(few, said([("ann", "terse")], 40, 3, MONDAY + timedelta(days=30)))
    assert not alarms


def test_voices_that_are_alike_raise_none() -> None:
    assert all(side.everyday for side in learnt(said([("ann", "loud"), ("bob", "loud")], 60, 1)).sides)


def test_the_more_conversations_differ_the_higher_the_sum_may_rise(model: VoiceModel) -> None:
    steps = np.random.default_rng(1).normal(-1, 1, (200, 1))
    groups = np.arange(200) // 10
    apart = np.random.default_rng(2).normal(0, 0.5, 20)[groups][:, None]
    few, many = (learning._threshold(steps + apart, groups // merged, model.provenance, 0.05) for merged in (4, 1))
    assert learning._threshold(steps, groups, model.provenance, 0.05) < many < few


@pytest.mark.parametrize("pause", [1, 20, 90])
def test_some_of_everybody_are_in_every_part_whatever_the_clock_says(pause: int) -> None:
    messages = said([("ann", "loud"), ("bob", "terse"), ("cyd", "lazy")], 60, 1)
    timed = [replace(item, created_at=MONDAY + timedelta(minutes=pause * n)) for n, item in enumerate(messages)]
    parts = learning._folds(timed, "ann")
    for agent_id in ("ann", "bob", "cyd"):
        own = [part for part, item in zip(parts, timed, strict=True) if item.agent_id == agent_id]
        assert set(own) == set(range(learning._FOLDS))


def test_provenance_says_what_it_was_learnt_from(model: VoiceModel) -> None:
    known = model.provenance
    assert (known.language, known.everyday > 450) == ("en", True)
    assert (known.persona_hash, known.messages, known.conversations, known.others) == ("p1", 60, 12, 120)
    assert (known.first_message, known.last_message, known.horizon) == ("1-0-ann", "1-59-ann", 500)
    assert known.until == HISTORY[-1].created_at


CLERK = (
    "Moin! Kette runter? Dann bring's rum, ich guck.",
    "Nee, der Mantel ist durch. Neuer drauf, fertig.",
    "Bremse quietscht? Fett am Belag. Putzen, nicht ölen!",
    "Lager hab ich da. Morgen früh, dann läuft die Kiste.",
    "Speiche ab. Passiert. Zehn Minuten, nen Fünfer.",
    "Kann ich. Mach ich. Nur nicht heute, ne?",
)
STOCK = (
    "Vielen Dank für Ihre Nachricht. Ich helfe Ihnen gerne weiter.",
    "Es tut mir leid, dass Sie diese Erfahrung machen mussten. Wir kümmern uns umgehend darum.",
    "Bitte zögern Sie nicht, sich bei weiteren Fragen an uns zu wenden.",
    "Wir bitten um Ihr Verständnis und bedanken uns für Ihre Geduld.",
    "Gerne prüfe ich Ihr Anliegen und melde mich so bald wie möglich bei Ihnen zurück.",
    "Ihre Zufriedenheit ist uns wichtig. Kann ich Ihnen sonst noch behilflich sein?",
)


def clerk(texts: Sequence[str], count: int, start: int = 0) -> list[Message]:
    """One agent alone, four messages a conversation."""
    return [
        Message(
            f"m{n}",
            "clerk",
            texts[n % len(texts)] + f" {n % 7 + 1} Stück.",
            MONDAY + timedelta(hours=3 * (n // 4), minutes=n),
            f"ticket {n // 4}",
        )
        for n in range(start, start + count)
    ]


def test_an_agent_alone_is_held_against_everyday_language() -> None:
    model = learn_voice("clerk", clerk(CLERK, 80))
    assert model is not None and model.tells
    assert (model.provenance.language, model.provenance.others) == ("de", 0)
    _, usual = follow_voice(model, clerk(CLERK, 60, 80))
    _, (alarm,) = follow_voice(model, clerk(STOCK, 20, 80))
    assert usual == []
    assert alarm.messages <= 10
    assert alarm.like == "a support desk's courtesies"
    assert "and reads like a support desk's courtesies" in alarm.text


@pytest.mark.parametrize("name", SECTIONS)
def test_an_agent_may_be_called_as_a_kind_of_everyday_language(name: str) -> None:
    model = learn_voice(name, [replace(message, agent_id=name) for message in clerk(CLERK, 80)])
    assert model is not None
    assert {side.other for side in model.sides} == {*SECTIONS} - {"smalltalk"}


@pytest.mark.parametrize("code", ["zh", "ja"])
def test_how_wide_commas_are_and_how_accents_are_encoded_says_nothing_of_who_speaks(code: str) -> None:
    line = "好的，马上给您看看！" if code == "zh" else "はい、ガラスを見ますね？"
    (wide, wide_words), (narrow, narrow_words) = (
        hashed(line),
        hashed(line.replace("，", ",").replace("！", "!").replace("？", "?")),
    )
    assert [wide[0].tolist(), wide_words[0].tolist()] == [narrow[0].tolist(), narrow_words[0].tolist()]
    for found, other in zip(
        hashed("Crème, né à Liège"), hashed("Cre\u0300me, ne\u0301 a\u0300 Lie\u0300ge"), strict=True
    ):
        assert found[0].tolist() == other[0].tolist()


def test_words_of_scripts_without_blanks_come_again() -> None:
    assert words_of("我要找 der Fisch, ok") == ["我", "要", "找", "der", "Fisch", ",", "ok"]


def at(messages: Sequence[Message], minutes: float) -> list[Message]:
    """The same texts in the same order, so many minutes apart."""
    return [replace(item, created_at=MONDAY + timedelta(minutes=minutes * n)) for n, item in enumerate(messages)]


LONG_HISTORY = said([("ann", "loud"), ("bob", "terse"), ("cyd", "lazy")], 400, 1)


@pytest.fixture(scope="module")
def usual() -> VoiceModel:
    return learnt(LONG_HISTORY)


@pytest.mark.parametrize("minutes", [5, 20, 90, 1440])
def test_when_it_was_said_moves_neither_reference_nor_threshold(usual: VoiceModel, minutes: int) -> None:
    timed = learnt(at(LONG_HISTORY, minutes))
    assert usual.sides and timed.sides == usual.sides


def test_where_nothing_marks_conversations_few_messages_tell_nothing_and_many_do() -> None:
    history = said([("ann", "loud"), ("bob", "terse")], 400, 1)
    told = {count: learnt(at(history[: 2 * count], 5)).tells for count in (60, 399, 400)}
    assert told == {60: False, 399: False, 400: True}


def test_where_there_is_nothing_to_hold_it_against_nothing_is_learnt(tmp_path: Path) -> None:
    history = [replace(item, text="나는 오늘 자전거를 고쳤어요. 체인이 빠졌네요!") for item in clerk(CLERK, 80)]
    assert learn_voice("clerk", history) is None
    (tmp_path / "background").mkdir()
    lines = "\n".join(f"문의해 주셔서 감사합니다. 요청 번호 {n}번을 확인하고 다시 연락드리겠습니다." for n in range(60))
    path = tmp_path / "background" / "ko.txt"
    path.write_text(f"# courtesy\n{lines}\n", encoding="utf-8")
    model = learn_voice("clerk", history, root=tmp_path)
    assert model is not None and (model.provenance.language, model.provenance.everyday) == ("ko", 60)
    path.write_text(lines, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"ko\.txt:1: this line stands under no section"):
        learn_voice("clerk", history, root=tmp_path)


@pytest.mark.parametrize("language", languages())
def test_everyday_language_is_read_as_its_language(language: str) -> None:
    lines = [
        line for line in (PACKAGED / f"{language}.txt").read_text(encoding="utf-8").splitlines() if line[:2] != "# "
    ]
    found, pairs = everyday(lines)
    assert found == language
    assert len(pairs) > 450 and {section for section, _ in pairs} == set(SECTIONS)
    assert len({text for _, text in pairs}) == len(pairs)


def test_a_finding_names_what_changed_around_the_beginning(model: VoiceModel) -> None:
    start = MONDAY + timedelta(days=30)
    messages = [*HISTORY, *said([("ann", "terse")], 10, 12, start)]
    changes = [
        KnownChange(start - timedelta(days=20), "long ago"),
        KnownChange(start - timedelta(days=2), "commit abc123: shorter persona"),
        KnownChange(start - timedelta(minutes=5), "model changed"),
        KnownChange(start + timedelta(days=9), "later"),
    ]
    _, (alarm,) = follow_voice(model, [item for item in messages if item.created_at > model.provenance.until])
    found = voice_change(alarm, changes)
    assert [change.what for change in found.changes] == ["model changed", "commit abc123: shorter persona"]
    raised = KnownChange(alarm.raised_at.created_at, "just as it was raised")
    assert voice_change(alarm, [raised]).changes == (raised,)
    assert "since message 12-0-ann" in found.text
    assert "around it changed: model changed" in found.text
    earliest = KnownChange(start - timedelta(days=3), "three days before")
    assert voice_change(alarm, [earliest]).changes == (earliest,)
    bare = voice_change(alarm, ())
    assert bare.text.endswith("nothing is known to have changed around it")


def test_too_little_is_no_model() -> None:
    assert learn_voice("ann", HISTORY[:60]) is None
    assert learn_voice("nobody", HISTORY) is None


def test_a_conversation_ends_with_a_pause_or_elsewhere() -> None:
    minutes = [(0, "a"), (10, "a"), (20, "b"), (50, "a"), (120, "a"), (121, "b")]
    messages = [
        Message(str(n), "ann", "x", MONDAY + timedelta(minutes=minute), channel)
        for n, (minute, channel) in enumerate(minutes)
    ]
    assert conversations(messages) == [0, 0, 1, 0, 2, 3]


@pytest.mark.parametrize(
    ("steps", "most"),
    [([[1.0], [1.0], [-5.0], [1.5]], 2.0), ([[-1.0], [-1.0]], 0.0), ([[1.0, -2.0], [-3.0, 3.0], [1.5, 0.5]], 3.5)],
)
def test_each_side_has_a_sum_that_never_falls_below_zero(steps: list[list[float]], most: float) -> None:
    assert highest_sums(np.array([steps])).tolist() == [most]


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
    later = said([("ann", "lazy"), ("bob", "terse")], 40, 10, MONDAY + timedelta(days=60))
    known = current_voice(stored_voice(store, "ann"), OTHER, None)
    anew = learnt_from(known, [*HISTORY, *later])
    keep(store, anew)
    assert anew.model is not None
    assert anew.model.provenance.messages == 40
    assert stored_voice(store, "ann") == anew
    _, alarms = follow_voice(anew.model, said([("ann", "lazy")], 40, 11))
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
    assert kept.model is not None and kept.model.sides == model.sides


def test_of_a_long_history_others_of_all_times_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    early, late = (MONDAY + timedelta(days=days) for days in (0, 30))
    history = [
        *said([("ann", "loud"), ("cyd", "lazy")], 60, 1, early),
        *said([("ann", "loud"), ("bob", "terse")], 60, 2, late),
    ]
    monkeypatch.setattr(learning, "MOST_OTHERS", 80)
    model = learnt(history)
    assert model.provenance.others == 80
    assert sorted(side.other for side in model.sides if not side.everyday) == ["", "bob", "cyd"]


def sample_messages() -> list[Message]:
    rows = [
        json.loads(line)
        for path in sorted((PROJECT / "messages").glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    found = [
        Message(
            row["id"],
            row["agent_id"],
            row["text"],
            datetime.fromisoformat(row["created_at"]),
            row.get("channel"),
            row.get("recipient"),
        )
        for row in rows
    ]
    return sorted(found, key=lambda message: (message.created_at, message.id))


@pytest.mark.parametrize("agent_id", ["dwight", "jim", "michael", "pam"])
def test_the_sample_world_raises_an_alarm_for_the_one_who_drifts(agent_id: str) -> None:
    drift = datetime(2026, 6, 15, tzinfo=UTC)
    messages = sample_messages()
    model = learn_voice(agent_id, [message for message in messages if message.created_at < drift])
    assert model is not None
    week = [message for message in messages if message.created_at >= drift and message.agent_id == agent_id]
    _, alarms = follow_voice(model, week)
    if agent_id != "michael":
        assert alarms == []
        return
    assert [message.id for message in week].index(alarms[0].raised_at.id) < 5
    # His first message of the week still tells a story; from the second on he is somebody else.
    assert alarms[0].began_at.id == "general-077"
