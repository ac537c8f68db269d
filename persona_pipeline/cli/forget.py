"""``persona-pipeline forget``: make room in the store."""

from typing import Annotated

import typer

from persona_pipeline.errors import ConfigError


def forget(
    days: Annotated[
        int | None, typer.Option(min=1, help="Windows that ended longer ago; default PERSONA_KEEP_REASONS_DAYS.")
    ] = None,
) -> None:
    """Take claims, reasons and quotes out of old runs; scores, findings, histories and trends stay."""
    from persona_pipeline.evaluation.keeping import forget_reasons
    from persona_pipeline.settings import get_settings
    from persona_pipeline.world import World

    days = days or get_settings().keep_reasons_days
    if days is None:
        raise ConfigError("nothing says how old: add --days, or set PERSONA_KEEP_REASONS_DAYS")
    count = forget_reasons(World.open().store, days)
    typer.echo(f"{count} runs keep their scores and nothing more", err=True)
