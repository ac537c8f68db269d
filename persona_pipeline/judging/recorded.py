"""Replay: judgments come from recordings, by content, with no network. What is not recorded is unscored."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from persona_pipeline.judging.answers import checked_quote, no_entries
from persona_pipeline.judging.injection import suspicious_entries
from persona_pipeline.judging.questions import Answer, Backend, Question
from persona_pipeline.judging.recordings import PROPOSITION, Recording, load_recordings, write_recordings
from persona_pipeline.judging.support import is_unsupported, unsupported
from persona_pipeline.judging.verdict import Judge, JudgeRequest, Unscored, Verdict
from persona_pipeline.world.canonical import rfc3339


class RecordedBackend:
    """Answers questions from the recordings of a folder, loaded when it is made.

    Args:
        also: further folders; what the first one holds is taken from there.

    Raises:
        ConfigError: a folder holds lines that are no recordings.
    """

    name = "recorded"
    live = False

    def __init__(self, folder: Path, also: Sequence[Path] = ()) -> None:
        self.folder = folder
        self.recordings = load_recordings(folder)
        for further in also:
            self.recordings = load_recordings(further) | self.recordings
        self.replayed: set[str] = set()

    async def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """Return what is recorded; the rest is ``unscored(unrecorded)``. Verdicts: see ``RecordedJudge``."""
        return [self._answer(question) for question in questions]

    def find(self, key: str) -> Recording | None:
        """Return the recording of a key and remember that it was asked for."""
        recording = self.recordings.get(key)
        if recording:
            self.replayed.add(key)
        return recording

    def unused(self) -> list[Recording]:
        """Return what nothing has asked for so far: stale, or of another window or agent."""
        return [recording for key, recording in self.recordings.items() if key not in self.replayed]

    def _answer(self, question: Question) -> Answer:
        recording = self.find(question.key)
        if recording is None:
            return Answer(
                unscored=Unscored.UNRECORDED,
                detail=f"no recording of {question.label}; run it with a live judge and --record",
            )
        data = recording.data
        if problem := question.problem(data):
            detail = f"recording of {question.label}: {problem}"
            return Answer(unscored=Unscored.INVALID_OUTPUT, detail=detail)
        return Answer(data, model=recording.model, prompt_version=recording.prompt_version, cached=True)


class RecordedJudge:
    """Replays verdicts on propositions from a recordings folder.

    Raises:
        ConfigError: the folder holds lines that are no recordings.
    """

    name = "recorded"
    live = False

    def __init__(self, folder: Path | RecordedBackend) -> None:
        self.backend = folder if isinstance(folder, RecordedBackend) else RecordedBackend(folder)

    async def judge(self, requests: Sequence[JudgeRequest]) -> list[Verdict]:
        return [self._verdict(request) for request in requests]

    def has_recorded(self, requests: Iterable[JudgeRequest]) -> bool:
        """Return whether there are requests and all of them are recorded."""
        found = [self.backend.find(request.key) is not None for request in requests]
        return bool(found) and all(found)

    def _verdict(self, request: JudgeRequest) -> Verdict:
        if not request.trajectory.entries:
            return no_entries(request)
        recording = self.backend.find(request.key)
        if recording is None or recording.kind != PROPOSITION:
            return Verdict(request.proposition_id, unscored=Unscored.UNRECORDED, detail=self._why_not(request))
        verdict = Verdict(
            proposition_id=request.proposition_id,
            score=recording.score,
            unscored=recording.unscored,
            reasoning=recording.reasoning,
            evidence=tuple(checked_quote(request.trajectory, message, quote) for message, quote in recording.evidence),
            ideas=recording.ideas if request.lists_ideas else (),
            model=recording.model,
            prompt_version=recording.prompt_version,
            injection_suspected=bool(suspicious_entries(request.trajectory)),
        )
        if is_unsupported(verdict):
            return unsupported(verdict, "none of its recorded quotes stands in the transcript; record it again")
        return verdict

    def _why_not(self, request: JudgeRequest) -> str:
        who = f" of {request.agent_id}" if request.agent_id else ""
        sample = f", sample {request.sample + 1}" if request.sample else ""
        claims = self._recorded_claims.get((request.agent_id, request.dimension, request.proposition_id), set())
        if not claims:
            reason = "never recorded"
        elif request.claim not in claims:
            reason = "its claim has changed since it was recorded"
        else:
            reason = "its messages or persona differ from what was recorded"
        return f"{request.dimension}/{request.proposition_id}{who}{sample}: {reason}"

    @cached_property
    def _recorded_claims(self) -> dict[tuple[str, str, str], set[str]]:
        claims: dict[tuple[str, str, str], set[str]] = {}
        for item in self.backend.recordings.values():
            if item.kind == PROPOSITION:
                claims.setdefault((item.agent_id, item.dimension, item.proposition_id), set()).add(item.claim)
        return claims


def recording_of(request: JudgeRequest, verdict: Verdict, *, recorded_at: datetime) -> Recording | None:
    """Return the recording of an answer, None of a failure. Quotes go under local message ids."""
    if verdict.unscored is not None and not verdict.unscored.is_answer:
        return None
    local = {entry.message_id: f"m{number}" for number, entry in enumerate(request.trajectory.entries, start=1)}
    return Recording(
        key=request.key,
        **request.subject,
        sample=request.sample,
        score=verdict.score,
        unscored=verdict.unscored,
        reasoning=verdict.reasoning,
        evidence=tuple((local.get(item.message_id or "", ""), item.quote) for item in verdict.evidence),
        ideas=verdict.ideas,
        model=verdict.model,
        prompt_version=verdict.prompt_version,
        recorded_at=rfc3339(recorded_at),
    )


@dataclass
class RecordingWriter:
    """Writes answers of live judges as recordings."""

    folder: Path
    written: set[Path] = field(default_factory=set)

    def record(
        self,
        requests: Iterable[JudgeRequest],
        verdicts: Iterable[Verdict],
        *,
        recorded_at: datetime | None = None,
    ) -> None:
        """Write the verdicts that are answers; failures are left out."""
        moment = recorded_at or datetime.now(UTC)
        pairs = zip(requests, verdicts, strict=True)
        self.write(item for pair in pairs if (item := recording_of(*pair, recorded_at=moment)))

    def record_answers(
        self, questions: Iterable[Question], answers: Iterable[Answer], *, recorded_at: datetime | None = None
    ) -> None:
        """Write the answers to questions of other kinds; failures are left out."""
        moment = rfc3339(recorded_at or datetime.now(UTC))
        self.write(
            Recording(
                key=question.key,
                kind=question.kind,
                agent_id=question.agent_id,
                label=question.label,
                subject=question.subject_hash,
                sample=question.sample,
                answer=answer.data,
                model=answer.model,
                prompt_version=answer.prompt_version,
                recorded_at=moment,
            )
            for question, answer in zip(questions, answers, strict=True)
            if answer.data is not None
        )

    def write(self, recordings: Iterable[Recording]) -> None:
        """Add recordings to the folder, replacing those of the same key."""
        self.written.update(write_recordings(self.folder, recordings))


@dataclass(frozen=True)
class RecordingBackend:
    """A backend whose answers are also written to a recordings folder."""

    asking: Backend
    writer: RecordingWriter

    @property
    def name(self) -> str:
        return self.asking.name

    @property
    def live(self) -> bool:
        return self.asking.live

    async def ask(self, questions: Sequence[Question]) -> list[Answer]:
        answers = await self.asking.ask(questions)
        self.writer.record_answers(questions, answers)
        return answers


@dataclass(frozen=True)
class RecordingJudge:
    """A judge whose verdicts are also written to a recordings folder."""

    judging: Judge
    writer: RecordingWriter

    @property
    def name(self) -> str:
        return self.judging.name

    @property
    def live(self) -> bool:
        return self.judging.live

    async def judge(self, requests: Sequence[JudgeRequest]) -> list[Verdict]:
        verdicts = await self.judging.judge(requests)
        self.writer.record(requests, verdicts)
        return verdicts

    @property
    def backend(self) -> RecordingBackend | None:
        """The judge's backend, recorded too; None when it has none."""
        asking: Backend | None = getattr(self.judging, "backend", None)
        return None if asking is None else RecordingBackend(asking, self.writer)
