"""What the commands of ``persona-pipeline suite`` share: options, loading a suite, printing."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from persona_pipeline.suites.format.models import Suite

File = Annotated[Path, typer.Argument(help="The suite: .yaml, .yml or .jsonl.", show_default=False)]
Places = Annotated[
    list[Path], typer.Argument(help="Suites: files, folders with *.eval.yaml in them, globs.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AllowPath = Annotated[
    list[Path] | None,
    typer.Option(help="A further folder whose files the suite may name; repeatable.", show_default=False),
]
TargetsFile = Annotated[
    Path | None, typer.Option(help="The targets file; by default the nearest targets.yaml.", show_default=False)
]
TestIds = Annotated[
    list[str] | None, typer.Option("--test-id", help="Only tests whose id matches this glob; repeatable.")
]
AllowEnv = Annotated[
    list[str] | None,
    typer.Option(
        help="An environment variable that the suite's targets file may read; repeatable.", show_default=False
    ),
]
AllowTargets = Annotated[bool, typer.Option(help="Let targets that the suite names ask servers.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="Only suites or tests with this tag; repeatable.")]


def load(path: Path, allow_path: list[Path] | None) -> "Suite":
    """Return a suite; what a person should look at goes to stderr."""
    from persona_pipeline.base.settings import get_settings
    from persona_pipeline.suites.running.opening import load_suite, suite_roots

    suite = load_suite(path, suite_roots(path, get_settings(), allow_path or ()))
    for warning in (*suite.warnings, *suite.missing):
        typer.echo(f"warning: {warning}", err=True)
    return suite


def print_json(data: Any) -> None:
    """Print a value as one line of JSON."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, default=str)
    sys.stdout.write(text + "\n")


def print_lines(lines: Iterable[str], *, err: bool = False) -> None:
    """Print lines, letters that the terminal does not know as question marks."""
    stream = sys.stderr if err else sys.stdout
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write("".join(f"{line}\n" for line in lines).encode(encoding, "replace").decode(encoding))
    stream.flush()
