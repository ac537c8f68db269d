"""What a report shows beside the scores."""

from pathlib import Path

from persona_pipeline.reporting.statistics import gather
from persona_pipeline.suites.running.history import save_suite_result
from persona_pipeline.testing.judges import ScriptedJudge
from persona_pipeline.world import World
from tests.suites.support import load, run
from tests.support.evaluating import evaluate_world


def test_the_newest_suite_runs_are_a_section(small_world: World, tmp_path: Path) -> None:
    report = evaluate_world(small_world, judge=ScriptedJudge(lambda _: 7), agents=["ann"])
    assert "suites" not in gather(small_world, report).statistics
    suite = load(tmp_path, "tests: [{id: t, input: hi, assert: [{type: contains, value: ok}]}]")
    save_suite_result(small_world.store, run(suite, {"t": "ok"}))
    save_suite_result(small_world.store, run(suite, {"t": "no"}))
    (shown,) = gather(small_world, report).statistics["suites"]
    assert shown["tests"] == {"pass": 0, "borderline": 0, "fail": 1, "error": 0}
