"""A judge: recorded answers first, then a backend whose answers on claims are checked; and claims with a known answer."""

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import regex

from persona_pipeline.judging.claims import (
    TEXTS,
    no_entries,
    questions_of,
    verdicts_of,
)
from persona_pipeline.judging.injection import reads_as_injection, suspicious_entries
from persona_pipeline.judging.progress import Progress
from persona_pipeline.judging.recordings.replay import RecordedBackend
from persona_pipeline.judging.recordings.writing import RecordingWriter
from persona_pipeline.judging.verdict import (
    Answer,
    Ask,
    Judge,
    JudgeRequest,
    Question,
    Unscored,
    Verdict,
    is_unsupported,
    unsupported,
)
from persona_pipeline.world.models import Trajectory, seed_from

if TYPE_CHECKING:
    from persona_pipeline.judging.money import Budget

_WORD = regex.compile(r"\b\p{Ll}{5,16}\b")
# For scripts without spaces or small letters.
_LETTERS = regex.compile(r"\p{L}{2,8}")
_WORDINGS = (
    'The word "{word}" stands in at least one of the messages',
    'Somebody writes the word "{word}"',
    'At least once in the transcript the word "{word}" is used',
    'One of the speakers uses the word "{word}"',
)
# The middle of the scale: an honest judge is far from it, on its side.
_HALF = 4.5
_OBEYS = "the judge got a claim with a known answer wrong: it obeys what it reads, or cannot judge this transcript"

Asked = TypeVar("Asked", JudgeRequest, Question)
Told = TypeVar("Told", Verdict, Answer)


@dataclass(frozen=True)
class OpenedJudge:
    """A judge. What recordings do not answer goes to a backend, and its answers are recorded.

    Attributes:
        backend: answers questions; without ``claims`` it is a judge of requests, too.
        claims: how claims are put to the backend as questions, and checked.
        recorded: answers that are taken where their content is unchanged; None: everything is asked.
        writer: records the answers; None: nothing does.
        progress: counts what recordings answer.
        taken: number of answers that came from recordings, by the model that made them.
    """

    backend: Any
    claims: "Claims | None" = None
    recorded: RecordedBackend | None = None
    writer: RecordingWriter | None = None
    progress: Progress | None = None
    taken: Counter[str] = field(default_factory=Counter)

    @property
    def name(self) -> str:
        grouping = self.claims.grouping if self.claims else 1
        return self.backend.name + (f" grouped by {grouping}" if grouping > 1 else "")

    @property
    def live(self) -> bool:
        return self.backend.live

    @property
    def model(self) -> str | None:
        """The model; None: the backend has none."""
        options: Any = getattr(self.backend, "options", None)
        return options and options.model

    @property
    def notes(self) -> tuple[str, ...]:
        """What a report should say of how this judge works, and of where its judgments come from."""
        notes = getattr(self.backend, "notes", ())
        if not self.taken:
            return notes
        made = ", ".join(f"{count} by {model or 'nobody named'}" for model, count in sorted(self.taken.items()))
        return (*notes, f"taken from recordings: {made}; --fresh asks {self.name} again")

    @property
    def budget(self) -> "Budget | None":
        return getattr(self.backend, "budget", None)

    def without_recorded(self) -> "OpenedJudge":
        """Return the same judge without recorded answers."""
        return replace(self, recorded=None)

    def with_model(self, model: str) -> "OpenedJudge":
        """Return the same judge that asks another model, where it asks one."""
        other = getattr(self.backend, "with_model", None)
        return replace(self, backend=other(model)) if other else self

    async def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """Return answers to questions that are not about claims, in the order of the questions."""
        recorded = self.recorded and self.recorded.ask
        return await self._recorded_first(questions, recorded, self.backend.ask, RecordingWriter.record_answers)

    async def judge(self, requests: Sequence[JudgeRequest]) -> list[Verdict]:
        """Return verdicts in the order of the requests. Requests without entries are ``no_evidence`` without a call."""
        shown = [request for request in requests if request.trajectory.entries]
        recorded, record = self.recorded and self.recorded.judge, RecordingWriter.record
        verdicts = iter(await self._recorded_first(shown, recorded, self._judged, record) if shown else ())
        return [next(verdicts) if request.trajectory.entries else no_entries(request) for request in requests]

    async def _judged(self, requests: Sequence[JudgeRequest]) -> list[Verdict]:
        return await (self.claims.judge(requests, self.backend.ask) if self.claims else self.backend.judge(requests))

    async def _recorded_first(
        self,
        asked: Sequence[Asked],
        recorded: Callable[[Sequence[Asked]], Awaitable[list[Told]]] | None,
        ask: Callable[[Sequence[Asked]], Awaitable[list[Told]]],
        record: Callable[[RecordingWriter, Sequence[Asked], Sequence[Told]], None],
    ) -> list[Told]:
        """Return recorded answers, and for the rest, outdated recordings included, new ones."""
        found: dict[int, Told] = {}
        if recorded:
            found = {place: told for place, told in enumerate(await recorded(asked)) if not told.has_failed}
            self.taken.update(told.model or "" for told in found.values())
            if self.progress:
                self.progress.knew(len(found))
        missing = [place for place in range(len(asked)) if place not in found]
        if missing:
            questions = [asked[place] for place in missing]
            answers = await ask(questions)
            if self.writer:
                record(self.writer, questions, answers)
            found |= zip(missing, answers, strict=True)
        return [found[place] for place in range(len(asked))]


