"""Claims at 0 are never green with a baseline of one window, on each way into the product."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.defs.support import Project
from tests.support.command_line import Cli
from tests.support.pull_requests import git, rows, write_rows

ALONE = [("adherence", "own-motives")]
SAME = [
    *(("adherence", claim) for claim in ("own-motives", "pam-warm-attention", "pam-hedged-asides", "pam-drawing-eye")),
    ("adherence", "recognizable-from-words"),
]
DIFFERENT = [
    *ALONE, ("consistency", "same-character"), ("fluency", "varied-openings"), ("convergence", "distinct-voice"),
    ("ideas_quantity", "new-ideas"),
]  # fmt: skip


def collapse(root: Path, claims: list[tuple[str, str]]) -> None:
    """Let the judge have given 0 to some claims of Pam, who is in character in the sample world."""
    for dimension, claim in claims:
        path = root / "recordings" / "pam" / f"{dimension}.jsonl"
        write_rows(path, [row | {"score": 0} if row["proposition_id"] == claim else row for row in rows(path)])


@pytest.mark.parametrize(
    "claims",
    [ALONE, DIFFERENT[:3], DIFFERENT, SAME[:2], SAME],
    ids=lambda claims: str(len(claims)),
)
def test_evaluate_is_not_green(claims: list[tuple[str, str]], cli: Cli, sample_root: Path) -> None:
    collapse(sample_root, claims)
    done = cli("evaluate", "--agents", "pam")
    assert done.returncode in (1, 3), done.stderr
    said = json.loads(done.stdout)["agents"]["pam"]
    assert said["conclusion"]["verdict"] != "held"
    for dimension, claim in claims:
        assert said["conclusions"][dimension]["claims"][claim]["verdict"] != "held"


def as_ci_job(project: Project) -> bool:
    config = {"ops": {"regression_report": {"config": {"agents": ["pam"]}}}}
    return not project.run("persona_regression", run_config=config).success


def as_asset_run(project: Project) -> bool:
    return not project.evaluate("pam").success


# The other ways save a run as the command does, and read its verdict: the fewest and the most claims are enough.
FEW = pytest.mark.parametrize("claims", [ALONE, SAME], ids=["one", "all of a dimension"])


@FEW
def test_a_pull_request_is_not_green(claims: list[tuple[str, str]], cli: Cli, sample_root: Path) -> None:
    git(sample_root, "init", "--quiet", "--initial-branch=main")
    git(sample_root, "add", "-A")
    git(sample_root, "commit", "--quiet", "-m", "healthy")
    git(sample_root, "switch", "--quiet", "-c", "worse")
    assert cli("evaluate", "--agents", "pam", "--against", "main").returncode == 0
    collapse(sample_root, claims)
    git(sample_root, "commit", "--quiet", "-a", "-m", "worse")
    assert cli("evaluate", "--agents", "pam", "--against", "main").returncode in (1, 3)


@pytest.mark.parametrize("way", [as_ci_job, as_asset_run], ids=["CI job", "asset run"])
def test_dagster_is_not_green(way: Callable[[Project], bool], sample: Project) -> None:
    collapse(sample.root, ALONE)
    assert way(sample)
