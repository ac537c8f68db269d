"""The voice alarm: what a message's numbers are, what raises an alarm and what does not, and how it is told."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import yaml

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.scoring.style.features import (
    FEATURES,
    NEAREST_OF,
    SECTIONS,
    GramCounts,
    Texts,
    everyday,
    languages,
    packaged,
)
from persona_pipeline.scoring.style.model import VoiceModel, learn_voice, talk_numbers
from persona_pipeline.scoring.style.monitor import (
    ALARM,
    VoiceAlarm,
    VoiceWatch,
    follow_voice,
    moved,
)
from persona_pipeline.world.models import Message
from tests.scoring.style.samples import WORDS, line

MONDAY = datetime(2026, 3, 2, 9, tzinfo=UTC)
PROJECT = Path(__file__).resolve().parents[3]
LATER = MONDAY + timedelta(days=60)


def said(
    style: str, count: int, seed: int, start: datetime = MONDAY, agent_id: str = "ann", talk: int = 5
) -> list[Message]:
    """Messages of one agent, ``talk`` a conversation, a conversation every three hours."""
    generator = random.Random(f"{seed} {agent_id}")
    return [
        Message(
            f"{seed}-{n}", agent_id, line(style, generator),
            start + timedelta(hours=n // talk * 3, minutes=n % talk), "general",
        )
        for n in range(count)
    ]  # fmt: skip


HISTORY = said("loud", 150, 1)
CAST = [*HISTORY, *said("terse", 150, 2, agent_id="bob"), *said("lazy", 150, 3, agent_id="cyd")]


def learnt(history: Sequence[Message], agent_id: str = "ann") -> VoiceModel:
    model = learn_voice(agent_id, history, persona_hash="p1")
    assert model is not None
    return model


@pytest.fixture(scope="module")
def alone() -> VoiceModel:
    return learnt(HISTORY)


@pytest.fixture(scope="module")
def model() -> VoiceModel:
    return learnt(CAST)


@pytest.mark.parametrize(
    ("text", "words", "sentences", "capitals"),
    [
        ("Is it? No!! It is.", 5, 3, 0.3),
        ("OK", 1, 1, 1.0),
        ("我要找鱼。", 4, 1, 0.0),
        ("it's 3 o'clock...", 3, 1, 0.0),
    ],
)
def test_the_shape_of_a_message_is_counted(text: str, words: int, sentences: int, capitals: float) -> None:
    (row,) = Texts([text], 5).shape()
    assert np.expm1(row[1:3]) == pytest.approx([words, sentences])
    assert row[5] == pytest.approx(capitals)


def test_how_wide_commas_are_and_how_accents_are_encoded_says_nothing_of_who_writes() -> None:
    pairs = [("好的，马上给您看看！", "好的,马上给您看看!"), ("Crème, né", "Cre\u0300me, ne\u0301")]
    wide, narrow = (Texts(texts, 3) for texts in zip(*pairs, strict=True))
    assert wide.shape().tolist() == narrow.shape().tolist()
    (known, counts), (same, alike) = wide.grams, narrow.grams
    assert known.tolist() == same.tolist() and (counts != alike).nnz == 0


def test_a_repeated_message_overlaps_wholly_while_the_first_is_near() -> None:
    texts = ["A line that comes again.", *(f"{n} {word} nothing {n}" for n, word in enumerate("abcdefghijklmn" * 3))]
    for between, again in ((NEAREST_OF - 1, True), (NEAREST_OF, False)):
        found = Texts([*texts[: between + 1], texts[0]], 5).overlap()
        assert found[0] == 0 and bool(found[-1] > 0.99) is again


def test_history_is_read_without_its_own_conversation() -> None:
    texts, talks = ["blue moon", "blue moon", "a ladder"], np.array([0, 0, 1])
    counts = GramCounts.of(Texts(texts, 5))
    held_out, rest = counts.logs(Texts(texts, 5), talks), GramCounts.of(Texts(texts[2:], 5))
    seen = rest.counts.sum() + 0.5 * (len(counts.hashes) + 1)
    assert held_out[0] < counts.logs(Texts(texts, 5))[0]
    assert held_out[2] == pytest.approx(
        np.log(0.5 / (counts.counts.sum() - rest.counts.sum() + 0.5 * (len(counts.hashes) + 1)))
    )
    assert held_out[:2].max() < np.log(1.5 / seen)


@pytest.mark.parametrize(
    ("minutes", "talk", "count", "talks"),
    [(180, 1, 80, 20), (1, 80, 80, 2), (1, 5, 80, 16)],
    ids=["one each", "no end", "usual"],
)
def test_conversations_without_length_or_end_are_cut_into_rows(minutes: int, talk: int, count: int, talks: int) -> None:
    messages = [
        replace(item, created_at=MONDAY + timedelta(hours=3 * (n // talk), minutes=minutes * n))
        for n, item in enumerate(HISTORY[:count])
    ]
    assert len(set(talk_numbers(messages).tolist())) == talks


def test_provenance_and_what_too_little_history_means(model: VoiceModel) -> None:
    known = model.provenance
    assert (known.messages, known.conversations, known.others, known.language) == (150, 30, 300, "en")
    assert (known.first_message, known.last_message, known.persona_hash) == ("1-0", "1-149", "p1")
    assert known.everyday > 450 and model.tells and model.rivals == ("bob", "cyd")
    assert learn_voice("ann", HISTORY[:29]) is None and learn_voice("nobody", HISTORY) is None
    for count, follows, tells in ((45, False, False), (50, True, False), (99, True, False), (100, True, True)):
        few = learnt(HISTORY[:count])
        assert (bool(few.limits), few.tells) == (follows, tells)
    assert follow_voice(learnt(HISTORY[:45]), said("terse", 90, 7, LATER))[1] == []


@pytest.mark.parametrize("seed", [11, 12, 13])
def test_its_own_voice_raises_no_alarm(model: VoiceModel, alone: VoiceModel, seed: int) -> None:
    for known in (model, alone):
        readings, alarms = follow_voice(known, [*said("loud", 500, seed, LATER), *said("lazy", 9, 3, agent_id="bob")])
        assert alarms == [] and len(readings) == 500
        assert all(0 <= reading.level < ALARM for reading in readings)


@pytest.mark.parametrize("style", ["terse", "lazy"])
def test_another_voice_raises_an_alarm_that_knows_where_it_began_and_who_it_is_like(
    model: VoiceModel, style: str
) -> None:
    messages = [*said("loud", 60, 21, LATER), *said(style, 40, 22, LATER + timedelta(days=30))]
    _, (alarm,) = follow_voice(model, messages)
    assert alarm.began_at.id == "22-0" and int(alarm.raised_at.id.split("-")[1]) < 12
    assert alarm.messages == int(alarm.raised_at.id.split("-")[1]) + 1
    assert alarm.like == {"terse": "bob", "lazy": "cyd"}[style]
    assert all(quote in messages[60:] for quote in alarm.quotes) and alarm.moved
    assert "has not sounded like itself since message 22-0" in alarm.text and alarm.moved[0] in alarm.text


def repeated(messages: Sequence[Message]) -> list[Message]:
    return [replace(item, text=messages[n % 4].text) for n, item in enumerate(messages)]


def flattened(messages: Sequence[Message]) -> list[Message]:
    return [replace(item, text=" ".join(item.text.strip("!?").lower().split()[:4]) + ".") for item in messages]


@pytest.mark.parametrize(
    ("change", "expected"), [(repeated, "repeats itself"), (flattened, "fewer")], ids=["repeats itself", "flattened"]
)
def test_what_moved_is_named(change, expected: str) -> None:
    sentences = [" ".join(random.Random(n).sample(WORDS * 3, 14)) + "!" for n in range(400)]
    own = [replace(item, text=f"Well {text}") for item, text in zip(said("loud", 400, 31), sentences, strict=True)]
    _, alarms = follow_voice(learnt(own[:200]), [*own[200:260], *change(own[260:])])
    assert alarms and int(alarms[0].raised_at.id.split("-")[1]) >= 260
    assert any(text.startswith(expected) for text in alarms[0].moved)


def test_one_change_is_one_alarm_until_the_voice_is_back(alone: VoiceModel) -> None:
    spells = [
        said(style, 40, seed, LATER + timedelta(days=seed))
        for seed, style in ((5, "terse"), (20, "loud"), (35, "lazy"))
    ]
    messages = [message for spell in spells for message in spell]
    readings, alarms = follow_voice(alone, messages)
    assert [alarm.began_at.id.split("-")[0] for alarm in alarms] == ["5", "35"]
    assert readings[39].level == readings[-1].level == ALARM and min(item.level for item in readings[40:80]) == 0
    watch, one_by_one = VoiceWatch(alone), list[VoiceAlarm]()
    for message in messages:
        one_by_one += watch.read([message])[1]
    assert one_by_one == alarms


def test_a_model_read_back_from_json_gives_the_same_readings(model: VoiceModel) -> None:
    again = VoiceModel.model_validate(json.loads(json.dumps(model.model_dump(mode="json"))))
    messages = said("lazy", 30, 6, LATER)
    assert again == model and follow_voice(again, messages) == follow_voice(model, messages)


def test_more_looks_raise_every_limit(alone: VoiceModel) -> None:
    many = learn_voice("ann", HISTORY, looks=100)
    assert many is not None
    assert np.array(many.limits) == pytest.approx(np.array(alone.limits) + 2)


def test_wording_is_one_for_its_own_and_zero_for_others(model: VoiceModel) -> None:
    own, other = (model.way([item.text for item in said(style, 40, 41)]) for style in ("loud", "terse"))
    assert max(own.values()) == pytest.approx(0, abs=0.25)
    assert max(other, key=lambda name: other[name]) == "bob" and other["bob"] == pytest.approx(1, abs=0.25)


@pytest.mark.parametrize("language", ["de", "ja", "ar"])
def test_a_support_voice_that_turns_into_stock_language_reads_like_it(language: str) -> None:
    lines = yaml.safe_load((PROJECT / "benchmarks" / "everyday" / f"{language}.yaml").read_text(encoding="utf-8"))
    texts = [*lines["voice"], *lines["courtesies"][:40]]
    clock = (MONDAY + timedelta(hours=3 * (n // 8), minutes=n % 8) for n in range(len(texts)))
    own = [Message(f"m{n}", "desk", text, at, "tickets") for n, (text, at) in enumerate(zip(texts, clock, strict=True))]
    known = learnt(own[:160], "desk")
    _, (alarm,) = follow_voice(known, own[160:])
    assert known.tells and known.delays[""] <= 25
    assert alarm.messages <= 15 and alarm.like in SECTIONS.values()


def test_everyday_language_of_the_package_and_of_a_world(tmp_path: Path) -> None:
    for language in languages():
        found, pairs = everyday([text for _, text in packaged(language)])
        assert found == language and len(pairs) > 450 and {section for section, _ in pairs} == set(SECTIONS)
        assert len({text for _, text in pairs}) == len(pairs)
    (tmp_path / "background").mkdir()
    path = tmp_path / "background" / "ko.txt"
    lines = "\n".join(f"문의해 주셔서 감사합니다. 요청 번호 {n}번을 확인하고 다시 연락드리겠습니다." for n in range(60))
    path.write_text(f"# courtesy\n{lines}\n", encoding="utf-8")
    korean = [replace(item, text="나는 오늘 자전거를 고쳤어요. 체인이 빠졌네요!") for item in HISTORY]
    model = learn_voice("ann", korean, root=tmp_path)
    assert model is not None and (model.provenance.language, len(model.background)) == ("ko", 60)
    path.write_text(lines, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"ko\.txt:1: this line is in no section"):
        learn_voice("ann", korean, root=tmp_path)


def test_what_moved_is_told_most_first_and_never_empty() -> None:
    shift = np.zeros(len(FEATURES))
    assert moved(shift) == ["shorter (+0.0)"]
    shift[[0, 5, 11, 2]] = 2.1, -1.7, 3.0, -0.1
    assert moved(shift) == ["repeats itself (+3.0)", "longer (+2.1)", "fewer capitals (-1.7)"]
