"""The commands, registered."""

import typer

from persona_pipeline.cli.claims import app as propositions
from persona_pipeline.cli.claims import personas
from persona_pipeline.cli.corrections import app as corrections
from persona_pipeline.cli.evaluate import baseline, evaluate
from persona_pipeline.cli.judges import app as recordings
from persona_pipeline.cli.judges import calibrate, canary
from persona_pipeline.cli.labels import app as labels
from persona_pipeline.cli.labels import label
from persona_pipeline.cli.report import report
from persona_pipeline.cli.suites.commands import app as suite
from persona_pipeline.cli.versions import bisect, changes, compare
from persona_pipeline.cli.world.doctor import doctor
from persona_pipeline.cli.world.messages import app as messages
from persona_pipeline.cli.world.messages import collect, ingest, watch
from persona_pipeline.cli.world.setup import forget, init, migrate, schema
from persona_pipeline.cli.world.validate import validate

app = typer.Typer(
    name="persona-pipeline",
    help="Continuous evaluation for LLM personas: measure, guard and correct a character's voice.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command()(evaluate)
app.command()(baseline)
app.command()(validate)
app.command()(changes)
app.command()(compare)
app.command()(bisect)
app.command()(ingest)
app.command()(collect)
app.command()(report)
app.command()(forget)
app.command()(schema)
app.command()(init)
app.command()(migrate)
app.command()(doctor)
app.command()(watch)
app.add_typer(messages, name="messages")
app.command()(calibrate)
app.command()(canary)
app.command()(label)
app.add_typer(propositions, name="propositions")
app.add_typer(personas, name="personas")
app.add_typer(recordings, name="recordings")
app.add_typer(labels, name="labels")
app.add_typer(suite, name="suite")
app.add_typer(corrections, name="corrections")
