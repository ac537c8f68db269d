"""The suites of the project pass offline, from their recordings."""

import shutil
from pathlib import Path

import pytest

import persona_pipeline as pp
from persona_pipeline.judging.open import OpenedJudge
from persona_pipeline.judging.recordings.replay import RecordedBackend
from persona_pipeline.suites import load_suite
from persona_pipeline.suites.running.opening import suite_files
from tests.conftest import PROJECT

SUITES = [file.within(PROJECT) for file in suite_files(PROJECT)]


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.stem)
def test_an_example_passes_from_its_recordings(sample_root: Path, path: Path) -> None:
    shutil.copytree(PROJECT / "suites", sample_root / "suites")
    judge = OpenedJudge(RecordedBackend(sample_root / "recordings"))
    world = pp.load_world(sample_root)
    result = pp.run_suite(sample_root / "suites" / path.name, world=world, judge=judge, allow_code=True)
    assert result.exit_code == 0, [str(test.error) for test in result.tests]
    assert load_suite(path).warnings == ()
