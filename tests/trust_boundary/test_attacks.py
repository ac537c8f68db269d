"""What strangers tried that no other room holds: one test an attack; ``test_rows`` names them all.

A stranger is whoever writes a message, a channel's name, a persona, a claim, a suite, a recording or a baseline.
"""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from persona_pipeline.base.database import tables
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.cli.app import app
from persona_pipeline.cli.world.checking import check_world
from persona_pipeline.corrections.statistics import correction_statistics
from persona_pipeline.judging.open import OpenedJudge
from persona_pipeline.judging.recordings.replay import RecordedBackend
from persona_pipeline.judging.recordings.writing import RecordingWriter
from persona_pipeline.judging.verdict import Verdict
from persona_pipeline.reporting.comment import main as comment_main
from persona_pipeline.reporting.render import json_text
from persona_pipeline.world import World
from persona_pipeline.world.speakers import missing_agents
from tests.reporting.sample import sample_report
from tests.support.judging import request
from tests.support.messages_server import MessagesServer, message


def test_3_a_recording_under_another_name(tmp_path: Path) -> None:
    RecordingWriter(tmp_path / "recordings").record([request()], [Verdict("cheerful", score=9)])
    (path,) = tmp_path.rglob("*.jsonl")
    honest = path.read_text("utf-8")
    for forged in (
        honest.replace("Michael is cheerful", "Michael is gloomy"),
        honest.replace('"agent_id": "michael"', '"agent_id": "pam"'),
        honest.replace('"score": 9', '"score": 1, "score": 9'),
    ):
        assert forged != honest
        path.write_text(forged, encoding="utf-8")
        with pytest.raises(ConfigError) as replayed:
            OpenedJudge(RecordedBackend(tmp_path / "recordings"))
        checked = CliRunner().invoke(app, ["validate", str(path)])
        assert isinstance(checked.exception, ConfigError)
        assert f"{path}:1: " in str(replayed.value) and f"{path}:1: " in str(checked.exception)


def test_9_statistics_of_many_checks(small_world: World) -> None:
    small_world.sync()
    start = datetime(2026, 10, 1, tzinfo=UTC)
    rows = [
        {
            "agent_id": ("ann", "bob")[number % 2],
            "action_id": f"a{number}",
            "attempt_number": 1,
            "decision": "commit",
            "latency_ms": float(number % 900),
            "token_usage": {"input_tokens": 10, "output_tokens": 2},
            "usd": 0.0001,
            "created_at": start + timedelta(minutes=number),
        }
        for number in range(30_000)
    ]
    with small_world.store.begin() as connection:
        connection.execute(sa.insert(tables.gate_checks), rows)
    found = correction_statistics(small_world.store)
    assert (found.total.actions, found.total.passed, len(found.days)) == (30_000, 30_000, 21)


def test_1_a_suite_that_reads_secrets_and_sends_them_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-secret")
    monkeypatch.setenv("GITHUB_TOKEN", "ghp-secret")
    suite = tmp_path / "evil.eval.yaml"
    test = "{id: a, input: hello, assert: [{type: contains, value: '9'}]}"
    suite.write_text(f"execution: {{target: thief}}\ntests:\n  - {test}\n", "utf-8")
    said = []
    with MessagesServer(lambda call: message("9")) as server:
        for more in ({"system": "${{GITHUB_TOKEN}}"}, {}):
            target = {"name": "thief", "provider": "anthropic", "base_url": server.url, **more}
            (tmp_path / "targets.yaml").write_text(json.dumps({"targets": [target]}), "utf-8")
            done = CliRunner().invoke(app, ["suite", "run", str(suite), "--json"])
            assert done.exit_code != 0
            said.append(str(done.exception) + done.output)
        assert server.calls == []
    assert "--allow-env GITHUB_TOKEN" in said[0] and "target_not_allowed" in said[1]


def test_2_a_persona_deleted(tmp_path: Path, sample_root: Path) -> None:
    (sample_root / "personas" / "michael.yaml").unlink()
    assert missing_agents(sample_root) == ["michael"]
    problems = [str(problem) for problem in check_world(sample_root).problems]
    assert any("baselines/michael.json" in item and "no persona" in item for item in problems)


def test_14_a_report_of_the_pull_requests_own(tmp_path: Path) -> None:
    report = sample_report(drifted=False)
    report.exit_code = 0
    (tmp_path / "report.json").write_text(json_text(report), "utf-8")
    arguments = [str(tmp_path / "report.json"), str(tmp_path / "comment.md"), "--conclusion", "failure"]
    assert comment_main(arguments) == 0
    comment = (tmp_path / "comment.md").read_text("utf-8")
    assert "ended with **failure**" in comment and "Do not trust the report" in comment
