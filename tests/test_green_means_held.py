"""Green means held: what once was green though nobody could tell, a case a row."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import Cli, Done, in_process

DRIFTED = ("evaluate", "--agents", "michael")


@pytest.fixture
def cli(sample_root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return in_process(sample_root, monkeypatch, capsys)


def report(done: Done) -> dict[str, Any]:
    return json.loads(done.stdout)


def edit_json(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    edit(data)
    path.write_text(json.dumps(data), encoding="utf-8")


@pytest.mark.xfail(strict=True, reason="issue 18: a judge that never reads is found out by swapped transcripts")
def test_a_judge_that_never_reads_decides_nothing(cli: Cli, sample_root: Path) -> None:
    from persona_pipeline.judging.recordings import load_recordings, write_recordings

    dice = random.Random(1)
    recordings = load_recordings(sample_root / "recordings").values()
    inverted = {"generic-assistant", "michael-corporate-boilerplate", "later-turned-generic", "interchangeable-voice"}
    for item in recordings:
        if item.score is not None:
            score = dice.choice((0, 1, 2) if item.proposition_id in inverted else (7, 8, 9))
            object.__setattr__(item, "score", score)
    write_recordings(sample_root / "recordings", recordings)
    assert cli("evaluate", "--agents", "michael", "--dimensions", "adherence").returncode == 3


def test_no_neighbour_hides_a_collapse(cli: Cli, sample_root: Path) -> None:
    def noisy(data: dict[str, Any]) -> None:
        for known in data["provenance"]["dimensions"].values():
            known |= {"windows": 2, "between": 1.5, "below": 1.5}
            for claim in known.get("claims", {}).values():
                claim |= {"windows": 2, "between": 4.5, "below": 4.5}

    edit_json(sample_root / "baselines" / "dwight.json", noisy)
    done = cli("evaluate")
    assert done.returncode in (1, 3)
    assert report(done)["agents"]["michael"]["conclusion"]["verdict"] in ("fell", "cannot_tell")


def test_a_drop_nobody_can_explain_is_not_green_however_noisy_its_own_golden_file_says_weeks_are(
    cli: Cli, sample_root: Path
) -> None:
    def noisy(data: dict[str, Any]) -> None:
        for known in data["provenance"]["dimensions"].values():
            known |= {"windows": 2, "between": 6.0, "below": 6.0}
            for claim in known.get("claims", {}).values():
                claim |= {"windows": 2, "between": 6.0, "below": 6.0}

    edit_json(sample_root / "baselines" / "michael.json", noisy)
    done = cli("evaluate")
    told = report(done)["agents"]["michael"]
    assert (done.returncode, told["conclusion"]["verdict"]) == (3, "cannot_tell")
    adherence = told["conclusions"]["adherence"]
    assert adherence["verdict"] == "cannot_tell" and "--samples" in adherence["command"]
    assert "3 in character, 1 cannot be told" in done.stderr


def test_invented_labels_excuse_no_fall(cli: Cli, sample_root: Path) -> None:
    recorded = (sample_root / "recordings" / "michael" / "adherence.jsonl").read_text(encoding="utf-8").splitlines()
    recorded += [
        line
        for agent in ("pam", "jim", "dwight")
        for line in (sample_root / "recordings" / agent / "adherence.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    dice, labels = random.Random(3), []
    for line in map(json.loads, recorded):
        if line["score"] is not None:
            shown = {
                name: line[name]
                for name in ("key", "agent_id", "dimension", "proposition_id", "claim", "persona", "trajectory")
            }
            who = {"labeller": "nobody", "labeller_kind": "person", "unscored": None, "note": ""}
            labels.append(shown | who | {"score": dice.randrange(10), "labelled_at": "2026-11-22T10:41:15Z"})
    (sample_root / "labels").mkdir()
    text = "".join(json.dumps(label) + "\n" for label in labels)
    (sample_root / "labels" / "adherence.jsonl").write_text(text, encoding="utf-8")
    done = cli(*DRIFTED, "--dimensions", "adherence")
    told = report(done)
    assert [item["kind"] for item in told["findings"]] == [] and done.returncode == 3
    assert told["conclusion"]["verdict"] == "cannot_tell" and "label" in told["conclusion"]["command"]


def test_a_persona_nobody_ever_judged_is_grey(cli: Cli, sample_root: Path) -> None:
    text = "agent_id: creed\ndisplay_name: Creed Bratton\npersona: You are Creed.\n"
    (sample_root / "personas" / "creed.yaml").write_text(text, encoding="utf-8")
    done = cli("evaluate", "--as-of", "2026-06-14T23:59:59Z")
    told = report(done)
    assert told["headline"] == "4 of 4 judged agents in character; 1 has nothing to judge"
    assert done.returncode == 0 and told["agents"]["creed"]["conclusion"]["verdict"] is None
    assert "- creed" in done.stderr


def test_adherence_that_is_not_recorded_takes_the_overall_score_with_it(cli: Cli, sample_root: Path) -> None:
    (sample_root / "recordings" / "pam" / "adherence.jsonl").unlink()
    done = cli("evaluate", "--agents", "pam")
    assert (done.returncode, report(done)["agents"]["pam"]["overall"]) == (3, None)
    with_threshold = cli("evaluate", "--agents", "pam", "--threshold", "7", "--fail-on", "threshold")
    assert with_threshold.returncode == 3, "a threshold with no overall score"


def test_an_agent_that_falls_silent_cannot_be_told(cli: Cli, sample_root: Path) -> None:
    for path in (sample_root / "messages").glob("*.jsonl"):
        lines = path.read_text(encoding="utf-8").splitlines()
        kept = [line for line in lines if json.loads(line)["agent_id"] != "pam"]
        path.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
    done = cli("evaluate", "--agents", "pam")
    assert (done.returncode, report(done)["conclusion"]["verdict"]) == (3, "cannot_tell")


@pytest.mark.xfail(strict=True, reason="issue 17: every option of an evaluation exists through every door")
def test_a_threshold_counts_in_dagster() -> None:
    from persona_pipeline.defs.platform.resources import EvaluationSettings

    assert EvaluationSettings(threshold=7.0).model_dump()["threshold"] == 7.0  # pyright: ignore[reportCallIssue]
