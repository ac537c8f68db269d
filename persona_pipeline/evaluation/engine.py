"""Evaluating agents: the one path the command line, the assets and the tests call."""

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from datetime import datetime
from typing import Any, TypeVar

from persona_pipeline import __version__
from persona_pipeline.baselines import compare, find_baseline
from persona_pipeline.errors import ConfigError, Problem, did_you_mean
from persona_pipeline.evaluation.cases import (
    AgentPlan,
    plan_agent,
    resolve_window,
    run_identity,
    total_usage,
)
from persona_pipeline.evaluation.gate import GateRules, exit_code_of, judge_agent, nothing_evaluated
from persona_pipeline.evaluation.report import AgentReport, RunReport
from persona_pipeline.evaluation.results import AgentEvaluation
from persona_pipeline.evaluation.saving import save_evaluation
from persona_pipeline.judging.verdict import Judge, Verdict
from persona_pipeline.propositions import (
    ALL_DIMENSIONS,
    PROPOSITIONS,
    find_proposition_set,
    store_proposition_set,
)
from persona_pipeline.scoring import overall_score
from persona_pipeline.world import World
from persona_pipeline.world.models import Window

T = TypeVar("T")
WINDOW = "7d"


def evaluate_agent(
    world: World,
    agent_id: str,
    *,
    judge: Judge,
    dimensions: Sequence[str] = ALL_DIMENSIONS,
    window: str = WINDOW,
    as_of: datetime | None = None,
    samples: int = 1,
) -> AgentEvaluation:
    """Evaluate one agent on what its world holds now, save the run, and return it.

    Args:
        window: a length of time (``7d``, ``12h``) or ``all``.
        as_of: where the window ends; by default at the newest message.
        samples: judgments per claim.

    Raises:
        ConfigError: the agent's persona or propositions are not valid, or an argument is not.
    """
    return evaluate_agents(
        world, [agent_id], judge=judge, dimensions=dimensions, window=window, as_of=as_of, samples=samples
    )[0]


def evaluate_agents(
    world: World,
    agent_ids: Sequence[str],
    *,
    judge: Judge,
    dimensions: Sequence[str] = ALL_DIMENSIONS,
    window: str = WINDOW,
    as_of: datetime | None = None,
    samples: int = 1,
) -> list[AgentEvaluation]:
    """Evaluate several agents with their judgments pooled in one call to the judge; see ``evaluate_agent``."""
    sync_agents(world, agent_ids, dimensions)
    span = resolve_window(world, window, as_of)
    return evaluate_stored(world, agent_ids, span, judge=judge, dimensions=dimensions, samples=samples)


def evaluate_stored(
    world: World,
    agent_ids: Sequence[str],
    window: Window,
    *,
    judge: Judge,
    dimensions: Sequence[str] = ALL_DIMENSIONS,
    samples: int = 1,
    complete: bool = True,
) -> list[AgentEvaluation]:
    """Evaluate agents on what the store holds, without reading the world's files, and save the runs.

    Args:
        complete: False while other dimensions of the same runs are still to come.

    Raises:
        ConfigError: a persona or a proposition set is not in the store.
    """
    plans = [plan_agent(world, agent_id, dimensions, window, samples=samples) for agent_id in agent_ids]
    return [save_evaluation(world.store, item, complete=complete) for item in judge_plans(plans, judge)]


def judge_plans(plans: Sequence[AgentPlan], judge: Judge) -> list[AgentEvaluation]:
    """Return the evaluations of plans, unsaved, from one call to the judge."""
    verdicts = run_async(judge.judge([request for plan in plans for request in plan.requests]))
    evaluations, position = [], 0
    for plan in plans:
        count = len(plan.requests)
        evaluations.append(_finished(plan, verdicts[position : position + count], judge.name))
        position += count
    return evaluations


def evaluate_world(
    world: World,
    *,
    judge: Judge,
    agents: Sequence[str] | None = None,
    dimensions: Sequence[str] | None = None,
    window: str = WINDOW,
    as_of: datetime | None = None,
    samples: int = 1,
    rules: GateRules | None = None,
) -> RunReport:
    """Evaluate agents, compare them with their baselines and return the whole run.

    Args:
        agents: None for everybody with a persona file.
        dimensions: None for all that have propositions; a named one must have some.
        rules: what makes the run fail; by default spec/2's rules with the judge's minimum coverage.

    Raises:
        ConfigError: bad input, everything wrong with it; nothing is evaluated then.
    """
    agent_ids = select_agents(world, agents)
    asked = select_dimensions(dimensions)
    rules = rules or GateRules(min_coverage=default_coverage(judge))
    baselines = {agent_id: find_baseline(world.root, agent_id) for agent_id in agent_ids}
    evaluations = evaluate_agents(
        world, agent_ids, judge=judge, dimensions=asked, window=window, as_of=as_of, samples=samples
    )
    reports: dict[str, AgentReport] = {}
    for evaluation in evaluations:
        # A run may hold dimensions of an earlier, wider evaluation of the same inputs; this run speaks of its own.
        own = {name: item for name, item in evaluation.dimensions.items() if name in asked}
        evaluation = evaluation.model_copy(
            update={"dimensions": own, "overall": overall_score({n: item.score for n, item in own.items()})}
        )
        reports[evaluation.agent_id] = report_agent(evaluation, baselines[evaluation.agent_id], rules)
    return assemble(reports, judge=judge, rules=rules, window=window, dimensions=asked, samples=samples)


def report_agent(evaluation: AgentEvaluation, baseline: Any, rules: GateRules) -> AgentReport:
    """Return an agent's report: its evaluation compared with its baseline by the rules."""
    comparison = compare(
        evaluation.agent_id,
        evaluation.dimensions,
        baseline,
        delta=rules.regression_delta,
        proposition_delta=rules.proposition_delta,
        min_coverage=rules.min_coverage,
        provenance=evaluation.provenance,
    )
    return judge_agent(evaluation, comparison, rules)


