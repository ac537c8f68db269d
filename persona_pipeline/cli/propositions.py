"""``persona-pipeline propositions``: what an agent is judged on."""

import json
from typing import Annotated

import typer

app = typer.Typer(help="Look at merged proposition sets.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Look at merged proposition sets."""


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
