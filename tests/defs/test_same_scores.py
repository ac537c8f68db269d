"""The command line and Dagster give the same scores for the same world, to the last bit."""

import json
import sys
from pathlib import Path

import pytest

from persona_pipeline.cli import main
from persona_pipeline.evaluation.saving import latest_evaluations
from persona_pipeline.settings import get_settings
from tests.defs.support import PARTITION, Project


def command_line(root: Path, database: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> dict:
    """Evaluate by the command line into a store of its own and return its JSON."""
    monkeypatch.setenv("PERSONA_ROOT", str(root))
    monkeypatch.setenv("PERSONA_DATABASE_URL", f"sqlite:///{database}")
    monkeypatch.setattr(sys, "argv", ["persona-pipeline", "evaluate", "--mock-judge"])
    get_settings.cache_clear()
    with pytest.raises(SystemExit) as done:
        main()
    assert done.value.code == 1
    monkeypatch.delenv("PERSONA_ROOT")
    monkeypatch.delenv("PERSONA_DATABASE_URL")
    get_settings.cache_clear()
    return json.loads(capsys.readouterr().out)["agents"]


def test_assets_job_and_command_line_agree(
    sample: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    expected = command_line(sample.root, tmp_path / "command-line.db", monkeypatch, capsys)
    for agent_id in expected:
        # Michael's run fails at its gate, after its scores are written.
        assert sample.run("evaluate_agent", tags={PARTITION: agent_id}).success == (agent_id != "michael")
    world = sample.world.open()
    assert len(expected) == 4
    for agent_id, agent in expected.items():
        [run] = latest_evaluations(world.store, agent_id)
        assert run.overall == agent["overall"]
        for name, dimension in agent["dimensions"].items():
            assert run.dimensions[name].score == dimension["score"], (agent_id, name)
            rows = {key: row["score"] for key, row in dimension["propositions"].items()}
            assert {key: row.score for key, row in run.dimensions[name].propositions.items()} == rows

    assert not sample.run("persona_regression").success
    report = json.loads((sample.root / ".persona/reports/report.json").read_text(encoding="utf-8"))
    assert {agent_id: agent["dimensions"] for agent_id, agent in report["agents"].items()} == {
        agent_id: agent["dimensions"] for agent_id, agent in expected.items()
    }
