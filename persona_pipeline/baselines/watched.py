"""Who is watched: the golden files of a world, from which an agent with few windows of its own borrows what others vary by."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from persona_pipeline.baselines.golden import BASELINES, load_baseline
from persona_pipeline.baselines.models import Baseline
from persona_pipeline.errors import ConfigError

# What varies is known well from so many agents; reading a thousand files for it would cost more than the evaluation.
MOST_READ = 40


@dataclass(frozen=True)
class Watched:
    """How many agents have a golden file, and the baselines of some of them, the same ones whoever is evaluated."""

    count: int = 0
    baselines: Mapping[str, Baseline] = field(default_factory=dict)


def watched_agents(root: Path) -> Watched:
    """Return who is watched in a world. A golden file that is not valid is passed over: its own agent's run says so."""
    folder = root / BASELINES
    paths = sorted(folder.glob("*.json")) if folder.is_dir() else []
    step = max(1, -(-len(paths) // MOST_READ))
    found = {}
    for path in paths[::step]:
        status = path.stat()
        baseline = _loaded(path, status.st_mtime_ns, status.st_size)
        if baseline is not None and baseline.agent_id == path.stem:
            found[path.stem] = baseline
    return Watched(len(paths), found)


@lru_cache(maxsize=4 * MOST_READ)
def _loaded(path: Path, _modified: int, _size: int) -> Baseline | None:
    try:
        return load_baseline(path)
    except ConfigError:
        return None
