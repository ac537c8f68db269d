"""Findings about the judge and not the agent: it cannot judge, it is another one, or people do not bear it out."""

import shlex

from persona_pipeline.baselines.models import BaselineComparison, DimensionComparison, JudgeShift, People
from persona_pipeline.calibration.prediction import FEWEST_LABELS
from persona_pipeline.evaluation.report import AgentReport, Finding
from persona_pipeline.evaluation.results import AgentEvaluation


def is_believable(report: AgentReport) -> bool:
    """Whether a baseline may be taken from a run: its judge quotes what is there, and was not found unable to judge."""
    return not any(finding.kind == "judge_health" for finding in report.findings)


def unbelieved_findings(
    evaluation: AgentEvaluation, comparison: BaselineComparison, *, required: bool
) -> list[Finding]:
    """Return what would be falls if the judge could be believed, which cannot be told.

    Args:
        required: a dimension whose judge is not shown to be better than chance is a failure.
    """
    agent_id, found = evaluation.agent_id, []
    for name, item in comparison.dimensions.items():
        chance = item.people is not None and item.people.belief == "chance"
        found += [
            Finding(
                kind="doubted",
                message=f"{text}; it cannot be told, for "
                + (_chance(item.people) if chance and item.people else "its judge cannot be believed"),
                command=f"persona-pipeline label {shlex.quote(agent_id)} --dimensions {name}"
                if chance
                else "persona-pipeline doctor",
                agent_id=agent_id,
                dimension=name,
            )
            for text in item.doubted
        ]
        scored = name in evaluation.dimensions and evaluation.dimensions[name].score is not None
        if required and scored and (item.people is None or item.people.belief != "believed"):
            found.append(_uncalibrated(agent_id, name, item.people))
    return found


def judge_findings(evaluation: AgentEvaluation, comparison: BaselineComparison) -> list[Finding]:
    """Return what is wrong with the judge itself, or with comparing it to the baseline's."""
    agent_id, found = evaluation.agent_id, []
    if comparison.unable:
        found.append(
            Finding(
                kind="judge_health",
                message=f"{agent_id}: {', '.join(comparison.unable)} cannot judge, doctor found; its scores cannot be believed",
                remedy="set PERSONA_JUDGE_MODEL to a model that can, and ask persona-pipeline doctor again",
                command="persona-pipeline doctor",
                agent_id=agent_id,
            )
        )
    items = [(item, item.judge_shift) for item in comparison.dimensions.values() if item.judge_shift]
    blocked = [(item, shift) for item, shift in items if item.status == "other_judge"]
    changed = [(item, shift) for item, shift in items if shift.points is not None]
    return [*found, *_other_judge(agent_id, blocked), *_judge_changed(agent_id, changed)]


def _other_judge(agent_id: str, blocked: list[tuple[DimensionComparison, JudgeShift]]) -> list[Finding]:
    if not blocked:
        return []
    shift = blocked[0][1]
    why = "they were never compared"
    if shift.anchors:
        why = "the two judge unlike, and too few judgments of these dimensions were made by both to tell by how much"
    more = " --anchors 200" if shift.anchors else ""
    return [
        Finding(
            kind="other_judge",
            message=f"{agent_id}: the baseline of {_named(blocked)} was judged by {shift.before} and this run by {shift.now}; "
            + why,
            remedy=f"compare the two judges with `persona-pipeline canary{more}`, or take the baseline anew",
            command=f"persona-pipeline canary{more}",
            agent_id=agent_id,
        )
    ]


def _judge_changed(agent_id: str, changed: list[tuple[DimensionComparison, JudgeShift]]) -> list[Finding]:
    if not changed:
        return []
    shift = changed[0][1]
    points = ", ".join(f"{item.dimension} {shift.points or 0.0:+.1f}" for item, shift in changed)
    return [
        Finding(
            kind="judge_changed",
            message=f"{agent_id}: the judge changed, not the agent: {shift.now} gives other scores than {shift.before} "
            f"({points}); its baseline is moved by that",
            remedy="take the baselines anew once you have seen that the agents are as they should be",
            agent_id=agent_id,
        )
    ]


def _uncalibrated(agent_id: str, name: str, people: People | None) -> Finding:
    if people is None or people.belief == "unknown":
        labels = people.labels if people else 0
        why = f"{labels} of the {FEWEST_LABELS} labels it takes to know how far its judge can be believed"
    else:
        why = _chance(people)
    return Finding(
        kind="calibration",
        message=f"{agent_id}: {name} is not calibrated: {why}",
        remedy="label judgments with `persona-pipeline label`, or leave out --require-calibration",
        command=f"persona-pipeline label {shlex.quote(agent_id)} --dimensions {name}",
        agent_id=agent_id,
        dimension=name,
    )


def _chance(people: People) -> str:
    text = "its judge is no better than chance there"
    if people.rank is None or people.rank_interval is None:
        return f"{text} ({people.labels} labels)"
    low, high = people.rank_interval
    return f"{text} (rank correlation with people {people.rank:.2f}, {low:.2f} to {high:.2f}, {people.labels} labels)"


def _named(blocked: list[tuple[DimensionComparison, JudgeShift]]) -> str:
    names = [item.dimension for item, _ in blocked]
    return ", ".join(names[:-1]) + f" and {names[-1]}" if len(names) > 1 else names[0]
