"""Trust in the judges of a comparison: whether they passed their check, and whether both sides have the same judge."""

from collections.abc import Mapping, Sequence
from typing import Any

from persona_pipeline.guard.anchors import AnchorAnswers, JudgeCheck, check_of
from persona_pipeline.guard.baselines.models import Baseline, BaselineComparison, DimensionComparison, JudgeShift
from persona_pipeline.guard.findings import drop_sentence, fall_sentence, quotes_of
from persona_pipeline.guard.gate import GateRules
from persona_pipeline.guard.report import AgentEvaluation, AgentReport, RunReport

# Key of the answers on anchors in the provenance of a run and of a golden file.
ANCHORS = "anchors"


def judge_check(report: RunReport | AgentReport) -> JudgeCheck:
    """Return the check of a run's judge: the worst of its agents', which all have the same judge."""
    agents = [report] if isinstance(report, AgentReport) else list(report.agents.values())
    found = [agent.comparison.judge for agent in agents if agent.comparison.judge]
    return min(found, key=lambda item: (item.passed is not False, not item.changed), default=JudgeCheck())


def answers_in(provenance: Mapping[str, Any]) -> AnchorAnswers | None:
    """Return the answers on anchors that a run or a golden file keeps; None: it has none."""
    kept = provenance.get(ANCHORS)
    return AnchorAnswers.model_validate(kept) if kept else None


def without_other_judges(
    evaluation: AgentEvaluation, baseline: Baseline | None
) -> tuple[Baseline | None, dict[str, JudgeShift]]:
    """Return a baseline without the dimensions of another judge, and those judges."""
    now, others = judge_of(evaluation.provenance), dict[str, JudgeShift]()
    if baseline is None or None in now:
        return baseline, others
    for name, known in baseline.provenance.get("dimensions", {}).items():
        before = judge_of(known)
        if name in evaluation.dimensions and all(before) and before != now:
            named = (f"{model} (prompt {prompt})" for model, prompt in (before, now))
            spans = {"until": known.get("window_end"), "windows": known.get("windows", 1)}
            others[name] = JudgeShift(**dict(zip(("before", "now"), named, strict=True)), **spans)
    if not others:
        return baseline, others

    def kept(values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if name not in others}

    provenance = {**baseline.provenance, "dimensions": kept(baseline.provenance["dimensions"])}
    rest = {"dimensions": kept(baseline.dimensions), "proposition_scores": kept(baseline.proposition_scores)}
    return baseline.model_copy(update={**rest, "provenance": provenance}), others


def explained(
    evaluation: AgentEvaluation,
    comparison: BaselineComparison,
    baseline: Baseline | None,
    others: Mapping[str, JudgeShift],
    *,
    earlier: Sequence[AnchorAnswers],
    rules: GateRules,
) -> BaselineComparison:
    """Return the comparison with the state of its judges; a drop by a judge that failed its check is doubted.

    ``others``: see ``without_other_judges``. ``earlier``: answers on anchors in the runs before, oldest first.
    """
    for name, shift in others.items():
        item = comparison.dimensions[name]
        item.judge_shift, item.baseline = shift, baseline.dimensions[name] if baseline else None
        item.status = "other_judge" if item.status == "no_baseline" else item.status
    now, before = answers_in(evaluation.provenance), answers_in(baseline.provenance) if baseline else None
    comparison.judge = check_of(now, before, earlier) if now else None
    failed = comparison.judge is not None and comparison.judge.passed is False
    if failed or quotes_of(evaluation).is_doubtful:
        for name, item in comparison.dimensions.items():
            if name in evaluation.dimensions:
                _doubt(item, rules)
    return comparison


def judge_of(provenance: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return model and prompt version of the judge of a run or of a dimension of a golden file; None: no one judged."""
    return provenance.get("judge_model") or None, provenance.get("prompt_version") or None


def _doubt(item: DimensionComparison, rules: GateRules) -> None:
    rule = rules.of(item.dimension)
    if item.status == "regressed":
        item.doubted.append(fall_sentence(item, rule.regression_delta))
    item.doubted += [drop_sentence(drop, rule.proposition_delta) for drop in item.drops]
    if item.doubted:
        item.status = "undecided"
    item.drops = []
