"""The places in which two versions of a persona's file differ, and files with one of them alone."""

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

from persona_pipeline.errors import ConfigError
from persona_pipeline.world.models import Persona
from persona_pipeline.world.personas import parse_persona


@dataclass(frozen=True)
class Hunk:
    """Neighbouring lines that differ. ``start``, ``end``: in the old file; ``line``: where it begins in the new one, from 1."""

    start: int
    end: int
    old: tuple[str, ...]
    new: tuple[str, ...]
    line: int

    def text(self, path: str) -> tuple[str, ...]:
        """Return it as a diff."""
        return (f"{path}:{self.line}", *(f"- {text}" for text in self.old), *(f"+ {text}" for text in self.new))


def hunks_between(before: str, after: str) -> list[Hunk]:
    """Return where two files differ, in order."""
    old, new = before.splitlines(), after.splitlines()
    return [
        Hunk(i, j, tuple(old[i:j]), tuple(new[k:m]), k + 1)
        for tag, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        if tag != "equal"
    ]


def with_hunks(before: str, hunks: Iterable[Hunk]) -> str:
    """Return the old file with some of its hunks applied."""
    lines = before.splitlines()
    for hunk in sorted(hunks, key=lambda item: item.start, reverse=True):
        lines[hunk.start : hunk.end] = hunk.new
    return "\n".join(lines) + "\n"


def persona_with(before: str, hunks: Sequence[Hunk], agent_id: str) -> Persona | None:
    """Return the persona of the old file with some hunks applied; None where that is no valid file."""
    with tempfile.TemporaryDirectory(prefix="persona-hunk-") as folder:
        path = Path(folder) / f"{agent_id}.yaml"
        path.write_text(with_hunks(before, hunks), encoding="utf-8")
        try:
            return parse_persona(path, agent_id)
        except ConfigError:
            return None
