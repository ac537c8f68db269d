"""Rows of a CSV text, each with its line."""

import csv
import io
from collections.abc import Iterator

from persona_pipeline.errors import Problem


def csv_rows(text: str, path: str, problems: list[Problem]) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a text, each with the 1-based line it begins on.

    Where it is no CSV, ``problems`` says so and nothing follows.
    """
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    csv.field_size_limit(max(csv.field_size_limit(), len(text) + 1))
    line = 1
    while True:
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            what = "a quoted cell is not closed" if "unexpected end" in str(error) else str(error)
            problems.append(Problem(f"is not valid CSV: {what}", path, line, 1))
            return
        yield line, cells
        line = rows.line_num + 1
