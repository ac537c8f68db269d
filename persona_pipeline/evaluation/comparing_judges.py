"""Judgments of an earlier judge, made again by the one of now: has the judge changed?

Not to be confused with ``judging.canaries``, which catch a judge that obeys what it reads.
"""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from persona_pipeline.background_loop import run_async
from persona_pipeline.baselines import Baseline, find_baseline
from persona_pipeline.calibration.judge_change import ANCHORS, Anchor, JudgeChange, JudgeName, judge_change
from persona_pipeline.calibration.labelled import Rated, ballots, rated_by_judge, usable
from persona_pipeline.errors import ConfigError
from persona_pipeline.evaluation.population import judged_population
from persona_pipeline.evaluation.verdicts import KnownVerdicts
from persona_pipeline.judging.verdict import Judge, JudgeRequest, Verdict
from persona_pipeline.labels import LABELS, Judgment, load_labels
from persona_pipeline.world import World
from persona_pipeline.world.canonical import rfc3339


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
class Compared:
    """What came of it. ``failed``: judgments that were not made."""

    change: JudgeChange
    failed: int


def plan_canaries(world: World, now: JudgeName, *, before: str | None = None, anchors: int = ANCHORS) -> list[Canary]:
    """Return what is asked again, for every earlier judge of a baseline that is not the judge of now; nothing is asked yet.

    Judgments that people labelled come first, then those that are only recorded; evenly by dimension, and the same ones every time.

    Args:
        before: the model of the earlier judge; None: those of the baselines.

    Raises:
        ConfigError: files of the world are not valid, or no judgment of ``before`` is known.
    """
    known_verdicts = KnownVerdicts.of(world)
    population = judged_population(world, known=known_verdicts)
    used = usable(world.root, load_labels(world.root / LABELS), is_judged=known_verdicts.knows)
    by_judge = {
        JudgeName(model=model, prompt_version=prompt): items
        for (model, prompt), items in rated_by_judge(
            world.root, [item.judged for item in population], ballots(used.labels)
        ).items()
    }
    wanted = _judges_of(find_baseline(world.root, agent_id) for agent_id in world.agent_ids())
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


def run_canary(canary: Canary, judge: Judge) -> Compared:
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
        )
        for item, verdict in zip(canary.rated, verdicts, strict=True)
        if item.judge is not None and verdict.score is not None
    ]
    change = judge_change(canary.before, _name(answered), anchors, ran_at=moment)
    return Compared(change, len(verdicts) - len(answered))


def _canary(judge: JudgeName, rated: Sequence[Rated], population: Sequence[Judgment], anchors: int) -> Canary:
    requests = {item.key: item.request for item in population}
    by_dimension: dict[str, list[Rated]] = {}
    for item in rated:
        if item.judge is not None:
            by_dimension.setdefault(item.dimension, []).append(item)
    for name, own in by_dimension.items():
        own.sort(key=lambda item: item.key)
        random.Random(name).shuffle(own)
        own.sort(key=lambda item: item.peoples is None)
    chosen = _evenly(by_dimension, anchors)
    return Canary(judge, [requests[item.key] for item in chosen], chosen)


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
