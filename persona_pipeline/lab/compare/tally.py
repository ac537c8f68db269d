"""Scores of both versions by scene, and the tests on them.

Scenes of the same conversation are alike, so conversations are counted: each is one difference, the mean of its scenes.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from persona_pipeline.evaluation.plan import AgentPlan
from persona_pipeline.guard.baselines.statistics import CLAIMS_SHARE, DIMENSIONS_SHARE, LEVEL
from persona_pipeline.judging.verdict import JudgeRequest, Unscored
from persona_pipeline.lab.answering import SceneAnswers
from persona_pipeline.lab.compare.lines import AnsweredScene
from persona_pipeline.lab.results import AgentDifference, ClaimDifference, ScoreChange, ScoreDifference
from persona_pipeline.lab.scenes import Scene
from persona_pipeline.lab.statistics import paired_change, paired_interval
from persona_pipeline.lab.versions import VersionAgent
from persona_pipeline.scoring.results import ANSWERS, DimensionEvaluation, PropositionResult
from persona_pipeline.world.models import grouped

RULE = (
    "Bonferroni over an agent's dimensions and over its claims{agents}; p-values and intervals are valid at every look, "
    f"all intervals together in {1 - LEVEL:.0%} of comparisons"
)
Scored = DimensionEvaluation | PropositionResult


@dataclass
class ScoreSeries:
    """Mean scores before and after of each closed conversation, and the scores of an open one."""

    pairs: list[tuple[float, float]] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    going: list[tuple[float, float]] = field(default_factory=list)
    scenes: int = 0
    unjudged: int = 0
    silent: int = 0

    @property
    def differences(self) -> list[float]:
        return [after - before for before, after in self.pairs]

    @property
    def differences_by_kind(self) -> dict[str, list[float]]:
        """Differences by kind of scene; empty with one kind only."""
        found = grouped(zip(self.kinds, self.differences, strict=True), lambda pair: pair[0])
        return {kind: [own for _, own in pairs] for kind, pairs in found.items()} if len(found) > 1 else {}

    def told(self, **found: Any) -> ScoreDifference:
        """Return a result with the number of its scenes."""
        return ScoreDifference(**found, scenes=self.scenes, unjudged=self.unjudged, silent=self.silent)

    def add(self, before: Scored | None, after: Scored | None) -> None:
        if before is not None and after is not None and before.score is not None and after.score is not None:
            self.going.append((before.score, after.score))
            self.scenes += 1
        elif any(
            item is None or (item.unscored is not None and item.unscored not in ANSWERS) for item in (before, after)
        ):
            self.unjudged += 1
        else:
            self.silent += 1

    def close(self, kind: str = "") -> None:
        """Take it that the conversation is over, which was of a kind."""
        if self.going:
            before, after = zip(*self.going, strict=True)
            self.kinds.append(kind)
            self.pairs.append((fmean(before), fmean(after)))
            self.going.clear()


@dataclass
class AgentTally:
    """One agent's scores in both versions, by dimension and by claim.

    Attributes:
        repeated: number of scenes that both answered with the same words as before: they add nothing.
        done: decided dimensions, which are not asked about any more.
        answered: the scenes that both answered.
        alike: dimensions, and claims as (dimension, id), with equal questions for both: they cannot have changed.
    """

    before: VersionAgent
    after: VersionAgent
    dimensions: dict[str, ScoreSeries] = field(default_factory=lambda: defaultdict(ScoreSeries))
    claims: dict[tuple[str, str], ScoreSeries] = field(default_factory=lambda: defaultdict(ScoreSeries))
    scenes: int = 0
    left_out: int = 0
    repeated: int = 0
    conversations: int = 0
    done: set[str] = field(default_factory=set)
    alike: set[str | tuple[str, str]] = field(default_factory=set)
    seen: set[tuple[tuple[str, ...], ...]] = field(default_factory=set)
    answered: list[AnsweredScene] = field(default_factory=list)

    @property
    def compared(self) -> list[str]:
        """The dimensions both versions have claims of."""
        return [name for name in self.before.sets if name in self.before.claims and name in self.after.claims]

    @property
    def due(self) -> list[str]:
        """The undecided dimensions."""
        return [name for name in self.compared if name not in self.done]

    @property
    def shared(self) -> list[tuple[str, str]]:
        """The claims of both versions, as dimension and id."""
        before, after = self.before.claims, self.after.claims
        return [(name, key) for name in self.compared for key in before[name] if key in after[name]]

    def add(
        self,
        scene: Scene,
        before: Mapping[str, DimensionEvaluation],
        after: Mapping[str, DimensionEvaluation],
        answers: tuple[SceneAnswers, SceneAnswers] | None,
    ) -> None:
        """Add a scene, with the answers of both, if any; a scene without any recorded judgment is left out."""
        self.scenes += 1
        if _is_unrecorded(before) and _is_unrecorded(after):
            self.left_out += 1
            return
        for name in [*before]:
            one, other = before[name], after.get(name)
            self.dimensions[name].add(one, other)
            for key in (key for dimension, key in self.shared if dimension == name):
                self.claims[name, key].add(one.propositions.get(key), other and other.propositions.get(key))
        if answers is not None:
            self.answered.append(AnsweredScene(scene, answers, (before, after)))

    def close(self, kind: str = "") -> None:
        """Close the conversation of the scenes added last."""
        series = [*self.dimensions.values(), *self.claims.values()]
        self.conversations += any(item.going for item in series)
        for item in series:
            item.close(kind)

    def is_new(self, before: AgentPlan, after: AgentPlan, texts: Sequence[tuple[str, ...]]) -> bool:
        """Whether these scenes bring a question that was not asked before; else the answer would be the same.

        ``texts``: the answers of both, which decide where nothing is judged any more.
        """
        asked = tuple(
            tuple(request.key for request in plan.requests) or own
            for plan, own in zip((before, after), texts, strict=True)
        )
        if asked not in self.seen:
            self.seen.add(asked)
            return True
        self.scenes += 1
        self.repeated += 1
        return False

    def note_alike(self, before: AgentPlan, after: AgentPlan) -> None:
        """Note equal questions of a scene; they are equal in every scene."""
        for name, own in before.plans.items():
            asked, other = _keys(own.requests), _keys(after.plans[name].requests)
            self.alike |= {(name, key) for key, keys in asked.items() if keys == other.get(key)}
            if asked and asked == other and self.before.sets[name].version == self.after.sets[name].version:
                self.alike.add(name)

    def failed(self) -> None:
        """Take in that a scene was not answered by one of the two."""
        self.scenes += 1
        for name in self.due:
            self.dimensions[name].unjudged += 1

    def only(self, one: VersionAgent, other: VersionAgent) -> tuple[str, ...]:
        """Return the claims that one version has and the other lacks."""
        theirs = other.claims
        return tuple(
            f"{name}/{key}" for name, own in one.claims.items() for key in own if key not in theirs.get(name, {})
        )

    def text_of(self, dimension: str, key: str) -> tuple[str, bool]:
        """Return what a claim says after, and whether it said something else before."""
        before, after = self.before.claims[dimension][key].claim, self.after.claims[dimension][key].claim
        return after, before != after


def _keys(requests: Sequence[JudgeRequest]) -> dict[str, list[str]]:
    found = grouped(requests, lambda request: request.proposition_id)
    return {name: [request.key for request in own] for name, own in found.items()}


def _is_unrecorded(found: Mapping[str, DimensionEvaluation]) -> bool:
    judged = [row for item in found.values() for row in item.propositions.values() if not row.algorithmic]
    return bool(judged) and all(row.unscored == Unscored.UNRECORDED.value for row in judged)


def rule_of(agents: int) -> str:
    return RULE.format(agents=f", and over {agents} agents" if agents > 1 else "")


def differences_of(tallies: Sequence[AgentTally], change: float, *, looking: bool = False) -> list[AgentDifference]:
    """Return what the scores of all agents come to; every p-value is corrected for all of them.

    ``looking``: more scenes may come, so nothing has held before a rise is ruled out as well.
    """
    return [_agent_difference(tally, change, len(tallies), looking) for tally in tallies]


def _agent_difference(tally: AgentTally, change: float, agents: int, looking: bool) -> AgentDifference:
    # Equal questions are not a test: their differences are noise of the judge.
    rows = [name for name in tally.compared if name not in tally.alike]
    claims = [key for key in tally.shared if key not in tally.alike]
    found = {name: _alike(tally.dimensions[name]) for name in tally.compared}
    tests = len(rows) * agents / DIMENSIONS_SHARE
    found |= {name: _difference(tally.dimensions[name], tests, change, looking) for name in rows}
    single = []
    for name, key in claims:
        text, edited = tally.text_of(name, key)
        told = _difference(tally.claims[name, key], len(claims) * agents / CLAIMS_SHARE, change, looking)
        single.append(ClaimDifference(dimension=name, id=key, claim=text, edited=edited, difference=told))
    return AgentDifference(
        agent_id=tally.after.persona.agent_id,
        display_name=tally.after.persona.display_name,
        persona_changed=tally.before.persona.hash != tally.after.persona.hash,
        scenes=tally.scenes,
        left_out=tally.left_out,
        repeated=tally.repeated,
        conversations=tally.conversations,
        dimensions=found,
        claims=tuple(single),
        only_before=tally.only(tally.before, tally.after),
        only_after=tally.only(tally.after, tally.before),
    )


def _alike(series: ScoreSeries) -> ScoreDifference:
    mean = sum(after for _, after in series.pairs) / len(series.pairs) if series.pairs else None
    return series.told(before=mean, after=mean, change=0.0, low=0.0, high=0.0, moved=ScoreChange.SAME, asked_alike=True)


def _difference(series: ScoreSeries, tests: float, margin: float, looking: bool) -> ScoreDifference:
    """Return what a score's differences come to, tested over all scenes and over those of each kind.

    ``tests``: how many there are, each weighing alike.
    """
    if not series.pairs:
        return series.told()
    found, weights = {"": paired_change(series.differences, margin)}, {"": tests}
    if kinds := series.differences_by_kind:
        # One kind's change is small in the mean of all, so half of the level is for kinds.
        found |= {kind: paired_change(own, 2 * margin) for kind, own in kinds.items()}
        weights = {kind: 2 * tests * (len(kinds) if kind else 1) for kind in found}
    fell, where_fell = min((2 * weights[kind] * item.fell, kind) for kind, item in found.items())
    rose, where_rose = min((2 * weights[kind] * item.rose, kind) for kind, item in found.items())
    ruled_out = {kind: max(item.lower, item.higher if looking else 0.0) for kind, item in found.items()}
    moved, kind, open_kinds = ScoreChange.OPEN, "", ()
    if fell <= LEVEL:
        moved, kind = ScoreChange.FELL, where_fell
    elif rose <= LEVEL:
        moved, kind = ScoreChange.ROSE, where_rose
    elif ruled_out[""] * tests <= LEVEL:
        open_kinds = tuple(kind for kind in kinds if ruled_out[kind] > LEVEL)
        moved = ScoreChange.OPEN if open_kinds else ScoreChange.SAME
    before, after = (sum(side) / len(series.pairs) for side in zip(*series.pairs, strict=True))
    known = len(series.pairs) > 1 and not looking
    low, high = paired_interval(series.differences, LEVEL / tests) if known else (None, None)
    return series.told(
        before=before,
        after=after,
        change=after - before,
        low=low,
        high=high,
        p_value=min(1.0, fell, rose),
        moved=moved,
        kind=kind,
        open_kinds=open_kinds,
    )
