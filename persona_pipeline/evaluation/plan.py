"""Plan the questions of an evaluation, and ask them for many agents in one call."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice

from persona_pipeline.base.calls import run_async
from persona_pipeline.base.documents.json import content_hash
from persona_pipeline.base.errors import ConfigError, Problem, raise_problems
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.evaluation.snapshot import AgentScope, Inputs, Snapshot
from persona_pipeline.guard.report import AgentEvaluation, Expense, overall_of, uuid_from
from persona_pipeline.judging.open import OpenedJudge, replayed_by
from persona_pipeline.judging.verdict import Judge, JudgeRequest, Usage, Verdict
from persona_pipeline.scoring.facts.reading import FactsFound, FactsRequest, find_facts, talks_of
from persona_pipeline.scoring.messages.reading import MessageCall, character_of, readings_of
from persona_pipeline.scoring.plan import AgentCase, DimensionPlan, recorded_coverage, scorers
from persona_pipeline.scoring.results import DimensionEvaluation, add_usage
from persona_pipeline.scoring.style.likeness import by_speaker
from persona_pipeline.world.messages.store import MessageLog, messages_hash
from persona_pipeline.world.models import Message, Persona, Window
from persona_pipeline.world.personas import undescribed
from persona_pipeline.world.propositions.loading import StoredSet
from persona_pipeline.world.propositions.models import ADHERENCE, ALL_DIMENSIONS

HISTORY_WINDOWS = 4


@dataclass(frozen=True)
class AgentPlan:
    """All questions of an agent's evaluation, and what they are made from.

    Attributes:
        sets: the agent's merged claims by dimension.
        plans: questions by dimension, for scored dimensions with claims.
        read_at: when its messages were read.
        readings: questions about single messages; ``messages_left_out``: number of older messages without a question.
    """

    scope: AgentScope
    case: AgentCase
    sets: Mapping[str, StoredSet]
    plans: Mapping[str, DimensionPlan]
    messages_hash: str
    read_at: datetime
    readings: Sequence[MessageCall] = ()
    messages_left_out: int = 0

    @property
    def requests(self) -> list[JudgeRequest]:
        """All requests, in the order of ``plans``."""
        return [request for plan in self.plans.values() for request in plan.requests]

    @property
    def agent_id(self) -> str:
        return self.scope.agent_id

    @property
    def persona(self) -> Persona:
        return self.scope.persona

    @property
    def shown(self) -> list[Message]:
        """Every message the scores rest on."""
        return _shown(self.case)

    @property
    def claimed(self) -> list[str]:
        """Dimensions with claims, in their fixed order."""
        return [name for name in ALL_DIMENSIONS if name in self.sets and self.sets[name].propositions is not None]

    @property
    def unclaimed(self) -> list[str]:
        """Dimensions without claims; one with an invalid file is not among them."""
        return [name for name, stored in self.sets.items() if stored.propositions is None]

    def claims_of(self, dimension: str) -> list[str]:
        """Return the ids of the agent's claims of a dimension."""
        stored = self.sets.get(dimension)
        return [item.id for item in stored.propositions.propositions] if stored and stored.propositions else []

    def is_whole(self, dimensions: Collection[str]) -> bool:
        """Return whether these are all dimensions with claims. A dimension with an invalid file counts as one with claims."""
        return {*ALL_DIMENSIONS} - {*self.unclaimed} <= {*dimensions}

    def run_id(self, judge: Judge) -> str:
        """Return the id of the run: the same for the same inputs, whatever dimensions are requested."""
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
        finished, every = dict[str, DimensionEvaluation](), iter(verdicts)
        for dimension, plan in self.plans.items():
            own = list(islice(every, len(plan.requests)))
            # The number of samples is not part of the hash.
            asked = [request.key for request in plan.requests if request.sample == 0]
            item = plan.finish(own)
            item.input_hash = content_hash([self.messages_hash, *asked])
            item.samples = max((request.sample for request in plan.requests), default=0) + 1
            item.min_coverage = recorded_coverage(own)
            finished[dimension] = item
        return finished

    def again(self, claims: Mapping[str, Collection[str]], times: int) -> "AgentPlan":
        """Return a plan of these dimensions alone that judges these claims ``times`` more often."""
        more = {name: dict.fromkeys(ids, self.case.samples + times) for name, ids in claims.items()}
        return planned(replace(self, case=replace(self.case, repeats=more)), claims.keys())


def plan_agent(inputs: Inputs, scope: AgentScope, request: EvaluationRequest) -> AgentPlan:
    """Return the questions about an agent; a dimension without claims is left out."""
    plan = plan_case(build_case(inputs, scope, request.samples), scope, inputs.claims.get(scope.agent_id, {}))
    readings, left_out = _readings(inputs, plan)
    return replace(plan, readings=readings, messages_left_out=left_out, read_at=inputs.read_at)


def plans_of(inputs: Inputs, request: EvaluationRequest) -> Iterator[AgentPlan]:
    """Yield the plans of a run, agent by agent and window by window; ``ConfigError``: an agent is broken."""
    raise_problems(inputs.broken)
    return (plan_agent(inputs, item, request) for item in (*inputs.earlier, *inputs.agents))


