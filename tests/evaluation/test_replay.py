"""A run that was saved is made again from its file alone, to the letter."""

import gzip
import json
from pathlib import Path

import pytest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.evaluation.run import replayed, run_evaluation
from persona_pipeline.evaluation.snapshot import load_replay, save_replay
from persona_pipeline.judging.open import OpenedJudge
from persona_pipeline.judging.recordings.replay import RecordedBackend
from persona_pipeline.judging.verdict import Judge
from persona_pipeline.reporting.render import json_text
from persona_pipeline.world import World
from persona_pipeline.world.messages.files import parse_time
from tests.support.command_line import Cli
from tests.support.noise import NoisyJudge

BEFORE_THE_DRIFT = "2026-06-14T23:59:59Z"
ASKED = [
    EvaluationRequest(history=2),
    EvaluationRequest(agents=["michael"], dimensions=["adherence", "fluency"], samples=2, threshold=8.0),
    EvaluationRequest(as_of=parse_time(BEFORE_THE_DRIFT), only_fail_on=["regression"], confirm=False),
]


@pytest.mark.parametrize("live", [False, True], ids=["recorded", "live"])
@pytest.mark.parametrize("request_", ASKED)
def test_a_saved_run_is_the_same_run(
    sample_world: World, tmp_path: Path, request_: EvaluationRequest, live: bool
) -> None:
    recordings = sample_world.root / "recordings"
    judge: Judge = NoisyJudge(recordings, 1.5, seed=2) if live else OpenedJudge(RecordedBackend(recordings))
    run = run_evaluation(sample_world, judge, request_)
    assert run.replay is not None
    path = tmp_path / "run.json.gz"
    save_replay(path, run.replay())
    again = replayed(load_replay(path))
    assert json_text(again.report) == json_text(run.report)
    assert (again.notes, again.problems) == (run.notes, run.problems)


def test_a_saved_run_says_nothing_of_the_machine_and_what_no_judge_is_shown(
    sample_world: World, tmp_path: Path
) -> None:
    line = {"id": "x", "agent_id": "pam", "channel": "office", "text": "Hi", "created_at": "2026-06-20T09:00:00Z"}
    more = sample_world.root / "messages" / "more.jsonl"
    more.write_text(json.dumps({**line, "extras": {"key": "hush-hush"}}) + "\nno JSON\n", encoding="utf-8")
    run = run_evaluation(
        sample_world, OpenedJudge(RecordedBackend(sample_world.root / "recordings")), EvaluationRequest(agents=["pam"])
    )
    assert run.replay is not None and run.problems
    save_replay(tmp_path / "run.json", run.replay())
    text = (tmp_path / "run.json").read_text(encoding="utf-8")
    assert '"path":"more.jsonl"' in text
    assert not [word for word in (str(sample_world.root), "hush-hush") if word in text]


def test_the_command_makes_it_again_where_there_is_nothing(cli: Cli, tmp_path: Path) -> None:
    path, empty = tmp_path / "run.json.gz", tmp_path / "empty"
    empty.mkdir()
    said = cli("evaluate", "--save-snapshot", str(path))
    again = cli("evaluate", "--snapshot", str(path), cwd=empty, PERSONA_ROOT=str(empty))
    assert (again.returncode, again.stdout) == (said.returncode, said.stdout) == (1, said.stdout)
    assert not list(empty.iterdir())


@pytest.mark.parametrize("data", [b"", b"{}", gzip.compress(b"{", mtime=0)[:-3]])
def test_what_is_no_saved_run_is_said(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match="save-snapshot"):
        load_replay(path)
