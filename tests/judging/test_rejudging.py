"""A random sample of recordings, judged again."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from persona_pipeline.judging.open import OpenedJudge
from persona_pipeline.judging.recordings.replay import RecordedBackend, Rejudging, rejudge
from persona_pipeline.judging.recordings.writing import RecordingWriter
from persona_pipeline.judging.verdict import JudgeRequest, Unscored, Verdict
from tests.support.judging import request, requests

ASKED = [*requests(20), request()]


class Live:
    name, live = "live", True

    def __init__(self, **scores: int | Unscored) -> None:
        self.scores, self.asked = scores, []

    async def judge(self, asked: Sequence[JudgeRequest]) -> list[Verdict]:
        self.asked += asked
        told = [self.scores.get(item.proposition_id, 5) for item in asked]
        return [
            Verdict(item.proposition_id, unscored=said)
            if isinstance(said, Unscored)
            else Verdict(item.proposition_id, said)
            for item, said in zip(asked, told, strict=True)
        ]


def again(folder: Path, live: Live, size: int = 50, seed: int = 1) -> Rejudging:
    RecordingWriter(folder).record(ASKED[:20], [Verdict(item.proposition_id, score=6) for item in ASKED[:20]])
    return asyncio.run(rejudge(ASKED, OpenedJudge(RecordedBackend(folder)), live, size=size, seed=seed))


def test_what_is_recorded_is_drawn_and_what_is_not_or_failed_is_left_out(tmp_path: Path) -> None:
    live = Live()
    RecordingWriter(tmp_path).record([request()], [Verdict("cheerful", unscored=Unscored.UNSUPPORTED)])
    found = again(tmp_path, live, size=5)
    assert (found.recorded, len(found.rows), found.disagreement) == (20, 5, 0.0)
    assert "cheerful" not in {item.proposition_id for item in live.asked}
    other = again(tmp_path, Live(), size=5, seed=2)
    assert [row.request.key for row in other.rows] != [row.request.key for row in found.rows]


def test_scores_far_apart_and_answers_of_another_sort_disagree(tmp_path: Path) -> None:
    live = Live(habit_1=3, habit_2=9, habit_3=4, habit_4=Unscored.NOT_APPLICABLE, habit_5=Unscored.TIMEOUT, habit_6=0)
    found = again(tmp_path, live)
    assert [row.request.proposition_id for row in found.disagreements][:2] == ["habit_4", "habit_6"]
    assert {row.request.proposition_id for row in found.disagreements} == {"habit_1", "habit_2", "habit_4", "habit_6"}
    assert len(found.answered) == 19
    assert found.disagreement == 4 / 19


def test_a_replay_can_be_overheard_and_is_a_replay(tmp_path: Path) -> None:
    recorded = RecordedBackend(tmp_path)
    recorded.claims = []
    asyncio.run(OpenedJudge(recorded).judge(requests(3)))
    assert recorded.claims == list(requests(3))
