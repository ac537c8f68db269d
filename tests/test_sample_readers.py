"""The sample world's two readers: that the second read all the first did, and that their page says how far they agree."""

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import pytest

from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.evaluation.run import run_evaluation
from persona_pipeline.guard.baselines.models import Measure
from persona_pipeline.guard.calibration import bias
from persona_pipeline.guard.labels.files import LABELS, Label, load_labels
from persona_pipeline.judging.open import OpenedJudge
from persona_pipeline.judging.recordings.line import Recording
from persona_pipeline.judging.recordings.replay import RecordedBackend, load_recordings
from persona_pipeline.judging.recordings.writing import RecordingWriter
from persona_pipeline.world import World
from persona_pipeline.world.propositions.models import ALL_DIMENSIONS
from tests.support.ranks import spearman

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "explanation" / "sample-world.md"
SECOND = "second-reader"


class Pair(NamedTuple):
    """What both readers say of one judgment."""

    recording: Recording
    label: Label

    @property
    def scores(self) -> tuple[int, int]:
        assert self.recording.score is not None
        assert self.label.score is not None
        return self.recording.score, self.label.score


@cache
def recordings() -> dict[str, Recording]:
    agents = [path.stem for path in (ROOT / "personas").glob("*.yaml")]
    return {key: item for name in agents for key, item in load_recordings(ROOT / "recordings" / name, None).items()}


@cache
def labels() -> dict[str, Label]:
    return {label.key: label for label in load_labels(ROOT / LABELS) if label.labeller == SECOND}


def pairs(wanted: Callable[[Pair], bool]) -> list[tuple[int, int]]:
    """Return (first, second) scores of the judgments that are wanted."""
    found = [Pair(item, labels()[key]) for key, item in sorted(recordings().items())]
    return [pair.scores for pair in found if wanted(pair)]


def rows() -> Iterator[str]:
    """Return the lines of the page's tables."""
    for name in ALL_DIMENSIONS:
        yield row(name, pairs(lambda pair, name=name: pair.recording.dimension == name))
    yield row("all", pairs(lambda _: True))


def unread(judged: Iterable[Recording]) -> str:
    """The second reader's agreement with one who gives each claim the mean of the first reader's other scores of it."""
    by_claim: dict[tuple[str, str], list[Recording]] = defaultdict(list)
    for item in judged:
        by_claim[item.dimension, item.proposition_id].append(item)
    first, blindfold = [], []
    for own in by_claim.values():
        for item in own:
            first.append(item.score)
            blindfold.append(fmean(other.score or 0 for other in own if other is not item))
    return f"{spearman(first, blindfold).value:.2f}"


def row(name: str, scores: list[tuple[int, int]]) -> str:
    first, second = [a for a, _ in scores], [b for _, b in scores]
    apart = [abs(a - b) for a, b in scores]
    shares = [sum(item <= most for item in apart) / len(apart) for most in (0, 1)]
    measures = [said(measure(first, second)) for measure in (spearman, bias)]
    return "| " + " | ".join([name, str(len(scores)), *measures, *(f"{share:.0%}" for share in shares)]) + " |"


def said(measure: Measure) -> str:
    assert measure.value is not None
    return f"{measure.value:z.2f} ({measure.low:z.2f} to {measure.high:z.2f})"


def test_the_second_reader_read_everything_the_first_did_and_is_no_person() -> None:
    assert labels().keys() == recordings().keys()
    assert {label.labeller_kind for label in labels().values()} == {"model"}
    assert f"all {len(labels())} judgments" in " ".join(PAGE.read_text(encoding="utf-8").split())


def test_the_page_prints_the_agreement_that_the_files_give() -> None:
    printed = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert [line for line in printed if line.count(".") > 1] == list(rows())
    steady = [item for item in recordings().values() if item.agent_id != "michael"]
    high = pairs(lambda pair: min(pair.scores) >= 7)
    assert f"reads nothing reaches {unread(steady)}" in PAGE.read_text(encoding="utf-8")
    assert f"{spearman(*map(list, zip(*high, strict=True))).value:.2f}" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("reader", ["first", "second"])
def test_the_same_falls_are_found_with_either_readers_scores(reader: str, tmp_path: Path) -> None:
    for name in ("personas", "propositions", "messages"):
        shutil.copytree(ROOT / name, tmp_path / name)
    own = {"first": lambda item: item, "second": lambda item: replace(item, score=labels()[item.key].score)}[reader]
    RecordingWriter(tmp_path / "recordings").write([own(item) for item in recordings().values()])
    world = World.open(tmp_path)
    judge = OpenedJudge(RecordedBackend(tmp_path / "recordings"))
    world.sync()
    newest = world.newest_message_time()
    assert newest is not None
    before = EvaluationRequest(as_of=newest - timedelta(days=7), update_baseline=True)
    assert run_evaluation(world, judge, before).report.exit_code == 0
    findings = run_evaluation(world, judge, EvaluationRequest()).report.all_findings()
    assert {item.agent_id for item in findings} == {"michael"}
    assert {item.dimension for item in findings if item.kind == "regression"} == {*ALL_DIMENSIONS} - {"convergence"}
    assert sum(item.kind == "proposition_drop" for item in findings) == 19
