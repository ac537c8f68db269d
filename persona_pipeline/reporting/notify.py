"""Alerts about a run with a drop or an inconclusive result, by webhook, to the names under ``alerts`` in ``persona.yaml``.

``python -m persona_pipeline.reporting.notify REPORT --to NAME``: for CI, from a report's JSON.
"""

import argparse
import json
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from http.client import HTTPException
from os import environ
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from persona_pipeline.base.errors import ConfigError, did_you_mean
from persona_pipeline.base.status import Result
from persona_pipeline.base.text import names_in
from persona_pipeline.guard.report import EXIT_OK, RunReport
from persona_pipeline.reporting.text import one_line
from persona_pipeline.world.settings import WORLD_FILE, load_world_file

if TYPE_CHECKING:
    from persona_pipeline.suites.grading.results import SuiteResult

VARIABLE = "PERSONA_ALERT_WEBHOOK_"
MOST_LINES, MOST_CHARACTERS = 10, 300
SECONDS = 10
# Hosts that accept a text only; all other addresses also get the facts.
_TEXT_ALONE = ("slack.com", "chat.googleapis.com", "discord.com")
_TEAMS = ("logic.azure.com", "powerplatform.com", "office.com")


@dataclass(frozen=True)
class Notice:
    """An alert: the first ten ``lines``, a ``link`` to the details, and ``facts``, the same as plain JSON for a program."""

    title: str
    lines: Sequence[str] = ()
    link: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def reasons(self) -> list[str]:
        left = len(self.lines) - MOST_LINES
        more = [f"and {left} more"] if left > 0 else []
        return [one_line(line, MOST_CHARACTERS) for line in self.lines[:MOST_LINES]] + more


def report_notice(report: RunReport) -> Notice | None:
    """Return the notice of an evaluation: its verdict and the reasons; None if every check held."""
    from persona_pipeline.reporting.pages.evaluation import short_page
    from persona_pipeline.reporting.terminal import plain_text
    from persona_pipeline.reporting.view import ReportView

    verdict = report.conclusion.verdict
    if verdict is Result.HELD and report.exit_code == EXIT_OK:
        return None
    headline, page = ReportView(report).headline, short_page(report, exits=False)
    # What a pull request's base says comes first, as in the comment; the scores are the report's.
    blocks = [*(block for section in page.sections for block in section.blocks), *page.top]
    items = [item for block in blocks for item in getattr(block, "items", ())]
    lines = [f"{item.kind}: {plain_text(item.line)}" if item.kind else plain_text(item.line) for item in items]
    agents = {name: agent.conclusion.verdict for name, agent in sorted(report.agents.items())}
    facts = {
        "kind": "evaluation",
        "verdict": verdict,
        "exit_code": report.exit_code,
        "headline": headline,
        "agents": {name: found for name, found in agents.items() if found not in (None, Result.HELD)},
    }
    return Notice(f"Persona evaluation: {headline}", lines, run_link(), facts)


def suite_notice(whole: "SuiteResult") -> Notice | None:
    """Return the notice of a suite run; None if no test failed and all were judged."""
    from persona_pipeline.reporting.pages.suites import is_good, result_line, summary_line

    if whole.exit_code == EXIT_OK:
        return None
    wrong = [test for test in whole.tests if not is_good(test)]
    facts = {
        "kind": "suites",
        "verdict": whole.result,
        "exit_code": whole.exit_code,
        "headline": summary_line(whole),
        "tests": {test.id: test.verdict.value for test in wrong[:MOST_LINES]},
    }
    return Notice(f"Eval suites: {summary_line(whole)}", [*map(result_line, wrong)], run_link(), facts)


def run_link() -> str:
    """Return where a CI system shows the run this process is part of; empty elsewhere."""
    if "GITHUB_RUN_ID" in environ:
        return "{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}/actions/runs/{GITHUB_RUN_ID}".format_map(environ)
    return environ.get("CI_JOB_URL", "")


def require_named(names: Sequence[str], known: Sequence[str]) -> None:
    """Raise ``ConfigError`` unless ``persona.yaml`` declares all of these names."""
    for name in names:
        if name not in known:
            meant = did_you_mean(name, known)
            raise ConfigError(f"{WORLD_FILE} has no alert {name!r}{meant}; add the name there: alerts: [{name}]")


def addresses(names: Sequence[str]) -> dict[str, str]:
    """Return the address of each name's alerts, by its environment variable; empty if it is not set."""
    variables = [f"{VARIABLE}{name.upper().replace('-', '_')}" for name in names]
    return {variable: environ.get(variable, "") for variable in variables}


def notify(notice: Notice, known: Mapping[str, str]) -> list[str]:
    """Notify all of these addresses. Return one line per failure, without the address, which is a secret."""
    problems = []
    for variable, url in known.items():
        try:
            post(url, notice)
        except RuntimeError as error:
            problems.append(f"not notified: {variable} {error}")
    return problems


def post(url: str, notice: Notice) -> None:
    """Post a notice in the format of the address: Slack's, which most services accept, or that of Teams.

    Raises ``RuntimeError`` if it could not be delivered; the address, which is a secret, is not shown.
    """
    if not url:
        raise RuntimeError("is not set")
    if not url.lower().startswith(("http://", "https://")):
        raise RuntimeError("is no http address")
    try:
        data = json.dumps(_payload(urlsplit(url).hostname or "", notice)).encode("utf-8")
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method="POST")
        with urllib.request.urlopen(request, timeout=SECONDS):
            pass
    except (OSError, ValueError, HTTPException) as error:
        raise RuntimeError(f"did not take it ({getattr(error, 'code', None) or type(error).__name__})") from None


def _payload(host: str, notice: Notice) -> dict[str, Any]:
    def one_of(hosts: Sequence[str]) -> bool:
        return any(host == name or host.endswith(f".{name}") for name in hosts)

    link = [notice.link] if notice.link else []
    if one_of(_TEAMS):
        # Rich text, because a text block would turn agents' words into links and emphasis.
        rows = [notice.title, *notice.reasons, *link]
        body = [{"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": row}]} for row in rows]
        card = {"type": "AdaptiveCard", "version": "1.4", "body": body}
        kind = "application/vnd.microsoft.card.adaptive"
        return {"type": "message", "attachments": [{"contentType": kind, "content": card}]}
    # Escaped as Slack asks for it, foreign text names no channel and makes no link.
    title, *reasons = (escape(text, quote=False) for text in (notice.title, *notice.reasons))
    text = "\n".join([f"*{title}*", *(f"• {line}" for line in reasons), *link])
    return {"text": text} if one_of(_TEXT_ALONE) else {"text": text, **notice.facts}


def main(arguments: Sequence[str]) -> int:
    """Run the module as a command; returns the exit code: 2 for a name that is not declared, else 0."""
    parser = argparse.ArgumentParser(prog="python -m persona_pipeline.reporting.notify")
    parser.add_argument("report", type=Path, help="the JSON of an evaluation; none is told, too")
    parser.add_argument("--to", required=True, help="names under alerts in persona.yaml, with commas between them")
    parser.add_argument("--world", type=Path, default=Path(), help="the world's folder")
    from persona_pipeline.reporting.render import read_json

    told = parser.parse_args(arguments)
    names = names_in(told.to)
    try:
        require_named(names, load_world_file(told.world).alerts)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    try:
        notice = report_notice(read_json(told.report.read_text(encoding="utf-8"), str(told.report)))
    except (OSError, ValueError, ConfigError):
        notice = Notice("Persona evaluation: it ended without a report", link=run_link())
    for problem in notify(notice, addresses(names)) if notice else ():
        print(problem, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
