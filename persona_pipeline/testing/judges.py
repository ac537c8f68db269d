"""Judges that answer by a function of the request."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from persona_pipeline.judging.verdict import JudgeRequest, Verdict


@dataclass
class ScriptedJudge:
    """A judge that says what you tell it to, and keeps what it was asked.

        judge = ScriptedJudge(lambda request: 8 if "dry" in request.claim else 2)

    Attributes:
        answer: what it says to a request: a verdict, or a score 0-9.
        name: what reports call it.
        live: whether it counts as a model that is asked now, so that what fell is judged again.
        asked: every request, in the order it came.
    """

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
