"""Options and rules of the commands that listen: where, and who may come."""

import ipaddress
import os
from typing import Annotated

import typer

from persona_pipeline.errors import ConfigError

Host = Annotated[str, typer.Option(help="Address to listen on.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")]
TokenEnv = Annotated[
    str,
    typer.Option(help="Environment variable that holds the bearer token; needed to listen on more than this machine."),
]
HeaderTimeout = Annotated[float, typer.Option(min=0.1, help="Seconds for the head of a request to arrive.")]


def token_in(variable: str) -> str | None:
    """Return the token in an environment variable, None where there is none."""
    return os.environ.get(variable, "").strip() or None


def require_token(token: str | None, variable: str, host: str) -> None:
    """Refuse to listen on more than this machine without a token.

    Raises:
        ConfigError: the address can be reached from outside, and there is no token.
    """
    if token is None and not is_loopback(host):
        raise ConfigError(f"{host} can be reached from outside; put a token into {variable}, or listen on 127.0.0.1")


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
