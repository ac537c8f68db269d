"""What people say against the judge: their score far from its own, or beyond what they labelled."""

import shlex

from persona_pipeline.guard.baselines.models import BaselineComparison, People
from persona_pipeline.guard.report import AgentEvaluation, Finding

# Points by which people and judge must differ to be a finding, and labels of a window that tell what people would give it.
FAR_APART, WINDOW_LABELS = 2.0, 10


def people_findings(evaluation: AgentEvaluation, comparison: BaselineComparison) -> list[Finding]:
    """Return where people and judge are far apart, and where people's score lies beyond what they labelled."""
    found = []
    for name, item in comparison.dimensions.items():
        people = item.people
        if people is None or item.current is None:
            continue
        said = [_apart(people, item.current)]
        if people.score is not None and people.as_far is not None:
            said.append(
                f"people would give {_ranged(people.score, people.interval)}, which lies beyond what they labelled: "
                f"{people.as_far} of {people.labels} labels are as far out; {WINDOW_LABELS} of this window would tell"
            )
        found += [
            Finding(
                kind="people",
                message=f"{evaluation.agent_id}: {name}: {text}",
                command=f"persona-pipeline label {shlex.quote(evaluation.agent_id)} --dimensions {name} --newest",
                agent_id=evaluation.agent_id,
                dimension=name,
            )
            for text in said
            if text
        ]
    return found


def _apart(people: People, judge: float) -> str:
    """Return how far people are from the judge in this window, or else in what they labelled; "": not surely, or not far."""
    if people.score is not None and people.interval is not None:
        low, high = people.interval
        if abs(people.score - judge) < FAR_APART or low <= judge <= high:
            return ""
        return f"the judge gives {judge:.1f}, and people would give {_ranged(people.score, people.interval)}"
    more = people.bias
    if more.value is None or more.low is None or more.high is None or more.n < WINDOW_LABELS:
        return ""
    if abs(more.value) < FAR_APART or more.low <= 0 <= more.high:
        return ""
    points = f"{more.value:+.1f} points ({more.low:+.1f} to {more.high:+.1f})"
    return f"the judge differs from people by {points} on {more.n} judgments that they labelled"


def _ranged(score: float, interval: tuple[float, float] | None) -> str:
    low, high = interval or (score, score)
    return f"{score:.1f} ({low:.1f} to {high:.1f})"
