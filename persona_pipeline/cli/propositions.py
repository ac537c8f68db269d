"""``persona-pipeline propositions``: what an agent is judged on, and whether that catches anything."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from persona_pipeline.cli.drafts import draft
from persona_pipeline.cli.options import (
    AsOf,
    Fresh,
    JudgeName,
    MaxUsd,
    MockJudge,
    Record,
    WindowLength,
    judge_name,
    moment,
    names,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from persona_pipeline.reporting.page import Page

app = typer.Typer(help="Claims: look at them, test them, draft them.", no_args_is_help=True)
app.command()(draft)

Format = Annotated[str, typer.Option(help="table, json, markdown or html.")]
Output = Annotated[Path | None, typer.Option(help="Write the report to this file instead of stdout.")]
Dimension = Annotated[str, typer.Option("--dimension", help="'all', or dimensions with commas between them.")]


@app.callback()
def _group() -> None:
    """Claims: look at them, test them, draft them."""


@app.command()
def show(
    agent: Annotated[str, typer.Argument(help="The agent's id.")],
    dimension: Annotated[str, typer.Option(help="adherence, consistency, fluency, convergence or ideas_quantity.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the set as JSON.")] = False,
) -> None:
    """Print an agent's merged propositions of a dimension, the agent's name filled in."""
    from persona_pipeline.errors import ConfigError
    from persona_pipeline.propositions import PROPOSITIONS, fill_template, load_proposition_set
    from persona_pipeline.settings import get_settings
    from persona_pipeline.world.personas import load_persona

    root = get_settings().world_root
    merged = load_proposition_set(root / PROPOSITIONS, dimension, agent)
    try:
        variables = {"agent_name": load_persona(root, agent).display_name}
    except ConfigError as error:
        typer.echo(str(error), err=True)
        variables = {}
    data = merged.to_dict()
    if as_json:
        typer.echo(json.dumps(data, indent=2, ensure_ascii=False))
        return
    for item in merged.propositions:
        sign = "-" if item.inverted else "+"
        typer.echo(f"{sign} {item.id} (weight {item.weight:g}): {fill_template(item.claim, variables)}")


@app.command()
def test(
    agent: Annotated[str, typer.Argument(help="The agent's id.")],
    dimension: Dimension = "all",
    faults: Annotated[
        str,
        typer.Option(
            help="'all', or with commas between them: boilerplate, borrowed, repetition, flattened, contradiction, wrong_facts."
        ),
    ] = "all",
    window: WindowLength = "7d",
    as_of: AsOf = None,
    judge: JudgeName = None,
    mock_judge: MockJudge = False,
    samples: Annotated[
        int, typer.Option(min=1, max=50, help="How often each claim is judged on each window; once tells no noise.")
    ] = 3,
    others: Annotated[
        int, typer.Option(min=0, max=50, help="Of how many other agents the words are held against the claims.")
    ] = 2,
    seed: Annotated[int, typer.Option(help="Of the faults: the same seed plants the same.")] = 0,
    estimate: Annotated[
        bool, typer.Option(help="Print calls, tokens and US dollars a live test would take; judge nothing.")
    ] = False,
    max_usd: MaxUsd = None,
    record: Record = False,
    fresh: Fresh = False,
    format: Format = "table",
    output: Output = None,
) -> None:
    """Break a character on purpose and print which claim catches which fault.

    Each fault is planted in the messages the agent really sent, and every claim is judged on what is broken beside what is intact.

    Exit codes: 0 all was judged, 2 usage or configuration, 3 not fully judged, 4 budget.
    """
    from persona_pipeline.claims.trial import TrialRequest, plan_trial, run_trial
    from persona_pipeline.judging.open import JudgeOptions, open_judge
    from persona_pipeline.reporting.pages.claims import matrix_page
    from persona_pipeline.world import World

    check_format(format)
    request = TrialRequest(
        agent_id=agent,
        dimensions=names(dimension),
        faults=names(faults),
        window=window,
        as_of=moment(as_of),
        samples=samples,
        others=others,
        seed=seed,
    )
    world = World.open()
    trial = plan_trial(world, request)
    if estimate:
        typer.echo(trial.estimate())
        return
    opened = open_judge(judge_name(judge, mock_judge), world, JudgeOptions(max_usd=max_usd, record=record, fresh=fresh))
    if opened.live:
        typer.echo(trial.estimate(), err=True)
    matrix = run_trial(trial, opened)
    emit(matrix_page(matrix), matrix.to_dict(), format, output)
    raise typer.Exit(matrix.exit_code)


@app.command()
def noise(
    agent: Annotated[str | None, typer.Argument(help="The agent's id; by default everybody.")] = None,
    dimension: Dimension = "all",
    format: Format = "table",
    output: Output = None,
) -> None:
    """Say from saved evaluations alone which claims vary, say nothing, or rest on nothing. No call is made."""
    from persona_pipeline.claims.noise import measure_noise
    from persona_pipeline.reporting.pages.claims import noise_page
    from persona_pipeline.world import World

    check_format(format)
    report = measure_noise(World.open(), None if agent is None else [agent], names(dimension))
    emit(noise_page(report), report.to_dict(), format, output)


def check_format(format: str) -> None:
    from persona_pipeline.errors import ConfigError
    from persona_pipeline.reporting.render import PAGE_FORMATS

    if format not in PAGE_FORMATS:
        raise ConfigError(f"--format {format!r} is unknown; use {', '.join(PAGE_FORMATS)}")


def emit(page: "Page", data: "Mapping[str, object]", format: str, output: Path | None) -> None:
    from persona_pipeline.atomic_files import write_atomically
    from persona_pipeline.reporting.render import render_page
    from persona_pipeline.reporting.terminal import print_page, transliterated

    if output is None and format == "table":
        print_page(page)
        return
    if output is None:
        typer.echo(transliterated(render_page(page, data, format), sys.stdout.encoding or "utf-8"), nl=False)
        return
    write_atomically(output, render_page(page, data, format))
    typer.echo(f"report written: {output}", err=True)
