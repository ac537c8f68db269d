"""The commands, registered."""

from typing import Annotated

import typer

from persona_pipeline.cli.claims import app as propositions
from persona_pipeline.cli.claims import personas
from persona_pipeline.cli.corrections import app as corrections
from persona_pipeline.cli.evaluate import baseline, evaluate, facts, report, view
from persona_pipeline.cli.judges import calibrate, labels, recordings
from persona_pipeline.cli.suites import app as suite
from persona_pipeline.cli.versions import bisect, changes, compare, interview, since
from persona_pipeline.cli.world.doctor import doctor
from persona_pipeline.cli.world.first import first
from persona_pipeline.cli.world.messages import app as messages
from persona_pipeline.cli.world.messages import collect, ingest, watch
from persona_pipeline.cli.world.setup import forget, init, migrate, schema, validate

app = typer.Typer(
    help="Continuous evaluation for LLM personas: measure, guard and correct a character's voice.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        from persona_pipeline.cli.running import end
        from persona_pipeline.version import __version__

        typer.echo(f"persona-pipeline {__version__}")
        end()


@app.callback()
def whole(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Continuous evaluation for LLM personas: measure, guard and correct a character's voice."""


# Commands by task, each group in the usual order of use.
COMMANDS = {
    "Start": (first, init, ingest, collect, validate, doctor),
    "Evaluate": (evaluate, interview, baseline, facts),
    "Look": (view, report, since, compare, bisect, changes),
    "Teach the judge": (calibrate,),
    "Guard and correct": (watch,),
    "Keep": (forget, schema, migrate),
}
GROUPS = {
    "Start": {"personas": personas},
    "Evaluate": {"suite": suite},
    "Teach the judge": {"labels": labels, "propositions": propositions},
    "Guard and correct": {"corrections": corrections},
    "Keep": {"messages": messages, "recordings": recordings},
}
for panel, commands in COMMANDS.items():
    for command in commands:
        # ``try`` is a keyword of Python.
        app.command("try" if command is first else None, rich_help_panel=panel)(command)
for panel, groups in GROUPS.items():
    for name, group in groups.items():
        app.add_typer(group, name=name, rich_help_panel=panel)
