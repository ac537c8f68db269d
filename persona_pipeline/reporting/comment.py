"""Render the pull-request comment from a report's JSON: ``python -m persona_pipeline.reporting.comment REPORT COMMENT``.

For CI, where the JSON was made by code of a pull request and is only data: it is validated, and all of its text is
neutralised; so is that of ``--comparison``, the JSON of ``persona-pipeline compare``, where it is there. What else the comment says
does not come from it: with ``--base`` and ``--head`` what the change touches, from git; with ``--conclusion`` whether the report
says the same as the workflow that made it. Exit code 2 when there is no report and no conclusion.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from persona_pipeline.errors import ConfigError, Problem
from persona_pipeline.evaluation.report import EXIT_OK, RunReport
from persona_pipeline.reporting.changes import changes_line, render_changes
from persona_pipeline.reporting.comparison import TITLE as COMPARED
from persona_pipeline.reporting.comparison import render_comparison
from persona_pipeline.reporting.json_report import MAX_BYTES, read_json
from persona_pipeline.reporting.markdown import COMMENT_LIMIT, MARKER, render_comment
from persona_pipeline.reporting.text import markdown_code, markdown_text
from persona_pipeline.versions.result import read_comparison
from persona_pipeline.world.changes import Change, changed_things

CONCLUSIONS = ("success", "failure")
_MOST_REMEDIES, _REMEDY_LIMIT = 3, 300


def comment_text(
    report: RunReport | None,
    *,
    conclusion: str | None = None,
    changes: Sequence[Change] | None = None,
    comparison: str = "",
    problem: str = "",
) -> str:
    """Return the comment: the verdict, what of the change it was made of, what to do, and then all the rest.

    Args:
        report: None: there is none that can be read, and ``problem`` says why.
        conclusion: of the workflow, ``success`` or ``failure``, as GitHub tells it.
        changes: what the change touches; None: nothing is said of it.
        comparison: Markdown of two versions side by side, which comes last.
    """
    warning = _warning(report, conclusion, problem)
    if report is None:
        touched = "" if changes is None else f"{render_changes(changes)}\n"
        return "\n".join(filter(None, [MARKER, warning, touched, comparison]))
    made = "" if changes is None else f"What this change touches: {changes_line(changes)}\n\n"
    listed = ""
    if changes and len(changes) > 1:
        rows = render_changes(changes).partition("\n- ")[2].rstrip()
        listed = f"\n<details>\n<summary>All that this change touches</summary>\n\n- {rows}\n\n</details>\n"
    after = f"\n{comparison}" if comparison else ""
    told = f"{made}{_to_do(report)}"
    rendered = render_comment(report, COMMENT_LIMIT - sum(map(len, (warning, told, listed, after))) - 2)
    # Behind the headline, which says the verdict.
    head, verdict, rest = rendered.partition("\n## ")
    headline, _, rest = rest.partition("\n\n")
    marker, _, before = head.partition("\n")
    before = f"{before}\n" if before else ""
    warned = f"{warning}\n" if warning else ""
    return f"{marker}\n{warned}{before}{verdict[1:]}{headline}\n\n{told}{rest}{listed}{after}"


def _to_do(report: RunReport) -> str:
    remedies = list(dict.fromkeys(finding.remedy for finding in report.all_findings() if finding.remedy))
    if not remedies:
        return ""
    more = f" {len(remedies) - _MOST_REMEDIES} more are below." if len(remedies) > _MOST_REMEDIES else ""
    return f"To do: {'; '.join(markdown_code(text, _REMEDY_LIMIT) for text in remedies[:_MOST_REMEDIES])}.{more}\n\n"


def write_comment(report: Path, comment: Path) -> None:
    """Write the comment of a report file.

    Raises:
        ConfigError: the file is missing, too large, not UTF-8 or not a report.
    """
    comment.write_text(comment_text(_read(report)), encoding="utf-8", newline="\n")


def main(arguments: list[str]) -> int:
    """Run the module as a command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m persona_pipeline.reporting.comment")
    parser.add_argument("report", type=Path)
    parser.add_argument("comment", type=Path)
    parser.add_argument("--conclusion", choices=CONCLUSIONS)
    parser.add_argument("--base", help="the commit the change is compared with")
    parser.add_argument("--head", help="the change's newest commit")
    parser.add_argument("--comparison", type=Path, help="the JSON of persona-pipeline compare; none is no mistake")
    parser.add_argument("--world", type=Path, default=Path(), help="the world's folder in the repository")
    try:
        told = parser.parse_args(arguments)
    except SystemExit as stopped:
        return int(stopped.code or 0)
    report, problem = None, ""
    try:
        report = _read(told.report)
    except ConfigError as error:
        print(error, file=sys.stderr)
        if told.conclusion is None:
            return 2
        problem = error.problems[0].message
    changes = unknown = None
    if told.base and told.head:
        try:
            changes = changed_things(told.world, told.base, told.head)
        except ConfigError as error:
            unknown = f"What this change touches could not be told: {markdown_text(str(error), 200)}\n\n"
    comparison = _comparison(told.comparison) if told.comparison and told.comparison.exists() else ""
    comparison = "".join(filter(None, (unknown, comparison)))
    text = comment_text(report, conclusion=told.conclusion, changes=changes, comparison=comparison, problem=problem)
    told.comment.write_text(text, encoding="utf-8", newline="\n")
    return 0


def _warning(report: RunReport | None, conclusion: str | None, problem: str) -> str:
    if conclusion is None:
        return ""
    if report is None:
        return (
            f"> [!CAUTION]\n> The workflow ended with **{conclusion}** and left no report that can be read "
            f"({markdown_text(problem, 200)}). Look at its log.\n"
        )
    if (report.exit_code == EXIT_OK) == (conclusion == "success"):
        return ""
    return (
        f"> [!CAUTION]\n> The workflow ended with **{conclusion}**, and the report below says exit code "
        f"{report.exit_code}. Do not trust the report: it was made by code of this pull request. Look at the workflow's log.\n"
    )


def _comparison(path: Path) -> str:
    try:
        return render_comparison(read_comparison(_text(path), str(path)))
    except ConfigError as error:
        return f"{COMPARED}\n\nIt could not be read: {markdown_text(error.problems[0].message, 200)}\n"


def _read(report: Path) -> RunReport:
    return read_json(_text(report), str(report))


def _text(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(MAX_BYTES + 1).decode("utf-8")
    except OSError as error:
        raise ConfigError(Problem(f"cannot be read: {error.strerror}", str(path))) from None
    except UnicodeDecodeError:
        raise ConfigError(Problem("not UTF-8: not a report", str(path))) from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
