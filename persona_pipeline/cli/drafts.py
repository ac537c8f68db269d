"""Drafts by a model: claims and personas, from what an agent said."""

from typing import TYPE_CHECKING, Annotated

import typer

from persona_pipeline.cli.options import JudgeName, MaxUsd, Record, live_judge_name
from persona_pipeline.errors import ConfigError

if TYPE_CHECKING:
    from persona_pipeline.claims.drafts import Drafted
    from persona_pipeline.judging.verdict import Backend, Question
    from persona_pipeline.world import World

personas = typer.Typer(help="Personas: drafted from logs.", no_args_is_help=True)

Agent = Annotated[str, typer.Argument(help="The agent's id, as its messages have it.")]
Window = Annotated[str, typer.Option("--window", help="How much of what it said is read, such as 30d, or 'all'.")]
Estimate = Annotated[bool, typer.Option(help="Print tokens and US dollars a draft would take; ask nothing.")]


@personas.callback()
def _group() -> None:
    """Personas: drafted from logs."""


def draft(
    agent: Agent,
    dimension: Annotated[
        str, typer.Option(help="adherence, consistency, fluency, convergence or ideas_quantity.")
    ] = "adherence",
    window: Window = "all",
    judge: JudgeName = None,
    max_usd: MaxUsd = None,
    record: Record = False,
    estimate: Estimate = False,
) -> None:
    """Let a model propose claims, each with quotes that stand in the messages.

    Writes propositions/DIMENSION/AGENT.draft.yaml, which is never judged, and overwrites nothing.

    Exit codes: 0 written, 2 usage or configuration, 3 nothing to write, 4 budget.
    """
    from persona_pipeline.claims.drafts import draft_claims, plan_claims
    from persona_pipeline.world import World

    world = World.open()
    plan = plan_claims(world, agent, dimension, window)
    backend = _asked(world, plan.question, judge, estimate=estimate, max_usd=max_usd, record=record)
    _tell(draft_claims(plan, backend), "claim")


@personas.command("draft")
def draft_a_persona(
    agent: Agent,
    from_messages: Annotated[
        bool, typer.Option("--from-messages", help="Say that it is to come from the agent's messages.")
    ] = False,
    window: Window = "all",
    judge: JudgeName = None,
    max_usd: MaxUsd = None,
    record: Record = False,
    estimate: Estimate = False,
) -> None:
    """Let a model propose a persona from logs, each sentence with quotes that stand in the messages.

    Writes personas/AGENT.draft.yaml, which nothing reads, and overwrites nothing.

    Exit codes: 0 written, 2 usage or configuration, 3 nothing to write, 4 budget.
    """
    from persona_pipeline.claims.drafts import draft_persona, plan_persona
    from persona_pipeline.world import World

    if not from_messages:
        raise ConfigError("a persona is drafted from what the agent said; add --from-messages")
    world = World.open()
    plan = plan_persona(world, agent, window)
    backend = _asked(world, plan.question, judge, estimate=estimate, max_usd=max_usd, record=record)
    _tell(draft_persona(plan, backend), "sentence")


def _asked(
    world: "World", question: "Question", judge: str | None, *, estimate: bool, max_usd: float | None, record: bool
) -> "Backend":
    """Say what asking would cost, and return who is to be asked."""
    from persona_pipeline.claims.drafts import cost_of, draft_backend
    from persona_pipeline.judging.open import JudgeOptions, open_judge

    if estimate:
        typer.echo(cost_of(question))
        raise typer.Exit
    opened = open_judge(live_judge_name(judge), world, JudgeOptions(max_usd=max_usd, record=record))
    if opened.live:
        typer.echo(cost_of(question), err=True)
    return draft_backend(opened)


def _tell(drafted: "Drafted", what: str) -> None:
    from persona_pipeline.reporting.pages.costs import cost_line
    from persona_pipeline.reporting.text import one_line
    from persona_pipeline.scoring.results import UsageSummary

    for warning in drafted.warnings:
        typer.echo(f"injection: {one_line(warning)}", err=True)
    for dropped in drafted.dropped:
        typer.echo(f"dropped: {one_line(dropped)}", err=True)
    typer.echo(cost_line(UsageSummary(**vars(drafted.usage))), err=True)
    if drafted.failure:
        typer.echo(f"no draft: {one_line(drafted.failure)}", err=True)
    if drafted.path is None:
        typer.echo("nothing was written", err=True)
        raise typer.Exit(4 if drafted.failure.startswith("budget") else 3)
    typer.echo(
        f"{drafted.kept} {what}{'s' if drafted.kept != 1 else ''} written, to be read by a person: {drafted.path}"
    )
