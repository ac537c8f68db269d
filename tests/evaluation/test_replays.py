"""A replay of a live run's recordings is that run again; ``benchmarks/judge.py replays`` does the same with 300 runs."""

from pathlib import Path

from tests.support.replaying import cases, live_and_replayed, told, write_world


def test_replays_of_ten_live_runs_say_what_the_runs_said(tmp_path: Path) -> None:
    world = write_world(tmp_path / "world")
    codes, failed, confirmed = set(), 0, 0
    for case in [*cases(5, failing=0.005), *cases(10, failing=0.03, failing_again=0.2)[5:]]:
        folder = tmp_path / f"run-{case.seed}"
        folder.mkdir()
        live, replayed, failures = live_and_replayed(case, world, folder)
        assert told(replayed) == told(live), case
        codes.add(live.exit_code)
        failed += failures
        items = [item for agent in live.agents.values() for item in agent.evaluation.dimensions.values()]
        confirmed += any(item.samples > case.samples for item in items)
    assert (codes, failed > 20, confirmed > 4) == ({0, 1, 3}, True, True)
