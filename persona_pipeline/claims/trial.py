"""Breaking an agent on purpose and judging the broken windows beside the intact one, with the same claims."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from persona_pipeline.claims.breaking import BrokenCase, break_case, under_name_of
from persona_pipeline.claims.faults import FAULTS
from persona_pipeline.claims.matrix import (
    ASSUMED_SD,
    Cell,
    ClaimRow,
    FaultColumn,
    KillMatrix,
    needed_fall,
    noise_quantile,
    pooled_sd,
)
from persona_pipeline.claims.signals import against, read_signals
from persona_pipeline.documents import load_document
from persona_pipeline.errors import ConfigError, did_you_mean
from persona_pipeline.evaluation import EvaluationRequest
from persona_pipeline.evaluation.judged import Judged, judge_plans
from persona_pipeline.evaluation.plan import AgentPlan, build_case, plan_agent, planned
from persona_pipeline.evaluation.scope import AgentScope, resolve_scope
from persona_pipeline.judging.verdict import Judge, JudgeRequest
from persona_pipeline.propositions import PROPOSITIONS
from persona_pipeline.scoring import AgentCase, DimensionEvaluation
from persona_pipeline.scoring.results import PropositionResult, add_usage
from persona_pipeline.world import World
from persona_pipeline.world.files import find_yaml
from persona_pipeline.world.models import Message, Window

INTACT = "intact"


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

        return str(estimate(self.requests))


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


def run_trial(trial: Trial, judge: Judge) -> KillMatrix:
    """Judge the windows of a trial, all in one call, and return the matrix."""
    judged = dict(zip(trial.windows, judge_plans(list(trial.windows.values()), judge), strict=True))
    scores = {name: item.dimensions() for name, item in judged.items()}
    known = pooled_sd(list(_spreads(scores.values())))
    sd, degrees = known or (ASSUMED_SD, None)
    intact = trial.windows[INTACT]
    claims = [(name, claim) for name in intact.plans for claim in intact.claims_of(name)]
    compared = len(trial.windows) - 1
    quantile = noise_quantile(len(claims) * compared, degrees)

    def row(dimension: str, claim: str) -> ClaimRow:
        results = {name: dimensions[dimension].propositions[claim] for name, dimensions in scores.items()}
        first = results[INTACT]
        whole = _cell(first)

        def cells(names: Iterable[str]) -> dict[str, Cell]:
            return {name: _fallen(whole, _cell(results[name]), sd, quantile) for name in names}

        return ClaimRow(
            dimension=dimension,
            id=claim,
            claim=first.claim,
            inverted=first.inverted,
            # An anti-pattern should hold of nobody.
            own=not first.inverted and claim in trial.own.get(dimension, ()),
            intact=whole,
            faults=cells(item.name for item in trial.broken if item.case is not None),
            others=cells(trial.others),
        )

    signals = read_signals(intact.case, trial.before)
    window = intact.scope.window
    return KillMatrix(
        agent_id=trial.request.agent_id,
        window_start=window.start.isoformat() if window.start else None,
        window_end=window.end.isoformat(),
        messages=len(intact.case.messages),
        samples=trial.request.samples,
        seed=trial.request.seed,
        judge=judge.name,
        judge_sd=sd,
        sd_measured=known is not None,
        claims=[row(*claim) for claim in claims],
        faults=[
            FaultColumn(
                name=item.name,
                what=item.what,
                changed=item.changed,
                why_not=item.why_not,
                signals=against(signals, read_signals(item.case, trial.before)) if item.case else {},
            )
            for item in trial.broken
        ],
        intact_signals=signals,
        usage=add_usage(cost for item in judged.values() for cost in item.costs.values()),
        failed=_failed(judged.values()),
        judgments=len(trial.requests),
    )


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
        if dimension == "adherence" and stored is not None and stored.include_personas:
            found[dimension] = frozenset(plan.claims_of(dimension))
            continue
        path = find_yaml(world.root / PROPOSITIONS / dimension, plan.scope.agent_id)
        entries = load_document(path).data.get("propositions") or () if path else ()
        found[dimension] = frozenset(entry["id"] for entry in entries)
    return found


def _cell(result: PropositionResult) -> Cell:
    score = None
    if result.raw is not None and result.unscored is None:
        score = 9 - result.raw if result.inverted else result.raw
    return Cell(score=score, unscored=result.unscored, judgments=len(result.samples))


def _fallen(before: Cell, now: Cell, sd: float, quantile: float) -> Cell:
    needed = needed_fall(sd, quantile, before.judgments, now.judgments or before.judgments)
    fall = before.score - now.score if before.score is not None and now.score is not None else None
    return now.model_copy(update={"fall": fall, "needed": needed})


def _spreads(windows: Iterable[Mapping[str, DimensionEvaluation]]) -> Iterable[tuple[float, int]]:
    """Yield the judge's deviation in each cell, with its degrees of freedom."""
    for dimensions in windows:
        for evaluation in dimensions.values():
            for result in evaluation.propositions.values():
                contexts = len({part["part"] for part in result.parts}) or 1
                if result.spread is not None and len(result.samples) > contexts:
                    yield result.spread, len(result.samples) - contexts


def _failed(judged: Iterable[Judged]) -> dict[str, int]:
    found: dict[str, int] = {}
    for item in judged:
        for verdict in item.verdicts:
            if verdict.unscored is not None and not verdict.unscored.is_answer:
                found[verdict.unscored.value] = found.get(verdict.unscored.value, 0) + 1
    return found
