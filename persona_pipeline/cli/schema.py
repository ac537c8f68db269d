"""``persona-pipeline schema``: JSON schemas that editors complete from."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer


def schema(
    directory: Annotated[
        Path,
        typer.Argument(
            help="Where propositions.json, persona.json, suite.json, label.json and world.json are written."
        ),
    ] = Path("schemas"),
) -> None:
    """Write the JSON schemas of persona, proposition and suite files, of a label, and of a world's settings."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in schema_texts().items():
        (directory / name).write_text(text, encoding="utf-8")
        typer.echo(str(directory / name))


def schema_texts() -> dict[str, str]:
    """Return the schema files by name."""
    from persona_pipeline.labels import Label
    from persona_pipeline.propositions.schema import PropositionFile
    from persona_pipeline.suites.asserts.schema import suite_schema
    from persona_pipeline.world.personas import PersonaFile
    from persona_pipeline.world.settings import WorldFile

    return {
        "propositions.json": _text(PropositionFile.model_json_schema()),
        "persona.json": _text(PersonaFile.model_json_schema()),
        "suite.json": _text(suite_schema()),
        "world.json": _text(WorldFile.model_json_schema()),
        "label.json": _text(Label.model_json_schema()),
    }


def _text(data: dict[str, Any]) -> str:
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **data}, indent=2) + "\n"
