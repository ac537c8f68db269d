"""Judging a random sample of recordings again, live: who forges recordings, or lets them go stale, is found out in time."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from persona_pipeline.judging.recorded import RecordedJudge
from persona_pipeline.judging.verdict import Judge, JudgeRequest, Unscored, Usage, Verdict

# Honest judges differ by about a point; on the scale 0-9 this much apart is another opinion.
FAR_APART = 3


@dataclass(frozen=True)
class Rejudged:
    """One recorded verdict and what the live judge says of the same."""

    request: JudgeRequest
    recorded: Verdict
    live: Verdict

    @property
    def is_answered(self) -> bool:
        """Whether the live judge gave an answer that can be compared."""
        return self.live.unscored is None or self.live.unscored.is_answer

    @property
    def disagrees(self) -> bool:
        """Whether the answers are far apart: scores by three points or more, or an answer of another sort."""
        if not self.is_answered:
            return False
        if self.recorded.score is None or self.live.score is None:
            return (self.recorded.unscored, self.recorded.score) != (self.live.unscored, self.live.score)
        return abs(self.recorded.score - self.live.score) >= FAR_APART


@dataclass(frozen=True)
class Rejudging:
    """A sample, judged again. ``recorded``: how many recordings it was drawn from."""

    recorded: int
    rows: Sequence[Rejudged] = field(default_factory=tuple)

    @property
    def answered(self) -> list[Rejudged]:
        return [row for row in self.rows if row.is_answered]

    @property
    def disagreements(self) -> list[Rejudged]:
        """The rows that disagree, the farthest apart first."""
        return sorted((row for row in self.rows if row.disagrees), key=_distance, reverse=True)

    @property
    def disagreement(self) -> float:
        """Share (0-1) of the answers that disagree; 0 without answers."""
        return len(self.disagreements) / len(self.answered) if self.answered else 0.0

    @property
    def usage(self) -> Usage:
        return sum((row.live.usage for row in self.rows), Usage())


async def rejudge(requests: Sequence[JudgeRequest], recorded: Judge, live: Judge, *, size: int, seed: int) -> Rejudging:
    """Judge a random sample of what is recorded again.

    Args:
        requests: what a replay asks for; recordings nothing asks for cannot be judged again, since they hold no transcript.
        size: how many to draw, at most.
        seed: of the draw; take another every night.
    """
    unique = list({request.key: request for request in requests if request.trajectory.entries}.values())
    known = [
        (request, verdict)
        for request, verdict in zip(unique, await recorded.judge(unique), strict=True)
        if not verdict.has_failed or (verdict.unscored is Unscored.UNSUPPORTED and verdict.min_coverage is None)
    ]
    drawn = random.Random(seed).sample(known, min(size, len(known)))
    told = await live.judge([request for request, _ in drawn])
    return Rejudging(
        len(known), tuple(Rejudged(request, old, new) for (request, old), new in zip(drawn, told, strict=True))
    )


class OverheardJudge(RecordedJudge):
    """Replays recordings and remembers what it is asked."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.heard: list[JudgeRequest] = []

    async def judge(self, requests: Sequence[JudgeRequest]) -> list[Verdict]:
        self.heard += requests
        return await super().judge(requests)


def _distance(row: Rejudged) -> float:
    if row.recorded.score is None or row.live.score is None:
        return 10.0
    return abs(row.recorded.score - row.live.score)
