"""Judges for evaluations that are done by every way into the product: one as noisy as a model, and one that is paid once."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from persona_pipeline.judging.open import OpenedJudge
from persona_pipeline.judging.recordings.replay import RecordedBackend
from persona_pipeline.judging.verdict import JudgeRequest, Verdict


@dataclass
class NoisyJudge:
    """Replays recordings with normal noise on each score, drawn by seed and by what is asked: order changes nothing.

    Attributes:
        spread: standard deviation of a judgment, in points, before it is rounded and kept within 0-9.
    """

    recordings: Path
    spread: float
    seed: int = 0
    name: str = "noisy"
    live: bool = True

    def __post_init__(self) -> None:
        self._recorded = OpenedJudge(RecordedBackend(self.recordings))

    async def judge(self, requests: Sequence[JudgeRequest]) -> list[Verdict]:
        first = await self._recorded.judge([replace(request, sample=0) for request in requests])
        return [self._noisy(request, verdict) for request, verdict in zip(requests, first, strict=True)]

    def _noisy(self, request: JudgeRequest, verdict: Verdict) -> Verdict:
        if verdict.score is None:
            return verdict
        noise = random.Random(f"{self.seed}/{request.key}").gauss(0, self.spread)
        return replace(verdict, score=max(0, min(9, round(verdict.score + noise))))
