"""A whole run as a user asks for it: a request in, a report out. The command line and the CI job call this."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from typing_extensions import Unpack

from persona_pipeline.baselines import captured, find_baseline, save_baseline
from persona_pipeline.baselines.regression import least_coverage
from persona_pipeline.errors import Problem
from persona_pipeline.evaluation.against import AskedOnce, judged_against
from persona_pipeline.evaluation.comparison import judged_on, restricted
from persona_pipeline.evaluation.gate import (
    GateRules,
    exit_code_of,
    missing_agent_findings,
    nothing_evaluated,
    run_coverage,
)
from persona_pipeline.evaluation.naming import name_findings, name_notes
from persona_pipeline.evaluation.people import calibrated, peoples_labels
from persona_pipeline.evaluation.pipeline import AgentResult, Results, compare_again, evaluate_scopes
from persona_pipeline.evaluation.plan import AgentPlan, plan_agent
from persona_pipeline.evaluation.report import AgentReport, Expense, RunReport
from persona_pipeline.evaluation.request import EvaluationRequest, rules_of, select_dimensions, settled
from persona_pipeline.evaluation.results import AgentEvaluation
from persona_pipeline.evaluation.saving import mark_baseline
from persona_pipeline.evaluation.scope import resolve_scope
from persona_pipeline.evaluation.synthetic import SyntheticAgents, synthesize
from persona_pipeline.evaluation.unbelieved import is_believable
from persona_pipeline.judging.verdict import Judge, JudgeRequest
from persona_pipeline.options import Asking
from persona_pipeline.version import __version__
from persona_pipeline.world import World
from persona_pipeline.world.missing import missing_agents
from persona_pipeline.world.speakers import NameMatch, stored_names


@dataclass
class EvaluationRun:
    """A finished run.

    Attributes:
        problems: lines of message files left out; ``notes``: what else is said on the terminal.
        baselines: files written.
    """

    report: RunReport
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    baselines: list[Path] = field(default_factory=list)


def evaluate_agent(world: World, agent_id: str, *, judge: Judge, **asked: Unpack[Asking]) -> AgentEvaluation:
    """Evaluate one agent on what its world holds now, save the run with its comparison, and return its scores.

    Args:
        asked: see ``EvaluationRequest``.

    Raises:
        ConfigError: the agent's persona or propositions are not valid, or an argument is not.
    """
    request = settled(world, EvaluationRequest.model_validate({**asked, "agents": [agent_id]}))
    scope = resolve_scope(world, request)
    scope.raise_broken()
    results = evaluate_scopes(world, scope.agents, judge, request)
    results.raise_broken()
    return results.found[0].report.evaluation


def evaluate_world(world: World, *, judge: Judge, **asked: Unpack[Asking]) -> RunReport:
    """Evaluate agents, compare them with their baselines and return the whole run.

    Args:
        asked: see ``EvaluationRequest``.

    Raises:
        ConfigError: bad input, everything wrong with it; nothing is evaluated then.
    """
    return run_evaluation(world, judge, EvaluationRequest.model_validate(asked)).report


def run_evaluation(world: World, judge: Judge, request: EvaluationRequest) -> EvaluationRun:
    """Evaluate, compare, and write baselines if asked to.

    Raises:
        ConfigError: bad input; nothing is evaluated then.
    """
    if request.against is None:
        return _run_once(world, judge, request)
    asked, runs = AskedOnce(judge) if judge.live else judge, list[EvaluationRun]()

    def evaluate(judged: World, wanted: EvaluationRequest) -> RunReport:
        runs.append(_run_once(judged, asked, wanted))
        return runs[-1].report

    report = judged_against(world, request, evaluate)
    report.expenses = [expense for run in runs for expense in run.report.expenses]
    return replace(runs[0], report=report)


def _run_once(world: World, judge: Judge, request: EvaluationRequest) -> EvaluationRun:
    request = settled(world, request)
    rules, dimensions = rules_of(request, judge), select_dimensions(request.dimensions)
    scope = resolve_scope(world, request)
    scope.raise_broken()
    earlier = evaluate_scopes(world, scope.earlier, judge, request) if scope.earlier else Results()
    earlier.raise_broken()
    generated = SyntheticAgents()
    if request.synthetic:
        generated = synthesize(world, scope.agents, judge)
    scopes = [replace(item, synthetic=item.agent_id in generated.agents) for item in scope.agents]
    results = evaluate_scopes(world, scopes, judge, request)
    results.raise_broken()
    run = EvaluationRun(RunReport(), [*scope.problems, *(Problem(text) for text in generated.problems)])
    if request.update_baseline:
        run.baselines = update_baselines(world, results.found, earlier.found if request.baseline_windows > 1 else ())
        # What has just become the baseline is what the run is compared with.
        results.found = compare_again(world, results.found, judge, request)
    reports = {result.plan.scope.agent_id: restricted(result.report, dimensions, rules) for result in results.found}
    run.report = assemble(reports, judge, request)
    if request.agents is None:
        run.report.findings += missing_agent_findings(missing_agents(world.root, world.rules_root))
    match = run_names(world, request)
    run.report.findings += name_findings(match)
    run.notes = name_notes(match)
    run.report.expenses += [*_history_expenses(earlier.found), *generated.expenses]
    run.report.exit_code = exit_code_of(run.report.all_findings(), rules)
    return run


def run_names(world: World, request: EvaluationRequest) -> NameMatch:
    """Return how speakers and personas go together, as far as it concerns the agents that are asked for."""
    match = stored_names(world)
    return match if request.agents is None else match.of(request.agents)


def assemble(reports: dict[str, AgentReport], judge: Judge, request: EvaluationRequest) -> RunReport:
    """Return the run's report from its agents' reports."""
    rules: GateRules = rules_of(request, judge)
    evaluations = [report.evaluation for report in reports.values()]
    run = RunReport(
        agents=reports,
        findings=[*nothing_evaluated(reports.values()), *run_coverage(reports.values(), rules)],
        expenses=[expense for report in reports.values() for expense in report.expenses],
        provenance={
            "version": __version__,
            "judge": judge.name,
            "judge_models": sorted({model for item in evaluations for model in item.provenance["judge_models"]}),
            "prompt_versions": sorted({p for item in evaluations for p in item.provenance["prompt_versions"]}),
            "window": request.window,
            "window_end": max(item.window_end for item in evaluations).isoformat() if evaluations else None,
            "dimensions": select_dimensions(request.dimensions),
            "samples": request.samples,
            "min_coverage": least_coverage(
                (item for one in evaluations for item in one.dimensions.values()),
                rules.min_coverage,
                as_recorded=rules.as_recorded,
            ),
            "regression_delta": rules.regression_delta,
            "proposition_delta": rules.proposition_delta,
        },
    )
    run.exit_code = exit_code_of(run.all_findings(), rules)
    if notes := getattr(judge, "notes", ()):
        # What was taken from recordings, or was different about this endpoint, such as asking for JSON in words.
        run.provenance["judge_notes"] = list(notes)
    return run


def update_baselines(world: World, results: Sequence[AgentResult], earlier: Sequence[AgentResult] = ()) -> list[Path]:
    """Write what was scored in full to the agents' golden files; other dimensions in them stay as they are.

    Args:
        earlier: windows before, oldest first; those in which something had fallen are left out.
    """
    paths, labels = [], peoples_labels(world)
    for result in results:
        evaluation = result.report.evaluation
        agent_id = evaluation.agent_id
        if evaluation.synthetic or not is_believable(result.report):
            # What was generated is no evidence of how the agent really talks, and a judge that cannot judge gives none at all.
            continue
        before = [
            report.evaluation
            for report in (result.report for result in earlier)
            if report.evaluation.agent_id == agent_id and not report.comparison.regressed
        ]
        windows = [*before, evaluation]
        baseline = captured(
            agent_id,
            [item.dimensions for item in windows],
            judged_on(evaluation),
            spans=[(item.window_start, item.window_end) for item in windows],
            known=find_baseline(world.root, agent_id),
        )
        if baseline.dimensions:
            baseline = calibrated(baseline, result.report.comparison, labels.labels_hash)
            paths.append(save_baseline(world.root, baseline))
            mark_baseline(world.store, evaluation.run_id)
    return paths


def planned_requests(world: World, request: EvaluationRequest) -> list[JudgeRequest]:
    """Return every judgment a run would ask for first, without asking.

    Raises:
        ConfigError: bad input.
    """
    return [asked for plan in planned(world, request) for asked in plan.requests]


def planned(world: World, request: EvaluationRequest) -> list[AgentPlan]:
    """Return what a run would ask for first, agent by agent and window by window, without asking.

    Raises:
        ConfigError: bad input.
    """
    request = settled(world, request)
    scope = resolve_scope(world, request)
    scope.raise_broken()
    return [plan_agent(world, item, request) for item in (*scope.earlier, *scope.agents)]


def _history_expenses(results: Sequence[AgentResult]) -> list[Expense]:
    spent = [expense for result in results for expense in result.report.expenses]
    return [expense.model_copy(update={"mechanism": "history"}) for expense in spent]
