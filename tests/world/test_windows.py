"""Windows: spans of time, and which entries of a trajectory are shown."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.world import Entry, Omission, Window, parse_window, window_indices, windowed

counts = st.integers(min_value=0, max_value=200)
NOW = datetime(2026, 3, 8, tzinfo=UTC)


@given(counts, counts, counts)
def test_each_entry_is_shown_once_in_order_from_both_ends_or_counted(length: int, first_n: int, last_n: int) -> None:
    indices = window_indices(length, first_n, last_n)
    assert indices == sorted(set(indices))
    assert len(indices) == min(length, first_n + last_n)
    assert set(range(min(first_n, length))) <= set(indices)
    assert set(range(max(0, length - last_n), length)) <= set(indices)
    entries = [Entry("A", str(n), str(n)) for n in range(length)]
    trajectory = windowed(entries, first_n, last_n)
    omitted = sum(item.count for item in trajectory.items if isinstance(item, Omission))
    assert len(trajectory.entries) + omitted == length
    assert [int(entry.text) for entry in trajectory.entries] == indices


def test_negative_counts_are_refused() -> None:
    for arguments in ((-1, 0, 0), (1, -1, 0), (1, 0, -1)):
        with pytest.raises(ValueError, match="negative"):
            window_indices(*arguments)


def test_entries_are_numbered_and_found_again() -> None:
    trajectory = windowed([Entry("A", f"text {n}", f"id-{n}", channel="c") for n in range(5)], 1, 1)
    assert trajectory.content() == [
        {"id": "m1", "speaker": "A", "channel": "c", "text": "text 0"},
        {"omitted": 3},
        {"id": "m2", "speaker": "A", "channel": "c", "text": "text 4"},
    ]
    found = trajectory.entry("m2")
    assert found is not None
    assert found.message_id == "id-4"
    assert [trajectory.entry(name) for name in ("m0", "m3", "m-1", "x", "", "m²")] == [None] * 6


def test_lengths_of_time() -> None:
    lengths = {"7d": timedelta(days=7), "12h": timedelta(hours=12), "007d": timedelta(days=7)}
    assert {text: parse_window(text) for text in lengths} == lengths
    for text in ("", "7", "d", "d7", "1.5d", "-1d", " 7d", "7d ", "7D", "7x", "٧d", "7d7d", "9" * 20 + "d"):
        with pytest.raises(ConfigError, match="not a length of time"):
            parse_window(text)


def test_a_window_takes_in_its_end_and_shares_no_moment_with_the_one_before() -> None:
    window = Window.ending(NOW, timedelta(days=7))
    assert NOW in window
    assert NOW + timedelta(microseconds=1) not in window
    before = window.previous()
    assert before is not None
    assert before.end == window.start
    assert before.end in before
    assert before.end not in window
    assert Window(end=NOW).previous() is None
