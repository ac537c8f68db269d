"""What is read of runs without their claims, and what stays of those whose claims were forgotten."""

import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from persona_pipeline.base.database import tables
from persona_pipeline.evaluation.history import overall_points, rows_of
from persona_pipeline.reporting.statistics import gather
from persona_pipeline.testing.judges import ScriptedJudge
from persona_pipeline.world import World
from persona_pipeline.world.runs import forget_reasons, overall_rows, write_runs
from tests.support.evaluating import (
    evaluate_agent,
    latest_runs,
    load_run,
    newest_outlines,
    newest_run,
    stored_history,
    stored_report,
)
from tests.support.worlds import copy_sample

WEEKS = 4


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample world with pam and jim evaluated on four windows; to be copied."""
    world = World.open(copy_sample(tmp_path_factory.mktemp("outlines") / "world"))
    world.sync_messages()
    newest = world.newest_message_time()
    assert newest is not None
    for week in reversed(range(WEEKS)):
        for agent_id in ("jim", "pam"):
            judge = ScriptedJudge(lambda _: 7)
            evaluate_agent(world, agent_id, judge=judge, as_of=newest - timedelta(days=3 * week), window="3d")
    world.store.close()
    return world.root


@pytest.fixture
def evaluated(finished: Path, tmp_path: Path) -> Iterator[World]:
    world = World.open(shutil.copytree(finished, tmp_path / "world"))
    yield world
    world.store.close()


def test_an_outline_is_the_newest_run_without_its_claims(evaluated: World) -> None:
    found = newest_outlines(evaluated.store)
    assert set(found) == {"jim", "pam"}
    for agent_id, outline in found.items():
        run = newest_run(evaluated.store, agent_id)
        assert run is not None and outline.outlined
        assert any(item.propositions for item in run.evaluation.dimensions.values())
        bare = {
            name: item.model_copy(update={"propositions": {}, "statistics": {}})
            for name, item in run.evaluation.dimensions.items()
        }
        assert outline.evaluation == run.evaluation.model_copy(update={"dimensions": bare})
        assert (outline.comparison, outline.findings) == (run.comparison, run.findings)


def test_a_report_reads_the_claims_of_so_many_agents_and_no_more(evaluated: World) -> None:
    report = stored_report(evaluated, ["jim", "pam"], whole=1)
    assert sorted(item.outlined for item in report.agents.values()) == [False, True]
    assert report.exit_code == stored_report(evaluated, ["jim", "pam"]).exit_code
    history = gather(evaluated, report).statistics["history"]
    assert {agent_id: len(points) for agent_id, points in history.items()} == {"jim": WEEKS, "pam": WEEKS}


def test_what_is_forgotten_leaves_history_as_it_was(evaluated: World) -> None:
    store = evaluated.store
    runs = [run.evaluation for run in latest_runs(store, "pam")]
    saved = latest_runs(store, "pam")[1]
    with store.begin() as connection:
        write_runs(connection, [rows_of(saved, is_baseline=True)])
    until = runs[-1].window_end

    def drawn() -> list[object]:
        return [
            stored_history(store, ["jim", "pam"]),
            overall_points(["jim", "pam"], overall_rows(store, until=until, most=9)),
            newest_outlines(store),
        ]

    before = drawn()
    assert forget_reasons(store, 1, now=until + timedelta(days=2)) == 2 * WEEKS - 3
    assert drawn() == before
    # The newest, and the one the baseline was taken from.
    assert [run.evaluation for run in latest_runs(store, "pam")] == [runs[1], runs[-1]]
    assert load_run(store, runs[0].run_id) is None
    with store.connect() as connection:
        kept = connection.execute(sa.select(tables.evaluation_scores.c.evaluation_run_id).distinct()).scalars().all()
    assert len(kept) == 3
    assert forget_reasons(store, 1, now=until + timedelta(days=2)) == 0
    assert forget_reasons(store, 30, now=until) == 0
