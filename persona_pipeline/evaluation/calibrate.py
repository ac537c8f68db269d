"""The judgments that a world knows: which of them people can make too, how far judges can be believed by them, and which are made
again by the judge of now, to see whether the judge has changed.

Not to be confused with the layer of canaries in ``judging``, which catches a judge that obeys what it reads.
"""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from persona_pipeline.base.calls import run_async
from persona_pipeline.base.documents.json import rfc3339
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.evaluation.folder import FolderReader
from persona_pipeline.evaluation.plan import plan_agent
from persona_pipeline.evaluation.read import WorldReader
from persona_pipeline.evaluation.snapshot import raise_problems
from persona_pipeline.guard.baselines.golden import BASELINES, find_baseline
from persona_pipeline.guard.baselines.models import Baseline
from persona_pipeline.guard.calibration.calibrate import (
    Calibration,
    Rated,
    Usable,
    ballots,
    by_dimension,
    calibrate_dimension,
    inverted_claims,
    rated_by_judge,
    usable,
)
from persona_pipeline.guard.calibration.judge_change import ANCHORS, Anchor, JudgeChange, JudgeName, judge_change
from persona_pipeline.guard.calibration.known import KnownVerdicts, labels_hash
from persona_pipeline.guard.labels.files import LABELS, AskedOf, Label, StaleLabel, load_labels, stale_labels
from persona_pipeline.guard.labels.session import Judgment
from persona_pipeline.judging.verdict import Judge, JudgeRequest, Verdict
from persona_pipeline.world.models import Window
from persona_pipeline.world.propositions.models import select_dimensions
from persona_pipeline.world.world import World

# Windows of an agent that are looked at, the newest first.
MOST_WINDOWS = 26
# Judgments of a claim that are made again to see whether the judge has changed.
OF_A_CLAIM = 4


def judged_population(
    world: World,
    agents: Sequence[str] | None = None,
    dimensions: Sequence[str] | None = None,
    known: KnownVerdicts | None = None,
) -> list[Judgment]:
    """Return every judgment of these agents (None: everybody) that a judge has answered, newest windows first, each once.

    Windows are those the agents were evaluated on, and those of the same length before the newest as far back as anybody spoke, so
    that a fresh copy of a world with recordings has the same population. Persona and claims are those of now.

    Args:
        known: the world's verdicts, where they are read already.

    Raises:
        ConfigError: files of these agents or recordings are not valid, or there is no message.
    """
    reader, request = WorldReader(world), EvaluationRequest(agents=agents, dimensions=dimensions)
    now = reader.questions(request)
    raise_problems(now.broken)
    past = [
        replace(scope, window=window, past=True)
        for scope in now.agents
        for window in _windows(scope.window, *reader.past_windows(scope.agent_id))
    ]
    snapshot = reader.scopes(replace(now, agents=past))
    asked: dict[str, tuple[JudgeRequest, Window]] = {}
    for scope in snapshot.agents:
        for item in plan_agent(snapshot, scope, EvaluationRequest()).requests:
            asked.setdefault(item.key, (item, scope.window))
    answers = (known or reader.known).on([item for item, _ in asked.values()])
    return [
        Judgment(item, window, verdicts)
        for (item, window), verdicts in zip(asked.values(), answers, strict=True)
        if verdicts
    ]


def _windows(now: Window, known: Iterable[Window], first: datetime | None) -> list[Window]:
    """Return an agent's windows, the newest first.

    Args:
        known: those it was evaluated on.
        first: when it spoke first.
    """
    found = dict.fromkeys([*known, now])
    before = max(found, key=lambda window: window.end).previous()
    while first is not None and before is not None and before.end >= first and len(found) < MOST_WINDOWS:
        found[before] = None
        before = before.previous()
    return sorted(found, key=lambda window: window.end, reverse=True)[:MOST_WINDOWS]


