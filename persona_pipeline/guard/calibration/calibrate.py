"""People's labels beside a judge's verdicts, and the calibration they give, as it is printed and written as JSON; no files."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import mul
from statistics import fmean
from typing import Literal

from pydantic import BaseModel, Field

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.guard.baselines.models import FEWEST_LABELS, Measure
from persona_pipeline.guard.calibration.measures import HIGHEST, bias, spearman
from persona_pipeline.guard.labels.files import AskedOf, Label, stale_reasons
from persona_pipeline.judging.verdict import Verdict
from persona_pipeline.world.models import grouped


@dataclass(frozen=True)
class Rated:
    """A judgment of a claim, with the judge's raw score (0-9, as the claim is written; None: not applicable) and its labels.

    ``people``: each person's score; None: not applicable. Empty: no person labelled it.
    """

    key: str
    agent_id: str
    dimension: str
    proposition_id: str
    judge: float | None
    inverted: bool = False
    people: tuple[float | None, ...] = ()

    @property
    def scores(self) -> list[float]:
        """People's scores, those left out who hold that the claim does not apply."""
        return [score for score in self.people if score is not None]

    @property
    def peoples(self) -> float | None:
        """Mean of people's scores; None where nobody labelled it or most hold that the claim does not apply."""
        return fmean(self.scores) if 2 * len(self.scores) > len(self.people) else None

    def oriented(self, score: float) -> float:
        """Return a raw score so that more is better: an inverted claim's turned round."""
        return HIGHEST - score if self.inverted else score


Judge = tuple[str, str]


@dataclass(frozen=True)
class Usable:
    """Labels of what is asked now, and why the others are not used, a sentence each."""

    labels: Sequence[Label] = ()
    stale: Sequence[str] = ()


def usable(labels: Sequence[Label], asked: AskedOf, *, is_judged: Callable[[str], bool]) -> Usable:
    """Return the labels that may be used. An agent whose files are not valid costs its own labels only."""
    stale = stale_reasons(labels, asked, is_judged=is_judged)
    gone = [f"{label.place}: {stale[label.identity]}" for label in labels if label.identity in stale]
    return Usable([label for label in labels if label.identity not in stale], gone)


def scores_of_people(labels: Iterable[Label]) -> dict[str, dict[str, float | None]]:
    """Return the scores of people by judgment and labeller; None: not applicable. Labels of models count for nothing."""
    found: dict[str, dict[str, float | None]] = {}
    for label in labels:
        if label.is_persons:
            found.setdefault(label.key, {})[label.labeller] = label.score
    return found


def inverted_claims(asked: AskedOf) -> dict[tuple[str, str], set[str]]:
    """Return the ids of inverted claims by agent and dimension."""
    return {
        (agent_id, dimension): {item.id for item in claims.propositions if item.inverted}
        for agent_id, now in asked.items()
        if not isinstance(now, ConfigError)
        for dimension, claims in now.claims.items()
        if claims is not None
    }


def rated_by_judge(
    judgments: Iterable[tuple[str, str, str, str, Sequence[Verdict]]],
    said: Mapping[str, Mapping[str, float | None]],
    inverted: Mapping[tuple[str, str], Collection[str]],
) -> dict[Judge, list[Rated]]:
    """Return judgments as each judge that made them and the labellers see them.

    ``judgments``: key, agent, dimension and claim's id of each, with every verdict on it. ``said``: see ``scores_of_people``.
    ``inverted``: see ``inverted_claims``.
    """
    found: dict[Judge, list[Rated]] = {}
    for key, agent_id, dimension, claim, verdicts in judgments:
        people = tuple(said.get(key, {}).values())
        made = grouped(verdicts, lambda verdict: (verdict.model or "", verdict.prompt_version or ""))
        for judge, own in made.items():
            scores = [verdict.score for verdict in own if verdict.score is not None]
            rated = Rated(
                key,
                agent_id,
                dimension,
                claim,
                fmean(scores) if 2 * len(scores) > len(own) else None,
                claim in inverted.get((agent_id, dimension), ()),
                people,
            )
            found.setdefault(judge, []).append(rated)
    return found


Belief = Literal["believed", "chance", "unknown"]

# Standard errors by which a judge must rank judgments of one claim as people do: one-sided .012.
_SURELY = 2.25
# Standard errors by which it must rank all of them so: one-sided .025.
_ALIKE = 1.96
# Labels beside others of the same claim that are enough to tell; the share of them that an agent's own claims must keep.
_FEWEST_WITHIN, _MOST_OF = 20, 0.7


