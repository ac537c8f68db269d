"""What a report shows beside the scores."""

from datetime import UTC, datetime
from pathlib import Path

from persona_pipeline.evaluation.sections import report_sections
from persona_pipeline.reporting.sections import SuiteSummary
from persona_pipeline.suites.results.storage import save_suite_result
from persona_pipeline.world import Window, World
from tests.suites.support import load, run

WINDOW = Window(end=datetime(2026, 3, 12, tzinfo=UTC))


def test_the_newest_suite_runs_are_a_section(small_world: World, tmp_path: Path) -> None:
    assert "suites" not in report_sections(small_world, ["ann"], WINDOW)
    suite = load(tmp_path, "tests: [{id: t, input: hi, assert: [{type: contains, value: ok}]}]")
    save_suite_result(small_world.store, run(suite, {"t": "ok"}))
    save_suite_result(small_world.store, run(suite, {"t": "no"}))
    (shown,) = report_sections(small_world, ["ann"], WINDOW)["suites"]
    assert SuiteSummary.model_validate(shown).tests == {"pass": 0, "borderline": 0, "fail": 1, "error": 0}
