"""The scoreboard's measure and its page, on tiny numbers: no peer is installed, nothing is fetched."""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.peers import page
from benchmarks.peers.__main__ import main
from benchmarks.peers.changes import BEFORE, KINDS, Plan
from benchmarks.peers.drift import Alarms, Measured, limit_of, rate
from benchmarks.peers.installing import nothing_installed
from benchmarks.peers.ratings import Correlation, RatingsError, read_ratings
from benchmarks.peers.repetition import PLANTED, Told
from benchmarks.peers.suites import Counts


@given(st.lists(st.lists(st.floats(0, 10), min_size=1, max_size=5), min_size=1, max_size=40), st.floats(0, 0.5))
def test_a_limit_lets_no_more_through_than_is_allowed(scores: list[list[float]], allowed: float) -> None:
    streams = [(None, list(enumerate(own))) for own in scores]
    limit = limit_of(streams, allowed)
    assert sum(max(own) > limit for own in scores) <= allowed * len(scores)


@pytest.mark.parametrize(
    ("first", "soon", "late"), [(BEFORE, 0, 0), (BEFORE + 1, 1, 1), (BEFORE + 26, 0, 1), (None, 0, 0)]
)
def test_an_alarm_before_the_change_is_no_detection(first: int | None, soon: int, late: int) -> None:
    alarms = Alarms([{"unchanged": [None], **{kind: [first] for kind in KINDS}}])
    (kind, *_) = KINDS
    assert (alarms.seen([kind], 25).hits, alarms.seen([kind], 50).hits) == (soon, late)
    assert math.isfinite(alarms.delay([kind])) is bool(late)


def test_trials_that_are_alike_tell_less() -> None:
    alike, apart = rate([[True] * 5, [False] * 5] * 4), rate([[True, False] * 5] * 4)
    assert alike.value == apart.value == 0.5
    assert alike.high - alike.low > apart.high - apart.low
    assert str(rate([])) == "–"


def results(*, command: str = "make peers", peer: float = 0.9, ours: float = 0.5) -> page.Results:
    """A run in which a peer sees ``peer`` of 100 changes, and we ``ours``."""

    def alarms(share: float) -> Alarms:
        seen = [BEFORE + 10 if n < 100 * share else None for n in range(100)]
        return Alarms([{"unchanged": [None] * 20, **dict.fromkeys(KINDS, seen)}])

    shares = {"persona-pipeline, alone": ours, "evidently text": peer}
    told = [Told("persona-pipeline", rate([[False] * 9]), dict.fromkeys(PLANTED, rate([[True] * 9])))]
    counts = Counts(total=10, alike=9, unnamed=["x"], their_seconds=0.1, our_seconds=0.2)
    return page.Results(
        date="2026-11-28", command=command, seed=1, minutes=1.0, cpu_minutes=2.0, cores=2, load=0.5, plan=Plan(),
        characters=[("plays", "Iago", 150)],
        drift={name: Measured(name, alarms(share), alarms(share), 0.1, 0.2) for name, share in shares.items()},
        not_run={"persiq": "failed: no module"}, installed=nothing_installed("does not install: no room"),
        repetition=told, alike=[], suites={("promptfoo", "pairs"): counts}, ratings=[Correlation("words", 0.2, 0.1, 0.3, 99)],
    )  # fmt: skip


def test_a_loss_is_bold_and_in_a_sentence() -> None:
    text = page.rendered(results())
    assert "- **another speaker**: evidently text did better (90% [83, 94], ours 50% [40, 60]). A loss." in text
    assert "persona-pipeline, alone is number 2 of 2 in detected changes" in text
    assert "| evidently text | **0% [0, 16]** | **90%** |" in text
    # A peer that is quicker is bold, too; what is not named is counted.
    assert "| promptfoo, pairs | 10 | 9 | 0 | 1 | **10.00** | 20.00 |" in text
    assert "does not install: no room" in text and "failed: no module" in text
    assert "quick run" not in text
    assert str(Path.cwd()) not in text


def test_what_may_be_chance_is_said_to_be() -> None:
    assert "It may be chance" in page.rendered(results(peer=0.52))
    won = page.rendered(results(peer=0.4, command="make peers QUICK=1"))
    assert "did better" not in won
    assert "its numbers mean nothing" in won


ROWS = [{"text": "word " * n, "rating": n, "judge": 20 - n} for n in range(1, 21)]


def as_csv(rows: list[Mapping[str, object]]) -> str:
    return "\n".join([",".join(rows[0]), *(",".join(str(value) for value in row.values()) for row in rows)])


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("r.csv", as_csv),
        ("r.jsonl", lambda rows: "\n".join(map(json.dumps, rows))),
        ("r.tsv", lambda rows: as_csv(rows).replace(",", "\t")),
    ],
)
def test_ratings_of_a_file_are_compared_with_every_number(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    write: Callable[..., str],
) -> None:
    path = tmp_path / name
    path.write_text(write(ROWS), encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["peers", "ratings", str(path)])
    assert main() == 0
    shown = capsys.readouterr().out
    assert "| judge (of the file) | **-1.00 [-1.00, -1.00]** | 20 |" in shown
    assert "| messages | cannot tell | 20 |" in shown


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            [*ROWS, {"text": "", "rating": 1, "judge": 1}],
            ":22: no 'text'; there is text, rating, judge. Name it with --text",
        ),
        ([*ROWS, {"text": "x", "rating": "good", "judge": 1}], ":22: rating is 'good'; it must be a number"),
        (ROWS[:5], "5 conversations with ratings; at least 20 are needed"),
    ],
)
def test_ratings_that_cannot_be_read_say_where(tmp_path: Path, rows: list[Mapping[str, object]], said: str) -> None:
    path = tmp_path / "r.csv"
    path.write_text(as_csv(rows), encoding="utf-8")
    with pytest.raises(RatingsError) as error:
        read_ratings(path)
    assert said in str(error.value)
