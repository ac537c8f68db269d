"""From the store to a scorer's input: one agent, one window."""

import hashlib
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from persona_pipeline.errors import ConfigError
from persona_pipeline.judging.verdict import JudgeRequest, Verdict
from persona_pipeline.propositions import PropositionSet, stored_proposition_set
from persona_pipeline.scoring import SCORERS, AgentCase, DimensionEvaluation, DimensionPlan
from persona_pipeline.scoring.results import UsageSummary, add_usage
from persona_pipeline.scoring.text.agreement import world_lexicon
from persona_pipeline.world import World, parse_window
from persona_pipeline.world.canonical import content_hash
from persona_pipeline.world.messages import messages_hash
from persona_pipeline.world.models import Message, Window

ALL_TIME = "all"


@dataclass(frozen=True)
class AgentPlan:
    """Everything one agent's evaluation asks the judge, by dimension, and what it was made from."""

    case: AgentCase
    plans: dict[str, DimensionPlan]
    messages_hash: str
    persona_hash: str
    synthetic: bool = False

    @property
    def requests(self) -> list[JudgeRequest]:
        """All requests, in the order of ``plans``."""
        return [request for plan in self.plans.values() for request in plan.requests]

    def finish(self, verdicts: Sequence[Verdict]) -> dict[str, DimensionEvaluation]:
        """Return the dimensions' evaluations from the verdicts of ``requests``."""
        finished: dict[str, DimensionEvaluation] = {}
        position = 0
        for dimension, plan in self.plans.items():
            own = verdicts[position : position + len(plan.requests)]
            position += len(plan.requests)
            item = plan.finish(own)
            item.input_hash = self.input_hash(dimension)
            finished[dimension] = item
        return finished

    def input_hash(self, dimension: str) -> str:
        """Return a hash of what the dimension was scored on: its judgments and its messages."""
        return content_hash([self.messages_hash, *(request.key for request in self.plans[dimension].requests)])


def resolve_window(world: World, window: str, as_of: datetime | None) -> Window:
    """Return the window that ends at ``as_of`` (default: the newest message in the store; never the clock).

    Raises:
        ConfigError: ``window`` is neither ``all`` nor a length of time, ``as_of`` has no offset, or there is no message.
    """
    length = None if window == ALL_TIME else parse_window(window)
    if as_of is not None and as_of.tzinfo is None:
        raise ConfigError(f"as-of {as_of.isoformat()} has no offset; add Z or +02:00")
    end = as_of or world.newest_message_time()
    if end is None:
        raise ConfigError("there are no messages; put them into messages/ or run persona-pipeline ingest FILE")
    try:
        return Window.ending(end, length)
    except OverflowError as error:
        raise ConfigError(f"window {window!r} reaches before year 1; shorten it or use 'all'") from error


def build_case(world: World, agent_id: str, window: Window, *, samples: int = 1, synthetic: bool = False) -> AgentCase:
    """Read an agent's case from the store, from real messages or from generated ones, never from both.

    Raises:
        ConfigError: the agent has no persona there.
    """
    persona = world.persona(agent_id)
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
        channels=_by_channel(world, spoken_in, window, synthetic=synthetic),
        earlier_channels=_by_channel(world, spoken_in, earlier_window) if earlier_window else {},
        names=world.display_names(),
        samples=samples,
        lexicon=world_lexicon(world.root),
    )


def _by_channel(
    world: World, channels: Sequence[str], window: Window, *, synthetic: bool = False
) -> dict[str, list[Message]]:
    found: dict[str, list[Message]] = {channel: [] for channel in channels}
    for message in world.messages(window, channels=channels, synthetic=synthetic) if channels else []:
        found[message.channel or ""].append(message)
    return found


def plan_agent(
    world: World,
    agent_id: str,
    dimensions: Sequence[str],
    window: Window,
    *,
    samples: int = 1,
    synthetic: bool = False,
) -> AgentPlan:
    """Return what must be judged; a dimension without propositions for the agent is left out.

    Raises:
        ConfigError: the agent or its proposition sets are not in the store.
    """
    case = build_case(world, agent_id, window, samples=samples, synthetic=synthetic)
    plans: dict[str, DimensionPlan] = {}
    for dimension in dimensions:
        propositions: PropositionSet | None = stored_proposition_set(world.store, agent_id, dimension)
        if propositions is not None:
            plans[dimension] = SCORERS[dimension](case, propositions)
    around = [*case.channels.values(), *case.earlier_channels.values()]
    everything = [*case.messages, *case.earlier, *(message for channel in around for message in channel)]
    return AgentPlan(case, plans, messages_hash(everything), world.persona(agent_id).hash, synthetic)


def run_identity(plan: AgentPlan, judge: str) -> str:
    """Return the id of the run these inputs give, the same for the same inputs, whichever dimensions are asked for."""
    window, case = plan.case.window, plan.case
    digest = content_hash(
        [
            case.agent_id,
            window.start.isoformat() if window.start else None,
            window.end.isoformat(),
            plan.persona_hash,
            plan.messages_hash,
            judge,
            case.samples,
            plan.synthetic,
        ]
    )
    return str(uuid_from(digest))


def uuid_from(text: str) -> uuid.UUID:
    """Return a name-based UUID of a text."""
    return uuid.UUID(bytes=hashlib.sha256(text.encode()).digest()[:16], version=5)


def total_usage(dimensions: Iterable[DimensionEvaluation]) -> UsageSummary:
    """Return what several dimensions cost together."""
    return add_usage(item.usage for item in dimensions)
