"""Replay: judgments come from recordings, by content, without a network. Missing ones are unscored."""

import os
import random
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from persona_pipeline.base.documents.json import write_if_changed
from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.base.settings import Settings, from_environment
from persona_pipeline.judging.claims import verdicts_of
from persona_pipeline.judging.injection import suspicious_entries
from persona_pipeline.judging.recordings.line import Recording, read_recordings
from persona_pipeline.judging.verdict import (
    PROPOSITION,
    Answer,
    Judge,
    JudgeRequest,
    Question,
    Unscored,
    Verdict,
    is_unsupported,
    unsupported,
)
from persona_pipeline.world.models import grouped


class RecordedBackend:
    """Answers questions from the recordings of a folder, loaded when it is made.

    Args:
        also: further folders; the first folder with an answer counts.
        settings: with a secret, every recording must be signed with it; without one, recorded failures ask for at least the
            coverage of these settings. None: the environment's.
        without: agents whose recordings are not read.

    Attributes:
        recordings: the answers, by key.
        failures: recorded failures, by key.
        claims: requests about claims, if a caller collects them; None: they are not collected.

    Raises:
        ConfigError: a folder holds lines that are not recordings.
    """

    name = "recorded"
    live = False

    def __init__(
        self, folder: Path, also: Sequence[Path] = (), settings: Settings | None = None, without: Collection[str] = ()
    ) -> None:
        self.folder = folder
        settings = settings or from_environment(Settings)
        secret, live = settings.signing_secret, settings.min_coverage_live
        # An unsigned line can be written by others, so it may not lower our coverage.
        self._least_coverage = 0.0 if secret else live
        answers, self.failures = load_with_failures(folder, secret, without)
        self.recordings = {key: item for key, item in answers.items() if key not in self.failures}
        for further in also:
            self.recordings = load_with_failures(further, secret, without)[0] | self.recordings
        self.failures = {key: item for key, item in self.failures.items() if key not in self.recordings}
        self.claims: list[JudgeRequest] | None = None
        self.replayed: set[str] = set()

    async def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """Return recorded answers to questions that are not about claims; the rest is ``unscored(unrecorded)``."""
        return [self._answer(question) for question in questions]

    async def judge(self, requests: Sequence[JudgeRequest]) -> list[Verdict]:
        """Return recorded verdicts; the rest is ``unscored(unrecorded)``."""
        return [self._verdict(request) for request in requests]

    def find(self, key: str) -> tuple[Recording | None, Recording | None]:
        """Return the recorded answer or failure of a key, and note that it was asked for."""
        self.replayed.add(key)
        return self.recordings.get(key), self.failures.get(key)

    def unused(self) -> list[Recording]:
        """Return what nothing has asked for so far: stale, or of another window or agent."""
        known = self.recordings | self.failures
        return [recording for key, recording in known.items() if key not in self.replayed]

    def has_recorded(self, requests: Iterable[JudgeRequest], *, failures: bool = False) -> bool:
        """Return whether there are requests and recordings answer them all; ``failures``: to have been asked for counts too."""
        known = (self.recordings, self.failures if failures else {})
        found = [not request.trajectory.entries or any(request.key in some for some in known) for request in requests]
        return bool(found) and all(found)

    def _answer(self, question: Question) -> Answer:
        recording, failure = self.find(question.key)
        if failure:
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
        if problem := question.problem(recording.data):
            detail = f"recording of {question.label}: {problem}"
            return Answer(unscored=Unscored.INVALID_OUTPUT, detail=detail)
        return recording.as_answer

    def _verdict(self, request: JudgeRequest) -> Verdict:
        if self.claims is not None:
            self.claims.append(request)
        recording, failure = self.find(request.key)
        if failure:
            return Verdict(
                request.proposition_id,
                unscored=failure.unscored,
                reasoning=failure.reasoning,
                detail=failure.detail,
                min_coverage=max(self._least_coverage, 1.0 if failure.min_coverage is None else failure.min_coverage),
                model=failure.model,
                prompt_version=failure.prompt_version,
                injection_suspected=bool(suspicious_entries(request.trajectory)),
            )
        if recording is None or recording.kind != PROPOSITION:
            return Verdict(request.proposition_id, unscored=Unscored.UNRECORDED, detail=self._why_not(request))
        (verdict,) = verdicts_of([request], recording.as_answer)
        if is_unsupported(verdict):
            verdict = unsupported(verdict, "none of its recorded quotes stands in the transcript; record it again")
        return verdict

    def _why_not(self, request: JudgeRequest) -> str:
        """Return how a judgment differs from the recordings of its claim."""
        subject = request.subject
        known = self._recorded_claims.get((request.agent_id, request.dimension, request.proposition_id))
        if not known:
            return "this claim was never judged"
        same = [item for item in known if item.trajectory == subject["trajectory"]]
        if not same:
            return "these messages were never judged"
        samples = [item.sample for item in same if (item.claim, item.persona) == (request.claim, subject["persona"])]
        if samples:
            return f"only {len(samples)} of its {request.sample + 1} samples are recorded"
        edited = [name for name in ("claim", "persona") if subject[name] not in {getattr(i, name) for i in same}]
        return f"{' and '.join(edited) or 'claim or persona'} changed since it was judged"

    @cached_property
    def _recorded_claims(self) -> dict[tuple[str, str, str], list[Recording]]:
        claims = (item for item in self.recordings.values() if item.kind == PROPOSITION)
        return grouped(claims, lambda item: (item.agent_id, item.dimension, item.proposition_id))


