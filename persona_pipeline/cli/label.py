"""``persona-pipeline label``: label judgments in the browser or in the terminal."""

from typing import TYPE_CHECKING, Annotated

import typer

from persona_pipeline.cli.options import names
from persona_pipeline.errors import ConfigError

if TYPE_CHECKING:
    from persona_pipeline.labels.session import Labeller, Labelling


def label(
    agent: Annotated[str | None, typer.Argument(help="Whose judgments; by default everybody's.")] = None,
    dimension: Annotated[
        str, typer.Option("--dimension", "--dimensions", help="'all', or dimensions with commas between them.")
    ] = "all",
    labeller: Annotated[
        str | None, typer.Option("--labeller", "--labeler", help="Who labels; by default who is logged in.")
    ] = None,
    kind: Annotated[
        str, typer.Option(help="'person', or 'model': only what people say counts as people's.")
    ] = "person",
    seed: Annotated[int, typer.Option(help="Of the order; the same for all who are to label the same.")] = 0,
    terminal: Annotated[bool, typer.Option("--terminal", help="Here instead of in the browser.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of the page, on this machine; 0 takes a free one.")] = 0,
) -> None:
    """Say how far claims hold in what was judged: what the judge is measured against. Each answer is kept at once."""
    session = open_session(agent, dimension, _labeller(labeller, kind), seed)
    if terminal:
        from persona_pipeline.cli.label_terminal import label_in_terminal

        label_in_terminal(session)
        return
    serve(session, port)


def open_session(agent: str | None, dimensions: str, labeller: "Labeller", seed: int) -> "Labelling":
    """Return a session on what the world has judged.

    Raises:
        ConfigError: the world's files are not valid, or nothing is judged yet.
    """
    from persona_pipeline.evaluation.population import judged_population
    from persona_pipeline.labels import LABELS
    from persona_pipeline.labels.session import Labelling
    from persona_pipeline.world import World

    world = World.open()
    judged = judged_population(world, None if agent is None else [agent], names(dimensions))
    if not judged:
        raise ConfigError("nothing of this is judged yet; run persona-pipeline evaluate --judge anthropic")
    return Labelling(world.root / LABELS, judged, labeller, seed=seed)


def serve(session: "Labelling", port: int) -> None:
    """Serve the page on this machine until the process is told to stop.

    Raises:
        ConfigError: the port is taken.
    """
    import secrets
    import socket

    import uvicorn

    from persona_pipeline.labels.page.app import create_app

    try:
        listening = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise ConfigError(f"port {port} cannot be listened on ({error.strerror}); write --port 0") from error
    token = secrets.token_urlsafe(24)
    address = f"http://127.0.0.1:{listening.getsockname()[1]}/#token={token}"
    typer.echo(f"Label at {address}")
    typer.echo("Ctrl+C ends it; every answer is kept at once.", err=True)
    config = uvicorn.Config(create_app(session, token), ws="none", access_log=False, log_level="warning")
    uvicorn.Server(config).run(sockets=[listening])


def _labeller(name: str | None, kind: str) -> "Labeller":
    import getpass

    from persona_pipeline.labels import LabellerKind
    from persona_pipeline.labels.files import check_labeller
    from persona_pipeline.labels.session import Labeller

    if kind not in list(LabellerKind):
        raise ConfigError(f"--kind {kind!r} is neither 'person' nor 'model'")
    try:
        return Labeller(check_labeller(getpass.getuser() if name is None else name), LabellerKind(kind))
    except (ValueError, OSError, KeyError) as error:
        raise ConfigError(f"{error}; write --labeller NAME" if name is None else str(error)) from error
