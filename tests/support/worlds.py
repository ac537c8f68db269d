"""Small worlds for tests, written to a folder."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

DIMENSIONS = ("adherence", "consistency", "fluency", "convergence", "ideas_quantity")
SAID = (
    ("ann", "general", "2026-03-02T09:00:00Z", "The kettle is older than I am."),
    ("bob", "general", "2026-03-02T09:05:00Z", "Kettles do not age, they mature."),
    ("ann", None, "2026-03-03T10:00:00Z", "Bob has feelings about kettles."),
    ("ann", "general", "2026-03-09T09:00:00Z", "New week, same kettle."),
    ("bob", "general", "2026-03-09T09:10:00Z", "I oiled it."),
    ("ann", "general", "2026-03-10T11:00:00Z", "You oiled a kettle?"),
    ("bob", "general", "2026-03-10T11:01:00Z", "Twice. It purrs now."),
    ("ann", None, "2026-03-11T12:00:00Z", "Please hide the oil."),
)


def write_small_world(root: Path, said: Iterable[tuple[str, str | None, str, str]] = SAID) -> Path:
    """Write a world of two agents (ann, bob) with one claim a dimension and return its folder."""
    for agent_id, persona in (("ann", "Ann is dry and brief."), ("bob", "Bob loves machines.")):
        write_yaml(root / "personas" / f"{agent_id}.yaml", {"display_name": agent_id.title(), "persona": persona})
    for dimension in DIMENSIONS:
        write_yaml(
            root / "propositions" / dimension / "_default.yaml",
            {
                "dimension": dimension,
                "propositions": [{"id": f"{dimension}-claim", "claim": "{{agent_name}} is interesting"}],
            },
        )
    rows = [
        {"id": f"m{n}", "agent_id": agent, "text": text, "created_at": time}
        | ({"channel": channel} if channel else {"recipient": "bob"})
        for n, (agent, channel, time, text) in enumerate(said, start=1)
    ]
    write_jsonl(root / "messages" / "all.jsonl", rows)
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


def replace_in(path: Path, old: str, new: str) -> None:
    """Replace the first occurrence of a text in a file.

    Raises:
        ValueError: the text does not stand in the file.
    """
    text = path.read_text(encoding="utf-8")
    if old not in text:
        raise ValueError(f"{old!r} does not stand in {path}")
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
