"""Every verdict a world knows, by what was judged: recorded, or paid for once and kept in the store."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from persona_pipeline.judging.cache import unpack_answer
from persona_pipeline.judging.claims import proposition_problem, verdicts_of
from persona_pipeline.judging.open import RECORDINGS
from persona_pipeline.judging.recordings import Recording, load_recordings
from persona_pipeline.judging.verdict import (
    PROPOSITION,
    Answer,
    JudgeRequest,
    Verdict,
    is_unsupported,
    recording_key,
    shown_subject,
)
from persona_pipeline.labels import Label
from persona_pipeline.store import Store, tables
from persona_pipeline.world import Trajectory, World

_JUDGMENTS = tables.judgments
# Bound parameters of one statement: SQLite takes 32,766, older builds 999.
_CHUNK = 500


@dataclass(frozen=True)
class _Said:
    data: Mapping[str, Any]
    model: str | None
    prompt_version: str | None


@dataclass(frozen=True)
class KnownVerdicts:
    """The verdicts of a world, of all judges that were ever asked. Nobody is asked.

    Attributes:
        root: the world's folder.
        store: None: what is recorded is all that is known.
    """

    root: Path
    store: Store | None

    @classmethod
    def of(cls, world: World) -> "KnownVerdicts":
        """Return those of an open world."""
        return cls(world.root, world.store)

    def on(self, requests: Sequence[JudgeRequest]) -> list[list[Verdict]]:
        """Return, for each request, the answers to it and its repeats that stand on the transcript, with model and prompt version.

        Failures are in none.

        Raises:
            ConfigError: the world's recordings are not valid.
        """
        said = self._said([request.subject for request in requests])
        return [
            [verdict for verdict in _verdicts(request, own) if not is_unsupported(verdict)]
            for request, own in zip(requests, said, strict=True)
        ]

    def on_labels(self, labels: Sequence[Label]) -> list[list[Verdict]]:
        """Return, for each label, the answers to what it is of. No quote is checked: its transcript need not be at hand.

        Raises:
            ConfigError: the world's recordings are not valid.
        """
        said = self._said([shown_subject(label) for label in labels])
        return [
            _verdicts(JudgeRequest(label.dimension, label.proposition_id, label.claim, Trajectory(())), own)
            for label, own in zip(labels, said, strict=True)
        ]

    def knows(self, key: str) -> bool:
        """Whether there is a verdict on a judgment, by the key of its first sample.

        Raises:
            ConfigError: the world's recordings are not valid.
        """
        return key in self._recorded or key in self._kept

    @cached_property
    def _recorded(self) -> Mapping[str, Recording]:
        return load_recordings(self.root / RECORDINGS)

    @cached_property
    def _kept(self) -> Mapping[str, Sequence[str]]:
        """The rows of the store by what they judged."""
        found: dict[str, list[str]] = defaultdict(list)
        if self.store is None:
            return {}
        query = sa.select(_JUDGMENTS.c.subject_key, _JUDGMENTS.c.key).where(_JUDGMENTS.c.kind == PROPOSITION)
        with self.store.connect() as connection:
            for subject_key, key in connection.execute(query.order_by(_JUDGMENTS.c.created_at, _JUDGMENTS.c.key)):
                found[subject_key].append(key)
        return dict(found)

    def _said(self, subjects: Sequence[Mapping[str, Any]]) -> list[list[_Said]]:
        keys = [list(self._keys_of(subject)) for subject in subjects]
        rows = self._rows(row for own in keys for key in own for row in self._kept.get(key, ()))
        found = []
        for own in keys:
            said: list[_Said] = []
            for key in own:
                recording = self._recorded.get(key)
                if recording is not None:
                    said.append(_Said(recording.data, recording.model, recording.prompt_version))
                # What --record wrote stands in both.
                stored = (rows[row] for row in self._kept.get(key, ()) if row in rows)
                said += [item for item in stored if recording is None or item != said[-1]]
            found.append(said)
        return found

    def _keys_of(self, subject: Mapping[str, Any]) -> Iterable[str]:
        sample = 0
        while self.knows(key := recording_key(subject, sample)):
            yield key
            sample += 1

    def _rows(self, wanted: Iterable[str]) -> dict[str, _Said]:
        keys, found = list(wanted), {}
        if self.store is None:
            return found
        columns = (
            _JUDGMENTS.c.key,
            sa.cast(_JUDGMENTS.c.answer, sa.Text),
            _JUDGMENTS.c.model,
            _JUDGMENTS.c.prompt_version,
        )
        with self.store.connect() as connection:
            for start in range(0, len(keys), _CHUNK):
                query = sa.select(*columns).where(_JUDGMENTS.c.key.in_(keys[start : start + _CHUNK]))
                for key, answer, model, prompt_version in connection.execute(query):
                    try:
                        found[key] = _Said(unpack_answer(answer), model, prompt_version)
                    except ValueError:
                        # Damaged: the cache says so when it meets it.
                        continue
        return found


def _verdicts(request: JudgeRequest, said: Iterable[_Said]) -> list[Verdict]:
    return [
        verdicts_of([request], Answer(item.data, model=item.model, prompt_version=item.prompt_version))[0]
        for item in said
        if proposition_problem(item.data, [request.proposition_id]) is None
    ]
