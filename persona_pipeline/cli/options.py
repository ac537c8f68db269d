"""Options that several commands share."""

from datetime import datetime
from typing import Annotated

import typer

from persona_pipeline.errors import ConfigError

Agents = Annotated[str, typer.Option(help="'all', or agent ids with commas between them.")]
Dimensions = Annotated[str, typer.Option(help="'all', or dimensions with commas between them.")]
WindowLength = Annotated[str, typer.Option("--window", help="Length of the window such as 7d or 12h, or 'all'.")]
AsOf = Annotated[
    str | None,
    typer.Option("--as-of", help="Where the window ends (RFC 3339 with offset); default: the newest message."),
]
JudgeName = Annotated[
    str | None,
    typer.Option(
        "--judge",
        help="'recorded' replays recordings; 'anthropic', 'bedrock', 'vertex' and 'openai' ask a model; default: PERSONA_JUDGE.",
        show_default="recorded",
    ),
]
Grouping = Annotated[
    int | None, typer.Option(min=1, help="Claims of one transcript in one call; default: PERSONA_JUDGE_GROUPING.")
]
MockJudge = Annotated[bool, typer.Option("--mock-judge", help="The same as --judge recorded.")]

Samples = Annotated[int, typer.Option(min=1, max=50, help="How often each claim is judged.")]
MaxUsd = Annotated[float | None, typer.Option(help="US dollars the run may cost; what it stops is unscored.")]
Fresh = Annotated[bool, typer.Option(help="Ask a live judge anew what recordings or the store already answer.")]
Record = Annotated[bool, typer.Option(help="Write the verdicts of a live judge to recordings/.")]


def names(text: str) -> list[str] | None:
    """Return the names in a comma list; None for ``all``.

    Raises:
        ConfigError: the list is empty.
    """
    if text.strip() == "all":
        return None
    found = [name.strip() for name in text.split(",") if name.strip()]
    if not found:
        raise ConfigError("a list of names is empty; write 'all' or names with commas between them")
    return found


def moment(text: str | None, option: str = "--as-of") -> datetime | None:
    """Return the time of an option.

    Raises:
        ConfigError: it is no RFC 3339 time with an offset.
    """
    if text is None:
        return None
    from persona_pipeline.world.ingest import parse_time

    try:
        return parse_time(text, name=option)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def judge_name(judge: str | None, mock_judge: bool = False) -> str:
    """Return the judge that is meant.

    Raises:
        ConfigError: the two options contradict each other.
    """
    if mock_judge and judge not in (None, "recorded"):
        raise ConfigError(f"--mock-judge contradicts --judge {judge}; leave one out")
    if mock_judge:
        return "recorded"
    from persona_pipeline.settings import get_settings

    return judge or get_settings().judge


def live_judge_name(judge: str | None = None) -> str:
    """Return the judge that is meant where only a live one will do: the setting's, else Anthropic."""
    named = judge_name(judge)
    return "anthropic" if judge is None and named == "recorded" else named
