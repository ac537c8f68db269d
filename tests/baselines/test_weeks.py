"""What a run of its own tells of weeks, what a year may spend, and a claim that varies by itself."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from persona_pipeline.guard.baselines.drift import CERTAIN, WindowScore, find_moved, winnings
from persona_pipeline.guard.baselines.falls import settled
from persona_pipeline.guard.baselines.fleet import weeks_since
from persona_pipeline.guard.baselines.golden import captured
from persona_pipeline.guard.baselines.models import Baseline
from persona_pipeline.guard.baselines.noise import shared_weeks
from persona_pipeline.guard.baselines.statistics import YEAR, year_share
from persona_pipeline.scoring.results import DimensionEvaluation
from tests.baselines.worlds import LEVELS, NAMES, NOW, Office, beside, dimension

NOWHERE = np.full(3, np.nan), np.zeros(3, np.intp)
MOVED = {"bob": [1.0, -1.0, 1.0], "cid": [-1.0, 1.0, -1.0]}


@pytest.mark.parametrize(
    ("moved", "variance", "degrees"),
    [
        pytest.param(MOVED, 1.0, 6, id="up and down alike"),
        pytest.param({**MOVED, "dan": [7.0, 0.5, 7.0]}, 1.0, 6, id="an agent that fell says nothing"),
        pytest.param({"bob": [9.0, 9.0], "cid": [8.0, 9.0]}, 76.75, 4, id="all fell: that is what weeks may do"),
        pytest.param({"bob": [1.0, -1.0], "cid": [8.0] * 9}, 1.0, 2, id="one of two others fell in all it has"),
        pytest.param({"bob": [1.0, -1.0], "cid": [-8.0] * 9}, 1.0, 2, id="one of two others rose"),
        pytest.param({"bob": [0.1] * 2, "cid": [2.0] * 2}, 2.005, 4, id="two points are what a week may do"),
        pytest.param({**MOVED, "dan": [8.0] * 9, "eve": [8.0] * 9}, 1.0, 6, id="two of four fell, an agent a voice"),
        pytest.param(
            {"bob": [0.1], "cid": [0.1], "dan": [1.0, 1.0, 3.0], "eve": [1.0], "fay": [1.0]},
            13.02 / 7,
            7,
            id="of five others the one in the middle says what is usual",
        ),
        pytest.param({"bob": [2.0] * 9}, 0.0, 1, id="nothing is learnt from one other agent"),
        pytest.param({}, 0.0, 1, id="nobody else was evaluated"),
    ],
)
def test_the_others_tell_how_far_a_week_moves(
    moved: Mapping[str, Sequence[float]], variance: float, degrees: int
) -> None:
    found, freedom = shared_weeks(*NOWHERE, moved)
    assert found == pytest.approx(np.full(3, variance))
    assert freedom == pytest.approx(np.full(3, degrees))


def test_however_many_are_in_a_run_each_of_the_others_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    draw, looked = np.random.default_rng(7), list[int]()
    rows = {agent: draw.normal(0, 1 + agent % 3, 5) for agent in range(12)}
    silent, medians = np.full(5 * 8, np.nan), np.median
    agent_of = np.repeat(np.arange(20), 5)
    moved = {f"other-{number}": draw.normal(0, 2, 4).tolist() for number in range(9)}

    def median(values: np.ndarray) -> float:
        looked.append(len(values))
        return medians(values)

    monkeypatch.setattr(np, "median", median)
    found, freedom = shared_weeks(np.concatenate([*rows.values(), silent]), agent_of, moved)
    assert len(looked) == len(rows) + len(moved)
    for agent in range(20):
        others = {f"row-{number}": own.tolist() for number, own in rows.items() if number != agent}
        alone, degrees = shared_weeks(np.full(5, np.nan), np.zeros(5, np.intp), {**others, **moved})
        assert found[agent_of == agent] == pytest.approx(alone)
        assert freedom[agent_of == agent] == pytest.approx(degrees)


def drop(moved: Mapping[str, Sequence[float]] | None, windows: int = 1) -> tuple[str, float]:
    """Return what is said of a dimension down by 2, and what it could have seen."""
    office = Office(31, judge=0.6)
    baseline = office.baseline(windows=windows)
    lower = {"adherence": {key: level - 2.0 for key, level in LEVELS.items()}}
    item = beside(baseline, office.window(lower))
    found = settled({"ann": item}, fleet={"ann": baseline}, moved=moved)["ann"].dimensions["adherence"]
    assert found.sight
    return found.status, found.sight.detectable


def test_a_week_that_moved_everybody_else_explains_a_drop_beside_one_window() -> None:
    still = {"bob": [0.1, -0.2, 0.1], "cid": [-0.1, 0.2, 0.0]}
    restless = {"bob": [1.8, -1.2, 1.4], "cid": [-1.6, 1.1, -2.0]}
    assert drop(still)[0] == "regressed"
    assert drop(restless)[0] == "ok"
    assert drop(restless)[1] > 3 > drop(still)[1]
    assert drop(restless, windows=4) == drop(None, windows=4), "four windows speak for themselves"


def beside_others(windows: Sequence[int], claims: int, *, neighbour: float, own: float = 0.0) -> tuple[str, float]:
    """Return what is said of the first agent's dimension down by ``own``, and what it could have seen, the last agent down."""
    agents = {f"a{number}": count for number, count in enumerate(windows)}
    levels = {key: LEVELS[key] for key in list(LEVELS)[:claims]}
    office = Office(31, judge=0.6)

    def window(falls: Mapping[str, float]) -> dict[str, DimensionEvaluation]:
        whole = office.window(
            {name: {key: level - falls.get(name, 0.0) for key, level in levels.items()} for name in NAMES}
        )
        return {
            name: dimension(name, {key: row.samples for key, row in item.propositions.items() if key in levels})
            for name, item in whole.items()
        }

    fleet = {
        agent: captured(agent, [window({}) for _ in range(count)], {"messages_hash": "then"}, now=NOW)
        for agent, count in agents.items()
    }
    falls = {"a0": {"adherence": own}, list(agents)[-1]: dict.fromkeys(NAMES, neighbour)}
    run = {agent: beside(fleet[agent], window(falls.get(agent, {}))) for agent in agents}
    found = settled(run, fleet=fleet)["a0"].dimensions["adherence"]
    assert found.sight
    return found.status, found.sight.detectable


