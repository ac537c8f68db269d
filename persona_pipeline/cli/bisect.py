"""``persona-pipeline bisect``: which commit, and what in it, made an agent's scores fall."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from persona_pipeline.cli.options import JudgeName, MaxUsd, WindowLength, live_judge_name
from persona_pipeline.errors import ConfigError

if TYPE_CHECKING:
    from persona_pipeline.judging.verdict import Judge
    from persona_pipeline.versions.finding import Bisection
    from persona_pipeline.versions.states import Answers
    from persona_pipeline.world import World

HISTORIES = ("auto", "commits", "evaluations")


def bisect(
    agent: Annotated[str, typer.Argument(help="The agent's id.", show_default=False)],
    good: Annotated[
        str | None,
        typer.Option(
            help="A commit where it was well; by default the last that wrote its baseline.", show_default=False
        ),
    ] = None,
    bad: Annotated[str, typer.Option(help="A commit where it is not.")] = "HEAD",
    dimension: Annotated[str | None, typer.Option(help="Only this dimension.", show_default=False)] = None,
    claim: Annotated[str | None, typer.Option(help="Only this claim of --dimension.", show_default=False)] = None,
    window: WindowLength = "7d",
    by: Annotated[
        str,
        typer.Option(
            help="commits, evaluations (those in the store), or auto: commits where messages are in git and changed there."
        ),
    ] = "auto",
    live: Annotated[bool, typer.Option(help="Ask a live judge for judgments that nobody made.")] = False,
    judge: JudgeName = None,
    max_usd: MaxUsd = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Name the commit, and the persona line, claim, messages or judge in it, that made an agent's scores fall.

    Asks nobody: what is recorded or in the store is read. Where that does not tell, it says what it would cost to ask (--live).

    Exit codes: 0 every cause is named, or nothing fell; 2 usage or configuration; 3 something cannot be told.
    """
    from persona_pipeline.reporting.pages.versions import bisection_page
    from persona_pipeline.reporting.terminal import print_page
    from persona_pipeline.versions.bisecting import (
        BisectRequest,
        bisect_commits,
        bisect_evaluations,
        has_messages,
        stored_evaluations,
    )
    from persona_pipeline.versions.voices import voice_lines
    from persona_pipeline.world import World

    if by not in HISTORIES:
        raise ConfigError(f"--by {by!r} is unknown; use {', '.join(HISTORIES)}")
    if claim and not dimension:
        raise ConfigError("--claim needs --dimension: ids are of a dimension")
    if not live and (max_usd is not None or judge is not None):
        raise ConfigError("nobody is asked without --live; add it, or leave out --judge and --max-usd")
    if live and max_usd is None:
        raise ConfigError("--live needs a budget; add --max-usd")
    world = World.open()
    request = BisectRequest(agent, good, bad, dimension, claim, window)
    asked = _live(world, judge, max_usd) if live else None
    in_git = by == "commits" or (by == "auto" and has_messages(world, bad))
    found, answers = (bisect_commits if in_git else bisect_evaluations)(world, request, asked)
    if by == "auto" and in_git and found.good == found.bad and stored_evaluations(world, agent) > 1:
        # What it depends on never changed since it was well: then time did it.
        found, answers = bisect_evaluations(world, request, asked)
    found = found.model_copy(update={"voice": voice_lines(world, agent)})
    if as_json:
        sys.stdout.write(found.model_dump_json(indent=2) + "\n")
    else:
        print_page(bisection_page(found))
    _hint(found, answers)
    raise typer.Exit(found.exit_code)


def _live(world: "World", judge: str | None, max_usd: float | None) -> "Judge":
    from persona_pipeline.judging.open import JudgeOptions, open_judge

    return open_judge(live_judge_name(judge), world, JudgeOptions(max_usd=max_usd))


def _hint(found: "Bisection", answers: "Answers") -> None:
    """Say what the judgments would cost that nobody made."""
    if not answers.missing:
        return
    from persona_pipeline.judging.estimate import estimate

    typer.echo(
        f"{len(answers.missing)} judgments would tell more; `persona-pipeline bisect {found.agent_id} --live --max-usd N` "
        f"asks for them: {estimate(list(answers.missing.values()))}",
        err=True,
    )
