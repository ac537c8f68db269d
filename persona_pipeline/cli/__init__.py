"""The command line, ``persona-pipeline``. One file a group of commands; heavy imports stay inside them."""

import sys

import typer

from persona_pipeline.base.errors import ConfigError

EXIT_CONFIG = 2
EXIT_MACHINE = 3


def main() -> None:
    """Run the command line; errors become their message on stderr.

    Exit code 2 for bad input, 3 where the machine failed: a full disk, a read-only database, a file that may not be written.
    """
    from persona_pipeline.cli.app import app

    try:
        app()
    except ConfigError as error:
        typer.echo(str(error), err=True)
        sys.exit(EXIT_CONFIG)
    except Exception as error:
        from persona_pipeline.cli.failures import machine_failure

        said = machine_failure(error)
        if said is None:
            raise
        typer.echo(said, err=True)
        sys.exit(EXIT_MACHINE)
