"""Rows of a JSON lines file that a run writes while it goes on."""

from collections.abc import Callable, Iterator
from typing import Any

from persona_pipeline.errors import ConfigError, Problem
from persona_pipeline.suites.format.javascript import parse_json


def json_rows(
    text: str, source: str, malformed: str, parse: Callable[[str], Any] = parse_json
) -> Iterator[tuple[int, Any]]:
    """Yield each row that is not blank with its line number. A last line without an end that is no JSON is left out.

    Args:
        source: the file, for problems.
        malformed: what to say of a line that is not JSON; ``{number}`` and ``{error}`` stand for its number and the reason.

    Raises:
        ConfigError: a line before the last is not JSON.
    """
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = parse(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines):
                # The last line of a run that was killed while it wrote.
                return
            raise ConfigError(Problem(malformed.format(number=number, error=error), source, number, 1)) from error
        yield number, row
