"""An agent that speaks another's lines is named with it; whoever asks for it has the run fail."""

import json
from pathlib import Path

from persona_pipeline.judging.open import OpenedJudge
from persona_pipeline.judging.recordings.replay import RecordedBackend
from persona_pipeline.world import World
from tests.support.evaluating import evaluate_world
from tests.support.worlds import write_jsonl

THE_DRIFT = "2026-06-14T23:59:59Z"


def _clone(root: Path, agent_id: str, other: str) -> None:
    """Let an agent say in its last week what another said before."""
    for path in sorted((root / "messages").glob("*.jsonl")):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        lines = [row["text"] for row in rows if row["agent_id"] == other and row["created_at"] < THE_DRIFT]
        own = [row for row in rows if row["agent_id"] == agent_id and row["created_at"] > THE_DRIFT]
        for row, text in zip(own, lines, strict=False):
            row["text"] = text
        write_jsonl(path, rows)


def test_who_says_anothers_lines_is_named_with_a_pair_of_them(sample_world: World) -> None:
    _clone(sample_world.root, "jim", "dwight")
    report = evaluate_world(sample_world, judge=OpenedJudge(RecordedBackend(sample_world.root / "recordings")))
    found = [finding for finding in report.all_findings() if finding.kind == "clone"]
    assert [finding.agent_id for finding in found] == ["jim"]
    assert "says Dwight Schrute's lines" in found[0].message
    assert " beside " in found[0].message
    only = evaluate_world(
        sample_world,
        judge=OpenedJudge(RecordedBackend(sample_world.root / "recordings")),
        agents=["jim"],
        only_fail_on=["voices"],
    )
    assert only.exit_code == 1


def test_nobody_in_the_sample_world_says_anothers_lines(sample_world: World) -> None:
    report = evaluate_world(sample_world, judge=OpenedJudge(RecordedBackend(sample_world.root / "recordings")))
    assert {"clone", "voices"}.isdisjoint(finding.kind for finding in report.all_findings())
