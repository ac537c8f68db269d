"""Agreement of judges with people: labels against verdicts, on messages and in points on claims."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, stdev

from pydantic import BaseModel, Field

from persona_pipeline.base.shares import wilson
from persona_pipeline.guard.baselines.models import Measure
from persona_pipeline.guard.baselines.statistics import special
from persona_pipeline.guard.labels.files import Label, LabelledClaims
from persona_pipeline.judging.verdict import Verdict
from persona_pipeline.scoring.messages.verdicts import Role
from persona_pipeline.scoring.results import HIGHEST
from persona_pipeline.world.models import grouped

# Model and prompt version.
Judge = tuple[str, str]
_MORE = 10


class DimensionCalibration(BaseModel, extra="forbid", frozen=True):
    """A judge's scores on a dimension against people's.

    Attributes:
        labelled: number of judgments that both scored; ``people``: names of the labellers.
        bias: judge - people in points, claims turned so that more is better: above zero the judge is milder.
        with_ten_more: width of the bias's interval with ten more labels, in points; None: it has no interval.
    """

    dimension: str
    judge_model: str
    prompt_version: str
    labelled: int
    people: list[str]
    bias: Measure
    with_ten_more: float | None = None


class MessageCalibration(BaseModel, extra="forbid", frozen=True):
    """A judge's verdicts on messages against people's.

    Attributes:
        people: names of the labellers.
        compared: messages that both call in or out of character; ``agreed``: with the same verdict.
        false_alarms: messages that the judge calls out and people in; ``kept_in``: all that people call in.
        misses: messages that the judge calls in and people out; ``put_out``: all that people call out.
        share: of the agreement, 0-1, with Wilson's interval; ``with_ten_more``: its width with ten more labels.
    """

    judge_model: str
    prompt_version: str
    people: list[str]
    compared: int
    agreed: int
    false_alarms: int
    kept_in: int
    misses: int
    put_out: int
    share: Measure
    with_ten_more: float


class Calibration(BaseModel, extra="forbid", frozen=True):
    """How far each judge agrees with people. ``unused``: number of labels whose claim is gone or has changed."""

    messages: list[MessageCalibration] = Field(default_factory=list)
    dimensions: list[DimensionCalibration] = Field(default_factory=list)
    unused: int = 0

    @property
    def labelled(self) -> int:
        """How many labels both a judge and people decided."""
        return sum(item.compared for item in self.messages) + sum(item.labelled for item in self.dimensions)


def calibrate_dimensions(
    labels: Sequence[Label],
    claims: LabelledClaims,
    verdicts_on: Callable[[Sequence[Label]], Sequence[Sequence[Verdict]]],
) -> list[DimensionCalibration]:
    """Return every judge's bias on every dimension that people labelled. Labels of models count for nothing.

    ``claims``: of the labels. ``verdicts_on``: returns all verdicts on what each label is of.
    """
    by_key = grouped((label for label in labels if label.is_persons), lambda label: label.key)
    said = verdicts_on([own[0] for own in by_key.values()])
    pairs = dict[tuple[str, str, str], list[tuple[float, float, Sequence[Label]]]]()
    for own, verdicts in zip(by_key.values(), said, strict=True):
        people, first = _score([label.score for label in own]), own[0]
        is_inverted = claims[first.agent_id, first.dimension, first.proposition_id].inverted
        for judge, given in grouped(verdicts, lambda item: (item.model or "", item.prompt_version or "")).items():
            score = _score([verdict.score for verdict in given])
            if score is not None and people is not None:
                turned = (HIGHEST - score, HIGHEST - people) if is_inverted else (score, people)
                pairs.setdefault((first.dimension, *judge), []).append((*turned, own))
    return [_calibrated(judge, own) for judge, own in sorted(pairs.items())]


def _calibrated(
    judge: tuple[str, str, str], pairs: Sequence[tuple[float, float, Sequence[Label]]]
) -> DimensionCalibration:
    found = bias([score for score, _, _ in pairs], [people for _, people, _ in pairs])
    return DimensionCalibration(
        dimension=judge[0],
        judge_model=judge[1],
        prompt_version=judge[2],
        labelled=len(pairs),
        people=sorted({label.labeller for _, _, labels in pairs for label in labels}),
        bias=found,
        with_ten_more=_with_more(found),
    )


def _score(scores: Sequence[float | None]) -> float | None:
    """Return the mean score; None where most say that the claim does not apply."""
    given = [score for score in scores if score is not None]
    return fmean(given) if 2 * len(given) > len(scores) else None


def calibrate_messages(
    judge: Judge, judged: Mapping[str, Role], labelled: Mapping[str, Role], people: Sequence[str]
) -> MessageCalibration | None:
    """Return how far one judge agrees with people on messages, given verdicts by message; None: both decided none."""
    pairs = [(role, labelled[key]) for key, role in judged.items() if key in labelled]
    counts = Counter(pair for pair in pairs if Role.UNCLEAR not in pair)
    if not counts:
        return None
    compared, agreed = counts.total(), counts[Role.IN, Role.IN] + counts[Role.OUT, Role.OUT]
    low, high = wilson(agreed / compared, compared)
    more = wilson(agreed / compared, compared + _MORE)
    return MessageCalibration(
        judge_model=judge[0],
        prompt_version=judge[1],
        people=sorted(people),
        compared=compared,
        agreed=agreed,
        false_alarms=counts[Role.OUT, Role.IN],
        kept_in=counts[Role.OUT, Role.IN] + counts[Role.IN, Role.IN],
        misses=counts[Role.IN, Role.OUT],
        put_out=counts[Role.IN, Role.OUT] + counts[Role.OUT, Role.OUT],
        share=Measure(value=agreed / compared, low=low, high=high, n=compared),
        with_ten_more=more[1] - more[0],
    )


def bias(judge: Sequence[float], people: Sequence[float]) -> Measure:
    """Return the mean of judge - people in points, with Student's 95 % interval."""
    differences = [a - b for a, b in zip(judge, people, strict=True)]
    count = len(differences)
    if count < 2:
        return Measure(n=count)
    mean, half = fmean(differences), _student(count - 1) * stdev(differences) / math.sqrt(count)
    return Measure(value=mean, low=mean - half, high=mean + half, n=count)


def _with_more(found: Measure) -> float | None:
    """Return the width of a mean's interval with ten more labels that spread as those do."""
    if found.low is None or found.high is None:
        return None
    width, more = found.high - found.low, found.n + _MORE
    return width * math.sqrt(found.n / more) * _student(more - 1) / _student(found.n - 1)


def _student(degrees: int) -> float:
    """Return the half width, in standard errors, of Student's 95 % interval."""
    return -float(special().stdtrit(degrees, 0.025))