@pytest.mark.parametrize(
    ("windows", "claims"),
    [
        pytest.param((3, 3, 3), 5, id="three agents"),
        pytest.param((1, 1, 1), 5, id="three agents, one window"),
        pytest.param((2, 2), 5, id="two agents"),
        pytest.param((2,) * 6, 5, id="six agents"),
        pytest.param((1, 3, 2), 5, id="unequal windows"),
        pytest.param((3, 1, 8), 5, id="one of them with windows enough"),
        pytest.param((3, 3, 3), 2, id="two claims"),
        pytest.param((4, 4, 4), 5, id="windows enough"),
    ],
)
def test_a_neighbours_collapse_does_not_decide_what_another_can_see(windows: Sequence[int], claims: int) -> None:
    _, alone = beside_others(windows, claims, neighbour=0.0)
    for neighbour in (2.0, 3.0, 6.0):
        status, sees = beside_others(windows, claims, neighbour=neighbour)
        assert status == "ok"
        assert sees < 1.6 * alone or (neighbour == 2.0 and min(windows) == 1), (neighbour, sees, alone)
    assert beside_others(windows, claims, neighbour=6.0, own=4.0)[0] == "regressed"


def test_a_claim_that_varies_by_itself_is_no_fall_from_eight_windows_on() -> None:
    """One claim of five goes up and down by itself; the others hardly move."""
    office = Office(32, judge=0.3)
    swing = [9.0, 2.0, 9.0, 3.0, 8.0, 9.0, 2.0, 9.0]
    fleet = {
        agent: captured(agent, [office.window({name: {"p2": score} for name in NAMES}) for score in swing], {}, now=NOW)
        for agent in ("ann", "bob", "cid")
    }
    item = beside(fleet["ann"], office.window({"adherence": {"p2": 2.0}}))
    found = settled({"ann": item}, fleet=fleet)["ann"].dimensions["adherence"]
    assert found.drops == []
    fallen = beside(fleet["ann"], office.window({"adherence": {"p0": 0.0}}))
    found = settled({"ann": fallen}, fleet=fleet)["ann"].dimensions["adherence"]
    assert [item.proposition_id for item in found.drops] == ["p0"]


def test_a_year_spends_its_level_once() -> None:
    shares = year_share(np.arange(1, YEAR + 1))
    assert shares.sum() == pytest.approx(1.0)
    assert shares[0] == 0.5 and len(set(shares[1:].tolist())) == 1
    assert year_share(np.array([YEAR + 1, YEAR + 2])) == pytest.approx(shares[:2]), "each year the same anew"


@pytest.mark.parametrize(
    ("days", "week"), [(-30, 1), (0, 1), (7, 1), (8, 2), (14, 2), (7 * 52, 52)], ids=lambda value: str(value)
)
def test_the_week_is_counted_from_the_baselines_newest_window(days: int, week: int) -> None:
    golden = Baseline(
        agent_id="ann", captured_at=NOW, dimensions={"fluency": 8.0},
        provenance={"dimensions": {"fluency": {"window_end": NOW.isoformat()}}},
    )  # fmt: skip
    now = {"window_end": (NOW + timedelta(days=days)).isoformat()}
    assert weeks_since(golden, "fluency", now) == week
    assert weeks_since(golden, "adherence", now) == weeks_since(golden, "fluency", None) == 1


def series(falls: float) -> dict[tuple[str, str], list[WindowScore]]:
    generator = np.random.default_rng(7)
    scores = generator.normal(7.5, 0.4, (40, 16))
    scores[3, 10:] -= falls
    start = datetime(2026, 1, 4, tzinfo=UTC)
    return {
        (f"a{row // 5}", f"d{row % 5}"): [
            WindowScore(start + timedelta(weeks=week), score, 1) for week, score in enumerate(own)
        ]
        for row, own in enumerate(scores.tolist())
    }


def test_what_truly_moved_is_said_with_the_week_it_began() -> None:
    assert find_moved(series(0.0)) == {}
    found = find_moved(series(2.0))
    assert found.keys() == {("a0", "d3")}
    assert found["a0", "d3"].startswith("a0: d3 has truly moved since the week of 15 Mar 2026: 7.6 before, 5.5 since")
    assert find_moved({}) == {}


def test_betting_on_steady_weeks_wins_nothing() -> None:
    """Of so many series a share of 1 / k at most ever holds k times what it began with."""
    held = winnings(np.random.default_rng(8).normal(7, 0.5, (2000, 34)))
    assert (held[:, :8] == 0).all()
    for times in (CERTAIN, 100.0):
        assert (held > np.log(times)).any(axis=1).mean() <= 1.2 / times


def test_weeks_that_resemble_the_week_before_are_no_fall() -> None:
    generator = np.random.default_rng(9)
    weeks = generator.normal(0, 1, (400, 34))
    for week in range(1, 34):
        weeks[:, week] = 0.5 * weeks[:, week - 1] + 0.75**0.5 * weeks[:, week]
    assert (winnings(7 + 0.5 * weeks) > np.log(CERTAIN * 400)).any(axis=1).sum() <= 1
