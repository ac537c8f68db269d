"""The weekly look at the baselines."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from persona_pipeline.defs.upkeep import review_agent
from persona_pipeline.world import World
from tests.defs.support import Project
from tests.support.worlds import copy_sample, replace_in

BEFORE_THE_DRIFT = "2026-06-14T23:59:59Z"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """The sample world, evaluated before the drift; to be copied."""
    with dg.DagsterInstance.ephemeral() as instance:
        sample = Project(copy_sample(tmp_path_factory.mktemp("evaluated") / "world"), instance)
        sample.evaluate_all(as_of=BEFORE_THE_DRIFT)
        yield sample


@pytest.fixture
def evaluated(finished: Project, tmp_path: Path, instance: dg.DagsterInstance) -> Project:
    return finished.copied(tmp_path / "evaluated", instance)


def remarks(project: Project, agent_id: str, *, days: int = 100_000) -> str:
    world = World.open(project.root)
    found = review_agent(world, agent_id, now=datetime.now(UTC), days=days).remarks
    world.store.close()
    return "; ".join(found)


def test_a_baseline_that_fits_needs_nobody(evaluated: Project) -> None:
    assert remarks(evaluated, "pam") == ""


def test_an_old_baseline_is_named(evaluated: Project) -> None:
    assert "days old" in remarks(evaluated, "pam", days=1) or remarks(evaluated, "pam", days=0)


def test_a_missing_baseline_says_how_to_take_one(evaluated: Project) -> None:
    (evaluated.root / "baselines/pam.json").unlink()
    assert "capture_baseline" in remarks(evaluated, "pam")


def test_a_broken_baseline_is_a_remark_not_an_error(evaluated: Project) -> None:
    (evaluated.root / "baselines/pam.json").write_text("{", encoding="utf-8")
    assert "pam.json:1" in remarks(evaluated, "pam")


def test_an_outgrown_baseline_is_named(evaluated: Project) -> None:
    import json

    path = evaluated.root / "baselines/pam.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    data["dimensions"]["fluency"] = 1.0
    path.write_text(json.dumps(data), encoding="utf-8")
    assert "fluency has outgrown its baseline" in remarks(evaluated, "pam")


def test_an_agent_that_was_never_evaluated_is_named(sample: Project) -> None:
    assert remarks(sample, "pam") == "never evaluated; run evaluate_agent"


def test_the_review_warns_and_never_fails(evaluated: Project) -> None:
    replace_in(evaluated.root / "baselines/pam.json", '"pam"', '"jim"')
    result = evaluated.materialize("baseline_review")
    assert result.success
    [check] = result.get_asset_check_evaluations()
    assert not check.passed and check.severity is dg.AssetCheckSeverity.WARN
    assert "pam" in str(check.metadata["to_review"].value)
