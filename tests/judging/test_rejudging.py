"""A random sample of recordings, judged again."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from persona_pipeline.judging.open import OpenedJudge
from persona_pipeline.judging.recordings.replay import RecordedBackend, Rejudged, rejudge
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


def again(folder: Path, live: Live, size: int = 50, seed: int = 1) -> tuple[list[Rejudged], int]:
    RecordingWriter(folder).record(ASKED[:20], [Verdict(item.proposition_id, score=6) for item in ASKED[:20]])
    return asyncio.run(rejudge(ASKED, OpenedJudge(RecordedBackend(folder)), live, size=size, seed=seed))


def test_what_is_recorded_is_drawn_and_what_is_not_or_failed_is_left_out(tmp_path: Path) -> None:
    live = Live()
    RecordingWriter(tmp_path).record([request()], [Verdict("cheerful", unscored=Unscored.UNSUPPORTED)])
    rows, known = again(tmp_path, live, size=5)
    assert (known, len(rows)) == (20, 5) and not any(row.disagrees for row in rows)
    assert "cheerful" not in {item.proposition_id for item in live.asked}
    others, _ = again(tmp_path, Live(), size=5, seed=2)
    assert [row.request.key for row in others] != [row.request.key for row in rows]


def test_scores_far_apart_and_answers_of_another_sort_disagree(tmp_path: Path) -> None:
    live = Live(habit_1=3, habit_2=9, habit_3=4, habit_4=Unscored.NOT_APPLICABLE, habit_5=Unscored.TIMEOUT, habit_6=0)
    rows, _ = again(tmp_path, live)
    disagree = {row.request.proposition_id for row in rows if row.disagrees}
    assert disagree == {"habit_1", "habit_2", "habit_4", "habit_6"}


def test_a_replay_can_be_overheard_and_is_a_replay(tmp_path: Path) -> None:
    recorded = RecordedBackend(tmp_path)
    recorded.claims = []
    asyncio.run(OpenedJudge(recorded).judge(requests(3)))
    assert recorded.claims == list(requests(3))
