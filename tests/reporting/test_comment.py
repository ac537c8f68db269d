import subprocess
import sys
from pathlib import Path

import pytest

from persona_pipeline.reporting.comment import main
from persona_pipeline.reporting.json_report import json_text
from persona_pipeline.reporting.markdown import render_comment
from tests.reporting.sample import sample_report


def test_the_comment_of_a_report_file_is_that_of_the_report(tmp_path: Path) -> None:
    report, comment = tmp_path / "report.json", tmp_path / "comment.md"
    report.write_text(json_text(sample_report()), encoding="utf-8")
    command = [sys.executable, "-m", "persona_pipeline.reporting.comment", report, comment]
    assert subprocess.run(command, capture_output=True, text=True, check=False).returncode == 0
    assert comment.read_text(encoding="utf-8") == render_comment(sample_report())


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
