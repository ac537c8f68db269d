"""Judges for tests, which answer by a function of the request."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from persona_pipeline.judging.verdict import JudgeRequest, Verdict


@dataclass
class ScriptedJudge:
    """Answers each request with what ``answer`` returns for it: a verdict, or a score 0-9. Keeps what it was asked."""

    answer: Callable[[JudgeRequest], Verdict | int]
    name: str = "scripted"
    live: bool = False
    asked: list[JudgeRequest] = field(default_factory=list)

    async def judge(self, requests: Sequence[JudgeRequest]) -> list[Verdict]:
        self.asked += requests
        return [self._verdict(request) for request in requests]

    def _verdict(self, request: JudgeRequest) -> Verdict:
        answer = self.answer(request)
        return Verdict(request.proposition_id, score=answer) if isinstance(answer, int) else answer