def _readings(inputs: Inputs, plan: AgentPlan) -> tuple[Sequence[MessageCall], int]:
    """Return the questions about single messages, and the number of messages they leave out; none without adherence."""
    if ADHERENCE.name not in plan.plans or plan.scope.synthetic or not inputs.most_messages:
        return (), 0
    adherence, case = plan.sets[ADHERENCE.name].propositions, plan.case
    if adherence is None:
        return (), 0
    character = character_of(plan.persona, adherence, case.names)
    return readings_of(character, inputs.messages.talk(case.agent_id, case.window), inputs.most_messages)


def plan_run(
    snapshot: Snapshot, scopes: Sequence[AgentScope], request: EvaluationRequest, judge: Judge
) -> tuple[list[AgentPlan], dict[str, tuple[Problem, ...]]]:
    """Return the plans of some scopes, and the problems of agents that cannot be planned."""
    plans, broken = list[AgentPlan](), {}
    for scope in scopes:
        try:
            plan = plan_agent(snapshot.inputs, scope, request)
            plans.append(_made_whole(snapshot, plan, judge) if request.newest_window else plan)
        except ConfigError as error:
            broken[scope.agent_id] = error.problems
    return plans, broken


def _made_whole(snapshot: Snapshot, plan: AgentPlan, judge: Judge) -> AgentPlan:
    """Return the plan of every dimension where the earlier run lacks dimensions that are not requested."""
    known = snapshot.reference.run(plan.run_id(judge))
    if plan.is_whole({*plan.plans, *(known.dimensions if known else ())}):
        return plan
    if problems := snapshot.inputs.invalid.get(plan.agent_id):
        raise ConfigError(problems)
    return planned(plan, ALL_DIMENSIONS)


def plan_case(case: AgentCase, scope: AgentScope, sets: Mapping[str, StoredSet]) -> AgentPlan:
    """Return the questions about a case by any claims."""
    plan = AgentPlan(scope, case, sets, {}, messages_hash(_shown(case)), datetime.now(UTC))
    return planned(plan, scope.dimensions)


def planned(plan: AgentPlan, dimensions: Collection[str]) -> AgentPlan:
    """Return the plan with the questions of these dimensions."""
    questions = {
        name: scorers()[name](plan.case, stored.propositions)
        for name in ALL_DIMENSIONS
        if name in dimensions and (stored := plan.sets[name]).propositions is not None
    }
    return replace(plan, plans=questions)


def build_case(inputs: Inputs, scope: AgentScope, samples: int) -> AgentCase:
    """Return an agent's case, of real messages or of generated ones."""
    agent_id, window = scope.agent_id, scope.window
    said = inputs.generated if scope.synthetic else inputs.messages
    messages = said.within(window, agent_id=agent_id)
    # Generated conversations have no past.
    earlier = None if scope.synthetic else window.previous()
    spoken_in = sorted({message.channel for message in messages if message.channel is not None})
    return AgentCase(
        agent_id=agent_id,
        display_name=scope.persona.display_name,
        persona=scope.persona.persona,
        window=window,
        messages=messages,
        earlier=said.within(earlier, agent_id=agent_id) if earlier else (),
        before=said.within(_before(window), agent_id=agent_id) if earlier else (),
        channels={channel: said.within(window, channels=[channel]) for channel in spoken_in},
        earlier_channels={channel: said.within(earlier, channels=[channel]) for channel in spoken_in}
        if earlier
        else {},
        history=_history(said, agent_id, window) if earlier else {},
        names=inputs.names,
        samples=samples,
        lexicon=inputs.lexicon,
        alike=() if scope.synthetic else scope.alike,
    )


def history_of(window: Window) -> Window:
    """Return the window extended by the earlier windows that show the usual distance of voices."""
    return Window(window.end, window.start and window.start - HISTORY_WINDOWS * (window.end - window.start))


def _before(window: Window) -> Window:
    return Window(window.start or window.end, history_of(window).start)


def _history(said: MessageLog, agent_id: str, window: Window) -> dict[str, list[str]]:
    """Return earlier texts of all channels the agent speaks in, by speaker, oldest first."""
    own = said.within(history_of(window), agent_id=agent_id)
    spoken_in = {item.channel for item in own if item.channel is not None}
    return by_speaker(said.within(_before(window), channels=sorted(spoken_in)))


def _shown(case: AgentCase) -> list[Message]:
    around = [*case.channels.values(), *case.earlier_channels.values()]
    return [*case.messages, *case.earlier, *(message for channel in around for message in channel)]


@dataclass(frozen=True)
class Judged:
    """A plan with its verdicts, in the order of its requests, and the cost of the current calls by dimension."""

    plan: AgentPlan
    verdicts: Sequence[Verdict] = ()
    costs: Mapping[str, Usage] = field(default_factory=dict)

    @property
    def answers(self) -> Mapping[str, Verdict]:
        """Verdicts by key, failures too: a second answer to a question would differ from its recording."""
        pairs = zip(self.plan.requests, self.verdicts, strict=True) if self.verdicts else ()
        return {request.key: verdict for request, verdict in pairs}

    def dimensions(self) -> dict[str, DimensionEvaluation]:
        """Return the scores by dimension."""
        return self.plan.finish(self.verdicts)