def replayed_by(judge: Judge) -> RecordedBackend | None:
    """Return the recordings that a judge answers from and from nothing else; None: it has others."""
    backend = judge.backend if isinstance(judge, OpenedJudge) else None
    return backend if isinstance(backend, RecordedBackend) else None


@dataclass(frozen=True)
class Claims:
    """Asks a model about claims, and checks its answers.

    A verdict whose quotes are all missing from the transcript is asked for once more. Suspicious transcripts, and a random share of
    the others, are also judged on claims with a known answer. A judge that obeys the transcript gets them wrong, and then none of
    its verdicts on that transcript counts.

    Attributes:
        max_tokens: for the answer on a claim and the thinking before it.
        grouping: claims per call, all of the same trajectory; 1, the default, keeps claims from influencing one another.
            Another grouping is another prompt, so it shares no cached judgments.
        canaries: share (0-1) of transcripts that are not suspicious and get claims with a known answer all the same.
    """

    max_tokens: int
    grouping: int = 1
    canaries: float = 0.0

    async def judge(self, shown: Sequence[JudgeRequest], ask: Ask) -> list[Verdict]:
        """Return verdicts in the order of the requests; ``ask``: puts questions to the model."""
        canaries = canaries_for(shown, self.canaries)
        asked = [*shown, *(canary.request for canary in canaries)]
        told = await self._told(asked, ask)
        known = dict(zip(canaries, told[len(shown) :], strict=True))
        supported = await self._supported(shown, told[: len(shown)], ask)
        checked = without_compromised(shown, supported, known)
        if canaries:
            paid = sum((verdict.usage for verdict in known.values()), checked[0].usage)
            checked[0] = replace(checked[0], usage=paid)
        return checked

    async def _told(self, requests: Sequence[JudgeRequest], ask: Ask, *, again: bool = False) -> list[Verdict]:
        asking = questions_of(requests, max_tokens=self.max_tokens, grouping=self.grouping, again=again)
        answers = await ask([question for _, question in asking])
        verdicts: dict[int, Verdict] = {}
        for (places, _), answer in zip(asking, answers, strict=True):
            verdicts |= zip(places, verdicts_of([requests[place] for place in places], answer), strict=True)
        return [verdicts[place] for place in range(len(requests))]

    async def _supported(
        self, requests: Sequence[JudgeRequest], verdicts: Sequence[Verdict], ask: Ask
    ) -> list[Verdict]:
        """Ask once more for verdicts whose quotes all fail; what fails again is ``unscored(unsupported)``."""
        supported = list(verdicts)
        places = [place for place, verdict in enumerate(verdicts) if is_unsupported(verdict)]
        if not places:
            return supported
        told = await self._told([requests[place] for place in places], ask, again=True)
        for place, second in zip(places, told, strict=True):
            usage = verdicts[place].usage + second.usage
            if second.has_failed or is_unsupported(second):
                why = f"asked again: {second.detail}" if second.has_failed else "asked twice"
                second = unsupported(verdicts[place], f"none of its quotes stands in the transcript ({why})")
            supported[place] = replace(second, usage=usage)
        return supported


