import io
import os
import pty

import pytest

from persona_pipeline.guard.report import Finding, RunReport
from persona_pipeline.reporting.page import Score
from persona_pipeline.reporting.render import print_report
from persona_pipeline.reporting.terminal import cell_text
from tests.reporting.sample import sample_report
from tests.support.reports import report_text


def test_golden(report: RunReport, golden) -> None:
    golden("table-clean.txt", report_text(sample_report(drifted=False)))
    golden("table.txt", report_text(report))
    golden("table-verbose.txt", report_text(report, verbose=True))


def test_nothing_but_plain_text_goes_to_a_file(report: RunReport) -> None:
    stream = io.StringIO()
    print_report(report, stream)
    assert "\x1b" not in stream.getvalue() and stream.getvalue() == report_text(report)


def test_a_run_without_agents_says_so() -> None:
    finding = Finding(kind="nothing_evaluated", exit_code=3, message="no agent matched")
    text = report_text(RunReport(findings=[finding], exit_code=3))
    assert text.startswith("not judged: no agent matched\nNo agent was evaluated.")


def test_a_dimension_without_a_baseline_is_new(report: RunReport) -> None:
    compared = report.agents["jim"].comparison.dimensions["fluency"]
    compared.status, compared.baseline, compared.delta = "no_baseline", None, None
    assert "8.2 new" in report_text(report)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "cp932"])
def test_an_encoding_that_cannot_hold_the_signs_gets_stand_ins(report: RunReport, encoding: str) -> None:
    report.agents["jim"].findings.append(Finding(kind="threshold", exit_code=1, message="jim: naïve – 東京 – 🎉"))
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, newline="")
    print_report(report, stream)
    stream.flush()
    text = raw.getvalue().decode(encoding)
    assert "3.2 -4.7*" in text and "🎉" not in text


def test_escape_sequences_in_names_and_messages_do_not_reach_the_terminal(report: RunReport) -> None:
    report.agents["a\x1b[2J\u202eb"] = report.agents.pop("jim")
    report.findings.append(Finding(kind="coverage", exit_code=3, message="two\nlines \x1b]8;;http://x\x07link"))
    text = report_text(report)
    assert "ab " in text and "not judged: two lines link\n" in text
    assert not {"\x1b", "\u202e", "\x07"} & set(text)


def test_a_remedy_of_many_findings_stands_once() -> None:
    findings = [
        Finding(kind="coverage", exit_code=3, message=f"jim: {name} is not judged", remedy="record with `that`")
        for name in ("fluency", "adherence")
    ]
    text = report_text(RunReport(findings=findings, exit_code=3), verbose=True)
    assert "jim: fluency is not judged" in text and "jim: adherence is not judged" in text
    assert text.count("to do: record with `that`") == text.count("record with") == 1


@pytest.mark.parametrize("columns", [200, 80], ids=["wide", "narrow"])
def test_on_a_terminal_it_is_coloured_and_no_line_of_the_table_wraps(
    report: RunReport, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    master, slave = pty.openpty()
    with os.fdopen(slave, "w", encoding="utf-8") as terminal:
        print_report(report, terminal)
        print("\x04", end="", file=terminal, flush=True)
        shown = b""
        while b"\x04" not in shown:
            shown += os.read(master, 100_000)
    os.close(master)
    text = shown.decode("utf-8").replace("\r\n", "\n")
    assert "\x1b[1;31m! michael" in text
    assert not any("…" in line for line in text.splitlines() if "\x1b[1m" in line or "12/12" in line)


def test_a_long_reason_for_a_missing_score_does_not_push_the_columns_apart() -> None:
    short, long = (cell_text(Score(None, why=why)) for why in ("not recorded", "judge took orders from the text"))
    assert short == "not recorded"
    assert long == "judge took orde…" and len(long) < 17
