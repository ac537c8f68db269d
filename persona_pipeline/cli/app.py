"""The commands, registered."""

import typer

from persona_pipeline.cli.claims import app as propositions
from persona_pipeline.cli.claims import personas
from persona_pipeline.cli.corrections import app as corrections
from persona_pipeline.cli.evaluate import baseline, evaluate, report, view
from persona_pipeline.cli.facts import facts
from persona_pipeline.cli.interview import interview
from persona_pipeline.cli.judges import app as recordings
from persona_pipeline.cli.judges import calibrate, canary
from persona_pipeline.cli.labels import app as labels
from persona_pipeline.cli.labels import label
from persona_pipeline.cli.suites.commands import app as suite
from persona_pipeline.cli.versions import bisect, changes, compare, since
from persona_pipeline.cli.world.doctor import doctor
from persona_pipeline.cli.world.first import first
from persona_pipeline.cli.world.messages import app as messages
from persona_pipeline.cli.world.messages import collect, ingest, watch
from persona_pipeline.cli.world.setup import forget, init, migrate, schema, validate

app = typer.Typer(
    name="persona-pipeline",
    help="Continuous evaluation for LLM personas: measure, guard and correct a character's voice.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
# What one wants of them, and in each group the commands in the order one needs them.
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
        # ``try`` is a word of Python.
        app.command("try" if command is first else None, rich_help_panel=panel)(command)
# Of earlier releases.
for former in (label, canary):
    app.command(hidden=True, context_settings={"ignore_unknown_options": True})(former)
for panel, groups in GROUPS.items():
    for name, group in groups.items():
        app.add_typer(group, name=name, rich_help_panel=panel)
