"""The weekly look at the baselines."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from persona_pipeline.defs.upkeep import review_agent
from persona_pipeline.world import World
from tests.defs.support import Project
from tests.support.worlds import edit_json, replace_in


@pytest.fixture
def evaluated(healthy: tuple[Project, object], tmp_path: Path, instance: dg.DagsterInstance) -> Project:
    """The sample world, evaluated before the drift."""
    return healthy[0].copied(tmp_path / "evaluated", instance)


def remarks(project: Project, agent_id: str, *, days: int = 100_000) -> str:
    world = World.open(project.root)
    found = review_agent(world, agent_id, now=datetime.now(UTC), days=days).remarks
    world.store.close()
    return "; ".join(found)


def test_a_baseline_that_fits_needs_nobody_until_it_is_old(evaluated: Project) -> None:
    assert remarks(evaluated, "pam") == ""
    assert "days old" in remarks(evaluated, "pam", days=1) or remarks(evaluated, "pam", days=0)


def outgrow(path: Path) -> None:
    edit_json(path, lambda data: data["dimensions"].update(fluency=1.0))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(Path.unlink, "capture_baseline", id="missing"),
        pytest.param(lambda path: path.write_text("{", encoding="utf-8"), "pam.json:1", id="broken"),
        pytest.param(outgrow, "fluency has outgrown its baseline", id="outgrown"),
    ],
)
def test_what_is_wrong_with_a_baseline_is_a_remark(
    evaluated: Project, change: Callable[[Path], object], said: str
) -> None:
    change(evaluated.root / "baselines/pam.json")
    assert said in remarks(evaluated, "pam")


def test_an_agent_that_was_never_evaluated_is_named(sample: Project) -> None:
    assert remarks(sample, "pam") == "never evaluated; run evaluate_agent"


def test_the_review_warns_and_never_fails(evaluated: Project) -> None:
    replace_in(evaluated.root / "baselines/pam.json", '"pam"', '"jim"')
    result = evaluated.materialize("baseline_review")
    assert result.success
    [check] = result.get_asset_check_evaluations()
    assert not check.passed and check.severity is dg.AssetCheckSeverity.WARN
    assert "pam" in str(check.metadata["to_review"].value)
