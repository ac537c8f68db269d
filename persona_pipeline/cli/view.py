"""``persona-pipeline view``: the store as a page on this machine, where messages and judgments are labelled."""

import getpass
from typing import Annotated

import typer

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.cli.options import open_world

# Always the same, so that a link to a message stays valid.
PORT = 7395


def view(
    labeller: Annotated[
        str | None, typer.Option("--labeller", "--labeler", help="The person who labels; by default the login name.")
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Of the page, on this machine; 0 takes a free one.")
    ] = PORT,
) -> None:
    """Read agents, messages and suites in the browser, and label them.

    Judges nothing.

    The page is for this machine and for browsers with the printed address. Labels are kept in labels/ at once.
    """
    import secrets
    import socket

    import uvicorn

    from persona_pipeline.viewer.app import create_app, way_in

    world, who = open_world(), _person(labeller)
    try:
        listening = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise ConfigError(f"port {port} cannot be listened on ({error.strerror}); write --port 0") from error
    token = secrets.token_urlsafe(24)
    typer.echo(f"Open http://127.0.0.1:{listening.getsockname()[1]}{way_in('/', token)}")
    typer.echo("Ctrl+C ends it; labels are kept at once.", err=True)
    config = uvicorn.Config(create_app(world, who, token), ws="none", access_log=False, log_level="warning")
    uvicorn.Server(config).run(sockets=[listening])


def _person(name: str | None) -> str:
    """Return the labeller's name; ConfigError: it is not a valid name."""
    from persona_pipeline.guard.labels.files import check_labeller

    try:
        return check_labeller(getpass.getuser() if name is None else name)
    except (ValueError, OSError, KeyError) as error:
        raise ConfigError(f"{error}; write --labeller NAME" if name is None else str(error)) from error
