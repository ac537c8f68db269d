"""What an agent's evaluation asks the judge: its case, read from the store, and every question about it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from persona_pipeline.baselines import Baseline, find_baseline
from persona_pipeline.errors import ConfigError
from persona_pipeline.evaluation.request import EvaluationRequest
from persona_pipeline.evaluation.results import uuid_from
from persona_pipeline.evaluation.scope import AgentScope
from persona_pipeline.judging.verdict import Judge, JudgeRequest, Verdict
from persona_pipeline.propositions import ALL_DIMENSIONS, StoredSet, stored_proposition_sets
from persona_pipeline.scoring import SCORERS, AgentCase, DimensionEvaluation, DimensionPlan
from persona_pipeline.scoring.judged import recorded_coverage
from persona_pipeline.scoring.text.agreement import world_lexicon
from persona_pipeline.world import Persona, World
from persona_pipeline.world.canonical import content_hash
from persona_pipeline.world.messages import messages_hash
from persona_pipeline.world.models import Message, Window

HISTORY_WINDOWS = 4


class MessageSource(Protocol):
    """Where messages and names are read from: a world's store, or a folder as it stood in a commit."""

    @property
    def rules_root(self) -> Path: ...

    def messages(
        self,
        window: Window | None = None,
        *,
        agent_id: str | None = None,
        channels: Iterable[str] | None = None,
        synthetic: bool = False,
    ) -> list[Message]: ...

    def display_names(self) -> dict[str, str]: ...


@dataclass(frozen=True)
class AgentPlan:
    """Everything one agent's evaluation asks the judge, by dimension, and what it is made from.

    Attributes:
        sets: the agent's merged claims as they stand in the store, by dimension.
        plans: of the dimensions that are scored and that it has claims of.
        baseline: what it is compared with; None: nothing.
        read_at: when its messages were read.
    """

    scope: AgentScope
    persona: Persona
    case: AgentCase
    sets: Mapping[str, StoredSet]
    plans: Mapping[str, DimensionPlan]
    messages_hash: str
    baseline: Baseline | None
    read_at: datetime

    @property
    def requests(self) -> list[JudgeRequest]:
        """All requests, in the order of ``plans``."""
        return [request for plan in self.plans.values() for request in plan.requests]

    @property
    def claimed(self) -> list[str]:
        """The dimensions the agent has claims of, in their fixed order."""
        return [name for name in ALL_DIMENSIONS if name in self.sets and self.sets[name].propositions is not None]

    def claims_of(self, dimension: str) -> list[str]:
        """Return the ids of the agent's claims of a dimension."""
        stored = self.sets.get(dimension)
        return [item.id for item in stored.propositions.propositions] if stored and stored.propositions else []

    def is_whole(self, dimensions: Collection[str]) -> bool:
        """Whether these are all dimensions the agent has claims of, as far as the store knows of every dimension if it has any."""
        return set(ALL_DIMENSIONS) <= self.sets.keys() and set(self.claimed) <= set(dimensions)

    def run_id(self, judge: Judge) -> str:
        """Return the id of the run these inputs give, the same for the same inputs, whichever dimensions are asked for."""
        window = self.scope.window
        inputs = [
            self.scope.agent_id,
            window.start.isoformat() if window.start else None,
            window.end.isoformat(),
            self.persona.hash,
            self.messages_hash,
            judge.name,
            self.case.samples,
            self.scope.synthetic,
        ]
        return str(uuid_from(content_hash(inputs)))

    def finish(self, verdicts: Sequence[Verdict]) -> dict[str, DimensionEvaluation]:
        """Return the dimensions' evaluations from the verdicts of ``requests``."""
        finished: dict[str, DimensionEvaluation] = {}
        position = 0
        for dimension, plan in self.plans.items():
            own = verdicts[position : position + len(plan.requests)]
            position += len(plan.requests)
            # However often each was judged.
            asked = [request.key for request in plan.requests if request.sample == 0]
            item = plan.finish(own)
            item.input_hash = content_hash([self.messages_hash, *asked])
            item.samples = max((request.sample for request in plan.requests), default=0) + 1
            item.min_coverage = recorded_coverage(own)
            finished[dimension] = item
        return finished

    def again(self, claims: Mapping[str, Collection[str]], times: int) -> "AgentPlan":
        """Return the plan of these dimensions alone, in which these claims of them are judged so many times more."""
        more = {name: dict.fromkeys(ids, self.case.samples + times) for name, ids in claims.items()}
        return planned(replace(self, case=replace(self.case, repeats=more)), claims.keys())


