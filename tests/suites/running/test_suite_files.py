"""The suites of the project run offline, and notice when something they rest on changes."""

import shutil
from pathlib import Path

import pytest

import persona_pipeline as pp
from persona_pipeline.judging.open import OpenedJudge
from persona_pipeline.judging.recordings.replay import RecordedBackend
from persona_pipeline.suites import SuiteResult, load_suite
from persona_pipeline.suites.running.opening import suite_files
from tests.conftest import PROJECT
from tests.support.worlds import replace_in

SUITES = [file.within(PROJECT) for file in suite_files(PROJECT)]


@pytest.fixture
def root(sample_root: Path) -> Path:
    shutil.copytree(PROJECT / "suites", sample_root / "suites")
    return sample_root


def run(root: Path, name: str) -> SuiteResult:
    judge = OpenedJudge(RecordedBackend(root / "recordings"))
    return pp.run_suite(root / "suites" / name, world=pp.load_world(root), judge=judge, allow_code=True)


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.stem)
def test_an_example_passes_from_its_recordings(root: Path, path: Path) -> None:
    result = run(root, path.name)
    assert result.exit_code == 0, [str(test.error) for test in result.tests]
    assert load_suite(path).warnings == ()


@pytest.mark.parametrize(
    ("file", "old", "new", "touched"),
    [
        ("personas/pam.yaml", "Pam keeps the Corley branch", "Pam ran the Corley branch", ["pam-and-the-van"]),
        (
            "propositions/adherence/jim.yaml",
            "with dry, understated irony",
            "with dry irony",
            ["jim-and-the-van"],
        ),
        ("suites/judges/helpful.md", "Somebody wrote", "A person wrote", None),
        ("suites/answers/personas.jsonl", "The wind does not drive.", "The wind cannot drive.", ["dwight-and-the-van"]),
    ],
    ids=["a persona", "a claim", "a prompt", "an answer"],
)
def test_editing_what_was_judged_makes_the_recording_stale(
    root: Path, file: str, old: str, new: str, touched: list[str] | None
) -> None:
    replace_in(root / file, old, new)
    result = run(root, "personas.eval.yaml")
    errors = [test.id for test in result.tests if test.verdict == "error"]
    assert errors == (touched if touched is not None else [test.id for test in result.tests])
    assert all(test.error and test.error.reason == "unrecorded" for test in result.tests if test.id in errors)
    assert result.exit_code == 3
