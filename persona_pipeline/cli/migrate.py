"""``persona-pipeline migrate``: the databases brought to this version, once, before anything else of it starts."""

import os
import subprocess
import sys

import typer

from persona_pipeline.errors import ConfigError


def migrate() -> None:
    """Bring the store, and with DAGSTER_HOME set Dagster's own storage too, to the newest schema; does nothing where they are.

    Whatever opens the store does the first by itself. In a deployment this command goes before all else, so that a migration which
    fails stops the upgrade and nothing else.
    """
    from persona_pipeline.store import open_store
    from persona_pipeline.store.migrate import HEAD

    open_store().close()
    typer.echo(f"store: {HEAD}")
    if not os.environ.get("DAGSTER_HOME"):
        typer.echo("Dagster: DAGSTER_HOME is not set, nothing to do")
        return
    # Loading Dagster costs seconds and is its own command's affair; what it says is shown as it comes.
    done = subprocess.run([sys.executable, "-W", "ignore", "-m", "dagster", "instance", "migrate"], check=False)
    if done.returncode:
        raise ConfigError("Dagster's storage could not be migrated; what it says stands above")
