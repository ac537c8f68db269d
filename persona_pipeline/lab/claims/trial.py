"""A test of claims: an agent's intact window and its broken ones are judged by the same claims, all together.

A judgment that alone decides a result is repeated.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import median
from typing import Any

from persona_pipeline.base.errors import ConfigError, NothingError, did_you_mean, raise_problems
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.base.settings import Settings
from persona_pipeline.evaluation.plan import AgentPlan, Judged, judge_plans, plan_agent, planned
from persona_pipeline.evaluation.read import ALL_TIME, WorldReader
from persona_pipeline.guard.baselines.golden import BASELINES, find_baseline
from persona_pipeline.judging.verdict import Judge, JudgeRequest
from persona_pipeline.lab.claims.faults import FAULTS, break_case
from persona_pipeline.lab.claims.matrix import (
    ASSUMED_SD,
    ClaimCell,
    ClaimRow,
    FaultColumn,
    KillMatrix,
    good,
    needed_fall,
    noise_quantile,
    pooled_sd,
)
from persona_pipeline.scoring.results import DimensionEvaluation, PropositionResult, add_usage
from persona_pipeline.world.propositions.loading import PROPOSITIONS, own_claims
from persona_pipeline.world.propositions.models import DIMENSIONS
from persona_pipeline.world.world import World

INTACT = "intact"
# Repeats of a kill that is the only one of its fault or claim.
CONFIRMATIONS = 2
# Degrees of freedom from which repeated judgments show how much the judge varies.
ENOUGH_REPEATS = 20


@dataclass(frozen=True)
class TrialRequest:
    """The faults to inject and the number of judgments.

    Attributes:
        dimensions: None: all that the agent has claims for.
        faults: None: all.
        window, as_of: the messages to break; None of both: those of the newest window of the baseline, if there is one, in which
            the agent was in character.
        samples: judgments of each claim on each window; three or more show their spread.
        seed: of the faults.
    """

    agent_id: str
    dimensions: Sequence[str] | None = None
    faults: Sequence[str] | None = None
    window: str | None = None
    as_of: datetime | None = None
    samples: int = 3
    seed: int = 0

    def chosen_faults(self) -> list[str]:
        """Return the faults asked for, in their fixed order."""
        for name in self.faults or ():
            if name not in FAULTS:
                hint = did_you_mean(name, FAULTS) or f"; known: {', '.join(FAULTS)}"
                raise ConfigError(f"unknown fault {name!r}{hint}")
        return [name for name in FAULTS if self.faults is None or name in self.faults]


@dataclass(frozen=True)
class Trial:
    """The questions of a test of claims.

    Attributes:
        windows: by name: ``intact`` and each planted fault.
        broken: all faults, also those that could not be planted.
        own: claims that should distinguish the agent from others, by dimension.
    """

    request: TrialRequest
    windows: Mapping[str, AgentPlan]
    broken: Sequence[FaultColumn]
    own: Mapping[str, frozenset[str]]

    @property
    def requests(self) -> list[JudgeRequest]:
        return [asked for plan in self.windows.values() for asked in plan.requests]

    def estimate(self, settings: Settings) -> str:
        """Return the estimated cost of judging the trial live, in words."""
        from persona_pipeline.judging.estimate import estimate
        from persona_pipeline.judging.providers.base import ModelOptions

        intact = self.windows[INTACT]
        claims = sum(len(intact.claims_of(name)) for name in intact.plans)
        shown = max(len(plan.requests) / max(len(intact.claims_of(name)), 1) for name, plan in intact.plans.items())
        more = round((claims + len(self.broken)) * CONFIRMATIONS * shown / self.request.samples)
        taken = estimate(self.requests, options=ModelOptions.from_settings(settings))
        return f"{taken}\nfaults that only one claim catches are judged twice more: at most {more} judgments, usually far fewer"


def plan_trial(world: World, request: TrialRequest) -> Trial:
    """Return the required judgments, without API calls; ConfigError: bad input, no claims of these dimensions, or no messages."""
    faults = request.chosen_faults()
    asked = EvaluationRequest(
        agents=[request.agent_id],
        dimensions=request.dimensions,
        samples=request.samples,
        **_broken_window(world, request),
    )
    inputs = WorldReader(world).inputs(asked)
    raise_problems(inputs.broken)
    intact = plan_agent(inputs, inputs.agents[0], asked)
    if not intact.plans:
        raise ConfigError(
            f"{request.agent_id} has no claims to test; write {PROPOSITIONS}/<dimension>/{request.agent_id}.yaml"
        )
    if not intact.case.messages:
        raise NothingError(f"{request.agent_id} said nothing in the window; choose another with --window or --as-of")
    broken = [break_case(intact.case, name, request.seed) for name in faults]
    windows = {INTACT: intact}
    windows |= {
        item.name: planned(replace(intact, case=item.case), intact.plans.keys())
        for item in broken
        if item.case is not None
    }
    return Trial(request, windows, broken, _own_claims(world, intact))


def _broken_window(world: World, request: TrialRequest) -> dict[str, Any]:
    if request.window is None and request.as_of is None:
        known = find_baseline(world.root / BASELINES, request.agent_id)
        dimensions = known.provenance.get("dimensions", {}).values() if known else ()
        spans = [item for own in dimensions for item in own.get("recordings", ())]
        if spans:
            newest = max(spans, key=lambda item: datetime.fromisoformat(item["end"]))
            start, end = newest["start"], datetime.fromisoformat(newest["end"])
            return {"window": ALL_TIME, "as_of": end} if start is None else {"since": start, "as_of": end}
    return {"window": request.window or world.settled(EvaluationRequest()).window, "as_of": request.as_of}


def _own_claims(world: World, plan: AgentPlan) -> dict[str, frozenset[str]]:
    """Return the claims about this agent: the claims in its own files, and all that are judged with its persona."""
    found = {}
    for dimension in plan.plans:
        stored = plan.sets[dimension].propositions
        if DIMENSIONS[dimension].by_action and stored is not None and stored.include_personas:
            found[dimension] = frozenset(plan.claims_of(dimension))
        else:
            found[dimension] = own_claims(world.root / PROPOSITIONS, dimension, plan.scope.agent_id)
    return found


Scores = Mapping[str, Mapping[str, DimensionEvaluation]]


def run_trial(trial: Trial, judge: Judge) -> KillMatrix:
    """Judge all windows of a trial in one call, repeat kills that are alone, and return the matrix."""
    judged = dict(zip(trial.windows, judge_plans(list(trial.windows.values()), judge), strict=True))
    scores = {name: item.dimensions() for name, item in judged.items()}
    again = _confirmed(trial, judge, judged, _rows(trial, scores)[0])
    for name, item in again.items():
        scores[name] |= item.dimensions()
    rows, sd, measured = _rows(trial, scores)
    intact = trial.windows[INTACT]
    window = intact.scope.window
    return KillMatrix(
        agent_id=trial.request.agent_id,
        window_start=window.start.isoformat() if window.start else None,
        window_end=window.end.isoformat(),
        messages=len(intact.case.messages),
        samples=trial.request.samples,
        seed=trial.request.seed,
        judge=judge.name,
        models=sorted({v.model for item in (*judged.values(), *again.values()) for v in item.verdicts if v.model}),
        judge_sd=sd,
        sd_measured=measured,
        claims=rows,
        faults=[item.model_copy(update={"case": None}) for item in trial.broken],
        usage=add_usage(cost for item in (*judged.values(), *again.values()) for cost in item.costs.values()),
        failed=sum((Counter(item.failed) for own in scores.values() for item in own.values()), Counter()),
        judgments=len(trial.requests) + sum(_more(trial, name, item) for name, item in again.items()),
    )


def _rows(trial: Trial, scores: Scores) -> tuple[list[ClaimRow], float, bool]:
    """Return every claim on every window, how much the judge varies, and whether that was measured."""
    judged = (item for dimensions in scores.values() for item in dimensions.values())
    known = pooled_sd(row for item in judged for row in item.propositions.values())
    if known is not None and known[1] < ENOUGH_REPEATS:
        known = None
    sd, degrees = known or (ASSUMED_SD, None)
    intact = trial.windows[INTACT]
    claims = [(name, claim) for name in intact.plans for claim in intact.claims_of(name)]
    compared = len(trial.windows) - 1
    quantile = noise_quantile(len(claims) * compared, degrees)

    def row(dimension: str, claim: str) -> ClaimRow:
        results = {name: dimensions[dimension].propositions[claim] for name, dimensions in scores.items()}
        first = results[INTACT]
        whole = _cell(first)

        return ClaimRow(
            dimension=dimension,
            id=claim,
            claim=first.claim,
            inverted=first.inverted,
            # An anti-pattern should hold for no agent.
            own=not first.inverted and claim in trial.own.get(dimension, ()),
            intact=whole,
            faults={
                name: _fallen(whole, _cell(result), sd, quantile) for name, result in results.items() if name != INTACT
            },
        )

    return [row(*claim) for claim in claims], sd, known is not None


def _confirmed(trial: Trial, judge: Judge, judged: Mapping[str, Judged], rows: Sequence[ClaimRow]) -> dict[str, Judged]:
    """Judge again the kills on which a finding rests, the only one of their fault or their claim: bad luck may be behind them."""
    by_fault = Counter(fault for row in rows for fault in row.kills)
    alone: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        for fault in row.kills:
            if by_fault[fault] == 1 or len(row.kills) == 1:
                alone.setdefault(fault, {}).setdefault(row.dimension, []).append(row.id)
    plans = [trial.windows[fault].again(claims, CONFIRMATIONS) for fault, claims in alone.items()]
    return dict(zip(alone, judge_plans(plans, judge, [judged[fault] for fault in alone]), strict=True)) if plans else {}


def _more(trial: Trial, name: str, again: Judged) -> int:
    first = trial.windows[name].plans
    return len(again.plan.requests) - sum(len(first[dimension].requests) for dimension in again.plan.plans)


def _cell(result: PropositionResult) -> ClaimCell:
    score = middle = None
    if result.unscored is None:
        score = None if result.raw is None else good(result, result.raw)
        middle = good(result, median(result.samples)) if result.samples else None
    return ClaimCell(score=score, unscored=result.unscored, judgments=len(result.samples), middle=middle)


def _fallen(before: ClaimCell, now: ClaimCell, sd: float, quantile: float) -> ClaimCell:
    needed = needed_fall(sd, quantile, before.judgments, now.judgments or before.judgments)
    fall = before.score - now.score if before.score is not None and now.score is not None else None
    middle = before.middle - now.middle if before.middle is not None and now.middle is not None else None
    return now.model_copy(update={"fall": fall, "middle_fall": middle, "needed": needed})
