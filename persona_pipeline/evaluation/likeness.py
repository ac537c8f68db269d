"""Agents that speak like another, as findings to be looked at: agents that fill one template always did, and are no drift."""

from typing import Any

from persona_pipeline.evaluation.report import Finding
from persona_pipeline.evaluation.results import AgentEvaluation

MOST_QUOTED = 80


def likeness_findings(evaluation: AgentEvaluation) -> list[Finding]:
    """Return a finding for each other agent this one speaks like, with a pair of lines beside each other."""
    convergence = evaluation.dimensions.get("convergence")
    channels: dict[str, Any] = convergence.statistics.get("channels", {}) if convergence else {}
    found = {
        (item["kind"], item["agent_id"], item["other"]): (channel, item)
        for channel, values in channels.items()
        for item in values.get("findings", ())
        if evaluation.agent_id == item["agent_id"]
        or (item["kind"] == "merged" and evaluation.agent_id == item["other"])
    }
    return [_finding(evaluation.agent_id, channel, item) for channel, item in found.values()]


def _finding(agent_id: str, channel: str, item: dict[str, Any]) -> Finding:
    other = item["other"] if item["agent_id"] == agent_id else item["agent_id"]
    is_clone = item["kind"] == "clone"
    said = {
        "clone": f"says {other}'s lines ({item['strength']:.0%} of its longer ones)",
        "style_clone": f"has gone over to {other}'s way of writing",
        "merged": f"and {other} have come to sound alike",
    }[item["kind"]]
    return Finding(
        kind="clone" if is_clone else "voices",
        message=f"{agent_id} {said} in #{channel}{_quoted(item)}",
        remedy="see whether the two share a prompt, a memory or a model" if is_clone else "read both side by side",
        agent_id=agent_id,
        dimension="convergence",
    )


def _quoted(item: dict[str, Any]) -> str:
    if not item["lines"]:
        return ""
    own, others = (text[:MOST_QUOTED] for text in item["lines"][0])
    return f": {own!r} beside {others!r}"
