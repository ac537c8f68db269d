"""All known verdicts of a world: recorded ones, and paid ones in the store."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count, takewhile
from pathlib import Path
from typing import Any, Protocol

from persona_pipeline.judging.cache import JudgmentCache
from persona_pipeline.judging.claims import neutral_ids, proposition_problem, verdicts_of
from persona_pipeline.judging.recordings.replay import Recording, load_recordings
from persona_pipeline.judging.verdict import (
    PROPOSITION,
    Answer,
    JudgeRequest,
    Verdict,
    is_unsupported,
    recording_key,
    shown_subject,
)
from persona_pipeline.world.models import Trajectory


class LabelledJudgment(Protocol):
    """The fields of a label that identify its judgment."""

    @property
    def dimension(self) -> str: ...

    @property
    def proposition_id(self) -> str: ...

    @property
    def claim(self) -> str: ...


@dataclass(frozen=True)
class KnownVerdicts:
    """The verdicts of all judges in a world. Makes no calls.

    ``recordings``: the folder of recordings, read when it is first needed. ``secret``: recordings must be signed with it; None:
    they need not be. ``kept``: paid answers in the store; None: recordings only.
    """

    recordings: Path
    secret: bytes | None
    kept: JudgmentCache | None = None

    def on(self, requests: Sequence[JudgeRequest]) -> list[list[Verdict]]:
        """Return, for each request, the supported answers to it and its repeats, with model and prompt version.

        Failures are in none. Raises ``ConfigError``: the world's recordings are not valid.
        """
        said = self._said([request.subject for request in requests])
        return [
            [verdict for verdict in _verdicts(request, own) if not is_unsupported(verdict)]
            for request, own in zip(requests, said, strict=True)
        ]

    def on_labels(self, labels: Sequence[LabelledJudgment]) -> list[list[Verdict]]:
        """Return, for each label, the answers of its judgment. Quotes are not checked, since the transcript may be missing."""
        said = self._said([shown_subject(label) for label in labels])
        return [
            _verdicts(JudgeRequest(label.dimension, label.proposition_id, label.claim, Trajectory(())), own)
            for label, own in zip(labels, said, strict=True)
        ]

    def knows(self, key: str) -> bool:
        """Whether there is a verdict on a judgment, by the key of its first sample; ConfigError: the recordings are not valid."""
        return key in self._recorded or key in self._keys

    @cached_property
    def _recorded(self) -> Mapping[str, Recording]:
        return load_recordings(self.recordings, self.secret)

    @cached_property
    def _keys(self) -> Mapping[str, Sequence[str]]:
        """Keys of stored answers by the judged subject."""
        return self.kept.keys(PROPOSITION) if self.kept else {}

    def _said(self, subjects: Sequence[Mapping[str, Any]]) -> list[list[Answer]]:
        # A judgment that was repeated has a key for each time.
        keys = [list(takewhile(self.knows, (recording_key(subject, n) for n in count()))) for subject in subjects]
        wanted = [row for own in keys for key in own for row in self._keys.get(key, ())]
        rows = dict(self.kept.answers(wanted)) if self.kept else {}
        found = []
        for own, subject in zip(keys, subjects, strict=True):
            name, said = str(subject["proposition_id"]), list[Answer]()
            for key in own:
                recording = self._recorded.get(key)
                if recording is not None:
                    said.append(recording.as_answer)
                # Answers written by --record are in both places.
                stored = (_named(rows[row], name) for row in self._keys.get(key, ()) if row in rows)
                said += [item for item in stored if recording is None or item != said[-1]]
            found.append(said)
        return found


def _named(answer: Answer, proposition_id: str) -> Answer:
    """Return a stored answer on one claim under the id of its proposition, as recordings have it."""
    if answer.data is None or proposition_problem(answer.data, neutral_ids(1)) is not None:
        return answer
    [item] = answer.data["verdicts"]
    return replace(answer, data={"verdicts": [{**item, "proposition_id": proposition_id}]})


def _verdicts(request: JudgeRequest, said: Iterable[Answer]) -> list[Verdict]:
    return [
        verdicts_of([request], item)[0]
        for item in said
        if item.data is not None and proposition_problem(item.data, [request.proposition_id]) is None
    ]