def load_recordings(folder: Path, secret: bytes | None) -> dict[str, Recording]:
    """Return the answers recorded in a folder at any depth, by key; see ``load_with_failures``. A missing folder has none."""
    return load_with_failures(folder, secret)[0]


def load_with_failures(
    folder: Path, secret: bytes | None, without: Collection[str] = ()
) -> tuple[dict[str, Recording], dict[str, Recording]]:
    """Return the answers recorded in a folder, and apart from them what failed when it was last asked, both by key.

    A key may be in both: then it was asked again, as with ``--fresh``, and failed. With a ``secret`` every line must be signed
    with it. Subfolders named in ``without`` are not read. ``ConfigError``: lines that are not recordings or not signed, and keys
    recorded twice with different answers, each with its place.
    """
    answers: dict[str, Recording] = {}
    failures: dict[str, Recording] = {}
    places: dict[str, str] = {}
    problems: list[Problem] = []
    for path in recording_files(folder, without):
        for number, recording in read_recordings(path, problems, secret):
            if recording.has_failed:
                failures.setdefault(recording.key, recording)
                continue
            earlier = answers.setdefault(recording.key, recording)
            place = places.setdefault(recording.key, f"{path}:{number}")
            if earlier.judged != recording.judged:
                text = f"this judgment is recorded with another answer at {place}; delete one of the two"
                problems.append(Problem(text, str(path), number))
    if problems:
        raise ConfigError(problems)
    return answers, failures


def recording_files(folder: Path, without: Collection[str] = ()) -> list[Path]:
    """Return the files of recordings in a folder at any depth, without the subfolders named in ``without``."""
    # In a world of thousands even the names of all files take longer than an agent's evaluation.
    with suppress(FileNotFoundError, NotADirectoryError, PermissionError), os.scandir(folder) as entries:
        inside = [folder / entry.name for entry in entries if entry.name not in without and not entry.is_symlink()]
        return sorted([*folder.glob("*.jsonl"), *(path for each in inside for path in each.glob("**/*.jsonl"))])
    return []


def load_recording_file(path: Path, secret: bytes | None, *, unsigned: bool = False) -> list[Recording]:
    """Return the recordings of a file, failures included.

    ConfigError: lines that are not recordings, or not signed with ``secret`` unless they may be ``unsigned``, each with its place.
    """
    problems: list[Problem] = []
    found = read_recordings(path, problems, secret, unsigned=unsigned)
    if problems:
        raise ConfigError(problems)
    return [recording for _, recording in found]


def sign_recordings(folder: Path, secret: bytes) -> list[Path]:
    """Sign every recording of a folder, and return the files that changed; ConfigError: a file does not load."""
    from filelock import FileLock

    with FileLock(folder / ".lock"):
        loaded = {path: load_recording_file(path, None) for path in sorted(folder.glob("**/*.jsonl"))}
        texts = {path: "".join(item.to_line(secret) for item in items) for path, items in loaded.items()}
        return [path for path, text in texts.items() if write_if_changed(path, text)]


# Honest judges differ by about a point; on the scale 0-9 this much apart is another opinion.
FAR_APART = 3


@dataclass(frozen=True)
class Rejudged:
    """A recorded verdict and the live judge's verdict on the same request."""

    request: JudgeRequest
    recorded: Verdict
    live: Verdict

    @property
    def disagrees(self) -> bool:
        """Whether the scores are three points apart or more, or one is an answer of another sort. A failed call says nothing."""
        old, new = self.recorded, self.live
        if old.score is None or new.score is None:
            return not new.has_failed and (old.unscored, old.score) != (new.unscored, new.score)
        return abs(old.score - new.score) >= FAR_APART


async def rejudge(
    requests: Sequence[JudgeRequest], recorded: Judge, live: Judge, *, size: int, seed: int
) -> tuple[list[Rejudged], int]:
    """Judge a random sample of at most ``size`` recordings again. Take another ``seed`` every night.

    Return the sample, and the number of recordings that it was drawn from.

    The requests are what a replay asks for: recordings nothing asks for cannot be judged again, since they hold no transcript.
    """
    unique = list({request.key: request for request in requests if request.trajectory.entries}.values())
    known = [
        (request, verdict)
        for request, verdict in zip(unique, await recorded.judge(unique), strict=True)
        if not verdict.has_failed or (verdict.unscored is Unscored.UNSUPPORTED and verdict.min_coverage is None)
    ]
    drawn = random.Random(seed).sample(known, min(size, len(known)))
    told = await live.judge([request for request, _ in drawn])
    return [Rejudged(request, old, new) for (request, old), new in zip(drawn, told, strict=True)], len(known)
