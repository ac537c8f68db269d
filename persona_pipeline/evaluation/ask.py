"""Asking the judge: many agents' questions in one call, and each question once; and the conversations it is asked to make up.

What is generated is marked, and never mixed with what agents really said.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from persona_pipeline.background_loop import run_async
from persona_pipeline.errors import ConfigError
from persona_pipeline.evaluation.plan import AgentPlan
from persona_pipeline.evaluation.report import AgentEvaluation, Expense, overall_of, total_usage
from persona_pipeline.evaluation.snapshot import Snapshot
from persona_pipeline.judging.open import OpenedJudge
from persona_pipeline.judging.verdict import Judge, JudgeRequest, Verdict
from persona_pipeline.scoring import DimensionEvaluation
from persona_pipeline.scoring.judged import summarise_usage
from persona_pipeline.scoring.results import UsageSummary
from persona_pipeline.world.models import Message

Answers = Mapping[tuple[str, str, str], Verdict]


@dataclass(frozen=True)
class Judged:
    """A plan with its verdicts, in the order of its requests.

    Attributes:
        costs: what the judge was asked this time cost, by dimension.
    """

    plan: AgentPlan
    verdicts: Sequence[Verdict] = ()
    costs: Mapping[str, UsageSummary] = field(default_factory=dict)

    @property
    def told(self) -> Answers:
        """The verdicts by what was asked, failures among them: a run asks each once, or its recordings would tell another run."""
        pairs = zip(self.plan.requests, self.verdicts, strict=True) if self.verdicts else ()
        return {_identity(request): verdict for request, verdict in pairs}

    def dimensions(self) -> dict[str, DimensionEvaluation]:
        """Return the scores by dimension."""
        return self.plan.finish(self.verdicts)


def judge_plans(plans: Sequence[AgentPlan], judge: Judge, before: Sequence[Judged] = ()) -> list[Judged]:
    """Return the plans with their verdicts, from one call to the judge.

    Args:
        before: what was judged of the same plans so far, which is not asked again, nor paid again.
    """
    known = [item.told for item in before] or [{} for _ in plans]
    asked = [
        [request for request in plan.requests if _identity(request) not in have]
        for plan, have in zip(plans, known, strict=True)
    ]
    new = iter(run_async(judge.judge([request for requests in asked for request in requests])))
    found = []
    for plan, requests, have in zip(plans, asked, known, strict=True):
        answers = [(request, next(new)) for request in requests]
        every = {**have, **{_identity(request): verdict for request, verdict in answers}}
        costs = {name: summarise_usage([v for r, v in answers if r.dimension == name]) for name in plan.plans}
        found.append(Judged(plan, [every[_identity(request)] for request in plan.requests], costs))
    return found


def evaluation_of(judged: Judged, judge: Judge) -> AgentEvaluation:
    """Return the scores of one agent, from its verdicts alone."""
    plan, dimensions = judged.plan, judged.dimensions()
    models = sorted({verdict.model for verdict in judged.verdicts if verdict.model})
    prompts = sorted({verdict.prompt_version for verdict in judged.verdicts if verdict.prompt_version})
    return AgentEvaluation(
        run_id=plan.run_id(judge),
        agent_id=plan.scope.agent_id,
        display_name=plan.persona.display_name,
        overall=overall_of(dimensions),
        dimensions=dimensions,
        window_start=plan.scope.window.start,
        window_end=plan.scope.window.end,
        sample_size=len(plan.case.messages),
        synthetic=plan.scope.synthetic,
        provenance={
            "judge": judge.name,
            "judge_model": ", ".join(models) or None,
            "judge_models": models,
            "prompt_version": ", ".join(prompts) or None,
            "prompt_versions": prompts,
            "persona_hash": plan.persona.hash,
            "messages_hash": plan.messages_hash,
            "samples": plan.case.samples,
        },
        usage=total_usage(dimensions.values()),
    )


def _identity(request: JudgeRequest) -> tuple[str, str, str]:
    return request.dimension, request.proposition_id, request.key


FEWEST_MESSAGES = 10


@dataclass
class SyntheticAgents:
    """What was generated.

    Attributes:
        agents: the messages of each agent that talks in generated conversations; ``expenses``: what they cost.
        problems: which conversations ended early and why.
    """

    agents: dict[str, Sequence[Message]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    expenses: list[Expense] = field(default_factory=list)


def synthesize(snapshot: Snapshot, judge: Judge) -> SyntheticAgents:
    """Generate conversations for the agents with fewer than 10 real messages in their window.

    Raises:
        ConfigError: the judge is not live, so nobody could answer as the persona.
    """
    from persona_pipeline.judging.synthetic import generate_conversations

    if not isinstance(judge, OpenedJudge) or not judge.live or judge.writer:
        raise ConfigError("--synthetic needs a live judge and no --record; add --judge anthropic")
    talking, found = judge.without_recorded(), SyntheticAgents()
    for scope in snapshot.agents:
        agent_id, window = scope.agent_id, scope.window
        if len(snapshot.messages.within(window, agent_id=agent_id)) >= FEWEST_MESSAGES:
            continue
        generated = run_async(generate_conversations(snapshot.persona(scope), talking, ends=window.end))
        found.agents[agent_id] = generated.messages
        if generated.usage.calls:
            usage = UsageSummary(**vars(generated.usage))
            found.expenses.append(Expense(mechanism="synthetic", agent_id=agent_id, usage=usage))
        found.problems += [f"{agent_id}: a synthetic conversation ended early ({why})" for why in generated.failures]
    return found
