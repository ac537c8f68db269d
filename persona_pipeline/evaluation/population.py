"""The judgments of a world that a person can make too, and which of its labels are of what is still asked."""

from collections.abc import Sequence
from dataclasses import dataclass

from persona_pipeline.evaluation.plan import plan_agent
from persona_pipeline.evaluation.request import EvaluationRequest, select_dimensions
from persona_pipeline.evaluation.scope import AgentScope, resolve_scope
from persona_pipeline.evaluation.verdicts import KnownVerdicts
from persona_pipeline.judging.verdict import JudgeRequest
from persona_pipeline.labels import LABELS, Judgment, Label, StaleLabel, load_labels, stale_labels
from persona_pipeline.world import World
from persona_pipeline.world.evaluated_windows import known_windows
from persona_pipeline.world.models import Window

# Windows of an agent that are looked at, the newest first.
MOST_WINDOWS = 26


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
    scope = resolve_scope(world, EvaluationRequest(agents=agents, dimensions=dimensions))
    scope.raise_broken()
    asked: dict[str, tuple[JudgeRequest, Window]] = {}
    request = EvaluationRequest()
    for agent in scope.agents:
        for window in _windows(world, agent):
            past = AgentScope(agent.agent_id, window, tuple(select_dimensions(dimensions)), past=True)
            for item in plan_agent(world, past, request).requests:
                asked.setdefault(item.key, (item, window))
    answers = (known or KnownVerdicts.of(world)).on([item for item, _ in asked.values()])
    return [
        Judgment(item, window, verdicts)
        for (item, window), verdicts in zip(asked.values(), answers, strict=True)
        if verdicts
    ]


def _windows(world: World, agent: AgentScope) -> list[Window]:
    """Return an agent's windows, the newest first."""
    known = known_windows(world.store, agent.agent_id, now=world.horizon)
    found = dict.fromkeys([*known, agent.window])
    first = next(iter(world.messages(agent_id=agent.agent_id)), None)
    newest = max(found, key=lambda window: window.end)
    before = newest.previous()
    while first is not None and before is not None and before.end >= first.created_at and len(found) < MOST_WINDOWS:
        found[before] = None
        before = before.previous()
    return sorted(found, key=lambda window: window.end, reverse=True)[:MOST_WINDOWS]


@dataclass(frozen=True)
class WorldLabels:
    """A world's labels: ``current`` may be used, ``stale`` never."""

    current: list[Label]
    stale: list[StaleLabel]


def world_labels(world: World) -> WorldLabels:
    """Return the labels in a world's folder, the stale ones apart.

    Raises:
        ConfigError: label files, recordings, personas or propositions are not valid.
    """
    labels = load_labels(world.root / LABELS)
    if not labels:
        return WorldLabels([], [])
    stale = stale_labels(world.root, labels, is_judged=KnownVerdicts.of(world).knows)
    gone = {item.label.identity for item in stale}
    return WorldLabels([label for label in labels if label.identity not in gone], stale)
