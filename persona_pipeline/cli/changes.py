"""``persona-pipeline changes``: what a change adds, edits or removes, from git."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

_LIMIT = 20_000


def changes(
    base: Annotated[str, typer.Argument(help="The commit before, such as origin/main; HEAD^1 of a merge.")],
    head: Annotated[str, typer.Option(help="The commit after.")] = "HEAD",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Name everything that differs between two commits: what is evaluated, and what decides about it. Markdown."""
    from persona_pipeline.reporting.markdown import page_markdown
    from persona_pipeline.reporting.pages.versions import changes_page
    from persona_pipeline.settings import get_settings
    from persona_pipeline.world.changes import changed_things

    found = changed_things(get_settings().world_root, base, head)
    if as_json:
        typer.echo(json.dumps([asdict(item) for item in found], ensure_ascii=True))
    else:
        typer.echo(page_markdown(changes_page(found), _LIMIT), nl=False)
