"""What was found of pairs of judges, in the world: ``calibration/judge_changes.json``, committed so that CI knows it too."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from persona_pipeline.atomic_files import write_atomically
from persona_pipeline.calibration.judge_change import JudgeChange
from persona_pipeline.errors import ConfigError, Problem

CHANGES = Path("calibration") / "judge_changes.json"


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    changes: list[JudgeChange]


def load_judge_changes(root: Path) -> list[JudgeChange]:
    """Return what was found of every pair of judges; a missing file holds nothing.

    Raises:
        ConfigError: the file is not valid.
    """
    path = root / CHANGES
    if not path.exists():
        return []
    try:
        return _File.model_validate_json(path.read_bytes()).changes
    except ValidationError as error:
        raise ConfigError(
            [
                Problem(
                    f"{'.'.join(map(str, item['loc'])) or 'the file'}: {item['msg']}; restore it, or run persona-pipeline canary",
                    str(path),
                )
                for item in error.errors(include_url=False, include_input=False)
            ]
        ) from None


def save_judge_changes(root: Path, changes: Sequence[JudgeChange]) -> Path:
    """Write what was found of pairs of judges, replacing what was found of the same pair before."""
    known = {(item.before, item.now): item for item in [*load_judge_changes(root), *changes]}
    ordered = sorted(known.values(), key=lambda item: (str(item.before), str(item.now)))
    path = root / CHANGES
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, _File(changes=ordered).model_dump_json(indent=2) + "\n")
    return path
