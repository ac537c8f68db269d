"""What is known of the judges behind a comparison: whether they can judge, how people see it, and how two of them differ."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from persona_pipeline.guard.baselines.models import Baseline, BaselineComparison, DimensionComparison, JudgeShift
from persona_pipeline.guard.baselines.regression import not_shown, undecided
from persona_pipeline.guard.baselines.spread import judged_share
from persona_pipeline.guard.calibration.judge_change import JudgeChange, JudgeName
from persona_pipeline.guard.calibration.known import PeoplesLabels
from persona_pipeline.guard.calibration.measures import within_scale
from persona_pipeline.guard.calibration.reading import ReadingTest
from persona_pipeline.guard.findings import drop_sentence, fall_sentence, quotes_of
from persona_pipeline.guard.gate import GateRules
from persona_pipeline.guard.report import AgentEvaluation, Finding


@dataclass(frozen=True)
class Trust:
    """What a world knows of judges.

    ``changes``: of each pair of judges that were compared, what was found. ``unable``: model and prompt version of those that
    were found unable to judge. ``readings``: what was found of those that were tested for reading what they judge.
    """

    labels: PeoplesLabels = field(default_factory=PeoplesLabels)
    changes: Sequence[JudgeChange] = ()
    unable: frozenset[tuple[str, str]] = frozenset()
    readings: Sequence[ReadingTest] = ()

    def shift(self, before: JudgeName, now: JudgeName, dimension: str) -> JudgeShift:
        """Return how two judges differ on a dimension; without anchors where they were never compared."""
        unknown = JudgeShift(before=str(before), now=str(now))
        found = next((item for item in self.changes if (item.before, item.now) == (before, now)), None)
        if found is None:
            return unknown
        compared = unknown.model_copy(update={"anchors": found.anchors, "changed": found.changed})
        points = found.shift(dimension) if found.changed else None
        if points is None or points.low is None or points.high is None:
            return compared
        return compared.model_copy(update={"points": points.value, "interval": (points.low, points.high)})


@dataclass(frozen=True)
class Moved:
    """A baseline as the judge of now would have given it.

    ``baseline``: moved by what the two judges differ; dimensions that cannot be compared are not in it. ``strict``: moved by as
    much as the interval allows that speaks against a fall; None: nothing was moved. ``shifts``: of the dimensions another judge
    judged.
    """

    baseline: Baseline | None
    strict: Baseline | None = None
    shifts: Mapping[str, JudgeShift] = field(default_factory=dict)


def is_blocked(shift: JudgeShift) -> bool:
    """Whether nothing tells how to compare across the two judges."""
    return not shift.anchors or (shift.changed and shift.points is None)


def moved(evaluation: AgentEvaluation, baseline: Baseline | None, trust: Trust) -> Moved:
    """Return the baseline as far as it can be compared with an evaluation of another judge."""
    shifts = _shifts(evaluation, baseline, trust) if baseline else {}
    if baseline is None or not shifts:
        return Moved(baseline)
    middle = {name: shift.points or 0.0 for name, shift in shifts.items() if not is_blocked(shift)}
    lowest = {name: shift.interval[0] if shift.interval else 0.0 for name, shift in shifts.items() if name in middle}
    blocked = shifts.keys() - middle.keys()
    return Moved(
        _moved(evaluation, baseline, middle, blocked),
        _moved(evaluation, baseline, lowest, blocked) if any(middle.values()) else None,
        shifts,
    )


def told(
    evaluation: AgentEvaluation, comparison: BaselineComparison, trust: Trust, rules: GateRules
) -> BaselineComparison:
    """Return the comparison with what people say; what fell by a judge that cannot be believed is doubted, and no regression."""
    known, asked = evaluation.provenance, _asked(evaluation)
    comparison.unable = sorted({model for model, prompt in asked if (model, prompt) in trust.unable})
    unread = (item for item in trust.readings if item.reads is False and _names(item.judge) in asked)
    comparison.unread = list(dict.fromkeys(map(str, unread)))
    unable = bool(comparison.unable or comparison.unread) or quotes_of(evaluation).is_doubtful
    for name, item in comparison.dimensions.items():
        if name not in evaluation.dimensions:
            continue
        judged_by = str(known.get("judge_model")), str(known.get("prompt_version"))
        item.people = trust.labels.of(judged_by, name)
        if unable or (item.people and item.people.belief == "chance"):
            _doubt(evaluation.agent_id, item, rules)
    return comparison


def untested_judges(evaluations: Iterable[AgentEvaluation], trust: Trust) -> list[Finding]:
    """Return a finding where nobody knows whether a judge reads what it judges."""
    known = {_names(item.judge) for item in trust.readings}
    asked = {pair for item in evaluations for pair in _asked(item)}
    missing = sorted({model for model, _ in asked - known})
    if not missing:
        return []
    return [
        Finding(
            kind="reading",
            message=f"nobody knows whether {' and '.join(missing)} reads what it judges, or goes by the claims alone",
            remedy="`persona-pipeline doctor --reading` finds out, and says before what it costs",
            command="persona-pipeline doctor --reading",
        )
    ]


def set_apart(
    comparison: BaselineComparison,
    strict: BaselineComparison | None,
    shifts: Mapping[str, JudgeShift],
    before: Baseline,
    undecided_delta: float,
) -> BaselineComparison:
    """Return the comparison with what is said of dimensions that another judge judged.

    A dimension fell only where it fell by the strict comparison too; one that nothing tells how to compare is not compared.
    """
    for name, shift in shifts.items():
        item = comparison.dimensions[name]
        item.judge_shift = shift
        if is_blocked(shift):
            item.baseline = before.dimensions[name]
            item.status = "other_judge" if item.status == "no_baseline" else item.status
            continue
        comparison.warnings.append(f"{name}: {shift_sentence(shift)}")
        surely = strict.dimensions[name] if strict and shift.points is not None else item
        claims = {drop.proposition_id for drop in surely.drops}
        if item.status == "regressed" and surely.status != "regressed":
            item.status = not_shown(item, undecided_delta)
            comparison.warnings.append(
                f"{name}: dropped by {-(item.delta or 0.0):.2f}, which the change of judge may explain"
            )
        item.undecided_claims += undecided([drop for drop in item.drops if drop.proposition_id not in claims])
        item.drops = [drop for drop in item.drops if drop.proposition_id in claims]
    return comparison


def shift_sentence(shift: JudgeShift) -> str:
    """Return how two judges that were compared differ on a dimension."""
    who = f"judged by {shift.before} for the baseline and by {shift.now} now"
    if shift.points is None or shift.interval is None:
        return f"{who}; on {shift.anchors} judgments that both made they do not differ"
    low, high = shift.interval
    return f"{who}, who gives {shift.points:+.2f} points ({low:+.2f} to {high:+.2f}); the baseline is moved by that"


def _shifts(evaluation: AgentEvaluation, baseline: Baseline, trust: Trust) -> dict[str, JudgeShift]:
    now = _judge(evaluation.provenance)
    found = {}
    for name in baseline.dimensions:
        before = _judge(baseline.provenance.get("dimensions", {}).get(name, {}))
        if name in evaluation.dimensions and before and now and before != now:
            found[name] = trust.shift(before, now, name)
    return found


def _asked(evaluation: AgentEvaluation) -> list[tuple[str, str]]:
    """Return model and prompt version of all who judged."""
    known = evaluation.provenance
    return [(model, prompt) for model in known.get("judge_models", ()) for prompt in known.get("prompt_versions", ())]


def _names(judge: JudgeName) -> tuple[str, str]:
    return judge.model, judge.prompt_version


def _judge(provenance: Mapping[str, Any]) -> JudgeName | None:
    model, prompt = provenance.get("judge_model"), provenance.get("prompt_version")
    return JudgeName(model=model, prompt_version=prompt) if model and prompt else None


def _moved(evaluation: AgentEvaluation, baseline: Baseline, points: Mapping[str, float], blocked: set[str]) -> Baseline:
    known = {
        name: {**item, **{key: evaluation.provenance.get(key) for key in ("judge_model", "prompt_version")}}
        if name in points
        else item
        for name, item in baseline.provenance.get("dimensions", {}).items()
        if name not in blocked
    }
    scores = {name: score for name, score in baseline.dimensions.items() if name not in blocked}
    claims = {name: dict(own) for name, own in baseline.proposition_scores.items() if name not in blocked}
    for name, by in points.items():
        if not by:
            continue
        share = by * judged_share(evaluation.dimensions[name])
        scores[name] = within_scale(scores[name] + share)
        claims[name] = {
            key: score if key.startswith("_") else within_scale(score + by)
            for key, score in claims.get(name, {}).items()
        }
        known[name] = _with_medians(known[name], share, by)
    return baseline.model_copy(
        update={
            "dimensions": scores,
            "proposition_scores": claims,
            "provenance": {**baseline.provenance, "dimensions": known},
        }
    )


def _with_medians(known: Mapping[str, Any], share: float, by: float) -> dict[str, Any]:
    """Return a dimension's spread with the medians moved that stand in for means."""
    claims = {
        key: {**own, "median": within_scale(own["median"] + by)} if own.get("median") is not None else own
        for key, own in known.get("claims", {}).items()
    }
    found = {**known, **({"claims": claims} if claims else {})}
    if found.get("median") is not None:
        found["median"] = within_scale(found["median"] + share)
    return found


def _doubt(agent_id: str, item: DimensionComparison, rules: GateRules) -> None:
    if item.status == "regressed":
        item.doubted.append(fall_sentence(agent_id, item, rules.regression_delta))
    item.doubted += [drop_sentence(agent_id, drop, rules.proposition_delta) for drop in item.drops]
    if item.doubted:
        item.status = "undecided"
    item.drops = []
