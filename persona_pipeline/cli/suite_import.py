"""``persona-pipeline suite import``: an eval file of another tool becomes a suite and its targets."""

from pathlib import Path
from typing import Annotated

import typer

from persona_pipeline.cli.suite_options import AsJson, print_json, print_lines


def import_(
    file: Annotated[Path, typer.Argument(help="The eval file: .yaml, .yml or .json.", show_default=False)],
    origin: Annotated[
        str | None, typer.Option("--from", help="promptfoo or agentv; by default told by the file.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder to write to; by default the file's own.", show_default=False)
    ] = None,
    force: Annotated[bool, typer.Option(help="Replace files that are there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a suite of an eval file of promptfoo or AgentV, and name what has no counterpart, with file and line.

    Exit codes: 0 all of it was taken over, 1 what was named was not, 2 nothing was written.
    """
    from persona_pipeline.suites.importing.config import import_file, write_import
    from persona_pipeline.suites.running.suite_files import load_suite

    folder = out or file.parent
    imported = import_file(file, folder, origin)
    written = write_import(imported, file, folder, force=force)
    suite = load_suite(written[0])
    findings = [*imported.findings, *suite.missing]
    targets = imported.targets["targets"] if imported.targets else []
    if as_json:
        print_json(
            {
                "from": imported.origin,
                "written": [str(path) for path in written],
                "tests": len(suite.tests),
                "targets": [target["name"] for target in targets],
                "findings": [vars(item) for item in findings],
            }
        )
    else:
        print_lines(str(item) for item in findings)
        print_lines(f"wrote {path}" for path in written)
        print_lines(
            [f"{len(suite.tests)} tests, {len(targets)} targets from {imported.origin}; {len(findings)} to look at."]
        )
    raise typer.Exit(int(bool(findings)))
