"""``voice``: the probability that an answer sounds like the agent; an error where nobody can tell."""

from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.guard.labels.files import LABELS, write_label_files
from persona_pipeline.guard.labels.messages import MessageLabel
from persona_pipeline.suites import Services, UngradedError
from persona_pipeline.suites.grading.results import Grade
from tests.labels.voices import HALF, labels, message
from tests.suites.support import grade


def graded(folder: Path, *texts: str, agent: str = "ann") -> Grade:
    output: dict[str, Any] = {"output_messages": [{"role": "assistant", "content": text} for text in texts]}
    services = Services(world_root=lambda: folder / "world")
    return grade(folder, {"type": "voice", "agent": agent}, output, services=services)


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    write_label_files(MessageLabel, tmp_path / "world" / LABELS, labels(HALF))
    return tmp_path


def test_the_lowest_message_counts(labelled: Path) -> None:
    on, off = message(300, True).text, message(301, False).text
    good, bad = graded(labelled, on), graded(labelled, on, off)
    assert good.score > 0.5 > bad.score
    assert (bool(good.hits), bool(bad.misses)) == (True, True)
    assert "48 labels (48 person)" in bad.misses[0]
    assert good.details is not None and good.details["labels"] == 48


@pytest.mark.parametrize(
    ("texts", "agent", "reason"),
    [(["Arr!"], "bob", "no_labels"), ([], "ann", "not_reported"), ([" "], "ann", "not_reported")],
)
def test_what_cannot_be_told_is_an_error(labelled: Path, texts: list[str], agent: str, reason: str) -> None:
    with pytest.raises(UngradedError) as caught:
        graded(labelled, *texts, agent=agent)
    assert caught.value.failure.reason == reason


def test_too_few_labels_and_broken_ones_are_errors(tmp_path: Path) -> None:
    write_label_files(MessageLabel, tmp_path / "world" / LABELS, labels(HALF[:5]))
    with pytest.raises(UngradedError, match="5 labels"):
        graded(tmp_path, "Arr!")
    (tmp_path / "world" / LABELS / "messages.jsonl").write_text("{}\n", encoding="utf-8")
    with pytest.raises(UngradedError, match=r"messages.jsonl:1"):
        graded(tmp_path, "Arr!")