def recorded_of(judge: Judge) -> Callable[..., bool] | None:
    """Return whether requests are recorded, as a function of them; None: the judge keeps no recordings."""
    return getattr(replayed_by(judge) or judge, "has_recorded", None)


def refused(judge: Judge, personas: Iterable[Persona]) -> dict[str, tuple[Problem, ...]]:
    """Return the problems of agents whose persona is not described yet, about which only recordings are asked."""
    return undescribed(personas) if judge.live or recorded_of(judge) is None else {}


def judge_plans(plans: Sequence[AgentPlan], judge: Judge, before: Sequence[Judged] = ()) -> list[Judged]:
    """Return the plans with their verdicts, from one call; answers in ``before`` are not asked or paid again.

    ``ConfigError``: a persona is not described yet; nothing is asked.
    """
    raise_problems(refused(judge, (plan.persona for plan in plans)))
    known = [item.answers for item in before] or [{} for _ in plans]
    asked = [
        [request for request in plan.requests if request.key not in have]
        for plan, have in zip(plans, known, strict=True)
    ]
    new = iter(run_async(judge.judge([request for requests in asked for request in requests])))
    found = []
    for plan, requests, have in zip(plans, asked, known, strict=True):
        answers = [(request, next(new)) for request in requests]
        every = {**have, **{request.key: verdict for request, verdict in answers}}
        costs = {name: add_usage(v.usage for r, v in answers if r.dimension == name) for name in plan.plans}
        found.append(Judged(plan, [every[request.key] for request in plan.requests], costs))
    return found


def evaluation_of(judged: Judged, judge: Judge) -> AgentEvaluation:
    """Return the scores of an agent, from its verdicts alone."""
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
        usage=add_usage(item.usage for item in dimensions.values()),
    )


def facts_requests(inputs: Inputs) -> list[FactsRequest]:
    """Return the questions about agents' statements on themselves, in their windows and in the history before."""
    found = []
    for scope in inputs.agents:
        if scope.past or scope.synthetic:
            continue
        said = inputs.messages.talk(scope.agent_id, history_of(scope.window))
        canon = inputs.canon.get(scope.agent_id, ())
        found.append(FactsRequest(scope.agent_id, talks_of(scope.agent_id, said), canon, scope.window))
    return found


def ask_facts(inputs: Inputs, judge: Judge) -> dict[str, FactsFound]:
    """Return agents' statements about themselves; ``ConfigError``: the judge only answers claims."""
    if not (ask := getattr(judge, "ask", None)):
        raise ConfigError(f"the judge {judge.name!r} answers nothing but claims and reads no facts; leave --facts out")
    found = run_async(find_facts(facts_requests(inputs), ask))
    return {item.agent_id: item for item in found}


FEWEST_MESSAGES = 10


@dataclass
class SyntheticAgents:
    """Generated conversations.

    Attributes:
        agents: messages by agent; ``expenses``: their cost.
        problems: conversations that ended early, and why.
    """

    agents: dict[str, Sequence[Message]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    expenses: list[Expense] = field(default_factory=list)


def silent_agents(inputs: Inputs) -> list[AgentScope]:
    """Return the agents with so few real messages in their window that conversations are generated for them."""
    said = [(scope, inputs.messages.within(scope.window, agent_id=scope.agent_id)) for scope in inputs.agents]
    return [scope for scope, own in said if len(own) < FEWEST_MESSAGES]


def synthesize(inputs: Inputs, judge: Judge) -> SyntheticAgents:
    """Generate conversations for agents with fewer than 10 real messages in their window; ``ConfigError``: no live judge."""
    from persona_pipeline.judging.synthetic import generate_conversations

    if not isinstance(judge, OpenedJudge) or not judge.live or judge.writer:
        raise ConfigError("--synthetic needs a live judge and no --record; add --judge anthropic")
    talking, found = judge.without_recorded(), SyntheticAgents()
    for scope in silent_agents(inputs):
        agent_id = scope.agent_id
        generated = run_async(generate_conversations(scope.persona, talking, ends=scope.window.end))
        found.agents[agent_id] = generated.messages
        if generated.usage.calls:
            usage = generated.usage
            found.expenses.append(Expense(mechanism="synthetic", agent_id=agent_id, usage=usage))
        found.problems += [f"{agent_id}: a synthetic conversation ended early ({why})" for why in generated.failures]
    return found


def with_generated(inputs: Inputs, generated: SyntheticAgents) -> Inputs:
    """Return inputs with generated conversations in place of some agents' messages."""
    made_up = (message for messages in generated.agents.values() for message in messages)
    agents = [replace(scope, synthetic=scope.agent_id in generated.agents) for scope in inputs.agents]
    return replace(inputs, agents=agents, generated=MessageLog.of(made_up))
