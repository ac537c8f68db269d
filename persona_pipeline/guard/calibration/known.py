"""What a world knows of judgments: every verdict, recorded or paid for once and kept in the store, and what people say of them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from persona_pipeline.base.documents.json import content_hash
from persona_pipeline.guard.baselines.models import FEWEST_LABELS, DimensionComparison, Measure, People
from persona_pipeline.guard.baselines.spread import judged_share
from persona_pipeline.guard.calibration.calibrate import (
    Judge,
    Rated,
    Usable,
    agreement,
    ballots,
    belief_of,
    inverted_claims,
    rated_by_judge,
    usable,
    within_claims,
)
from persona_pipeline.guard.calibration.measures import HIGHEST, bias, within_scale
from persona_pipeline.guard.calibration.peoples import PeoplesScores, PersonsError, census
from persona_pipeline.guard.labels.files import AskedOf, Label
from persona_pipeline.judging.cache import KeptAnswers
from persona_pipeline.judging.claims import proposition_problem, verdicts_of
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
from persona_pipeline.scoring.results import DimensionEvaluation, PropositionResult
from persona_pipeline.world.models import Trajectory, grouped


@dataclass(frozen=True)
class _Learnt:
    """What a dimension's labels say of one judge, with people's scores by judgment; None: they hold it not applicable."""

    people: People
    scores: PeoplesScores | None
    error: PersonsError
    said: Mapping[str, tuple[float | None, int]]


@dataclass(frozen=True)
class PeoplesLabels:
    """The labels of a world beside its judges' verdicts.

    ``labels_hash``: of those that are used; "" where no person labelled anything. ``rated``: what is labelled, by the judge's
    model and prompt version and by dimension.
    """

    labels_hash: str = ""
    rated: Sequence[tuple[str, str, str, Sequence[Rated]]] = ()

    def of(self, judged_by: tuple[str, str], agent_id: str, item: DimensionEvaluation) -> People | None:
        """Return what people say of a dimension of an agent; None where they labelled nothing at all.

        ``judged_by``: model and prompt version.
        """
        if not self.labels_hash:
            return None
        learnt = self._by.get((*judged_by, item.dimension))
        if learnt is None:
            return People(belief="unknown", missing=FEWEST_LABELS)
        return learnt.people.model_copy(update=_peoples_score(learnt, agent_id, item))

    @cached_property
    def _by(self) -> Mapping[tuple[str, str, str], _Learnt]:
        return {(model, prompt, dimension): _learnt(own) for model, prompt, dimension, own in self.rated}


def in_peoples_points(item: DimensionComparison, share: float) -> People | None:
    """Return what people say of a comparison, its change as they would see it: the judged part over the judge's slope.

    ``share``: part (0-1) of the dimension's score that is judged.
    """
    people, slope = item.people, item.people.slope if item.people else Measure()
    if people is None or people.belief != "believed" or not slope.is_above_zero or item.delta is None:
        return people
    if slope.value is None or slope.low is None:
        return people
    change = item.delta * (share / slope.value + 1 - share)
    low, high = item.interval or (item.delta, item.delta)
    unsure = abs(item.delta) * share * (slope.value - slope.low) / slope.value**2
    half = math.hypot((high - low) / 2 * (share / slope.value + 1 - share), unsure)
    least, most = people.interval or (0.0, HIGHEST)
    if change + half < least - HIGHEST or change - half > most:
        # The scale is too short for it: so far down the judge's slope is another.
        return people
    change, low, high = (min(max(number, least - HIGHEST), most) for number in (change, change - half, change + half))
    return people.model_copy(update={"delta": change, "delta_interval": (low, high)})


def _learnt(rated: Sequence[Rated]) -> _Learnt:
    both = [(item, item.judge, item.peoples) for item in rated]
    scored = [(item, judge, people) for item, judge, people in both if judge is not None and people is not None]
    rank = agreement((item.judge, item.peoples) for item in rated if item.people).rank
    number, low, high = len(scored), rank.low, rank.high
    judged = [item.oriented(judge) for item, judge, _ in scored]
    peoples = [item.oriented(people) for item, _, people in scored]
    error = PersonsError.learnt([item.scores for item in rated])
    scores = None
    if number >= FEWEST_LABELS:
        agents, raters = [item.agent_id for item, *_ in scored], [len(item.scores) for item, *_ in scored]
        scores = PeoplesScores.learnt(judged, peoples, agents, raters, error)
    told = People(
        belief=belief_of(number, rank, within_claims(rated)),
        labels=number,
        missing=max(0, FEWEST_LABELS - number),
        rank=rank.value,
        rank_interval=(low, high) if low is not None and high is not None else None,
        bias=bias(judged, peoples),
        slope=scores.slope if scores else Measure(),
    )
    said: dict[str, tuple[float | None, int]] = {item.key: (None, 0) for item in rated if item.people}
    said |= {item.key: (people, len(item.scores)) for (item, *_), people in zip(scored, peoples, strict=True)}
    return _Learnt(told, scores, error, said)


# An interval of so many points leaves nearly the whole scale open, and no score is printed.
_OPEN = 8.0


def _peoples_score(learnt: _Learnt, agent_id: str, item: DimensionEvaluation) -> dict[str, object]:
    """Return ``score``, ``interval``, ``complete`` and ``as_far``: the judged part as people would have it."""
    judged_rows = [row for row in item.propositions.values() if not row.algorithmic and row.score is not None]
    # A judgment of one context that people labelled is known.
    known = [(row, learnt.said.get(row.keys[0]) if row.keys and not row.parts else None) for row in judged_rows]
    known = [(row, own) for row, own in known if own is None or own[0] is not None]
    rows = [row for row, _ in known]
    weights = [row.weight for row in rows]
    oriented = [_oriented(row) for row in rows]
    labels, raters = [own and own[0] for _, own in known], [own[1] if own else 1 for _, own in known]
    complete = all(own is not None for _, own in known)
    if item.score is None or not sum(weights) or not (complete or learnt.scores):
        return {}
    if learnt.scores:
        told = learnt.scores.mean(agent_id, oriented, labels, weights, raters)
    else:
        told = census([label or 0.0 for label in labels], raters, weights, learnt.error)
    if told.value is None or told.low is None or told.high is None or told.high - told.low > _OPEN:
        return {}
    total = sum(weights)
    judged = sum(row.score * weight for row, weight in zip(rows, weights, strict=True) if row.score is not None) / total
    before = sum(value * weight for value, weight in zip(oriented, weights, strict=True)) / total
    # Hard mode lowers what the judge gave below 9; what people give is lowered as much.
    hard = judged / before if before > 0 else 1.0
    share = judged_share(item)
    found = (item.score + share * (value * hard - judged) for value in (told.value, told.low, told.high))
    score, low, high = map(within_scale, found)
    as_far = learnt.scores.as_far(told.value) if learnt.scores and not complete else None
    found = {"score": score, "interval": (low, high), "complete": complete, "as_far": as_far}
    return {**found, "missing": 0} if complete else found


def _oriented(row: PropositionResult) -> float:
    raw = row.raw if row.raw is not None else row.score or 0.0
    return HIGHEST - raw if row.inverted else raw


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
        return rated_by_judge(judgments, ballots(used.labels), inverted_claims(asked))

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
        for own in keys:
            said: list[Answer] = []
            for key in own:
                recording = self._recorded.get(key)
                if recording is not None:
                    said.append(Answer(recording.data, model=recording.model, prompt_version=recording.prompt_version))
                # What --record wrote stands in both.
                stored = (rows[row] for row in self._keys.get(key, ()) if row in rows)
                said += [item for item in stored if recording is None or item != said[-1]]
            found.append(said)
        return found

    def _rows(self, wanted: Iterable[str]) -> dict[str, Answer]:
        rows = self.kept.answers(list(wanted)) if self.kept else ()
        return {key: Answer(data, model=model, prompt_version=prompt) for key, data, model, prompt in rows}


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
    return PeoplesLabels(labels_hash(used), rated)


def labels_hash(used: Usable) -> str:
    """Return the SHA-256 of what people say, whatever the order; "" of nothing."""
    said = sorted((*label.identity, label.score) for label in used.labels if label.is_persons)
    return content_hash(said) if said else ""


def _verdicts(request: JudgeRequest, said: Iterable[Answer]) -> list[Verdict]:
    return [
        verdicts_of([request], item)[0]
        for item in said
        if item.data is not None and proposition_problem(item.data, [request.proposition_id]) is None
    ]
