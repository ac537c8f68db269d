"""The one way through an evaluation: plan, judge, compare, confirm, save. Every caller cuts it where it needs to."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from persona_pipeline.baselines import find_baseline, watched_agents
from persona_pipeline.baselines.families import MOST_TOGETHER
from persona_pipeline.errors import ConfigError, Problem
from persona_pipeline.evaluation.announcing import announce
from persona_pipeline.evaluation.comparison import Evaluated, Guard, compared, confirm
from persona_pipeline.evaluation.gate import GateRules
from persona_pipeline.evaluation.judged import Judged, evaluation_of, judge_plans
from persona_pipeline.evaluation.plan import AgentPlan, plan_agent, planned
from persona_pipeline.evaluation.report import AgentReport, expenses_of
from persona_pipeline.evaluation.request import EvaluationRequest, rules_of
from persona_pipeline.evaluation.results import AgentEvaluation
from persona_pipeline.evaluation.saving import SavedRun, joined, load_run, newest_p_values, save_run
from persona_pipeline.evaluation.scope import AgentScope, raise_problems
from persona_pipeline.evaluation.syncing import sync_propositions
from persona_pipeline.evaluation.trends import WatchedPoints, trend_findings, trends_of
from persona_pipeline.evaluation.trust import known_trust
from persona_pipeline.evaluation.voice import voice_findings, voice_state
from persona_pipeline.judging.verdict import Judge
from persona_pipeline.propositions import ALL_DIMENSIONS
from persona_pipeline.scoring.results import add_usage
from persona_pipeline.store.leases import exclusive
from persona_pipeline.world import World


@dataclass(frozen=True)
class AgentResult:
    """One agent's plan and the report of it; ``report`` speaks of the whole run, however much of it was asked for."""

    plan: AgentPlan
    report: AgentReport


@dataclass
class Results:
    """What came of some scopes, in their order, and what was wrong with agents that could not be evaluated."""

    found: list[AgentResult] = field(default_factory=list)
    broken: dict[str, tuple[Problem, ...]] = field(default_factory=dict)

    def raise_broken(self) -> None:
        """Raise everything wrong with the agents that could not be evaluated.

        Raises:
            ConfigError: there is one.
        """
        raise_problems(self.broken)


def evaluate_scopes(world: World, scopes: Sequence[AgentScope], judge: Judge, request: EvaluationRequest) -> Results:
    """Evaluate, compare and save agents on their windows, their judgments pooled in one call.

    No other evaluation of these agents runs meanwhile, whatever process or host it runs in: it waits, and finds the answers.
    """
    with exclusive(world.store, [f"evaluate/{scope.agent_id}" for scope in scopes]):
        guard = guard_of(world, rules_of(request, judge))
        results, evaluated = _evaluated(world, scopes, judge, request, guard)
        complete = []
        for item in evaluated:
            if problem := _missing(item):
                results.broken[item.plan.scope.agent_id] = (problem,)
            else:
                complete.append(item)
        found = [_compared(item, guard) for item in complete]
        if guard.watched.count > MOST_TOGETHER:
            # How much stands out depends on what the others do now: their first answers are in the second.
            now = {result.report.evaluation.agent_id: result.report.comparison.p_value for result in found}
            others = {**guard.others, **{agent_id: p for agent_id, p in now.items() if p is not None}}
            found = [_compared(item, replace(guard, others=others)) for item in complete]
        watched = _watched_points(world, guard)
        for result in (_with_warnings(world, result, guard, watched) for result in found):
            save_run(world.store, _run_of(result))
            announce(world, result.report)
            results.found.append(_as_paid(result))
    return results


def score_scope(world: World, scope: AgentScope, judge: Judge, request: EvaluationRequest) -> AgentEvaluation:
    """Score the scope's dimensions into the agent's run, what fell confirmed, and return the run so far.

    The run stays unfinished until ``evaluate_scopes`` compares it: with no dimensions named it judges nothing new.

    Raises:
        ConfigError: the agent's files in the store are not complete, or its baseline is not valid.
    """
    with exclusive(world.store, [f"evaluate/{scope.agent_id}"]):
        guard = guard_of(world, rules_of(request, judge))
        results, evaluated = _evaluated(world, [scope], judge, request, guard)
        results.raise_broken()
        (item,) = evaluated
        save_run(world.store, SavedRun(item.evaluation, whole=False))
    return item.evaluation


def guard_of(world: World, rules: GateRules) -> Guard:
    """Return by what a fall in a world is told from chance.

    Raises:
        ConfigError: baselines, labels, or the file of judge changes are not valid.
    """
    watched = watched_agents(world.rules_root)
    others = newest_p_values(world.store) if watched.count > MOST_TOGETHER else {}
    return Guard(rules, watched, others, known_trust(world))


