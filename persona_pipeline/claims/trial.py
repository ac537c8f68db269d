"""What a test of claims asks: the intact window of an agent, its broken ones, and others' words, with the same claims."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from persona_pipeline.claims.breaking import BrokenCase, break_case, under_name_of
from persona_pipeline.claims.faults import FAULTS
from persona_pipeline.documents import load_document
from persona_pipeline.errors import ConfigError, did_you_mean
from persona_pipeline.evaluation import EvaluationRequest
from persona_pipeline.evaluation.plan import AgentPlan, build_case, plan_agent, planned
from persona_pipeline.evaluation.scope import AgentScope, resolve_scope
from persona_pipeline.judging.verdict import JudgeRequest
from persona_pipeline.propositions import DIMENSIONS, PROPOSITIONS
from persona_pipeline.scoring import AgentCase
from persona_pipeline.world import World
from persona_pipeline.world.files import find_yaml
from persona_pipeline.world.models import Message, Window

INTACT = "intact"
# How often a kill that stands alone is judged again.
CONFIRMATIONS = 2


@dataclass(frozen=True)
class TrialRequest:
    """What to break and how often to judge it.

    Attributes:
        dimensions: None for all that the agent has claims of.
        faults: None for all.
        samples: judgments of each claim on each window: from 3 on their spread is known well enough to tell noise from a kill.
        others: of how many other agents the words are held against the claims, those who spoke most first.
        seed: of the operators.
    """

    agent_id: str
    dimensions: Sequence[str] | None = None
    faults: Sequence[str] | None = None
    window: str = "7d"
    as_of: datetime | None = None
    samples: int = 3
    others: int = 2
    seed: int = 0

    def chosen_faults(self) -> list[str]:
        """Return the faults asked for, in their fixed order.

        Raises:
            ConfigError: one is unknown.
        """
        for name in self.faults or ():
            if name not in FAULTS:
                raise ConfigError(
                    f"unknown fault {name!r}{did_you_mean(name, FAULTS) or '; known: ' + ', '.join(FAULTS)}"
                )
        return [name for name in FAULTS if self.faults is None or name in self.faults]


@dataclass(frozen=True)
class Trial:
    """Everything a test of claims asks the judge.

    Attributes:
        windows: what is judged, by name: ``intact``, each fault that could be planted, each other agent.
        broken: all faults, those that could not be planted too.
        others: names of windows that hold another agent's words.
        own: the claims that should tell the agent from others, by dimension.
        before: what everybody said before the window.
    """

    request: TrialRequest
    windows: Mapping[str, AgentPlan]
    broken: Sequence[BrokenCase]
    others: Sequence[str]
    own: Mapping[str, frozenset[str]]
    before: Sequence[Message]

    @property
    def requests(self) -> list[JudgeRequest]:
        return [asked for plan in self.windows.values() for asked in plan.requests]

    def estimate(self) -> str:
        """Return what judging all this live would take, in words."""
        from persona_pipeline.judging.estimate import estimate

        intact = self.windows[INTACT]
        claims = sum(len(intact.claims_of(name)) for name in intact.plans)
        shown = max(len(plan.requests) / max(len(intact.claims_of(name)), 1) for name, plan in intact.plans.items())
        more = round((claims + len(self.broken)) * CONFIRMATIONS * shown / self.request.samples)
        return f"{estimate(self.requests)}\nkills that stand alone are judged twice more: up to {more} judgments, mostly far fewer"


def plan_trial(world: World, request: TrialRequest) -> Trial:
    """Return what must be judged; nothing is asked yet.

    Raises:
        ConfigError: bad input, no claims of these dimensions, or no messages in the window.
    """
    faults = request.chosen_faults()
    asked = EvaluationRequest(
        agents=[request.agent_id],
        dimensions=request.dimensions,
        window=request.window,
        as_of=request.as_of,
        samples=request.samples,
    )
    scope = resolve_scope(world, asked)
    scope.raise_broken()
    agent = scope.agents[0]
    intact = plan_agent(world, agent, asked)
    if not intact.plans:
        raise ConfigError(
            f"{request.agent_id} has no claims to test; write {PROPOSITIONS}/<dimension>/{request.agent_id}.yaml"
        )
    if not intact.case.messages:
        raise ConfigError(f"{request.agent_id} said nothing in the window; choose another with --window or --as-of")
    broken = [break_case(intact.case, name, request.seed) for name in faults]
    windows = {INTACT: intact}
    windows |= {item.name: _again(intact, item.case) for item in broken if item.case is not None}
    others = {}
    for name in _speakers(world, agent)[: request.others]:
        case = build_case(world, intact.persona, replace(agent, agent_id=name), request.samples)
        others[f"as {name}"] = _again(intact, under_name_of(case, agent.agent_id))
    before = world.messages(Window(agent.window.start)) if agent.window.start else []
    return Trial(request, windows | others, broken, list(others), _own_claims(world, intact), before)


def _again(plan: AgentPlan, case: AgentCase) -> AgentPlan:
    return planned(replace(plan, case=case), plan.plans.keys())


def _speakers(world: World, scope: AgentScope) -> list[str]:
    """Return the other agents of the world that spoke in the window, those with the most messages first."""
    known = set(world.agent_ids()) - {scope.agent_id}
    counts: dict[str, int] = {}
    for message in world.messages(scope.window):
        if message.agent_id in known:
            counts[message.agent_id] = counts.get(message.agent_id, 0) + 1
    return sorted(counts, key=lambda name: (-counts[name], name))


def _own_claims(world: World, plan: AgentPlan) -> dict[str, frozenset[str]]:
    """Return the claims that speak of this agent: those in files of its own, and all that are judged with its persona."""
    found = {}
    for dimension in plan.plans:
        stored = plan.sets[dimension].propositions
        if DIMENSIONS[dimension].by_action and stored is not None and stored.include_personas:
            found[dimension] = frozenset(plan.claims_of(dimension))
            continue
        path = find_yaml(world.root / PROPOSITIONS / dimension, plan.scope.agent_id)
        entries = load_document(path).data.get("propositions") or () if path else ()
        found[dimension] = frozenset(entry["id"] for entry in entries)
    return found
