"""A live judge that is asked only about what is not recorded."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from persona_pipeline.judging.progress import Progress
from persona_pipeline.judging.questions import Answer, Backend, Question
from persona_pipeline.judging.recorded import RecordedBackend, RecordedJudge
from persona_pipeline.judging.verdict import Judge, JudgeLayer, JudgeRequest, Verdict


@dataclass(frozen=True)
class RecordedFirstJudge(JudgeLayer):
    """Takes recorded judgments whose content is unchanged, and asks a live judge for the rest.

    Attributes:
        taken: how many judgments came from recordings, by the model that made them.
        progress: hears of them too.
    """

    judging: Judge
    recorded: RecordedJudge
    taken: Counter[str] = field(default_factory=Counter)
    progress: Progress | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What a report should say of where its judgments come from."""
        notes = tuple(getattr(self.backend, "notes", ()))
        if not self.taken:
            return notes
        made = ", ".join(f"{count} by {model or 'nobody named'}" for model, count in sorted(self.taken.items()))
        return (*notes, f"taken from recordings: {made}; --fresh asks {self.judging.name} anew")

    async def judge(self, requests: Sequence[JudgeRequest]) -> list[Verdict]:
        """Return verdicts in the order of the requests; a recording that does not hold any more is asked anew."""
        verdicts = {
            place: verdict
            for place, verdict in enumerate(await self.recorded.judge(requests))
            if not verdict.has_failed
        }
        asked = [place for place in range(len(requests)) if place not in verdicts]
        self.taken.update(verdict.model or "" for verdict in verdicts.values())
        if self.progress:
            self.progress.knew(len(verdicts))
        if asked:
            told = await self.judging.judge([requests[place] for place in asked])
            verdicts |= dict(zip(asked, told, strict=True))
        return [verdicts[place] for place in range(len(requests))]


@dataclass(frozen=True)
class RecordedFirstBackend:
    """A live backend that is asked only what is not recorded."""

    asking: Backend
    recorded: RecordedBackend

    @property
    def name(self) -> str:
        return self.asking.name

    @property
    def live(self) -> bool:
        return self.asking.live

    async def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """Return answers in the order of the questions; a recording that does not hold any more is asked anew."""
        answers = await self.recorded.ask(questions)
        missing = [place for place, answer in enumerate(answers) if answer.data is None]
        asked = await self.asking.ask([questions[place] for place in missing]) if missing else []
        for place, answer in zip(missing, asked, strict=True):
            answers[place] = answer
        return answers