def within_claims(rated: Iterable[Rated]) -> float | None:
    """Return how alike judge and people rank judgments of the same claim, in standard errors of chance; None: too few labels.

    A judge that gives each claim its usual score agrees with people over all claims, and not here. What it gave is permuted within
    a claim, of each agent by itself where that keeps most of the labels: Mantel's test (JASA 58, 1963).
    """
    own: dict[tuple[str, str], list[tuple[float, float]]] = {}
    everybodys: dict[str, list[tuple[float, float]]] = {}
    for item in rated:
        if item.judge is not None and (people := item.peoples) is not None:
            own.setdefault((item.agent_id, item.proposition_id), []).append((item.judge, people))
            everybodys.setdefault(item.proposition_id, []).append((item.judge, people))
    free = [sum(len(pairs) - 1 for pairs in groups.values()) for groups in (own, everybodys)]
    if free[1] < _FEWEST_WITHIN:
        return None
    groups = own if free[0] >= _MOST_OF * free[1] else everybodys
    strata = [tuple(zip(*pairs, strict=True)) for pairs in groups.values() if len(pairs) > 1]
    total = variance = 0.0
    for first, second in strata:
        a, b = [x - fmean(first) for x in first], [x - fmean(second) for x in second]
        total += sum(map(mul, a, b))
        variance += sum(x * x for x in a) * sum(x * x for x in b) / (len(a) - 1)
    return total / math.sqrt(variance) if variance > 1e-12 else 0.0


def belief_of(labelled: int, rank: Measure, within: float | None) -> Belief:
    """Return whether a judge can be believed: it ranks as people do, over all and within claims; ``unknown``: too few labels."""
    if labelled < FEWEST_LABELS or within is None:
        return "unknown"
    # Of a judge at chance a rank correlation has this variance whatever the ties (Kendall, Rank Correlation Methods, 1948).
    alike = rank.value is not None and rank.value * math.sqrt(max(rank.n - 1, 0)) > _ALIKE
    return "believed" if alike and within > _SURELY else "chance"


class DimensionCalibration(BaseModel, extra="forbid", frozen=True):
    """One judge on one dimension.

    Attributes:
        judged, labelled: judgments it scored, and how many of them people labelled with a score.
        people: names of those who labelled.
        rank, bias: of judge and people where both scored: Spearman's correlation, and judge - people in points.
        within: see ``within_claims``.
    """

    dimension: str
    judge_model: str
    prompt_version: str
    judged: int
    labelled: int
    people: list[str] = Field(default_factory=list)
    rank: Measure
    bias: Measure
    within: float | None = None

    @property
    def missing(self) -> int:
        """How many labels are missing before the judge can be believed."""
        return max(0, FEWEST_LABELS - self.labelled)

    @property
    def belief(self) -> Belief:
        """Whether the judge can be believed here: ``believed``, no better than ``chance``, or ``unknown`` (too few labels)."""
        return belief_of(self.labelled, self.rank, self.within)


class Calibration(BaseModel, extra="forbid", frozen=True):
    """Every judge on every dimension that something is judged of.

    Attributes:
        stale: labels that were not used, each with the reason.
    """

    dimensions: list[DimensionCalibration] = Field(default_factory=list)
    stale: list[str] = Field(default_factory=list)


def calibrate_dimension(
    judge: tuple[str, str], dimension: str, rated: Sequence[Rated], *, people: Sequence[str] = ()
) -> DimensionCalibration:
    """Return one judge's calibration on one dimension.

    ``judge``: its model and prompt version. ``rated``: all it judged there, labelled or not. ``people``: names of those who
    labelled.
    """
    labelled = [item for item in rated if item.people]
    both = [(item.judge, item.peoples) for item in labelled]
    pairs = [(judge, score) for judge, score in both if judge is not None and score is not None]
    scores = [judge for judge, _ in pairs], [score for _, score in pairs]
    scored = [item for item in rated if item.judge is not None]
    return DimensionCalibration(
        dimension=dimension,
        judge_model=judge[0],
        prompt_version=judge[1],
        judged=len(scored),
        labelled=len(pairs),
        people=sorted(people),
        rank=spearman(*scores),
        bias=bias(*scores),
        within=within_claims(labelled),
    )