def assemble(
    reports: dict[str, AgentReport],
    *,
    judge: Judge,
    rules: GateRules,
    window: str,
    dimensions: Sequence[str],
    samples: int = 1,
) -> RunReport:
    """Return the run's report from its agents' reports."""
    ends = {report.evaluation.window_end for report in reports.values()}
    run = RunReport(
        agents=reports,
        findings=nothing_evaluated(reports.values()),
        usage=total_usage([item for report in reports.values() for item in report.evaluation.dimensions.values()]),
        provenance={
            "version": __version__,
            "judge": judge.name,
            "judge_models": sorted({m for r in reports.values() for m in r.evaluation.provenance["judge_models"]}),
            "prompt_versions": sorted(
                {p for r in reports.values() for p in r.evaluation.provenance["prompt_versions"]}
            ),
            "window": window,
            "window_end": max(ends).isoformat() if ends else None,
            "dimensions": list(dimensions),
            "samples": samples,
            "min_coverage": rules.min_coverage,
            "regression_delta": rules.regression_delta,
            "proposition_delta": rules.proposition_delta,
        },
    )
    run.exit_code = exit_code_of(run.all_findings(), rules)
    return run


def select_agents(world: World, agents: Sequence[str] | None) -> list[str]:
    """Return the agents asked for, in order, each once.

    Raises:
        ConfigError: an agent has no persona file, or there is no agent at all.
    """
    known = world.agent_ids()
    if agents is None:
        agents = known
    problems = [
        Problem(f"unknown agent {agent!r}{did_you_mean(agent, known) or '; known: ' + ', '.join(known)}")
        for agent in agents
        if agent not in known
    ]
    if problems:
        raise ConfigError(problems)
    if not agents:
        raise ConfigError(f"no agents: write personas/<agent_id>.yaml in {world.root}")
    return list(dict.fromkeys(agents))


def select_dimensions(dimensions: Sequence[str] | None) -> list[str]:
    """Return the dimensions asked for, in their fixed order.

    Raises:
        ConfigError: one is unknown, or none is named.
    """
    if dimensions is None:
        return list(ALL_DIMENSIONS)
    problems = [
        Problem(f"unknown dimension {d!r}{did_you_mean(d, ALL_DIMENSIONS) or '; known: ' + ', '.join(ALL_DIMENSIONS)}")
        for d in dimensions
        if d not in ALL_DIMENSIONS
    ]
    if problems or not dimensions:
        raise ConfigError(problems or "no dimensions are named; leave --dimensions out for all of them")
    return [dimension for dimension in ALL_DIMENSIONS if dimension in dimensions]


def default_coverage(judge: Judge) -> float:
    """Return the share of judgments that must be scored: all in replay, 95 % live, unless the settings say otherwise."""
    from persona_pipeline.settings import get_settings

    settings = get_settings()
    return settings.min_coverage_live if judge.live else settings.min_coverage_replay


def sync_agents(world: World, agent_ids: Sequence[str], dimensions: Sequence[str]) -> None:
    """Bring personas, messages and proposition sets into the store.

    Raises:
        ConfigError: everything wrong with the agents' files.
    """
    problems: list[Problem] = []
    for agent_id in agent_ids:
        try:
            world.sync_persona(agent_id)
        except ConfigError as error:
            problems += error.problems
            continue
        for dimension in dimensions:
            try:
                sync_propositions(world, agent_id, dimension)
            except ConfigError as error:
                problems += error.problems
    if problems:
        # A default file's problem is every agent's: say it once.
        raise ConfigError(list(dict.fromkeys(problems)))
    world.sync_messages()


def sync_propositions(world: World, agent_id: str, dimension: str) -> str:
    """Bring one agent's set of a dimension into the store and return its hash.

    Raises:
        ConfigError: a file is not valid.
    """
    propositions = find_proposition_set(world.root / PROPOSITIONS, dimension, agent_id)
    if propositions is not None and not propositions.propositions:
        propositions = None
    return store_proposition_set(world.store, agent_id, dimension, propositions)


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, also where an event loop already runs in this thread (a notebook, an async caller)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    outcome: dict[str, Any] = {}

    def target() -> None:
        try:
            outcome["value"] = asyncio.run(work)
        except BaseException as error:
            outcome["error"] = error

    thread = threading.Thread(target=target, name="evaluation")
    thread.start()
    thread.join()
    if "error" in outcome:
        raise outcome["error"]
    return outcome["value"]


def _finished(plan: AgentPlan, verdicts: Sequence[Verdict], judge: str) -> AgentEvaluation:
    dimensions = plan.finish(verdicts)
    window: Window = plan.case.window
    models = sorted({verdict.model for verdict in verdicts if verdict.model})
    prompts = sorted({verdict.prompt_version for verdict in verdicts if verdict.prompt_version})
    return AgentEvaluation(
        run_id=run_identity(plan, judge),
        agent_id=plan.case.agent_id,
        display_name=plan.case.display_name,
        overall=overall_score({name: item.score for name, item in dimensions.items()}),
        dimensions=dimensions,
        window_start=window.start,
        window_end=window.end,
        sample_size=len(plan.case.messages),
        synthetic=plan.synthetic,
        provenance={
            "judge": judge,
            "judge_model": ", ".join(models) or None,
            "judge_models": models,
            "prompt_version": ", ".join(prompts) or None,
            "prompt_versions": prompts,
            "persona_hash": plan.persona_hash,
            "messages_hash": plan.messages_hash,
            "samples": plan.case.samples,
        },
        usage=total_usage(list(dimensions.values())),
    )
