"""A golden file is no more forgeable than the recordings it names: ``validate`` takes it again."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.guard.baselines.regression import CONFIRMATIONS
from persona_pipeline.guard.baselines.statistics import computed_moved
from persona_pipeline.judging.recordings.replay import sign_recordings
from persona_pipeline.testing.worlds import WorldBuilder
from tests.support.command_line import Cli, in_process
from tests.support.messages_server import MessagesServer, message, verdicts
from tests.support.worlds import edit_json

SECRET = "a secret of at least thirty-two characters"
TWO_WINDOWS = ("baseline", "--windows", "2", "--as-of", "2026-06-14T23:59:59Z")


def of_pam(root: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    edit_json(root / "baselines" / "pam.json", edit)


def move_computed(data: dict[str, Any], name: str, key: str, points: float) -> None:
    """Let a golden file say other of a computed part, and of its dimension by as much as that part is worth."""
    claims = data["propositionScores"][name]
    before = dict(claims)
    claims[key] += points
    data["dimensions"][name] += computed_moved(name, claims, before)


def test_a_baseline_of_several_windows_is_taken_again(cli: Cli, sample_root: Path) -> None:
    assert cli(*TWO_WINDOWS).returncode == 0
    assert cli("validate").returncode == 0
    of_pam(sample_root, lambda data: data["dimensions"].update(adherence=5.0))
    done = cli("validate")
    assert done.returncode == 2 and "pam.json: says adherence 5, and its recordings give 8.1" in done.stderr


def test_how_weeks_differ_is_taken_again_too(cli: Cli, sample_root: Path) -> None:
    assert cli(*TWO_WINDOWS).returncode == 0
    of_pam(sample_root, lambda data: data["provenance"]["dimensions"]["adherence"].update(between=4.0))
    done = cli("validate")
    assert done.returncode == 2 and "pam.json: says adherence: between 4, and its recordings give" in done.stderr


@pytest.fixture
def habits(tmp_path: Path) -> Path:
    """A world of one agent with ten claims, who says something else every week; nothing is recorded."""
    builder = WorldBuilder(tmp_path / "habits").persona("ann", "Ann has habits.")
    for number in range(10):
        builder.claim("adherence", f"habit-{number}", f"Ann has habit {number}")
    for day in (2, 3, 9, 10):
        builder.say("ann", f"It is the {day}th.", at=f"2026-03-{day:02}T09:00:00Z")
    return builder.root


@pytest.mark.parametrize("samples", [1, 2])
def test_what_fell_was_judged_more_often_and_is_taken_again_as_often(
    habits: Path, server: MessagesServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    samples: int,
) -> None:  # fmt: skip
    cli = in_process(habits, monkeypatch, capsys)
    taken = ("baseline", "--judge", "anthropic", "--record", "--windows", "1", "--samples", str(samples))
    lower = ("--accept", "one habit is gone")
    for score, now, often in ((9, ("--as-of", "2026-03-04T00:00:00Z"), samples), (1, lower, samples + CONFIRMATIONS)):
        server.handler = lambda call, last=score: message(
            json.dumps(verdicts(call.body, lambda claim: last if claim.endswith("9") else 9))
        )
        assert cli(*taken, *now).returncode == 0
        known = json.loads((habits / "baselines" / "ann.json").read_text(encoding="utf-8"))["provenance"]
        assert [item["samples"] for item in known["dimensions"]["adherence"]["recordings"]] == [often]
        done = cli("validate")
        assert (done.returncode, "ann (" in done.stderr) == (0, False), done.stderr


def test_what_cannot_be_taken_again_is_an_error_only_where_signed_is_asked_for(
    cli: Cli, sample_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("validate", "--require-signed").returncode == 2, "nothing to sign with"
    monkeypatch.setenv("PERSONA_RECORDINGS_SECRET", SECRET)
    sign_recordings(sample_root / "recordings", SECRET.encode())
    assert cli("validate", "--require-signed").returncode == 0
    of_pam(sample_root, lambda data: data["provenance"]["dimensions"]["fluency"].pop("recordings"))
    # Of what is computed another lexicon made three points less.
    of_pam(sample_root, lambda data: move_computed(data, "convergence", "_agreement", -3.0))
    plain, signed = cli("validate"), cli("validate", "--require-signed")
    assert (plain.returncode, signed.returncode) == (0, 2)
    assert "pam (fluency)" in plain.stderr and "names no recordings" in signed.stderr
    for done in (plain, signed):
        assert "pam (convergence)" in done.stderr and "another lexicon or version" in done.stderr
