"""The command line, ``persona-pipeline``. One file a command; heavy imports stay inside the commands."""

import sys

import typer

from persona_pipeline.errors import ConfigError

EXIT_CONFIG = 2


def main() -> None:
    """Run the command line; a ``ConfigError`` becomes its message on stderr and exit code 2."""
    from persona_pipeline.cli.app import app

    try:
        app()
    except ConfigError as error:
        typer.echo(str(error), err=True)
        sys.exit(EXIT_CONFIG)
