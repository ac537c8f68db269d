"""Recordings signed by who holds a secret."""

import asyncio
import json
from pathlib import Path

import pytest
from pydantic import SecretStr

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.settings import Settings
from persona_pipeline.judging.open import OpenedJudge
from persona_pipeline.judging.recordings.replay import RecordedBackend, load_recordings, sign_recordings
from persona_pipeline.judging.recordings.writing import RecordingWriter
from persona_pipeline.judging.verdict import Unscored, Verdict
from tests.support.judging import request, requests

SECRET = b"what only CI knows"


SIGNING = Settings(recordings_secret=SecretStr(SECRET.decode()))


def line_of(folder: Path) -> tuple[Path, dict]:
    (path,) = folder.rglob("*.jsonl")
    return path, json.loads(path.read_text("utf-8").splitlines()[0])


def test_what_is_recorded_with_the_secret_is_signed_and_replays(tmp_path: Path) -> None:
    RecordingWriter(tmp_path, secret=SECRET).record([request()], [Verdict("cheerful", score=7)])
    _, line = line_of(tmp_path)
    assert len(line["signature"]) == 64
    assert len(RecordedBackend(tmp_path, settings=SIGNING).recordings) == 1


def test_without_the_secret_signatures_stay_and_are_not_asked_for(tmp_path: Path) -> None:
    RecordingWriter(tmp_path).record([request()], [Verdict("cheerful", score=7)])
    assert "signature" not in line_of(tmp_path)[1]
    assert sign_recordings(tmp_path, SECRET) != []
    signed = line_of(tmp_path)[1]["signature"]
    RecordingWriter(tmp_path).record([requests(1)[0]], [Verdict("habit_0", score=1)])
    kept = [item.signature for item in load_recordings(tmp_path, None).values()]
    assert sorted(kept) == ["", signed]
    assert sign_recordings(tmp_path, SECRET) != [] and sign_recordings(tmp_path, SECRET) == []


@pytest.mark.parametrize(
    "change", [{"score": 9}, {"reasoning": "x"}, {"signature": "0" * 64}, {"signature": ""}, {"model": "m"}], ids=str
)
def test_what_was_changed_after_it_was_signed_is_an_error_with_its_place(
    change: dict[str, object], tmp_path: Path
) -> None:
    RecordingWriter(tmp_path, secret=SECRET).record([request()], [Verdict("cheerful", score=7)])
    path, line = line_of(tmp_path)
    path.write_text(json.dumps({**line, **change}) + "\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"adherence\.jsonl:1: not signed with PERSONA_RECORDINGS_SECRET"):
        OpenedJudge(RecordedBackend(tmp_path, settings=SIGNING))


@pytest.mark.parametrize("change", [{"min_coverage": 0}, {"unscored": "refusal"}, {"detail": "other"}], ids=str)
def test_what_failed_is_signed_too_and_then_its_coverage_is_believed(change: dict[str, object], tmp_path: Path) -> None:
    failure = Verdict("cheerful", unscored=Unscored.TIMEOUT, detail="late")
    RecordingWriter(tmp_path, 0.5, SECRET).record([request()], [failure])
    path, line = line_of(tmp_path)
    (again,) = asyncio.run(OpenedJudge(RecordedBackend(tmp_path, settings=SIGNING)).judge([request()]))
    assert (again.unscored, again.min_coverage) == (Unscored.TIMEOUT, 0.5)
    assert sign_recordings(tmp_path, SECRET) == []
    path.write_text(json.dumps({**line, **change}) + "\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"adherence\.jsonl:1: not signed with PERSONA_RECORDINGS_SECRET"):
        OpenedJudge(RecordedBackend(tmp_path, settings=SIGNING))


def test_another_secret_signs_nothing_here(tmp_path: Path) -> None:
    RecordingWriter(tmp_path).record([request()], [Verdict("cheerful", score=7)])
    sign_recordings(tmp_path, b"another")
    with pytest.raises(ConfigError, match="not signed"):
        load_recordings(tmp_path, SECRET)
