"""Scores of both versions, scene by scene, and what they come to.

Scenes of one conversation go well or ill together, so conversations are counted: each is one difference, the mean of its scenes.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import numpy as np

from persona_pipeline.evaluation.plan import AgentPlan
from persona_pipeline.guard.baselines.statistics import (
    CLAIMS_SHARE,
    DIMENSIONS_SHARE,
    LEVEL,
    PairedChange,
    corrected,
    families_named,
    level_of,
    paired_change,
)
from persona_pipeline.judging.verdict import JudgeRequest, Unscored
from persona_pipeline.lab.compare.lines import AnsweredScene
from persona_pipeline.lab.compare.scenes import Scene, SceneAnswers
from persona_pipeline.lab.compare.signals import ADHERENCE, LATE_TURNS, LEAST_TURNS, VOICE, SignalReader
from persona_pipeline.lab.results import AgentDifference, ClaimDifference, ScoreChange, ScoreDifference
from persona_pipeline.lab.states import SideAgent
from persona_pipeline.scoring.results import ANSWERS, DimensionEvaluation, PropositionResult
from persona_pipeline.world.models import grouped

RULE = "{families}; p-values and intervals hold whenever one looks, all intervals together in {together:.0%} of comparisons"
Scored = DimensionEvaluation | PropositionResult
# The voice of single answers varies about twice as much as what is judged of them.
NOISIER = 2.0
# A change that matters is called none in so small a share of what chance is given: to look on costs less than to miss it.
_SURE = 0.05


@dataclass
class ScoreSeries:
    """Mean scores before and after of each conversation that is over, and the scores of one that goes on."""

    pairs: list[tuple[float, float]] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    going: list[tuple[float, float]] = field(default_factory=list)
    scenes: int = 0
    unjudged: int = 0
    silent: int = 0

    @property
    def differences(self) -> list[float]:
        return [after - before for before, after in self.pairs]

    def told(self, **found: Any) -> ScoreDifference:
        """Return what was found, with how many scenes it rests on."""
        return ScoreDifference(**found, scenes=self.scenes, unjudged=self.unjudged, silent=self.silent)

    def add(self, before: Scored | None, after: Scored | None) -> None:
        if before is not None and after is not None and before.score is not None and after.score is not None:
            self.take(before.score, after.score)
        elif any(
            item is None or (item.unscored is not None and item.unscored not in ANSWERS) for item in (before, after)
        ):
            self.unjudged += 1
        else:
            self.silent += 1

    def take(self, before: float, after: float) -> None:
        self.going.append((before, after))
        self.scenes += 1

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
        repeated: of how many scenes both answered word by word what they had answered before: they tell nothing new.
        done: dimensions, and signals, that are decided: nothing more is asked of them.
        narrowed: of what is undecided in scenes of some kinds alone, these kinds.
        signals: what is read of answers beside what is judged; None: nothing.
        answered: the scenes both answered.
        alike: dimensions, and claims as (dimension, id), of which the judge is asked the same for both: nothing can have changed.
    """

    before: SideAgent
    after: SideAgent
    dimensions: dict[str, ScoreSeries] = field(default_factory=lambda: defaultdict(ScoreSeries))
    claims: dict[tuple[str, str], ScoreSeries] = field(default_factory=lambda: defaultdict(ScoreSeries))
    scenes: int = 0
    left_out: int = 0
    repeated: int = 0
    conversations: int = 0
    done: set[str] = field(default_factory=set)
    alike: set[str | tuple[str, str]] = field(default_factory=set)
    seen: set[tuple[tuple[str, ...], ...]] = field(default_factory=set)
    signals: SignalReader | None = None
    narrowed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    answered: list[AnsweredScene] = field(default_factory=list)

    @property
    def compared(self) -> list[str]:
        """The dimensions both versions have claims of."""
        return [
            name for name in self.before.sets if name in self._claims(self.before) and name in self._claims(self.after)
        ]

    @property
    def rows(self) -> list[str]:
        """All that is tested of the agent as a whole: dimensions, then signals."""
        return [*self.compared, *(self.signals.rows if self.signals else ())]

    def open_rows(self, scene: Scene) -> list[str]:
        """Return the rows that are undecided and of which a scene may tell something."""
        return [
            name
            for name in self.rows
            if name not in self.done
            and scene.kind in self.narrowed.get(name, (scene.kind,))
            and len(scene.lines) >= LEAST_TURNS.get(name, 1)
        ]

    def due(self, scene: Scene) -> list[str]:
        """Return the dimensions to be judged of a scene."""
        found = self.open_rows(scene)
        return [name for name in self.compared if name in found or (name == ADHERENCE and LATE_TURNS in found)]

    @property
    def shared(self) -> list[tuple[str, str]]:
        """The claims of both versions, as dimension and id."""
        before, after = self._claims(self.before), self._claims(self.after)
        return [(name, key) for name in self.compared for key in before[name] if key in after[name]]

    def add(
        self,
        scene: Scene,
        before: Mapping[str, DimensionEvaluation],
        after: Mapping[str, DimensionEvaluation],
        answers: tuple[SceneAnswers, SceneAnswers] | None,
    ) -> None:
        """Take a scene in, with what both answered, if anything; one of which nothing at all is recorded is left out."""
        self.scenes += 1
        if _is_unrecorded(before) and _is_unrecorded(after):
            self.left_out += 1
            return
        for name in [*before]:
            one, other = before[name], after.get(name)
            self.dimensions[name].add(one, other)
            for key in (key for dimension, key in self.shared if dimension == name):
                self.claims[name, key].add(one.propositions.get(key), other and other.propositions.get(key))
        if answers is None:
            return
        sides = tuple(zip((before, after), answers, strict=True))
        told = [self.signals.read(scene, own.texts, judged) if self.signals else {} for judged, own in sides]
        for name in told[0].keys() & told[1].keys():
            self.dimensions[name].take(told[0][name], told[1][name])
        self.answered.append(AnsweredScene(scene, answers, (before, after), (told[0], told[1])))

    def close(self, kind: str = "") -> None:
        """Take it that the conversation is over of which scenes were added."""
        series = [*self.dimensions.values(), *self.claims.values()]
        self.conversations += any(item.going for item in series)
        for item in series:
            item.close(kind)

    def is_new(self, before: AgentPlan, after: AgentPlan, texts: Sequence[tuple[str, ...]]) -> bool:
        """Whether the judge is asked something of these scenes that it was not asked before; it would only say the same.

        ``texts``: what both answered; where nothing is judged any more, they tell.
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
        """Note what is asked alike of a scene; what the one is asked, the other is, of whatever scene."""
        for name, own in before.plans.items():
            asked, other = _keys(own.requests), _keys(after.plans[name].requests)
            self.alike |= {(name, key) for key, keys in asked.items() if keys == other.get(key)}
            if asked and asked == other and self.before.sets[name].version == self.after.sets[name].version:
                self.alike.add(name)

    def failed(self, scene: Scene) -> None:
        """Take in that a scene was not answered by one of the two."""
        self.scenes += 1
        for name in self.open_rows(scene):
            self.dimensions[name].unjudged += 1

    @property
    def unknown(self) -> dict[str, ScoreDifference]:
        """What cannot be told of answers, and why."""
        return {name: ScoreDifference(note=why) for name, why in self.signals.unknown.items()} if self.signals else {}

    def only(self, one: SideAgent, other: SideAgent) -> tuple[str, ...]:
        """Return the claims of one version that the other does not have."""
        theirs = self._claims(other)
        return tuple(
            f"{name}/{key}" for name, own in self._claims(one).items() for key in own if key not in theirs.get(name, {})
        )

    def text_of(self, dimension: str, key: str) -> tuple[str, bool]:
        """Return what a claim says after, and whether it said something else before."""
        before, after = self._claims(self.before)[dimension][key], self._claims(self.after)[dimension][key]
        return after, before != after

    @staticmethod
    def _claims(agent: SideAgent) -> dict[str, dict[str, str]]:
        return {
            name: {item.id: item.claim for item in stored.propositions.propositions}
            for name, stored in agent.sets.items()
            if stored.propositions is not None
        }


def _keys(requests: Sequence[JudgeRequest]) -> dict[str, list[str]]:
    found = grouped(requests, lambda request: request.proposition_id)
    return {name: [request.key for request in own] for name, own in found.items()}


def _is_unrecorded(found: Mapping[str, DimensionEvaluation]) -> bool:
    judged = [row for item in found.values() for row in item.propositions.values() if not row.algorithmic]
    return bool(judged) and all(row.unscored == Unscored.UNRECORDED.value for row in judged)


def rule_of(agents: int) -> str:
    return RULE.format(families=families_named(agents), together=1 - LEVEL)


def differences_of(tallies: Sequence[AgentTally], change: float, *, intervals: bool = True) -> list[AgentDifference]:
    """Return what the scores of all agents come to; every p-value is corrected for all of them.

    ``intervals``: off for a look in between, which asks only what is decided.
    """
    # What is asked alike is no test: its differences are nothing, whatever the judge says.
    dimensions = [(p, name) for p, tally in enumerate(tallies) for name in tally.rows if name not in tally.alike]
    claims = [(p, key) for p, tally in enumerate(tallies) for key in tally.shared if key not in tally.alike]
    own = [tallies[place].dimensions[name] for place, name in dimensions]
    single = [tallies[place].claims[key] for place, key in claims]
    levels = _levels([place for place, _ in dimensions], len(tallies), DIMENSIONS_SHARE)
    claim_levels = _levels([place for place, _ in claims], len(tallies), CLAIMS_SHARE)

    margins = [change * (NOISIER if name == VOICE else 1) for _, name in dimensions]

    found = [
        paired_change(item.differences, level, margin=margin, interval=intervals, kinds=item.kinds)
        for item, level, margin in zip(own, levels, margins, strict=True)
    ]
    found_single = [
        paired_change(item.differences, level, margin=change, interval=intervals)
        for item, level in zip(single, claim_levels, strict=True)
    ]
    right = corrected(
        np.array([item.p_value for item in found]),
        np.array([place for place, _ in dimensions], dtype=np.intp),
        np.array([item.p_value for item in found_single]),
        np.array([place for place, _ in claims], dtype=np.intp),
        watched=len(tallies),
    )
    by_agent = [{name: _alike(tally.dimensions[name]) for name in tally.compared} for tally in tallies]
    rows: list[list[ClaimDifference]] = [[] for _ in tallies]
    for (place, name), series, item, p, level, margin in zip(
        dimensions, own, found, right.dimensions, levels, margins, strict=True
    ):
        # Of a signal there are few scenes, and it costs nothing to look on.
        sure = _SURE if name in tallies[place].compared else 1.0
        told = _difference(series, item, float(p), level * sure)
        if told.moved is ScoreChange.SAME and (kinds := _open_kinds(series, margin)):
            told = told.model_copy(update={"moved": ScoreChange.OPEN, "open_kinds": kinds})
        by_agent[place][name] = told
    for (place, (name, key)), series, item, p, level in zip(
        claims, single, found_single, right.claims, claim_levels, strict=True
    ):
        text, edited = tallies[place].text_of(name, key)
        difference = _difference(series, item, float(p), level * _SURE)
        rows[place].append(ClaimDifference(dimension=name, id=key, claim=text, edited=edited, difference=difference))
    return [
        AgentDifference(
            agent_id=tally.after.persona.agent_id,
            display_name=tally.after.persona.display_name,
            persona_changed=tally.before.persona.hash != tally.after.persona.hash,
            scenes=tally.scenes,
            left_out=tally.left_out,
            repeated=tally.repeated,
            conversations=tally.conversations,
            dimensions={name: found for name, found in own_rows.items() if name in tally.compared},
            signals={name: found for name, found in own_rows.items() if name not in tally.compared} | tally.unknown,
            claims=tuple(own_claims),
            only_before=tally.only(tally.before, tally.after),
            only_after=tally.only(tally.after, tally.before),
        )
        for tally, own_rows, own_claims in zip(tallies, by_agent, rows, strict=True)
    ]


def _levels(places: Sequence[int], agents: int, share: float) -> list[float]:
    tests = np.bincount(np.array(places, dtype=np.intp), minlength=agents).astype(float)
    levels = level_of(tests, agents, share)
    return [float(levels[place]) for place in places]


def _alike(series: ScoreSeries) -> ScoreDifference:
    mean = sum(after for _, after in series.pairs) / len(series.pairs) if series.pairs else None
    return series.told(before=mean, after=mean, change=0.0, low=0.0, high=0.0, moved=ScoreChange.SAME, asked_alike=True)


def _open_kinds(series: ScoreSeries, margin: float) -> tuple[str, ...]:
    """Return the kinds of scenes in which a change of twice the margin is not ruled out: in one alone it is small in the mean."""
    kinds = grouped(zip(series.kinds, series.differences, strict=True), lambda pair: pair[0])
    if len(kinds) < 2:
        return ()
    told = {
        kind: paired_change([own for _, own in pairs], LEVEL, margin=2 * margin, interval=False)
        for kind, pairs in kinds.items()
    }
    # A change beyond it is no such change either, and not ruled out.
    return tuple(kind for kind, found in told.items() if found.margin_p > LEVEL or abs(found.mean or 0.0) >= 2 * margin)


def _difference(series: ScoreSeries, found: PairedChange, p_value: float, sure_level: float) -> ScoreDifference:
    if not series.pairs:
        return series.told()
    before, after = (sum(side) / len(series.pairs) for side in zip(*series.pairs, strict=True))
    moved = ScoreChange.OPEN
    if p_value <= LEVEL:
        # The middle of the interval, since single scenes far off move the mean; of one kind's scenes they are the change.
        own = [one for one, kind in zip(series.differences, series.kinds, strict=True) if kind == found.kind]
        down = fmean(own) < 0 if found.kind else found.low + found.high < 0
        moved = ScoreChange.FELL if down else ScoreChange.ROSE
    elif found.margin_p <= sure_level:
        moved = ScoreChange.SAME
    known = len(series.pairs) > 1
    low, high = (found.low, found.high) if known else (None, None)
    return series.told(
        before=before,
        after=after,
        change=after - before,
        low=low,
        high=high,
        p_value=p_value,
        moved=moved,
        kind=found.kind if p_value <= LEVEL else "",
    )
