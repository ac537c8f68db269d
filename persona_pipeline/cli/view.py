"""``persona-pipeline view``: the store as a page on this machine; the labelling page is served here, too."""

from typing import TYPE_CHECKING, Annotated

import typer

from persona_pipeline.base.errors import ConfigError, NothingError
from persona_pipeline.cli.options import names, open_world

if TYPE_CHECKING:
    from persona_pipeline.guard.labels.session import Labeller, Labelling
    from persona_pipeline.viewer.app import OpenSession
    from persona_pipeline.world.world import World

# Always the same, so that a link to a message is good tomorrow.
PORT = 7395


def view(
    labeller: Annotated[
        str | None, typer.Option("--labeller", "--labeler", help="Whose thumbs are given; by default who is logged in.")
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Of the page, on this machine; 0 takes a free one.")
    ] = PORT,
) -> None:
    """Read agents, messages and suites in the browser, and label them.

    Judges nothing.

    The page is for this machine and whoever has the address that is printed. Thumbs are kept in labels/ at once.
    """
    world, who = open_world(), person(labeller)

    def opened(agent: str, dimension: str) -> "Labelling":
        return open_session(agent or None, dimension or "all", who, seed=0)

    serve(world, who.name, opened, port)


def serve(
    world: "World", labeller: str, opened: "OpenSession", port: int, *, path: str = "/", verb: str = "Open"
) -> None:
    """Serve the page on this machine until the process is told to stop.

    Args:
        path: of the page that is named first; ``verb``: what is done there.

    Raises:
        ConfigError: the port is taken.
    """
    import secrets
    import socket

    import uvicorn

    from persona_pipeline.viewer.app import create_app, way_in

    try:
        listening = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise ConfigError(f"port {port} cannot be listened on ({error.strerror}); write --port 0") from error
    token = secrets.token_urlsafe(24)
    typer.echo(f"{verb} http://127.0.0.1:{listening.getsockname()[1]}{way_in(path, token)}")
    typer.echo("Ctrl+C ends it; what you label is kept at once.", err=True)
    app = create_app(world, labeller, token, opened)
    config = uvicorn.Config(app, ws="none", access_log=False, log_level="warning")
    uvicorn.Server(config).run(sockets=[listening])


def open_session(
    agent: str | None, dimensions: str, labeller: "Labeller", seed: int, *, newest: bool = False
) -> "Labelling":
    """Return a session on what the world has judged.

    Raises:
        ConfigError: the world's files are not valid, or nothing is judged yet.
    """
    from persona_pipeline.evaluation.calibrate import judged_population
    from persona_pipeline.guard.labels.files import LABELS
    from persona_pipeline.guard.labels.session import Labelling

    world = open_world()
    judged = judged_population(world, None if agent is None else [agent], names(dimensions))
    if not judged:
        raise NothingError("nothing of this is judged yet; run persona-pipeline evaluate --judge anthropic")
    if newest:
        ends = sorted((item.window.end, item.request.agent_id) for item in judged)
        newest_of = {agent_id: end for end, agent_id in ends}
        judged = [item for item in judged if item.window.end == newest_of[item.request.agent_id]]
    return Labelling(world.root / LABELS, judged, labeller, seed=seed)


def person(name: str | None, kind: str = "person") -> "Labeller":
    """Return who labels; by default who is logged in.

    Raises:
        ConfigError: this cannot be a labeller's name, or there is no such kind.
    """
    import getpass

    from persona_pipeline.guard.labels.files import LabellerKind, check_labeller
    from persona_pipeline.guard.labels.session import Labeller

    if kind not in list(LabellerKind):
        raise ConfigError(f"--kind {kind!r} is neither 'person' nor 'model'")
    try:
        return Labeller(check_labeller(getpass.getuser() if name is None else name), LabellerKind(kind))
    except (ValueError, OSError, KeyError) as error:
        raise ConfigError(f"{error}; write --labeller NAME" if name is None else str(error)) from error