@dataclass(frozen=True)
class WorldLabels:
    """A world's labels: ``current`` may be used, ``stale`` never."""

    current: list[Label]
    stale: list[StaleLabel]


def world_labels(world: World) -> WorldLabels:
    """Return the labels in a world's folder, the stale ones apart."""
    labels = load_labels(world.root / LABELS)
    if not labels:
        return WorldLabels([], [])
    stale = stale_labels(labels, _asked(world, labels), is_judged=WorldReader(world).known.knows)
    gone = {item.label.identity for item in stale}
    return WorldLabels([label for label in labels if label.identity not in gone], stale)


def calibrate_world(world: World, dimensions: Sequence[str] | None = None) -> Calibration:
    """Return how far each judge can be believed on each dimension; nobody is asked."""
    chosen = select_dimensions(dimensions)
    labels = [label for label in load_labels(world.root / LABELS) if label.dimension in chosen]
    known, asked = WorldReader(world).known, _asked(world, labels)
    used = usable(labels, asked, is_judged=known.knows)
    population = judged_population(world, dimensions=dimensions, known=known)
    rated = _rated(world, population, used)
    # What was labelled and lies farther back than the windows that are looked at.
    for judge, own in known.rated(used, asked).items():
        held = {item.key for item in rated.get(judge, ())}
        rated.setdefault(judge, []).extend(item for item in own if item.key not in held)
    people = _people(used)
    return Calibration(
        dimensions=[
            calibrate_dimension(judge, name, found[name], people=people.get(name, ()))
            for judge, found in ((judge, by_dimension(items)) for judge, items in sorted(rated.items()))
            for name in chosen
            if name in found
        ],
        labels_hash=labels_hash(used),
        stale=list(used.stale),
    )


def _asked(world: World, judged: Iterable[Label | JudgeRequest]) -> AskedOf:
    return FolderReader(world.root).asked((item.agent_id, item.dimension) for item in judged)


def _rated(world: World, population: Sequence[Judgment], used: Usable) -> dict[tuple[str, str], list[Rated]]:
    inverted = inverted_claims(_asked(world, (item.request for item in population)))
    return rated_by_judge([item.judged for item in population], ballots(used.labels), inverted)


def _people(used: Usable) -> dict[str, list[str]]:
    found: dict[str, set[str]] = {}
    for label in used.labels:
        if label.is_persons:
            found.setdefault(label.dimension, set()).add(label.labeller)
    return {dimension: sorted(names) for dimension, names in found.items()}


@dataclass(frozen=True)
class Canary:
    """What is asked again to compare a judge with an earlier one.

    Attributes:
        rated: the judgments as the earlier judge and people saw them, in the order of ``requests``.
    """

    before: JudgeName
    requests: Sequence[JudgeRequest]
    rated: Sequence[Rated]

    @property
    def labelled(self) -> int:
        """How many of them people labelled."""
        return sum(item.peoples is not None for item in self.rated)


@dataclass(frozen=True)
class CanaryResult:
    """What came of it. ``failed``: judgments that were not made."""

    change: JudgeChange
    failed: int


def plan_canaries(world: World, now: JudgeName, *, before: str | None = None, anchors: int = ANCHORS) -> list[Canary]:
    """Return what is asked again, for every earlier judge of a baseline that is not the judge of now; nothing is asked yet.

    Judgments that people labelled come first, then those that are only recorded; evenly by dimension, some of each claim that is
    taken, and the same ones every time.

    Args:
        before: the model of the earlier judge; None: those of the baselines.

    Raises:
        ConfigError: files of the world are not valid, or no judgment of ``before`` is known.
    """
    verdicts, labels = WorldReader(world).known, load_labels(world.root / LABELS)
    population = judged_population(world, known=verdicts)
    used = usable(labels, _asked(world, labels), is_judged=verdicts.knows)
    by_judge = {
        JudgeName(model=model, prompt_version=prompt): items
        for (model, prompt), items in _rated(world, population, used).items()
    }
    wanted = _judges_of(find_baseline(world.root / BASELINES, agent_id) for agent_id in world.agent_ids())
    if before is not None:
        wanted = {judge for judge in by_judge if judge.model == before}
    if before is not None and not wanted:
        known = ", ".join(sorted({judge.model for judge in by_judge})) or "none"
        raise ConfigError(f"no judgment of {before!r} is known; those that are known were made by: {known}")
    return [
        _canary(judge, by_judge.get(judge, []), population, anchors)
        for judge in sorted(wanted, key=str)
        if judge != now
    ]


