"""Ideas quantity: how many new ideas does the agent contribute? Judged per channel; the distinct ideas are counted."""

from collections.abc import Sequence

from persona_pipeline.scoring.plan import (
    AgentCase,
    Composed,
    DimensionPlan,
    JudgedPropositions,
    JudgingContext,
    judged_part,
    judged_plan,
    no_evidence,
)
from persona_pipeline.scoring.text.tokens import tokenize
from persona_pipeline.world.models import windowed
from persona_pipeline.world.propositions.models import PropositionSet


def plan_ideas_quantity(case: AgentCase, propositions: PropositionSet) -> DimensionPlan:
    """Plan ideas quantity: each channel the agent spoke in, weighted by its messages there; not in the overall score."""
    channels = {channel: messages for channel, messages in case.channels.items() if messages}
    if not channels:
        return no_evidence(case, propositions, "the agent said nothing in a channel")
    contexts = [
        JudgingContext(
            windowed([case.entry(message) for message in messages], *propositions.window()),
            {"agent_name": case.display_name, "channel_name": channel},
            part=channel,
            weight=float(case.own_count(messages)),
        )
        for channel, messages in channels.items()
    ]

    def composed(judged: JudgedPropositions) -> Composed:
        ideas = {channel: distinct_ideas(listed) for channel, listed in judged.ideas.items()}
        complete = ideas.keys() == channels.keys()
        statistics = {"idea_count": sum(map(len, ideas.values())) if complete else None, "ideas": ideas}
        return (), [judged_part(judged)], statistics

    return judged_plan(case, propositions, contexts, composed, persona=case.persona, lists_ideas=True)


def distinct_ideas(ideas: Sequence[str]) -> list[str]:
    """Return the distinct ideas in order, ignoring case and punctuation."""
    return list({" ".join(tokenize(idea)): idea for idea in reversed(ideas) if tokenize(idea)}.values())[::-1]
