"""Labels of messages to and from other tools: CSV for spreadsheets, JSON lines as in the world's own file."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from persona_pipeline.base.documents.json import csv_rows, csv_text, json_object, read_rows
from persona_pipeline.base.errors import ConfigError, Problem, did_you_mean
from persona_pipeline.base.text import plain_cell
from persona_pipeline.guard.labels.files import checked_label
from persona_pipeline.guard.labels.messages import MessageLabel, message_key

FORMATS = ("csv", "jsonl")
_REMEDY = "nothing was imported; correct the row"
_OF_KEY = ("agent_id", "message", "text")


def export_labels(labels: Iterable[MessageLabel], format: str) -> str:
    """Return labels as a text: ``jsonl`` as they are in the world, ``csv`` with a column for each field.

    In a CSV cell an apostrophe is put before what a spreadsheet would take for a formula; importing takes it away again. Raises
    ``ConfigError``: the format is unknown.
    """
    if format == "jsonl":
        return "".join(label.to_line() for label in labels)
    if format != "csv":
        raise ConfigError(f"format {format!r} is unknown{did_you_mean(format, FORMATS) or '; write csv or jsonl'}")
    names, data = [*MessageLabel.model_fields], (label.model_dump(mode="json") for label in labels)
    return csv_text([names, *([item[name] for name in names] for item in data)])


def read_labels(path: Path, defaults: Mapping[str, str]) -> list[MessageLabel]:
    """Return the labels of a ``.csv`` or ``.jsonl`` file.

    Columns and fields are those of a label. The key may be left out: it follows from agent, message and text. ``defaults``: fields
    of rows that leave them out, such as the labeller. Raises ``ConfigError``: the file is of another kind, or rows are not labels,
    each with its line; a text labelled twice by the same labeller.
    """
    if not path.is_file():
        raise ConfigError(Problem("is not a file; check the path", str(path)))
    problems: list[Problem] = []
    ending = path.suffix.lower()
    if ending == ".csv":
        rows = _csv_rows(path, problems)
    elif ending == ".jsonl":
        rows = read_rows(path, json_object, problems, remedy=_REMEDY)
    else:
        raise ConfigError(Problem("is neither .csv nor .jsonl; rename it or export it as one of them", str(path)))
    labels: dict[tuple[str, str], tuple[int, MessageLabel]] = {}
    for number, row in rows:
        try:
            label = checked_label(MessageLabel, _keyed({**defaults, **row}))
        except ValueError as error:
            problems.append(Problem(f"{error}; {_REMEDY}", str(path), number))
            continue
        first, _ = labels.setdefault(label.identity, (number, label))
        if first != number:
            text = f"{label.labeller} has labelled this {label.subject} in line {first}; {_REMEDY}"
            problems.append(Problem(text, str(path), number))
    if problems:
        raise ConfigError(problems)
    return [label for _, label in labels.values()]


def _keyed(row: dict[str, Any]) -> dict[str, Any]:
    named = [str(row[name]) for name in _OF_KEY if name in row]
    return {**row, "key": message_key(*named)} if "key" not in row and len(named) == len(_OF_KEY) else row


def _csv_rows(path: Path, problems: list[Problem]) -> list[tuple[int, dict[str, Any]]]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problems.append(Problem(f"not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8", str(path)))
        return []
    rows = csv_rows(text, str(path), problems)
    line, header = next(rows, (1, []))
    names, known = [name.strip() for name in header], MessageLabel.model_fields
    for name in names:
        if name not in (*known, *MessageLabel.former_fields):
            hint = did_you_mean(name, known) or f"; the columns are {', '.join(known)}"
            problems.append(Problem(f"unknown column {name!r}{hint}", str(path), line))
    if len(set(names)) < len(names):
        problems.append(Problem("a column stands twice; remove one", str(path), line))
    if problems:
        return []
    found = []
    for line, cells in rows:
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(names):
            problems.append(Problem(f"the row has {len(cells)} cells, the header {len(names)}", str(path), line))
            continue
        found.append((line, _row({name: plain_cell(cell) for name, cell in zip(names, cells, strict=True) if cell})))
    return found


def _row(cells: dict[str, Any]) -> dict[str, Any]:
    if "on" in cells:
        # A column of releases until 0.2.
        said = str(cells["on"]).strip().lower()
        cells["on"] = {"true": True, "on": True, "false": False, "off": False}.get(said, said)
    if "verdict" in cells:
        cells["verdict"] = cells["verdict"].strip().lower()
    if "rating" in cells:
        with suppress(ValueError):
            cells["rating"] = float(cells["rating"])
    return cells
