"""``persona-pipeline collect``: messages from OpenTelemetry traces, over HTTP."""

from typing import Annotated

import typer

from persona_pipeline.cli.serving import HeaderTimeout, Host, Port, TokenEnv, require_token, token_in

# Where exporters send to unless they are told otherwise.
DEFAULT_PORT = 4318


def collect(
    host: Host = "127.0.0.1",
    port: Port = DEFAULT_PORT,
    token_env: TokenEnv = "PERSONA_COLLECT_TOKEN",
    max_body: Annotated[int, typer.Option(min=1024, help="Largest request in bytes, as it is sent.")] = 16 * 1024**2,
    max_unpacked: Annotated[int, typer.Option(min=1024, help="Largest request in bytes, unpacked.")] = 64 * 1024**2,
    waiting: Annotated[
        int, typer.Option(min=1, help="Requests that may wait to be stored; more are told to come again.")
    ] = 64,
    keep_days: Annotated[
        float, typer.Option(min=0.01, help="How long pieces of traces wait for what else belongs to them.")
    ] = 2.0,
    connections: Annotated[int, typer.Option(min=1, help="Connections open at once.")] = 64,
    header_timeout: HeaderTimeout = 5.0,
    body_timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for its body to arrive.")] = 30.0,
) -> None:
    """Take OpenTelemetry traces and events over OTLP/HTTP, and add the messages in them to the store.

    A request is answered with success when what it brought is stored, and not before.
    """
    token = token_in(token_env)
    require_token(token, token_env, host)
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
