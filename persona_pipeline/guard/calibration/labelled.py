"""A world's labels beside its judges' verdicts: one judgment as judge and labellers see it."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.guard.calibration.measures import HIGHEST
from persona_pipeline.guard.labels.files import AskedOf, Label, stale_labels
from persona_pipeline.judging.verdict import Verdict


@dataclass(frozen=True)
class Rated:
    """A judgment of a claim, with the judge's raw score (0-9, as the claim is written; None: not applicable) and its labels.

    Attributes:
        people: each person's score; None: not applicable. Empty: no person labelled it.
        models: models' labels, by name; they are shown and never calibrate.
    """

    key: str
    agent_id: str
    dimension: str
    proposition_id: str
    judge: float | None
    inverted: bool = False
    people: tuple[float | None, ...] = ()
    models: Mapping[str, float | None] = field(default_factory=dict)

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


def by_dimension(rated: Iterable[Rated]) -> dict[str, list[Rated]]:
    """Return judgments by dimension, in their order."""
    found: dict[str, list[Rated]] = {}
    for item in rated:
        found.setdefault(item.dimension, []).append(item)
    return found


Judge = tuple[str, str]


@dataclass(frozen=True)
class Usable:
    """Labels of what is asked now, and why the others are not used."""

    labels: Sequence[Label] = ()
    stale: Sequence[str] = ()


def usable(labels: Iterable[Label], asked: AskedOf, *, is_judged: Callable[[str], bool]) -> Usable:
    """Return the labels that may be used. An agent whose files are not valid costs its own labels only."""
    by_agent: dict[str, list[Label]] = {}
    for label in labels:
        by_agent.setdefault(label.agent_id, []).append(label)
    kept: list[Label] = []
    reasons: list[str] = []
    for agent_id, own in by_agent.items():
        try:
            stale = stale_labels(own, asked, is_judged=is_judged)
        except ConfigError as error:
            reasons.append(f"{agent_id}: {len(own)} labels are not used: {error.problems[0]}")
            continue
        gone = {item.label.identity for item in stale}
        reasons += map(str, stale)
        kept += [label for label in own if label.identity not in gone]
    return Usable(kept, reasons)


@dataclass(frozen=True)
class Ballot:
    """What labellers say of one judgment."""

    people: dict[str, float | None] = field(default_factory=dict)
    models: dict[str, float | None] = field(default_factory=dict)


def ballots(labels: Iterable[Label]) -> dict[str, Ballot]:
    """Return what labellers say, by judgment; None: not applicable."""
    found: dict[str, Ballot] = {}
    for label in labels:
        ballot = found.setdefault(label.key, Ballot())
        said = ballot.people if label.is_persons else ballot.models
        said[label.labeller] = label.score
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
    said: Mapping[str, Ballot],
    inverted: Mapping[tuple[str, str], Collection[str]],
) -> dict[Judge, list[Rated]]:
    """Return judgments as each judge that made them and the labellers see them.

    Args:
        judgments: key, agent, dimension and claim's id of each, with every verdict on it.
        said: see ``ballots``.
        inverted: see ``inverted_claims``.
    """
    found: dict[Judge, list[Rated]] = {}
    for key, agent_id, dimension, claim, verdicts in judgments:
        ballot = said.get(key, Ballot())
        for judge, own in _by_judge(verdicts).items():
            scores = [verdict.score for verdict in own if verdict.score is not None]
            rated = Rated(
                key,
                agent_id,
                dimension,
                claim,
                fmean(scores) if 2 * len(scores) > len(own) else None,
                claim in inverted.get((agent_id, dimension), ()),
                tuple(ballot.people.values()),
                ballot.models,
            )
            found.setdefault(judge, []).append(rated)
    return found


def _by_judge(verdicts: Iterable[Verdict]) -> dict[Judge, list[Verdict]]:
    found: dict[Judge, list[Verdict]] = {}
    for verdict in verdicts:
        found.setdefault((verdict.model or "", verdict.prompt_version or ""), []).append(verdict)
    return found
