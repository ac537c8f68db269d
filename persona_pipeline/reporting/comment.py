"""Render the pull-request comment from a report's JSON: ``python -m persona_pipeline.reporting.comment REPORT COMMENT``.

For CI, where the JSON was made by code of a pull request and is only data: it is validated, and all of its text is
neutralised. Exit code 2 when it is no report.
"""

import sys
from pathlib import Path

from persona_pipeline.errors import ConfigError, Problem
from persona_pipeline.reporting.json_report import MAX_BYTES, read_json
from persona_pipeline.reporting.markdown import render_comment


def write_comment(report: Path, comment: Path) -> None:
    """Write the comment of a report file.

    Raises:
        ConfigError: the file is missing, too large, not UTF-8 or not a report.
    """
    try:
        with report.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        text = data.decode("utf-8")
    except OSError as error:
        raise ConfigError(Problem(f"cannot be read: {error.strerror}", str(report))) from None
    except UnicodeDecodeError:
        raise ConfigError(Problem("not UTF-8: not a report", str(report))) from None
    comment.write_text(render_comment(read_json(text, str(report))), encoding="utf-8", newline="\n")


def main(arguments: list[str]) -> int:
    """Run the module as a command; returns the exit code."""
    if len(arguments) != 2:
        print("usage: python -m persona_pipeline.reporting.comment REPORT COMMENT", file=sys.stderr)
        return 2
    try:
        write_comment(Path(arguments[0]), Path(arguments[1]))
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
