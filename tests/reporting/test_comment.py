import subprocess
from pathlib import Path

import pytest

from persona_pipeline.reporting.comment import comment_text, main
from persona_pipeline.reporting.markdown import COMMENT_LIMIT, MARKER, page_markdown
from persona_pipeline.reporting.pages.experiments import changes_page
from persona_pipeline.reporting.render import json_text
from persona_pipeline.scoring.results import PropositionResult
from persona_pipeline.world.changes import Change, Kind
from tests.reporting.sample import sample_report
from tests.support.forking import forked_python


def test_the_comment_of_a_report_file_is_that_of_the_report(tmp_path: Path) -> None:
    report, comment = tmp_path / "report.json", tmp_path / "comment.md"
    report.write_text(json_text(sample_report()), encoding="utf-8")
    command = [forked_python(), "-m", "persona_pipeline.reporting.comment", report, comment]
    assert subprocess.run(command, capture_output=True, text=True, check=False).returncode == 0
    assert comment.read_text(encoding="utf-8") == comment_text(sample_report())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(None, "cannot be read", id="missing"),
        pytest.param(b"\xff\xfe", "not UTF-8", id="not UTF-8"),
        pytest.param(b"## Fake report @everyone", "not JSON", id="Markdown in the artefact"),
        pytest.param(b'{"agents": {"a": {"overall": 99}}}', "report: evaluation", id="not the shape of a report"),
        pytest.param(b" " * (33 * 1024 * 1024), "larger than 32 MiB", id="too large"),
    ],
)
def test_what_is_no_report_is_refused(
    tmp_path: Path, content: bytes | None, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    report, comment = tmp_path / "report.json", tmp_path / "comment.md"
    if content is not None:
        report.write_bytes(content)
    assert main([str(report), str(comment)]) == 2
    assert message in capsys.readouterr().err
    assert not comment.exists()


def test_it_says_how_to_be_called(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2 and "usage:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("drifted", "conclusion", "warned"),
    [(True, "failure", False), (False, "success", False), (True, "success", True), (False, "failure", True)],
)
def test_a_report_that_says_other_than_the_workflow_is_not_to_be_trusted(
    drifted: bool, conclusion: str, warned: bool
) -> None:
    report = sample_report(drifted=drifted)
    report.exit_code = int(drifted)
    text = comment_text(report, conclusion=conclusion, changes=[Change("persona", "ann", Kind.REMOVED, "p")])
    assert text.startswith(MARKER + "\n")
    assert ("Do not trust the report" in text) is warned
    lines = text.splitlines()
    verdict = next(number for number, line in enumerate(lines) if line.startswith("## "))
    assert verdict <= 4 and lines[verdict + 2] == "What this change touches: **personas** 1 removed: `ann`."


def test_without_a_report_the_comment_says_how_the_workflow_ended(tmp_path: Path) -> None:
    comment = tmp_path / "comment.md"
    assert main([str(tmp_path / "none.json"), str(comment), "--conclusion", "success"]) == 0
    text = comment.read_text("utf-8")
    assert "ended with **success** and left no report" in text and text.startswith(MARKER)


def test_what_changed_is_named_whatever_is_gone_first_and_no_name_is_markup() -> None:
    changes = [
        Change("recordings", "ann/adherence", Kind.EDITED, "r", rows=(0, 3, 10_000)),
        Change("persona", "b`<img>@team", Kind.REMOVED, "p"),
        Change("claim", "fluency/_default: x", Kind.ADDED, "c"),
        Change("baseline", "ann", Kind.EDITED, "b", "adherence 8.7 → 0.5"),
        Change("store", ".persona/store.db", Kind.ADDED, "s"),
    ]
    lines = page_markdown(changes_page(changes)).splitlines()
    assert lines[2] == (
        "**stored runs, which no commit should bring** 1 added: `.persona/store.db`; **baselines** 1 edited: "
        "`ann` (adherence 8.7 → 0.5); **personas** 1 removed: ``b`<img>@team``; **claims** 1 added: "
        "`fluency/_default: x`; **recordings** 3 edited, 10,000 added: `ann/adherence`."
    )
    assert lines[4] == "- added store `.persona/store.db`" and lines[-1].endswith(
        "`ann/adherence`: 3 edited, 10,000 added"
    )
    many = [Change("claim", f"r{n}", Kind.ADDED, "x") for n in range(5000)]
    short = page_markdown(changes_page(many), 20_000)
    assert len(short) < 21_000 and " more\n" in short


def test_ten_thousand_stale_recordings_are_a_line_and_a_fold() -> None:
    report = sample_report()
    claims = report.agents["pam"].evaluation.dimensions["adherence"].propositions
    for number in range(10_000):
        claims[f"gone-{number}"] = PropositionResult(
            id=f"gone-{number}", claim="c", unscored="unrecorded", detail="persona changed since it was judged"
        )
    changes = [Change("recordings", f"pam/part-{n}", Kind.EDITED, "r", rows=(0, 10, 0)) for n in range(1_000)]
    text = comment_text(report, changes=changes)
    assert len(text) <= COMMENT_LIMIT
    shown = text.split("<details>", 1)[0]
    lines = shown.replace("\\", "").splitlines()
    assert "10,000 claims not recorded (persona changed since it was judged)" in shown.replace("\\", "")
    assert len([line for line in lines if "gone-" in line]) == 0
    assert len([line for line in lines if "**recordings** 10,000 edited: " in line]) == 1
    assert "**To do**" in shown and len(lines) < 60


def test_verdict_then_what_made_it_then_what_to_do() -> None:
    text = comment_text(sample_report(), changes=[Change("persona", "ann", Kind.EDITED, "p")])
    places = [
        text.index(said)
        for said in (
            "## ",
            "What this change touches",
            "dimensions dropped",
            "**To do**",
            "| Agent",
            "further than allowed",
        )
    ]
    assert places == sorted(places)


def test_dropped_claims_are_folded_the_worst_first() -> None:
    report = sample_report()
    comparison = report.agents["michael"].comparison.dimensions["adherence"]
    first = comparison.drops[0]
    comparison.drops = [first.model_copy(update={"claim": f"claim {n}", "delta": -4.0 - n / 10}) for n in range(9)]
    shown, folded = comment_text(report).split("<details>", 1)
    claims = [line for line in folded.splitlines() if line.startswith("- `Michael Scott`, Adherence: claim")]
    assert len(claims) == 9 and all("**To do:**" in line for line in claims) and claims[0] not in shown
    assert claims[0].startswith("- `Michael Scott`, Adherence: claim 8 7.0 → ")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([], True),
        ([Change("suite", "desk", Kind.EDITED, "s")], True),
        ([Change("persona", "michael", Kind.EDITED, "p")], False),
        (None, False),
    ],
)
def test_a_drift_of_the_base_is_not_blamed_on_the_change(changes: list[Change] | None, said: bool) -> None:
    text = comment_text(sample_report(), changes=changes)
    assert ("Nothing that this pull request changed: Michael Scott had drifted before." in text) is said