def plan_agent(world: World, scope: AgentScope, request: EvaluationRequest) -> AgentPlan:
    """Return what must be judged; a dimension without propositions for the agent is left out.

    Raises:
        ConfigError: the agent or its proposition sets are not in the store, or its baseline is not valid.
    """
    read_at = world.clock()
    persona = scope.persona or world.persona(scope.agent_id)
    sets = stored_proposition_sets(world.store, scope.agent_id)
    missing = next((name for name in scope.dimensions if name not in sets), None)
    if missing:
        raise ConfigError(
            f"the {missing} propositions of {scope.agent_id!r} are not in the store; materialize proposition_sets/{missing}"
        )
    baseline = None if scope.synthetic else find_baseline(world.rules_root, scope.agent_id)
    case = build_case(world, persona, scope, request.samples)
    return replace(plan_case(case, replace(scope, persona=persona), sets), baseline=baseline, read_at=read_at)


def plan_case(case: AgentCase, scope: AgentScope, sets: Mapping[str, StoredSet]) -> AgentPlan:
    """Return what must be judged of a case, by claims from wherever; it is compared with no baseline.

    Args:
        scope: with its persona.
    """
    if scope.persona is None:
        raise ValueError("the scope has no persona")
    around = [*case.channels.values(), *case.earlier_channels.values()]
    everything = [*case.messages, *case.earlier, *(message for channel in around for message in channel)]
    plan = AgentPlan(scope, scope.persona, case, sets, {}, messages_hash(everything), None, datetime.now(UTC))
    return planned(plan, scope.dimensions)


def planned(plan: AgentPlan, dimensions: Collection[str]) -> AgentPlan:
    """Return the plan with the questions of these dimensions."""
    questions = {
        name: SCORERS[name](plan.case, stored.propositions)
        for name in ALL_DIMENSIONS
        if name in dimensions and (stored := plan.sets[name]).propositions is not None
    }
    return replace(plan, plans=questions)


def build_case(world: MessageSource, persona: Persona, scope: AgentScope, samples: int) -> AgentCase:
    """Read an agent's case from the store, from real messages or from generated ones, never from both."""
    agent_id, window, synthetic = scope.agent_id, scope.window, scope.synthetic
    messages = world.messages(window, agent_id=agent_id, synthetic=synthetic)
    # Generated conversations have no past.
    earlier_window = None if synthetic else window.previous()
    spoken_in = sorted({message.channel for message in messages if message.channel is not None})
    return AgentCase(
        agent_id=agent_id,
        display_name=persona.display_name,
        persona=persona.persona,
        window=window,
        messages=messages,
        earlier=world.messages(earlier_window, agent_id=agent_id) if earlier_window else (),
        channels=_by_channel(world, spoken_in, window, synthetic),
        earlier_channels=_by_channel(world, spoken_in, earlier_window, False) if earlier_window else {},
        history=_history(world, spoken_in, window) if earlier_window and spoken_in else {},
        names=world.display_names(),
        samples=samples,
        lexicon=world_lexicon(world.rules_root),
    )


def _history(world: MessageSource, channels: Sequence[str], window: Window) -> dict[str, list[str]]:
    """Return what was said in the channels in the windows before, by speaker, oldest first: how near voices were by themselves."""
    if window.start is None:
        return {}
    before = Window(window.start, window.start - HISTORY_WINDOWS * (window.end - window.start))
    found: dict[str, list[str]] = {}
    for message in world.messages(before, channels=channels):
        found.setdefault(message.agent_id, []).append(message.text)
    return found


def _by_channel(
    world: MessageSource, channels: Sequence[str], window: Window, synthetic: bool
) -> dict[str, list[Message]]:
    found: dict[str, list[Message]] = {channel: [] for channel in channels}
    for message in world.messages(window, channels=channels, synthetic=synthetic) if channels else []:
        found[message.channel or ""].append(message)
    return found
