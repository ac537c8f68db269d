"""The command line and Dagster give the same scores, where a dimension's files were deleted too."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from persona_pipeline.base.database import tables
from persona_pipeline.base.settings import get_settings
from persona_pipeline.cli import main
from tests.defs.support import PARTITION, Project
from tests.support.evaluating import latest_runs


def command_line(root: Path, database: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> dict:
    """Evaluate by the command line into a store of its own and return its JSON."""
    monkeypatch.setenv("PERSONA_ROOT", str(root))
    monkeypatch.setenv("PERSONA_DATABASE_URL", f"sqlite:///{database}")
    monkeypatch.setattr(sys, "argv", ["persona-pipeline", "evaluate", "--mock-judge"])
    get_settings.cache_clear()
    with pytest.raises(SystemExit) as done:
        main()
    assert done.value.code == 1, "michael drifted, which stands before who cannot be told"
    monkeypatch.delenv("PERSONA_ROOT")
    monkeypatch.delenv("PERSONA_DATABASE_URL")
    get_settings.cache_clear()
    return json.loads(capsys.readouterr().out)["agents"]


def test_they_agree_on_a_dimension_whose_files_were_deleted(
    sample: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Its scores are those of claims nobody makes any more: it is unscored, which the gate does not let pass."""
    sample.tick()
    assert sample.run("evaluate_agent", tags={PARTITION: "pam"}).success
    shutil.rmtree(sample.root / "propositions/fluency")
    [request] = [item for item in sample.tick() if item.agent_id == "pam"]
    assert request.assets is not None and "fluency_scores" in request.assets and "personas" not in request.assets
    assert not sample.evaluate("pam", request.assets).success
    expected = command_line(sample.root, tmp_path / "command-line.db", monkeypatch, capsys)["pam"]

    world = sample.world.open()
    [run] = latest_runs(world.store, "pam")
    assert {name: item.score for name, item in run.evaluation.dimensions.items()} == {
        name: item["score"] for name, item in expected["dimensions"].items()
    }
    assert run.evaluation.overall == expected["overall"]
    assert run.comparison.dimensions["fluency"].current is None
    assert sorted(finding.message for finding in run.findings) == sorted(
        item["message"] for item in expected["findings"]
    )
    with world.store.connect() as connection:
        scores = tables.evaluation_scores
        assert "fluency" not in connection.execute(sa.select(scores.c.dimension)).scalars().all()
    assert not sample.evaluate_all(agent_ids=["pam"]).success
    [again] = latest_runs(world.store, "pam")
    assert again.evaluation == run.evaluation
    assert again.findings == run.findings
