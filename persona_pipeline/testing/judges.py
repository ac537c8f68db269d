"""Judges that answer with a function of the request."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from persona_pipeline.judging.verdict import Answer, JudgeRequest, Question, Unscored, Verdict


@dataclass
class ScriptedJudge:
    """A judge with scripted answers that records its requests.

        judge = ScriptedJudge(lambda request: 8 if "dry" in request.claim else 2)

    Attributes:
        answer: returns the answer to a request: a verdict, or a score 0-9.
        name: its name in reports.
        live: whether it counts as a live model, so that drops are judged again.
        asked: all requests, in order of arrival.
        reply: returns the answer to questions of other kinds, such as the gate's or a rubric's: data in the form of the
            question's schema, or the reason for a missing answer; None: it does not accept such questions.
        questions: those questions, in order of arrival.
    """

    answer: Callable[[JudgeRequest], Verdict | int]
    name: str = "scripted"
    live: bool = False
    asked: list[JudgeRequest] = field(default_factory=list)
    reply: Callable[[Question], Mapping[str, Any] | Unscored] | None = None
    questions: list[Question] = field(default_factory=list)

    async def judge(self, requests: Sequence[JudgeRequest]) -> list[Verdict]:
        self.asked += requests
        return [self._verdict(request) for request in requests]

    async def ask(self, questions: Sequence[Question]) -> list[Answer]:
        self.questions += questions
        return [self._answer(question) for question in questions]

    def _verdict(self, request: JudgeRequest) -> Verdict:
        answer = self.answer(request)
        return Verdict(request.proposition_id, score=answer) if isinstance(answer, int) else answer

    def _answer(self, question: Question) -> Answer:
        data = self.reply(question) if self.reply else Unscored.UNRECORDED
        if isinstance(data, Unscored):
            return Answer(unscored=data, detail="scripted")
        if problem := question.problem(data):
            return Answer(unscored=Unscored.INVALID_OUTPUT, detail=problem)
        return Answer(data, model=self.name)
