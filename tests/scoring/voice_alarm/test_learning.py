"""The parts that a voice is learnt from, one by one, each against its definition."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from persona_pipeline.scoring.voice_alarm import learning
from persona_pipeline.scoring.voice_alarm.learning import FEWEST_OTHERS
from persona_pipeline.scoring.voice_alarm.model import (
    COLUMNS,
    MOST_DELAY,
    VoiceModel,
    VoiceProvenance,
    VoiceSide,
    VoiceWatch,
    inverse_frequencies,
    weighted,
)
from persona_pipeline.world.models import PAUSE, Message, conversations

MONDAY = datetime(2026, 3, 2, 9, tzinfo=UTC)
PROVENANCE = VoiceProvenance(
    agent_id="ann",
    persona_hash="p1",
    first_message="a",
    last_message="b",
    until=MONDAY,
    messages=50,
    conversations=50,
    others=0,
    language="en",
    everyday=0,
    false_alarms=0.05,
    horizon=20,
)
SIDE = VoiceSide(other="bob", reference=1.0, scale=2.0, cap=6.0, usual=-4.0)


def message(number: int, agent_id: str = "ann", at: timedelta = timedelta(0), channel: str = "general") -> Message:
    return Message(f"m{number}", agent_id, f"line {number}", MONDAY + at, channel)


@pytest.mark.parametrize(
    ("pause", "numbers"), [(PAUSE - timedelta(microseconds=1), [0, 0]), (PAUSE, [0, 1]), (PAUSE * 2, [0, 1])]
)
def test_a_pause_of_an_hour_ends_a_conversation(pause: timedelta, numbers: list[int]) -> None:
    assert conversations([message(0), message(1, at=pause)]) == numbers


def test_other_places_are_other_conversations_that_go_on_side_by_side() -> None:
    places = ["a", "b", "a", "b"]
    said = [message(n, at=timedelta(minutes=n), channel=place) for n, place in enumerate(places)]
    assert conversations(said) == [0, 1, 0, 1]


@pytest.mark.parametrize(("lines", "voices"), [(FEWEST_OTHERS - 1, ("ann",)), (FEWEST_OTHERS, ("ann", "bob"))])
def test_who_said_enough_is_a_voice(lines: int, voices: tuple[str, ...]) -> None:
    found, places = learning._voices("ann", [message(0), *(message(n, "bob") for n in range(1, lines + 1))])
    assert found == voices
    assert places.tolist() == [0, *[len(voices) - 1 or -1] * lines]


def test_those_who_said_most_come_first_and_the_rest_are_nobodys_voice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "MOST_RIVALS", 2)
    monkeypatch.setattr(learning, "FEWEST_OTHERS", 1)
    said = [message(n, name) for n, name in enumerate(["dan", "cyd", "bob", "cyd", "ann", "bob"])]
    found, places = learning._voices("ann", said)
    assert found == ("ann", "bob", "cyd")
    assert places.tolist() == [-1, 2, 1, 2, 0, 1]


def test_weights_are_those_of_a_ridge_regression_of_each_voice_in_which_both_parts_count_alike() -> None:
    generator = np.random.default_rng(7)
    rows = generator.normal(size=(40, 6))
    speakers, worths = np.array([0] * 8 + [1] * 12 + [-1] * 20), generator.uniform(0.5, 2.0, size=40)
    found = learning._regression(sparse.csr_array(rows), speakers, worths, 2)
    for voice in range(2):
        own = speakers == voice
        share = worths * np.sqrt(np.where(own, 0.5 / own.mean(), 0.5 / (1 - own.mean())))
        share /= share.mean()
        centred = own - (share * own).mean()
        penalty = learning._PENALTY * np.eye(6)
        exact = np.linalg.solve(rows.T @ (share[:, None] * rows) + penalty, rows.T @ (share * centred))
        assert found[:, voice] == pytest.approx(exact, abs=1e-4)


def test_a_voice_of_which_a_part_has_no_message_weighs_as_if_it_had_one() -> None:
    rows = np.eye(4)
    found = learning._regression(sparse.csr_array(rows), np.array([-1, -1, -1, -1]), np.ones(4), 1)
    assert found == pytest.approx(0.0)


@pytest.mark.parametrize(("everyday", "way"), [(False, 0.7), (True, 0.3)])
def test_a_side_is_the_log_odds_of_two_normal_distributions(everyday: bool, way: float) -> None:
    ours, theirs = np.array([1.0, 2.0, 6.0]), np.array([-2.0, 0.0, -1.0])
    found = learning._side("bob", ours, theirs, everyday=everyday)
    gap, spread = 4.0, float(np.std(ours))
    assert found.reference == pytest.approx(3.0 - way * gap)
    assert found.scale == pytest.approx(gap / spread**2)
    assert found.cap == pytest.approx(max(3 * spread, gap) * found.scale)
    assert found.usual == pytest.approx(np.mean([found.step(value) for value in ours]))


def test_a_side_that_is_no_farther_off_than_the_agent_itself_adds_nothing() -> None:
    found = learning._side("bob", np.array([1.0, 2.0]), np.array([3.0, 4.0]), everyday=False)
    assert (found.scale, found.cap) == (0.0, 0.0)


@pytest.mark.parametrize(("theirs", "delay"), [(0.5, 8.0), (4.0 / MOST_DELAY, MOST_DELAY), (-1.0, MOST_DELAY)])
def test_a_delay_is_what_an_alarm_takes_of_the_others_messages(theirs: float, delay: float) -> None:
    found = SIDE.shared(4.0, theirs)
    assert (found.scale, found.cap, found.usual, found.reference) == (0.5, 1.5, -1.0, 1.0)
    assert found.delay == pytest.approx(delay)


def test_scores_are_of_messages_that_were_not_learnt_from(monkeypatch: pytest.MonkeyPatch) -> None:
    said = [message(n, ("ann", "bob")[n % 2], timedelta(hours=2 * n)) for n in range(100)]
    learnt: list[set[int]] = []

    def regression(matrix: Any, speakers: Any, worths: Any, voices: int) -> Any:
        learnt.append(set(matrix[:, 0].astype(int).tolist()))
        return np.zeros((matrix.shape[1], voices), dtype=np.float32)

    monkeypatch.setattr(learning, "_regression", regression)
    monkeypatch.setattr(learning, "COLUMNS", 1)
    own = [item for item in said if item.agent_id == "ann"]
    learning._sides(own, said, np.arange(100.0)[:, None], PROVENANCE, False, 0.05)
    left_out = [set(range(100)) - rows for rows in learnt]
    assert len(learnt) == 5
    assert sorted(row for rows in left_out for row in rows) == list(range(100)), "each is held out once"
    assert max(map(len, left_out)) < 50


def test_sequences_are_of_whole_groups_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "_DRAWS", 3)
    drawn = np.array([1, 0, 2, 2, 0, 1, 1, 0, 2, 0, 1, 2])
    generator = SimpleNamespace(integers=lambda most, size: np.resize(drawn, size))
    # Group 0 has the places 0 and 3, group 1 the place 1, group 2 the places 2, 4 and 5.
    found = learning._drawn(np.array([0, 1, 2, 0, 2, 2]), generator, 4)
    assert found.tolist() == [[1, 0, 3, 2], [2, 4, 5, 0], [1, 1, 0, 3]]


@pytest.mark.parametrize(
    ("lengths", "batches"),
    [([20], [2] * 10), ([13, 7], [2] * 10), ([960], [80] * 12), ([5], [1] * 5)],
)
def test_own_messages_are_cut_into_ten_batches_or_more_of_eighty(lengths: list[int], batches: list[int]) -> None:
    said = [message(n, channel=str(place)) for place, length in enumerate(lengths) for n in range(length)]
    found = learning._batches(said)
    assert [size for size in np.bincount(found) if size] == batches
    assert sorted(found) == list(found), "place by place"


@pytest.mark.parametrize(("lines", "learnt"), [(29, False), (30, True)])
def test_a_voice_is_learnt_from_thirty_messages_on(lines: int, learnt: bool) -> None:
    assert (
        learning.learn_voice("ann", [message(n, at=timedelta(hours=2 * n)) for n in range(lines)]) is not None
    ) is learnt


@pytest.mark.parametrize(("stock", "shares"), [(False, [0.05]), (True, [0.04, 0.01])])
def test_a_fifth_of_the_false_alarms_is_everyday_languages(
    stock: bool, shares: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []
    monkeypatch.setattr(learning, "_sides", lambda *args: given.append(args[-1]) or [])
    said = [message(n, ("ann", "bob")[n % 2]) for n in range(4)]
    held = [(said, False), (said, True)] if stock else [(said, False)]
    learning._learnt(said[::2], held, PROVENANCE)
    assert given == pytest.approx(shares)


def test_rare_grams_weigh_more_and_both_halves_of_a_message_are_of_length_one() -> None:
    often, once = (np.array([3]), np.array([1.0])), (np.array([COLUMNS - 1]), np.array([2.0]))
    found = inverse_frequencies([[often, once], [often], [often]])
    assert found[[3, COLUMNS - 1, 5]] == pytest.approx([1.0, np.log(4 / 2) + 1, np.log(4 / 1) + 1])
    columns, values = weighted([(np.array([3, 5]), np.array([1.0, 2.0])), once], found)
    assert columns.tolist() == [3, 5, COLUMNS - 1]
    assert values == pytest.approx([*np.array([1.0, 2 * found[5]]) / np.hypot(1.0, 2 * found[5]), 1.0])


def test_the_lines_that_are_least_like_the_agent_are_quoted_worst_first(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = {"line 0": 0.1, "line 1": 0.3, "line 2": 0.2, "line 3": 0.25, "line 4": 0.4}
    monkeypatch.setattr(VoiceModel, "steps", lambda self, text: np.array([steps[text]]))
    watch = VoiceWatch(VoiceModel(sides=(SIDE,), provenance=PROVENANCE))
    alarms = [alarm for n in range(5) for _, alarm in [watch.read(message(n))] if alarm]
    assert [(alarm.messages, [quote.id for quote in alarm.quotes]) for alarm in alarms] == [(5, ["m4", "m1", "m3"])]
    assert alarms[0].mean_step == pytest.approx(0.25)


def test_a_voice_that_cannot_be_told_has_no_sum() -> None:
    watch = VoiceWatch(VoiceModel(sides=(), provenance=PROVENANCE))
    reading, alarm = watch.read(replace(message(0), text="hello"))
    assert (watch.sum, reading.sum, reading.alarm, alarm) == (0.0, 0.0, False, None)
