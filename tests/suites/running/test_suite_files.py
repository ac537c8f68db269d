"""The suites of the project run offline, and notice when something they rest on changes."""

import json
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

# From which of Pam's messages on she is out of character.
LOST_FROM = {
    "wedding-stationery": 13,
    "lost-parcel": 15,
    "bowling-flag": 12,
    "jar-labels": 17,
    "birthday-card": None,
}
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


def test_the_conversations_say_how_long_a_character_lasts(root: Path) -> None:
    result = run(root, "conversations.eval.yaml")
    assert {test.id: test.verdict for test in result.tests} == dict.fromkeys(LOST_FROM, "pass")
    faded = {test.id: next(item for item in test.best.results if item.type == "fades") for test in result.tests}
    assert {name: item.details and item.details["lost_from"] for name, item in faded.items()} == LOST_FROM


def test_a_message_with_other_words_has_not_been_judged(root: Path) -> None:
    replace_in(
        root / "suites/answers/conversations.jsonl", "I know where things sulk, mostly.", "I know where things are."
    )
    errors = {test.id: test.error for test in run(root, "conversations.eval.yaml").tests if test.error}
    assert {name: error.reason for name, error in errors.items()} == {"lost-parcel": "unrecorded"}


def test_the_quick_assistant_needs_its_second_attempt(root: Path) -> None:
    tests = {test.id: test for test in run(root, "customer-screening.eval.yaml").tests}
    quick = tests["blocked-customer@quick-assistant"]
    assert [attempt.score for attempt in quick.attempts] == [0.0, pytest.approx(0.9214, abs=1e-3)]
    assert quick.attempts[0].failed_gates == ("tool_trajectory",)
    assert len(tests["blocked-customer@careful-assistant"].attempts) == 1
    assert "unclear-customer@quick-assistant" not in tests


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


def test_a_persona_that_speaks_like_anybody_fails(root: Path) -> None:
    """The gate on text alone: no judge is needed to see a lost voice."""
    path = root / "suites/answers/personas.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    rows[0]["output_messages"] = [{"role": "assistant", "content": "Happy to help! The van is late."}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    michael = run(root, "personas.eval.yaml").tests[0]
    gate = next(item for item in michael.best.results if item.name == "no assistant talk")
    assert gate.score == 0


def test_a_world_without_suites_has_none(tmp_path: Path) -> None:
    assert suite_files(tmp_path) == []
