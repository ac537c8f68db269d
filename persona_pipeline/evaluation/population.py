"""The judgments of a world that a person can make too: what was judged, in every window that is known, with the judges' verdicts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from persona_pipeline.evaluation.plan import plan_agent
from persona_pipeline.evaluation.request import EvaluationRequest, select_dimensions
from persona_pipeline.evaluation.scope import AgentScope, resolve_scope
from persona_pipeline.evaluation.verdicts import KnownVerdicts
from persona_pipeline.judging.verdict import JudgeRequest, Verdict
from persona_pipeline.world import World
from persona_pipeline.world.evaluated_windows import known_windows
from persona_pipeline.world.models import Window

# Windows of an agent that are looked at, the newest first.
MOST_WINDOWS = 26
JudgeVersion = tuple[str | None, str | None]


@dataclass(frozen=True)
class Judgment:
    """One judged claim: what was shown and asked, and what judges said.

    Attributes:
        request: with claim, transcript and the persona that was shown (None: none was); of the first sample.
        window: the newest window it is part of.
        verdicts: every answer to it and its repeats, of any judge; never empty.
    """

    request: JudgeRequest
    window: Window
    verdicts: Sequence[Verdict]

    @property
    def key(self) -> str:
        """By which labels and verdicts find each other."""
        return self.request.key

    @property
    def by_judge(self) -> Mapping[JudgeVersion, Sequence[Verdict]]:
        """The verdicts by (model, prompt version), in the order they were given."""
        found: dict[JudgeVersion, list[Verdict]] = {}
        for verdict in self.verdicts:
            found.setdefault((verdict.model, verdict.prompt_version), []).append(verdict)
        return found

    @property
    def score(self) -> float | None:
        """Mean raw score, 0-9, as the claim is written; None: no judge gave one."""
        scores = [verdict.score for verdict in self.verdicts if verdict.score is not None]
        return fmean(scores) if scores else None


def judged_population(
    world: World, agents: Sequence[str] | None = None, dimensions: Sequence[str] | None = None
) -> list[Judgment]:
    """Return every judgment of these agents (None: everybody) that a judge has answered, newest windows first, each once.

    Windows are those the agents were evaluated on, and those of the same length before the newest as far back as anybody spoke, so
    that a fresh copy of a world with recordings has the same population. Persona and claims are those of now.

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
    answers = KnownVerdicts(world).on([item for item, _ in asked.values()])
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
