"""What a world knows of judgments: every verdict, recorded or paid for once and kept in the store, and what people say of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from persona_pipeline.guard.baselines.models import FEWEST_LABELS, People
from persona_pipeline.guard.calibration.calibrate import (
    Judge,
    Rated,
    Usable,
    belief_of,
    inverted_claims,
    rated_by_judge,
    scores_of_people,
    usable,
    within_claims,
)
from persona_pipeline.guard.calibration.measures import bias, spearman
from persona_pipeline.guard.labels.files import AskedOf, Label
from persona_pipeline.judging.cache import KeptAnswers
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
from persona_pipeline.world.models import Trajectory, grouped


@dataclass(frozen=True)
class PeoplesLabels:
    """The labels of a world beside its judges' verdicts.

    ``rated``: what is labelled, by the judge's model and prompt version and by dimension.
    """

    rated: Sequence[tuple[str, str, str, Sequence[Rated]]] = ()

    def of(self, judged_by: tuple[str, str], dimension: str) -> People | None:
        """Return what people say of a dimension's judge; None where they labelled nothing at all.

        ``judged_by``: model and prompt version.
        """
        if not self.rated:
            return None
        return self._by.get((*judged_by, dimension)) or People(belief="unknown", missing=FEWEST_LABELS)

    @cached_property
    def _by(self) -> Mapping[tuple[str, str, str], People]:
        return {(model, prompt, dimension): _people(own) for model, prompt, dimension, own in self.rated}


def _people(rated: Sequence[Rated]) -> People:
    both = [(item, item.judge, item.peoples) for item in rated]
    scored = [(item, judge, people) for item, judge, people in both if judge is not None and people is not None]
    rank = spearman([judge for _, judge, _ in scored], [people for _, _, people in scored])
    number, low, high = len(scored), rank.low, rank.high
    judged = [item.oriented(judge) for item, judge, _ in scored]
    peoples = [item.oriented(people) for item, _, people in scored]
    return People(
        belief=belief_of(number, rank, within_claims(rated)),
        labels=number,
        missing=max(0, FEWEST_LABELS - number),
        rank=rank.value,
        rank_interval=(low, high) if low is not None and high is not None else None,
        bias=bias(judged, peoples),
    )


@dataclass(frozen=True)
class KnownVerdicts:
    """The verdicts of a world, of all judges that were ever asked. Nobody is asked.

    ``recordings``: the folder of what is recorded; it is read when it is first needed. ``secret``: recordings must be signed with
    it; None: they need not be. ``kept``: what was paid for once; None: what is recorded is all that is known.
    """

    recordings: Path
    secret: bytes | None
    kept: KeptAnswers | None = None

    def on(self, requests: Sequence[JudgeRequest]) -> list[list[Verdict]]:
        """Return, for each request, the answers to it and its repeats that stand on the transcript, with model and prompt version.

        Failures are in none. Raises ``ConfigError``: the world's recordings are not valid.
        """
        said = self._said([request.subject for request in requests])
        return [
            [verdict for verdict in _verdicts(request, own) if not is_unsupported(verdict)]
            for request, own in zip(requests, said, strict=True)
        ]

    def on_labels(self, labels: Sequence[Label]) -> list[list[Verdict]]:
        """Return, for each label, the answers to what it is of. No quote is checked: its transcript need not be at hand."""
        said = self._said([shown_subject(label) for label in labels])
        return [
            _verdicts(JudgeRequest(label.dimension, label.proposition_id, label.claim, Trajectory(())), own)
            for label, own in zip(labels, said, strict=True)
        ]

    def rated(self, used: Usable, asked: AskedOf) -> dict[Judge, list[Rated]]:
        """Return what is labelled as each judge and the labellers see it; ``asked`` says what claims are inverted."""
        first = {label.key: label for label in used.labels}
        verdicts = self.on_labels(list(first.values()))
        judgments = [
            (key, label.agent_id, label.dimension, label.proposition_id, own)
            for (key, label), own in zip(first.items(), verdicts, strict=True)
        ]
        return rated_by_judge(judgments, scores_of_people(used.labels), inverted_claims(asked))

    def knows(self, key: str) -> bool:
        """Whether there is a verdict on a judgment, by the key of its first sample; ConfigError: the recordings are not valid."""
        return key in self._recorded or key in self._keys

    @cached_property
    def _recorded(self) -> Mapping[str, Recording]:
        return load_recordings(self.recordings, self.secret)

    @cached_property
    def _keys(self) -> Mapping[str, Sequence[str]]:
        """The keys of what is kept by what was judged."""
        return self.kept.keys(PROPOSITION) if self.kept else {}

    def _said(self, subjects: Sequence[Mapping[str, Any]]) -> list[list[Answer]]:
        # A judgment that was repeated has a key for each time.
        keys = [list(takewhile(self.knows, (recording_key(subject, n) for n in count()))) for subject in subjects]
        rows = self._rows(row for own in keys for key in own for row in self._keys.get(key, ()))
        found = []
        for own, subject in zip(keys, subjects, strict=True):
            name, said = str(subject["proposition_id"]), list[Answer]()
            for key in own:
                recording = self._recorded.get(key)
                if recording is not None:
                    said.append(Answer(recording.data, model=recording.model, prompt_version=recording.prompt_version))
                # What --record wrote stands in both.
                stored = (_named(rows[row], name) for row in self._keys.get(key, ()) if row in rows)
                said += [item for item in stored if recording is None or item != said[-1]]
            found.append(said)
        return found

    def _rows(self, wanted: Iterable[str]) -> dict[str, Answer]:
        rows = self.kept.answers(list(wanted)) if self.kept else ()
        return {key: Answer(data, model=model, prompt_version=prompt) for key, data, model, prompt in rows}


def _named(answer: Answer, proposition_id: str) -> Answer:
    """Return a stored answer on one claim under the id of its proposition, as recordings have it."""
    if answer.data is None or proposition_problem(answer.data, neutral_ids(1)) is not None:
        return answer
    [item] = answer.data["verdicts"]
    return replace(answer, data={"verdicts": [{**item, "proposition_id": proposition_id}]})


def peoples_labels(labels: Iterable[Label], asked: AskedOf, known: KnownVerdicts) -> PeoplesLabels:
    """Return what people's labels say of the judges that are known to have made the same judgments.

    ConfigError: recordings are not valid.
    """
    people = [label for label in labels if label.is_persons]
    if not people:
        return PeoplesLabels()
    used = usable(people, asked, is_judged=known.knows)
    rated = [
        (model, prompt, dimension, own)
        for (model, prompt), items in known.rated(used, asked).items()
        for dimension, own in grouped(items, lambda item: item.dimension).items()
    ]
    return PeoplesLabels(rated)


def _verdicts(request: JudgeRequest, said: Iterable[Answer]) -> list[Verdict]:
    return [
        verdicts_of([request], item)[0]
        for item in said
        if item.data is not None and proposition_problem(item.data, [request.proposition_id]) is None
    ]
