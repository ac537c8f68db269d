"""A golden file is no more forgeable than the recordings it names: ``validate`` takes it again."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.guard.baselines.spread import computed_moved
from persona_pipeline.judging.recordings.replay import sign_recordings
from tests.support.command_line import Cli, in_process

SECRET = "a secret of at least thirty-two characters"
TWO_WINDOWS = ("baseline", "--windows", "2", "--as-of", "2026-06-14T23:59:59Z")


@pytest.fixture
def cli(sample_root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return in_process(sample_root, monkeypatch, capsys)


def of_pam(root: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    path = root / "baselines" / "pam.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    edit(data)
    path.write_text(json.dumps(data), encoding="utf-8")


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
