"""Conversations for agents that have hardly said anything: generated, marked, and never mixed with real ones."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from persona_pipeline.background_loop import run_async
from persona_pipeline.errors import ConfigError
from persona_pipeline.evaluation.report import Expense
from persona_pipeline.evaluation.scope import AgentScope
from persona_pipeline.judging.open import OpenedJudge
from persona_pipeline.judging.verdict import Judge
from persona_pipeline.scoring.results import UsageSummary
from persona_pipeline.world import World
from persona_pipeline.world.messages import write_messages

FEWEST_MESSAGES = 10


@dataclass
class SyntheticAgents:
    """Which agents talk in generated conversations, and what each of them cost.

    Attributes:
        problems: which conversations ended early and why.
    """

    agents: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    expenses: list[Expense] = field(default_factory=list)


def synthesize(world: World, scopes: Sequence[AgentScope], judge: Judge) -> SyntheticAgents:
    """Generate conversations for the agents with fewer than 10 real messages in their window, and store them as synthetic.

    Raises:
        ConfigError: the judge is not live, so nobody could answer as the persona.
    """
    from persona_pipeline.judging.synthetic import generate_conversations

    if not isinstance(judge, OpenedJudge) or not judge.live or judge.writer:
        raise ConfigError("--synthetic needs a live judge and no --record; add --judge anthropic")
    talking, found = judge.without_recorded(), SyntheticAgents()
    for agent_id, window in ((scope.agent_id, scope.window) for scope in scopes):
        if len(world.messages(window, agent_id=agent_id)) >= FEWEST_MESSAGES:
            continue
        generated = run_async(generate_conversations(world.persona(agent_id), talking, ends=window.end))
        write_messages(world.store, generated.messages, source=f"synthetic/{agent_id}", mirror=True)
        found.agents.add(agent_id)
        if generated.usage.calls:
            usage = UsageSummary(**vars(generated.usage))
            found.expenses.append(Expense(mechanism="synthetic", agent_id=agent_id, usage=usage))
        found.problems += [f"{agent_id}: a synthetic conversation ended early ({why})" for why in generated.failures]
    return found
