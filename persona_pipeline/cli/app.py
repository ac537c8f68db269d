"""The commands, registered."""

import typer

from persona_pipeline.cli.baseline import baseline
from persona_pipeline.cli.bisect import bisect
from persona_pipeline.cli.calibrate import calibrate
from persona_pipeline.cli.canary import canary
from persona_pipeline.cli.cards import personas
from persona_pipeline.cli.changes import changes
from persona_pipeline.cli.collect import collect
from persona_pipeline.cli.compare import compare
from persona_pipeline.cli.corrections import app as corrections
from persona_pipeline.cli.doctor import doctor
from persona_pipeline.cli.evaluate import evaluate
from persona_pipeline.cli.forget import forget
from persona_pipeline.cli.ingest import ingest
from persona_pipeline.cli.init import init
from persona_pipeline.cli.label import label
from persona_pipeline.cli.labels import app as labels
from persona_pipeline.cli.messages import app as messages
from persona_pipeline.cli.migrate import migrate
from persona_pipeline.cli.propositions import app as propositions
from persona_pipeline.cli.recordings import app as recordings
from persona_pipeline.cli.report import report
from persona_pipeline.cli.schema import schema
from persona_pipeline.cli.suite import app as suite
from persona_pipeline.cli.validate import validate
from persona_pipeline.cli.watch import watch

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