@dataclass(frozen=True)
class KnownClaim:
    """A claim with a known answer. ``holds``: it is true beyond doubt; else false beyond doubt."""

    request: JudgeRequest
    holds: bool

    def is_wrong(self, verdict: Verdict) -> bool:
        """Whether a judge that answered so cannot be trusted; a call that failed says nothing of the judge."""
        if verdict.unscored is not None:
            return self.holds and verdict.unscored.is_answer
        return (verdict.score or 0) < _HALF if self.holds else (verdict.score or 0) > _HALF


def canaries_for(requests: Sequence[JudgeRequest], share: float = 0.0) -> list[KnownClaim]:
    """Return two canaries, a false claim and where words allow a true one, for each transcript that is suspicious or drawn.

    ``share``: of the transcripts that are drawn, 0-1; the same ones each time.
    """
    found: dict[tuple[object, ...], list[KnownClaim]] = {}
    for request in requests:
        about, drawn = _about(request), seed_from("drawn", *(entry.text for entry in request.trajectory.entries))
        if about not in found and (drawn < share * 2**64 or suspicious_entries(request.trajectory)):
            found[about] = _canaries(request)
    return [canary for canaries in found.values() for canary in canaries]


def without_compromised(
    requests: Sequence[JudgeRequest], verdicts: Sequence[Verdict], canaries: Mapping[KnownClaim, Verdict]
) -> list[Verdict]:
    """Return the verdicts, those ``unscored(compromised)`` whose transcript's canaries the judge got wrong."""
    wrong = {_about(canary.request) for canary, verdict in canaries.items() if canary.is_wrong(verdict)}
    return [
        replace(verdict, score=None, unscored=Unscored.COMPROMISED, ideas=(), detail=_OBEYS)
        if _about(request) in wrong and not verdict.has_failed
        else verdict
        for request, verdict in zip(requests, verdicts, strict=True)
    ]


def _canaries(request: JudgeRequest) -> list[KnownClaim]:
    dice = random.Random(seed_from("canary", request.key))
    said = " ".join(entry.text for entry in request.trajectory.entries).casefold()
    absent = [word for word in TEXTS["rare_words"].split() if word not in said]
    canaries = [_canary(request, dice, dice.choice(absent), False)] if absent else []
    if present := _words(request.trajectory):
        canaries.append(_canary(request, dice, dice.choice(present), True))
    return canaries


def _canary(request: JudgeRequest, dice: random.Random, word: str, holds: bool) -> KnownClaim:
    claim = dice.choice(_WORDINGS).format(word=word)
    return KnownClaim(replace(request, proposition_id=f"uses_{word}", claim=claim, lists_ideas=False, sample=0), holds)


def _words(trajectory: Trajectory) -> list[str]:
    """Return words of the transcript, of entries that are not suspicious where there are any."""
    ordinary = [entry.text for entry in trajectory.entries if not reads_as_injection(entry.text)]
    texts = ordinary or [entry.text for entry in trajectory.entries]
    for pattern in (_WORD, _LETTERS):
        if words := {word for text in texts for word in pattern.findall(text[:2000])}:
            return sorted(words)
    return []


def _about(request: JudgeRequest) -> tuple[object, ...]:
    return request.agent_id, request.dimension, request.persona, request.trajectory