def run_canary(canary: Canary, judge: Judge) -> CanaryResult:
    """Ask the judge of now, and return how it differs from the earlier one.

    Raises:
        ConfigError: nothing was asked, or no answer came.
    """
    if not canary.requests:
        raise ConfigError(
            f"no judgment of {canary.before} is known any more; take the baseline anew with `persona-pipeline baseline`"
        )
    verdicts = run_async(judge.judge(list(canary.requests)))
    answered = [verdict for verdict in verdicts if verdict.unscored is None or verdict.unscored.is_answer]
    if not answered:
        raise ConfigError(f"none of the {len(verdicts)} judgments was made: {verdicts[0].detail}")
    moment = rfc3339(datetime.now(UTC))
    anchors = [
        Anchor(
            item.dimension,
            item.oriented(item.judge),
            item.oriented(verdict.score),
            None if item.peoples is None else item.oriented(item.peoples),
            item.proposition_id,
        )
        for item, verdict in zip(canary.rated, verdicts, strict=True)
        if item.judge is not None and verdict.score is not None
    ]
    change = judge_change(canary.before, _name(answered), anchors, ran_at=moment)
    return CanaryResult(change, len(verdicts) - len(answered))


def _canary(judge: JudgeName, rated: Sequence[Rated], population: Sequence[Judgment], anchors: int) -> Canary:
    requests = {item.key: item.request for item in population}
    by_dimension: dict[str, list[Rated]] = {}
    for item in rated:
        if item.judge is not None:
            by_dimension.setdefault(item.dimension, []).append(item)
    for name, own in by_dimension.items():
        own.sort(key=lambda item: item.key)
        random.Random(name).shuffle(own)
        labelled = [item for item in own if item.peoples is not None]
        by_dimension[name] = [*_by_claim(labelled), *_by_claim([item for item in own if item.peoples is None])]
    chosen = _evenly(by_dimension, anchors)
    return Canary(judge, [requests[item.key] for item in chosen], chosen)


def _by_claim(rated: Sequence[Rated]) -> list[Rated]:
    """Return judgments four of a claim at a time, so that they can be compared within claims."""
    claims: dict[str, list[Rated]] = {}
    for item in rated:
        claims.setdefault(item.proposition_id, []).append(item)
    rounds = range(0, max(map(len, claims.values()), default=0), OF_A_CLAIM)
    return [item for first in rounds for own in claims.values() for item in own[first : first + OF_A_CLAIM]]


def _evenly(groups: Mapping[str, Sequence[Rated]], most: int) -> list[Rated]:
    longest = max(map(len, groups.values()), default=0)
    ordered = [own[place] for place in range(longest) for own in groups.values() if place < len(own)]
    return ordered[:most]


def _judges_of(baselines: Iterable[Baseline | None]) -> set[JudgeName]:
    found = set()
    for baseline in baselines:
        for known in (baseline.provenance if baseline else {}).get("dimensions", {}).values():
            if known.get("judge_model") and known.get("prompt_version"):
                found.add(JudgeName(model=known["judge_model"], prompt_version=known["prompt_version"]))
    return found


def _name(verdicts: Sequence[Verdict]) -> JudgeName:
    named = Counter((verdict.model or "", verdict.prompt_version or "") for verdict in verdicts)
    model, prompt = named.most_common(1)[0][0]
    return JudgeName(model=model, prompt_version=prompt)
