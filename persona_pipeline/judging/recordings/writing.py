"""Recording: answers and failures of live judges are written as they come, and signed where a secret is set."""

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from persona_pipeline.base.documents.json import rfc3339, write_if_changed
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.settings import LIVE_COVERAGE
from persona_pipeline.judging.recordings.line import Recording, in_one_line
from persona_pipeline.judging.recordings.replay import load_recording_file, recording_files
from persona_pipeline.judging.verdict import Answer, JudgeRequest, Question, Unscored, Verdict
from persona_pipeline.world.models import grouped


def recording_of(
    request: JudgeRequest, verdict: Verdict, *, recorded_at: datetime, min_coverage: float | None = None
) -> Recording | None:
    """Return the recording of a verdict, None for a missing recording. Quotes get local message ids."""
    if verdict.unscored is Unscored.UNRECORDED:
        return None
    local = {entry.message_id: f"m{number}" for number, entry in enumerate(request.trajectory.entries, start=1)}
    return Recording(
        key=request.key,
        **request.subject,
        sample=request.sample,
        score=verdict.score,
        reasoning=verdict.reasoning,
        evidence=tuple((local.get(item.message_id or "", ""), item.quote) for item in verdict.evidence),
        ideas=verdict.ideas,
        **_outcome(verdict, min_coverage, recorded_at),
    )


def _outcome(said: Verdict | Answer, min_coverage: float | None, moment: datetime) -> dict[str, Any]:
    failed = said.unscored is not None and not said.unscored.is_answer
    return {
        "unscored": said.unscored,
        "detail": in_one_line(said.detail) if failed else "",
        "min_coverage": min_coverage if failed else None,
        "model": said.model,
        "prompt_version": said.prompt_version,
        "recorded_at": rfc3339(moment),
    }


@dataclass
class RecordingWriter:
    """Writes answers and failures of live judges as recordings.

    Attributes:
        min_coverage: the share (0-1) of judgments that the run asks for.
        secret: recordings are signed with it; None: they are not signed.
        without: agents whose recordings are not read, as nothing is asked about them.
        asked: the keys of all judgments that were written.
        failed: keys without an answer so far.
    """

    folder: Path
    min_coverage: float = LIVE_COVERAGE
    secret: bytes | None = field(default=None, repr=False)
    without: Collection[str] = ()
    asked: set[str] = field(default_factory=set)
    failed: dict[str, tuple[JudgeRequest, Unscored]] = field(default_factory=dict)

    def record(
        self, requests: Iterable[JudgeRequest], verdicts: Iterable[Verdict], *, recorded_at: datetime | None = None
    ) -> None:
        """Write verdicts."""
        moment, recordings = recorded_at or datetime.now(UTC), []
        for request, verdict in zip(requests, verdicts, strict=True):
            recording = recording_of(request, verdict, recorded_at=moment, min_coverage=self.min_coverage)
            if recording is None:
                continue
            recordings.append(recording)
            self.asked.add(request.key)
            self.failed.pop(request.key, None)
            if verdict.unscored and verdict.has_failed:
                self.failed[request.key] = (request, verdict.unscored)
        self.write(recordings)

    def record_answers(self, questions: Iterable[Question], answers: Iterable[Answer]) -> None:
        """Write the answers to questions of other kinds."""
        self.write(
            Recording(
                key=question.key,
                kind=question.kind,
                agent_id=question.agent_id,
                label=question.label,
                subject=question.subject_hash,
                sample=question.sample,
                answer=None if answer.data is None else dict(answer.data),
                **_outcome(answer, self.min_coverage, datetime.now(UTC)),
            )
            for question, answer in zip(questions, answers, strict=True)
            if answer.unscored is None or answer.unscored.is_failed_call
        )

    def write(self, recordings: Iterable[Recording]) -> list[Path]:
        """Add recordings to their files, replacing those of the same key wherever they are; return the files that changed.

        An answer replaces a failure. A failure is kept next to an earlier answer and takes precedence. Files are sorted and
        replaced atomically; writers wait for one another. Old lines keep their signature. ConfigError: a file does not load.
        """
        from filelock import FileLock

        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / ".lock"):
            by_file = grouped(recordings, lambda item: self._places.get(item.key, self.folder / item.file))
            return [path for path, added in sorted(by_file.items()) if self._write_file(path, added)]

    def _write_file(self, path: Path, added: Sequence[Recording]) -> bool:
        """Return whether the file changed."""
        for left in path.parent.glob(f".{path.name}.*"):
            # Half written by a process that was killed; others wait for the lock.
            left.unlink()
        known = load_recording_file(path, self.secret, unsigned=True) if path.exists() else []
        merged = {(item.key, item.has_failed): item for item in known}
        for item in added:
            if not item.has_failed:
                merged.pop((item.key, True), None)
            merged[item.key, item.has_failed] = item
        ordered = sorted(merged.items(), key=lambda row: (row[1].proposition_id, row[1].claim, row[1].label, *row[0]))
        # Only new lines are signed here.
        new = {(item.key, item.has_failed) for item in added}
        return write_if_changed(
            path, "".join(item.to_line(self.secret if name in new else None) for name, item in ordered)
        )

    @cached_property
    def _places(self) -> dict[str, Path]:
        """The file of each recording, by key: a person may have moved one. Files that do not load are left alone."""
        found: dict[str, Path] = {}
        for path in recording_files(self.folder, self.without):
            with suppress(ConfigError):
                found |= {item.key: path for item in load_recording_file(path, self.secret, unsigned=True)}
        return found
