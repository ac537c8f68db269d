"""``persona-pipeline collect``: messages from OpenTelemetry traces, over HTTP."""

import os
from typing import Annotated

import typer

from persona_pipeline.cli.options import is_loopback
from persona_pipeline.errors import ConfigError

# Where exporters send to unless they are told otherwise.
DEFAULT_PORT = 4318


def collect(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = DEFAULT_PORT,
    token_env: Annotated[
        str,
        typer.Option(
            help="Environment variable that holds the bearer token; needed to listen on more than this machine."
        ),
    ] = "PERSONA_COLLECT_TOKEN",
    max_body: Annotated[int, typer.Option(min=1024, help="Largest request in bytes, as it is sent.")] = 16 * 1024**2,
    max_unpacked: Annotated[int, typer.Option(min=1024, help="Largest request in bytes, unpacked.")] = 64 * 1024**2,
    waiting: Annotated[
        int, typer.Option(min=1, help="Requests that may wait to be stored; more are told to come again.")
    ] = 64,
    keep_days: Annotated[
        float, typer.Option(min=0.01, help="How long pieces of traces wait for what else belongs to them.")
    ] = 2.0,
    connections: Annotated[int, typer.Option(min=1, help="Connections open at once.")] = 64,
    header_timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for the head of a request to arrive.")] = 5.0,
    body_timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for its body to arrive.")] = 30.0,
) -> None:
    """Take OpenTelemetry traces and events over OTLP/HTTP, and add the messages in them to the store.

    A request is answered with success when what it brought is stored, and not before.
    """
    token = os.environ.get(token_env, "").strip() or None
    if token is None and not is_loopback(host):
        raise ConfigError(f"{host} can be reached from outside; put a token into {token_env}, or listen on 127.0.0.1")
    from persona_pipeline.traces.otlp import require_otel

    require_otel()
    from persona_pipeline.corrections.service.boundary import Access
    from persona_pipeline.corrections.service.server import Limits, serve
    from persona_pipeline.traces.collector.app import Bounds, create_app
    from persona_pipeline.world import World

    world = World.open()
    for problem in world.sync().problems:
        typer.echo(str(problem), err=True)
    application = create_app(
        world,
        access=Access(token, max_body, body_seconds=body_timeout),
        bounds=Bounds(max_unpacked, waiting, keep_days),
    )
    serve(application, host=host, port=port, limits=Limits(header_timeout, connections, connections))
