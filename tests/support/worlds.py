"""Files of worlds, for tests."""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from persona_pipeline.world import SyncResult, World
from persona_pipeline.world.messages.files import MessageFile, Row, parse_message

PROJECT = Path(__file__).parents[2]
SAMPLE_FOLDERS = ("personas", "propositions", "messages", "recordings", "baselines")
DIMENSIONS = ("adherence", "consistency", "fluency", "convergence", "ideas_quantity")


def copy_sample(root: Path, folders: Sequence[str] = SAMPLE_FOLDERS) -> Path:
    """Copy folders of the sample world to ``root``, which is returned."""
    for name in folders:
        shutil.copytree(PROJECT / name, root / name)
    return root


def write_yaml(path: Path, data: Mapping[str, Any]) -> Path:
    """Write data as YAML (JSON is YAML)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1), encoding="utf-8")
    return path


def write_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Write one object a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def edit_json(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change the object in a JSON file."""
    data = json.loads(path.read_text(encoding="utf-8"))
    edit(data)
    path.write_text(json.dumps(data), encoding="utf-8")


def replace_in(path: Path, old: str, new: str) -> None:
    """Replace the first occurrence of a text in a file.

    Raises:
        ValueError: the text does not stand in the file.
    """
    text = path.read_text(encoding="utf-8")
    if old not in text:
        raise ValueError(f"{old!r} does not stand in {path}")
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def ingest(world: World, path: Path, **options: Any) -> SyncResult:
    """Add the messages of a file of messages from anywhere to a world."""

    def rows() -> Iterator[Row]:
        with MessageFile(path) as file:
            yield from file.rows(parse_message)

    return world.ingest_all([(world.message_source(path), str(path), rows)], **options)
