"""Replay: judgments come from recordings, by content, with no network. What is not recorded is unscored."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from persona_pipeline.judging.answers import checked_quote, no_entries
from persona_pipeline.judging.injection import suspicious_entries
from persona_pipeline.judging.questions import Answer, Backend, Question
from persona_pipeline.judging.recording import in_one_line
from persona_pipeline.judging.recordings import (
    PROPOSITION,
    Recording,
    load_recordings,
    load_with_failures,
    signing_secret,
    write_recordings,
)
from persona_pipeline.judging.support import is_unsupported, unsupported
from persona_pipeline.judging.verdict import Judge, JudgeLayer, JudgeRequest, Unscored, Verdict
from persona_pipeline.settings import get_settings
from persona_pipeline.world.canonical import rfc3339


class RecordedBackend:
    """Answers questions from the recordings of a folder, loaded when it is made.

    Args:
        also: further folders; what the first one answers is taken from there.

    Attributes:
        recordings: the answers, by key.
        failures: what was asked for and not answered, by key.

    Raises:
        ConfigError: a folder holds lines that are no recordings.
    """

    name = "recorded"
    live = False

    def __init__(self, folder: Path, also: Sequence[Path] = ()) -> None:
        self.folder = folder
        answers, self.failures = load_with_failures(folder)
        self.recordings = {key: item for key, item in answers.items() if key not in self.failures}
        for further in also:
            self.recordings = load_recordings(further) | self.recordings
        self.failures = {key: item for key, item in self.failures.items() if key not in self.recordings}
        self.replayed: set[str] = set()

    async def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """Return what is recorded; the rest is ``unscored(unrecorded)``. Verdicts: see ``RecordedJudge``."""
        return [self._answer(question) for question in questions]

    def find(self, key: str) -> Recording | None:
        """Return the recorded answer of a key and remember that it was asked for."""
        self.replayed.add(key)
        return self.recordings.get(key)

    def find_failure(self, key: str) -> Recording | None:
        """Return that a key was asked for and not answered, and remember that it was asked for."""
        self.replayed.add(key)
        return self.failures.get(key)

    def unused(self) -> list[Recording]:
        """Return what nothing has asked for so far: stale, or of another window or agent."""
        known = self.recordings | self.failures
        return [recording for key, recording in known.items() if key not in self.replayed]

    def _answer(self, question: Question) -> Answer:
        recording = self.find(question.key)
        if failure := self.find_failure(question.key):
            return Answer(
                unscored=failure.unscored,
                detail=f"recorded as failed: {failure.detail or failure.unscored}; run it with a live judge and --record",
                model=failure.model,
                prompt_version=failure.prompt_version,
            )
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

    def has_recorded(self, requests: Iterable[JudgeRequest], *, failures: bool = False) -> bool:
        """Return whether there are requests and all of them are answered in recordings.

        Args:
            failures: what was asked for and failed counts too.
        """
        known = (self.backend.recordings, self.backend.failures if failures else {})
        found = [any(request.key in some for some in known) for request in requests]
        return bool(found) and all(found)

    def _verdict(self, request: JudgeRequest) -> Verdict:
        if not request.trajectory.entries:
            return no_entries(request)
        recording = self.backend.find(request.key)
        if failure := self.backend.find_failure(request.key):
            return _failed(request, failure)
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


def _failed(request: JudgeRequest, failure: Recording) -> Verdict:
    return Verdict(
        request.proposition_id,
        unscored=failure.unscored,
        reasoning=failure.reasoning,
        detail=failure.detail,
        min_coverage=_asked_coverage(failure),
        model=failure.model,
        prompt_version=failure.prompt_version,
        injection_suspected=bool(suspicious_entries(request.trajectory)),
    )


def _asked_coverage(failure: Recording) -> float:
    """Return the coverage asked for when it failed. Whoever can write a line without signing it asks for no less than we do."""
    asked = 1.0 if failure.min_coverage is None else failure.min_coverage
    return asked if signing_secret() else max(asked, get_settings().min_coverage_live)


def recording_of(
    request: JudgeRequest, verdict: Verdict, *, recorded_at: datetime, min_coverage: float | None = None
) -> Recording | None:
    """Return the recording of a verdict, None of one that is itself of a recording. Quotes go under local message ids.

    Args:
        min_coverage: stands with a failure, so that a replay asks for as much.
    """
    if verdict.unscored is Unscored.UNRECORDED:
        return None
    local = {entry.message_id: f"m{number}" for number, entry in enumerate(request.trajectory.entries, start=1)}
    return Recording(
        key=request.key,
        **request.subject,
        sample=request.sample,
        score=verdict.score,
        unscored=verdict.unscored,
        detail=in_one_line(verdict.detail) if verdict.has_failed else "",
        min_coverage=min_coverage if verdict.has_failed else None,
        reasoning=verdict.reasoning,
        evidence=tuple((local.get(item.message_id or "", ""), item.quote) for item in verdict.evidence),
        ideas=verdict.ideas,
        model=verdict.model,
        prompt_version=verdict.prompt_version,
        recorded_at=rfc3339(recorded_at),
    )


@dataclass
class RecordingWriter:
    """Writes what live judges say as recordings: answers, and what failed with its reason.

    Attributes:
        min_coverage: the share (0-1) of judgments that the run asks for; None: that of the settings for live judges.
        asked: the keys of all judgments that were written.
        failed: those of them that nobody answered so far.
    """

    folder: Path
    min_coverage: float | None = None
    written: set[Path] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)
    failed: dict[str, tuple[JudgeRequest, Unscored]] = field(default_factory=dict)

    def record(
        self,
        requests: Iterable[JudgeRequest],
        verdicts: Iterable[Verdict],
        *,
        recorded_at: datetime | None = None,
    ) -> None:
        """Write verdicts."""
        moment, recordings = recorded_at or datetime.now(UTC), []
        for request, verdict in zip(requests, verdicts, strict=True):
            recording = recording_of(request, verdict, recorded_at=moment, min_coverage=self._coverage)
            if recording is None:
                continue
            recordings.append(recording)
            self.asked.add(request.key)
            self.failed.pop(request.key, None)
            if verdict.unscored and verdict.has_failed:
                self.failed[request.key] = (request, verdict.unscored)
        self.write(recordings)

    def record_answers(
        self, questions: Iterable[Question], answers: Iterable[Answer], *, recorded_at: datetime | None = None
    ) -> None:
        """Write the answers to questions of other kinds."""
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
                unscored=answer.unscored,
                detail=in_one_line(answer.detail) if answer.unscored else "",
                min_coverage=self._coverage if answer.unscored else None,
                model=answer.model,
                prompt_version=answer.prompt_version,
                recorded_at=moment,
            )
            for question, answer in zip(questions, answers, strict=True)
            if answer.unscored is None or answer.unscored.is_failed_call
        )

    @property
    def _coverage(self) -> float:
        return get_settings().min_coverage_live if self.min_coverage is None else self.min_coverage

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
class RecordingJudge(JudgeLayer):
    """A judge whose verdicts are also written to a recordings folder."""

    judging: Judge
    writer: RecordingWriter

    async def judge(self, requests: Sequence[JudgeRequest]) -> list[Verdict]:
        verdicts = await self.judging.judge(requests)
        self.writer.record(requests, verdicts)
        return verdicts

    @property
    def backend(self) -> RecordingBackend | None:
        """The judge's backend, recorded too; None when it has none."""
        asking: Backend | None = getattr(self.judging, "backend", None)
        return None if asking is None else RecordingBackend(asking, self.writer)