def compare_again(
    world: World, results: Sequence[AgentResult], judge: Judge, request: EvaluationRequest
) -> list[AgentResult]:
    """Return results compared with the baselines as they are on disk now, and save them."""
    guard = guard_of(world, rules_of(request, judge))
    watched = _watched_points(world, guard)
    return [_compared_again(world, result, guard, watched) for result in results]


def _compared_again(world: World, result: AgentResult, guard: Guard, watched: WatchedPoints) -> AgentResult:
    plan = replace(result.plan, baseline=find_baseline(world.rules_root, result.plan.scope.agent_id))
    run = load_run(world.store, result.report.evaluation.run_id)
    evaluation = run.evaluation if run else result.report.evaluation
    again = _compared(Evaluated(Judged(plan), evaluation, result.report.expenses), guard)
    again = _with_warnings(world, again, guard, watched)
    save_run(world.store, _run_of(again))
    return again


def _evaluated(
    world: World, scopes: Sequence[AgentScope], judge: Judge, request: EvaluationRequest, guard: Guard
) -> tuple[Results, list[Evaluated]]:
    results, plans = Results(), []
    for scope in scopes:
        try:
            plan = plan_agent(world, scope, request)
            plans.append(_made_whole(world, plan, judge) if request.newest_window else plan)
        except ConfigError as error:
            results.broken[scope.agent_id] = error.problems
    evaluated = [_with_earlier_scores(world, judged, judge) for judged in judge_plans(plans, judge)]
    if request.confirm:
        evaluated = confirm(evaluated, judge, guard)
    return results, evaluated


def _made_whole(world: World, plan: AgentPlan, judge: Judge) -> AgentPlan:
    """Return the plan of every dimension where the run on these inputs does not hold those that are not asked for."""
    known = load_run(world.store, plan.run_id(judge))
    held = {*plan.plans, *(known.evaluation.dimensions if known else ())}
    if plan.is_whole(held):
        return plan
    fresh = {name: sync_propositions(world, plan.scope.agent_id, name) for name in ALL_DIMENSIONS}
    return planned(replace(plan, sets=fresh), ALL_DIMENSIONS)


def _with_earlier_scores(world: World, judged: Judged, judge: Judge) -> Evaluated:
    fresh = evaluation_of(judged, judge)
    known = load_run(world.store, fresh.run_id)
    evaluation = joined(known.evaluation if known else None, fresh, judged.plan.claimed)
    return Evaluated(judged, evaluation, expenses_of(fresh.agent_id, fresh.dimensions.values()))


def _missing(item: Evaluated) -> Problem | None:
    """Return what is not scored of a run that should be complete."""
    plan = item.plan
    missing = [name for name in plan.claimed if name not in item.evaluation.dimensions]
    if not missing or plan.scope.dimensions:
        return None
    names = ", ".join(f"{name}_scores" for name in missing)
    return Problem(f"{plan.scope.agent_id}: not every dimension is scored on the current messages; materialize {names}")


def _compared(item: Evaluated, guard: Guard) -> AgentResult:
    plan, evaluation = item.plan, item.evaluation
    due = ALL_DIMENSIONS if plan.is_whole(evaluation.dimensions) else plan.scope.dimensions
    report = compared(evaluation, plan.baseline, guard, due)
    return AgentResult(plan, report.model_copy(update={"expenses": list(item.expenses), "past": plan.scope.past}))


def _watched_points(world: World, guard: Guard) -> WatchedPoints:
    return WatchedPoints(world.store, sorted(guard.watched.baselines))


def _with_warnings(world: World, result: AgentResult, guard: Guard, watched: WatchedPoints) -> AgentResult:
    report, agent_id = result.report, result.report.evaluation.agent_id
    if report.past or report.evaluation.synthetic:
        return result
    falling = trends_of(report.evaluation, watched)
    # Learning takes a second an agent: done here only for who wants to fail on it.
    learn = "voice_alarm" in (guard.rules.fail_on or ())
    voice = voice_state(world, agent_id, result.plan.scope.window, learn=learn)
    findings = [*report.findings, *trend_findings(agent_id, falling), *voice_findings(voice)]
    return replace(result, report=report.model_copy(update={"findings": findings}))


def _run_of(result: AgentResult) -> SavedRun:
    plan, report = result.plan, result.report
    whole = plan.is_whole(report.evaluation.dimensions)
    return SavedRun(report.evaluation, report.comparison, report.findings, whole, plan.read_at)


def _as_paid(result: AgentResult) -> AgentResult:
    # The row keeps what the run cost when it was paid for; the caller learns what it cost now.
    report, scored = result.report, result.plan.plans
    now = {
        name: item.model_copy(update={"usage": add_usage(e.usage for e in report.expenses if e.dimension == name)})
        for name, item in report.evaluation.dimensions.items()
        if name in scored
    }
    evaluation = report.evaluation.model_copy(update={"dimensions": {**report.evaluation.dimensions, **now}})
    return replace(result, report=report.model_copy(update={"evaluation": evaluation}))
