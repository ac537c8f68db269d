"""What people's labels say of the judge of an evaluation, and of its scores."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from persona_pipeline.baselines.models import Baseline, BaselineComparison, People
from persona_pipeline.baselines.spread import judged_share
from persona_pipeline.calibration.calibrate import agreement
from persona_pipeline.calibration.labelled import Judge, Rated, Usable, ballots, by_dimension, rated_by_judge, usable
from persona_pipeline.calibration.prediction import FEWEST_LABELS, HIGHEST, PeoplesScores
from persona_pipeline.evaluation.results import AgentEvaluation
from persona_pipeline.evaluation.verdicts import KnownVerdicts
from persona_pipeline.labels import LABELS, load_labels
from persona_pipeline.scoring.results import DimensionEvaluation, PropositionResult
from persona_pipeline.world import World
from persona_pipeline.world.canonical import content_hash


@dataclass(frozen=True)
class _Learnt:
    """What a dimension's labels say of one judge, with people's scores by judgment."""

    people: People
    scores: PeoplesScores | None
    said: Mapping[str, float]


@dataclass(frozen=True)
class PeoplesLabels:
    """The labels of a world beside its judges' verdicts.

    Attributes:
        labels_hash: of those that are used; "" where no person labelled anything.
        by: what was learnt of each judge and dimension.
    """

    labels_hash: str = ""
    by: Mapping[tuple[str, str, str], _Learnt] = field(default_factory=dict)

    def of(self, evaluation: AgentEvaluation, dimension: str) -> People | None:
        """Return what people say of a dimension of an evaluation; None where they labelled nothing at all."""
        if not self.labels_hash:
            return None
        model, prompt = (str(evaluation.provenance.get(key)) for key in ("judge_model", "prompt_version"))
        learnt = self.by.get((model, prompt, dimension))
        if learnt is None:
            return People(belief="unknown", missing=FEWEST_LABELS)
        item = evaluation.dimensions[dimension]
        score = _peoples_score(learnt, evaluation.agent_id, item)
        return learnt.people.model_copy(update=score)


def peoples_labels(world: World) -> PeoplesLabels:
    """Return what people's labels say of the judges that are known to have made the same judgments.

    Raises:
        ConfigError: labels or recordings are not valid.
    """
    people = [label for label in load_labels(world.rules_root / LABELS) if label.is_persons]
    if not people:
        return PeoplesLabels()
    known = KnownVerdicts.of(world)
    used = usable(world.root, people, is_judged=known.knows)
    rated = rated_labels(world, known, used)
    found = {
        (*judge, dimension): _learnt(own)
        for judge, items in rated.items()
        for dimension, own in by_dimension(items).items()
    }
    return PeoplesLabels(labels_hash(used), found)


def calibrated(baseline: Baseline, comparison: BaselineComparison, labels: str) -> Baseline:
    """Return a baseline that says which calibration stood behind its dimensions: hash and number of labels, rank correlation.

    Args:
        comparison: of the run it was taken from.
        labels: see ``PeoplesLabels.labels_hash``; "": nobody labelled anything, and nothing is said.
    """
    if not labels:
        return baseline
    known = dict(baseline.provenance.get("dimensions", {}))
    for name, item in comparison.dimensions.items():
        if item.people and name in known:
            told = {
                "hash": labels,
                "labels": item.people.labels,
                "belief": item.people.belief,
                "rank": item.people.rank,
            }
            known[name] = {**known[name], "calibration": told}
    return baseline.model_copy(update={"provenance": {**baseline.provenance, "dimensions": known}})


def rated_labels(world: World, known: KnownVerdicts, used: Usable) -> dict[Judge, list[Rated]]:
    """Return what is labelled as each judge and the labellers see it."""
    first = {label.key: label for label in used.labels}
    verdicts = known.on_labels(list(first.values()))
    judgments = [
        (key, label.agent_id, label.dimension, label.proposition_id, own)
        for (key, label), own in zip(first.items(), verdicts, strict=True)
    ]
    return rated_by_judge(world.root, judgments, ballots(used.labels))


def labels_hash(used: Usable) -> str:
    """Return the SHA-256 of what people say, whatever the order; "" of nothing."""
    said = sorted((*label.identity, label.score) for label in used.labels if label.is_persons)
    return content_hash(said) if said else ""


def _learnt(rated: list[Rated]) -> _Learnt:
    both = [(item, item.judge, item.peoples) for item in rated]
    scored = [(item, judge, people) for item, judge, people in both if judge is not None and people is not None]
    rank = agreement((item.judge, item.peoples) for item in rated if item.people).rank
    count, low, high = len(scored), rank.low, rank.high
    enough = count >= FEWEST_LABELS
    told = People(
        belief="unknown" if not enough else "believed" if rank.is_above_zero else "chance",
        labels=count,
        missing=max(0, FEWEST_LABELS - count),
        rank=rank.value,
        rank_interval=(low, high) if low is not None and high is not None else None,
    )
    scores = None
    if enough:
        scores = PeoplesScores.learnt(
            [item.oriented(judge) for item, judge, _ in scored],
            [item.oriented(people) for item, _, people in scored],
            [item.agent_id for item, _, _ in scored],
        )
    return _Learnt(told, scores, {item.key: item.oriented(people) for item, _, people in scored})


def _peoples_score(learnt: _Learnt, agent_id: str, item: DimensionEvaluation) -> dict[str, object]:
    """Return ``score`` and ``interval``: the dimension's score with its judged part as people would have it."""
    rows = [row for row in item.propositions.values() if not row.algorithmic and row.score is not None]
    weights = [row.weight for row in rows]
    if learnt.scores is None or item.score is None or not sum(weights):
        return {}
    oriented = [_oriented(row) for row in rows]
    # A judgment of one context that people labelled is known.
    labels = [learnt.said.get(row.keys[0]) if row.keys and not row.parts else None for row in rows]
    told = learnt.scores.mean(agent_id, oriented, labels, weights)
    if told.value is None or told.low is None or told.high is None:
        return {}
    total = sum(weights)
    judged = sum(row.score * weight for row, weight in zip(rows, weights, strict=True) if row.score is not None) / total
    before = sum(value * weight for value, weight in zip(oriented, weights, strict=True)) / total
    # Hard mode lowers what the judge gave below 9; what people give is lowered as much.
    hard = judged / before if before > 0 else 1.0
    share = judged_share(item)
    score, low, high = (
        min(max(item.score + share * (value * hard - judged), 0.0), HIGHEST)
        for value in (told.value, told.low, told.high)
    )
    return {"score": score, "interval": (low, high)}


def _oriented(row: PropositionResult) -> float:
    raw = row.raw if row.raw is not None else row.score or 0.0
    return HIGHEST - raw if row.inverted else raw
