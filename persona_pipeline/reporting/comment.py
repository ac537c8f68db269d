"""Render the pull-request comment from a report's JSON: ``python -m persona_pipeline.reporting.comment REPORT COMMENT``.

In CI code of a pull request makes the JSON, so it is validated and its text is escaped, also that of ``--comparison``. The list of
changes (``--base``, ``--head``) comes from git, and ``--conclusion`` checks the report against the workflow that made it.
Exit code 2 without a report and a conclusion.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.base.status import Result
from persona_pipeline.guard.report import EXIT_OK, RunReport
from persona_pipeline.lab.results import read_comparison
from persona_pipeline.reporting.markdown import comment_of
from persona_pipeline.reporting.page import Block, Folded, Item, Page, Section, Span
from persona_pipeline.reporting.pages.evaluation import comment_page
from persona_pipeline.reporting.pages.experiments import TOUCHED, changes_line, changes_page
from persona_pipeline.reporting.pages.versions import COMPARED, comparison_page
from persona_pipeline.reporting.render import MAX_BYTES, read_json
from persona_pipeline.reporting.view import ReportView
from persona_pipeline.world.changes import Change, changed_things

CONCLUSIONS = ("success", "failure")
# Changes that cannot make another verdict.
_WITHOUT_EFFECT = ("suite", "workflow", "interview")


def comment_text(
    report: RunReport | None,
    *,
    conclusion: str | None = None,
    changes: Sequence[Change] | None = None,
    after: Sequence[Section] = (),
    problem: str = "",
) -> str:
    """Return the comment: the verdict, the changed files, what to do, and the details.

    Args:
        report: None: it cannot be read; ``problem`` gives the reason.
        conclusion: result of the workflow, as GitHub reports it.
        changes: changed files; None: they are not listed.
        after: sections at the end, such as a comparison of two versions.
    """
    warning = _warning(report, conclusion, problem)
    before = [warning] if warning else []
    touched = None if changes is None else changes_page(changes)
    if report is None:
        found = [*([touched.as_section()] if touched else []), *after]
        return comment_of(Page("", before=before, sections=found))
    page = comment_page(report)
    drifted = [row.name for row in ReportView(report).rows if row.conclusion.verdict is Result.FELL]
    if drifted and changes is not None and all(change.what in _WITHOUT_EFFECT for change in changes):
        # The base has the same personas, claims, messages and rules, and so the same drift.
        text = f"Nothing that this pull request changed: {', '.join(drifted)} had drifted before."
        before = [*before, Item([Span(text, "strong", 600)])]
    told: list[Block] = [Item([f"{TOUCHED}: ", *changes_line(changes)])] if changes is not None else []
    several = touched if changes and len(changes) > 1 else None
    listed = [Section("", [Folded("All that this change touches", several.sections[0].blocks)])] if several else []
    top, sections = [*told, *page.top], [*page.sections, *listed, *after]
    return comment_of(replace(page, before=[*before, *page.before], top=top, sections=sections))


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
        report = read_json(_text(told.report), str(told.report))
    except ConfigError as error:
        print(error, file=sys.stderr)
        if told.conclusion is None:
            return 2
        problem = error.problems[0].message
    changes, after = None, []
    if told.base and told.head:
        try:
            changes = changed_things(told.world, told.base, told.head)
        except ConfigError as error:
            after.append(_unreadable("", f"{TOUCHED} could not be told: ", error))
    if told.comparison and told.comparison.exists():
        try:
            compared = read_comparison(_text(told.comparison), str(told.comparison))
            after.append(comparison_page(compared).as_section())
        except ConfigError as error:
            after.append(_unreadable(COMPARED, "It could not be read: ", error))
    text = comment_text(report, conclusion=told.conclusion, changes=changes, after=after, problem=problem)
    told.comment.write_text(text, encoding="utf-8", newline="\n")
    return 0


def _warning(report: RunReport | None, conclusion: str | None, problem: str) -> Item | None:
    if conclusion is None:
        return None
    ended: list[str | Span] = [Span("The workflow ended with ", "own"), Span(conclusion, "strong")]
    if report is None:
        said = [Span(" and left no report that can be read (", "own"), Span(problem, limit=200)]
        return Item([*ended, *said, Span("). Look at its log.", "own")], tone="bad")
    if (report.exit_code == EXIT_OK) == (conclusion == "success"):
        return None
    said = (
        f", and the report below says exit code {report.exit_code}. Do not trust the report: it was made by code of this pull "
        "request. Look at the workflow's log."
    )
    return Item([*ended, Span(said, "own")], tone="bad")


def _unreadable(title: str, said: str, error: ConfigError) -> Section:
    return Section(title, [Item([Span(said, "own"), Span(error.problems[0].message, limit=200)])])


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
