"""The commands, registered."""

import typer

from persona_pipeline.cli.claims import app as propositions
from persona_pipeline.cli.claims import personas
from persona_pipeline.cli.corrections import app as corrections
from persona_pipeline.cli.evaluate import baseline, evaluate, report
from persona_pipeline.cli.judges import app as recordings
from persona_pipeline.cli.judges import calibrate, canary
from persona_pipeline.cli.labels import app as labels
from persona_pipeline.cli.labels import label
from persona_pipeline.cli.suites.commands import app as suite
from persona_pipeline.cli.versions import bisect, changes, compare
from persona_pipeline.cli.view import view
from persona_pipeline.cli.world.doctor import doctor
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
for command in (
    *(evaluate, baseline, validate, changes, compare, bisect, ingest, collect, report, forget, schema, init, migrate),
    *(doctor, watch, calibrate, canary, label, view),
):
    app.command()(command)
app.add_typer(messages, name="messages")
app.add_typer(propositions, name="propositions")
app.add_typer(personas, name="personas")
app.add_typer(recordings, name="recordings")
app.add_typer(labels, name="labels")
app.add_typer(suite, name="suite")
app.add_typer(corrections, name="corrections")
