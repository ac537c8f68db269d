"""``--help``: commands and options by what one wants of them, in plain lines that fit a terminal."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from persona_pipeline.cli.app import app

MOST = 78
# What other parts of the command line may add stands in a panel of these, too.
PANELS = {
    "Start": ["init", "ingest", "collect", "validate", "doctor", "personas"],
    "Evaluate": ["evaluate", "interview", "baseline", "suite"],
    "Look": ["report", "since", "compare", "bisect", "changes"],
    "Teach the judge": ["calibrate", "labels", "propositions"],
    "Guard and correct": ["watch", "corrections"],
    "Keep": ["forget", "schema", "migrate", "messages", "recordings"],
}
OPTIONS = {
    "What is evaluated": ["agents", "dimensions", "window", "as-of", "since", "synthetic", "history", "touched"],
    "Judge": ["judge", "samples", "grouping", "record", "fresh", "max-usd", "confirm", "mock-judge", "estimate"],
    "Verdict": ["regression-delta", "threshold", "fail-on", "only-fail-on", "against", "update-baseline"],
    "Output": ["output", "format", "verbose", "notify", "save-snapshot", "snapshot"],
}


def shown(*arguments: str) -> dict[str, list[str]]:
    """What a page of help shows: the first words of the lines of each panel."""
    environment = {"TERMINAL_WIDTH": "100", "NO_COLOR": "1", "COLUMNS": "100"}
    text = CliRunner().invoke(app, [*arguments, "--help"], env=environment).output
    panels: dict[str, list[str]] = {}
    for line in text.splitlines():
        if heading := re.match(r"╭─ (.+?) ─", line):
            panels[heading[1]] = []
        elif panels and (word := re.match(r"│ (?:--)?([a-z][\w-]*)", line)):
            [*panels.values()][-1].append(word[1])
    return panels


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[Any]:
    for name, command in group.commands.items():
        yield pytest.param(command, id=" ".join((*path, name)))
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))


def test_commands_and_options_stand_by_what_one_wants_in_the_order_one_needs_them() -> None:
    for arguments, expected in (((), PANELS), (("evaluate",), OPTIONS)):
        panels = shown(*arguments)
        assert list(panels) == ["Options", *expected]
        for panel, names in expected.items():
            assert [name for name in panels[panel] if name in names] == names
    assert panels["Options"] == ["help"]


@pytest.mark.parametrize("command", commands(typer.main.get_command(app)))
def test_the_first_line_says_plainly_what_it_does(command: Any) -> None:
    first = (command.help or "").partition("\n\n")[0]
    assert "\n" not in first and first[:1].isupper() and first.endswith((".", "?"))
    assert len(first) <= MOST
    assert command.rich_help_panel or command.name
