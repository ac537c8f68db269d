"""A whole run as a user asks for it: options in, report out. The command line and the Dagster job call this."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from persona_pipeline.baselines import REGRESSION_DELTA, captured, find_baseline, save_baseline
from persona_pipeline.baselines.regression import PROPOSITION_DELTA
from persona_pipeline.errors import ConfigError, Problem
from persona_pipeline.evaluation.cases import ALL_TIME, plan_agent, resolve_window
from persona_pipeline.evaluation.confirming import confirm_report, fallen_dimensions, recorded_again
from persona_pipeline.evaluation.engine import evaluate_agents, evaluate_world, report_agent
from persona_pipeline.evaluation.gate import GateRules, exit_code_of
from persona_pipeline.evaluation.report import Expense, RunReport, expenses_of
from persona_pipeline.evaluation.saving import mark_baseline
from persona_pipeline.evaluation.sections import report_sections
from persona_pipeline.evaluation.selection import default_coverage, select_agents, select_dimensions
from persona_pipeline.evaluation.syncing import sync_agents
from persona_pipeline.evaluation.synthetic import SyntheticAgents, synthesize
from persona_pipeline.judging.verdict import Judge, JudgeRequest
from persona_pipeline.world import World, parse_window
from persona_pipeline.world.models import Window


@dataclass(frozen=True)
class RunOptions:
    """What to evaluate and when it fails.

    Attributes:
        agents, dimensions: None for all.
        history: how many windows before are evaluated too, for the timeline.
        confirm: a live judge judges again what fell before it is called a regression; a replay takes what was recorded then.
    """

    agents: Sequence[str] | None = None
    dimensions: Sequence[str] | None = None
    window: str = "7d"
    as_of: datetime | None = None
    samples: int = 1
    threshold: float | None = None
    regression_delta: float = REGRESSION_DELTA
    proposition_delta: float = PROPOSITION_DELTA
    min_coverage: float | None = None
    fail_on: Sequence[str] | None = None
    history: int = 0
    update_baseline: bool = False
    synthetic: bool = False
    confirm: bool = True

    def rules(self, judge: Judge) -> GateRules:
        """Return the gate's rules with the judge's own minimum coverage where none is given."""
        return GateRules(
            regression_delta=self.regression_delta,
            proposition_delta=self.proposition_delta,
            min_coverage=default_coverage(judge) if self.min_coverage is None else self.min_coverage,
            threshold=self.threshold,
            fail_on=self.fail_on,
        )


@dataclass
class EvaluationRun:
    """A finished run. ``problems``: lines of message files left out; ``baselines``: files written."""

    report: RunReport
    problems: list[Problem] = field(default_factory=list)
    baselines: list[Path] = field(default_factory=list)


def run_evaluation(world: World, judge: Judge, options: RunOptions) -> EvaluationRun:
    """Evaluate, compare, and write baselines if asked to.

    Raises:
        ConfigError: bad input; nothing is evaluated then.
    """
    rules = options.rules(judge)
    agent_ids = select_agents(world, options.agents)
    problems = world.sync_messages().problems
    span = resolve_window(world, options.window, options.as_of)
    earlier = _evaluate_earlier(world, judge, options, agent_ids, span)
    generated = SyntheticAgents()
    if options.synthetic:
        generated = synthesize(world, agent_ids, span, judge)
        problems += [Problem(text) for text in generated.problems]
    report = evaluate_world(
        world,
        judge=judge,
        agents=agent_ids,
        dimensions=options.dimensions,
        window=options.window,
        as_of=span.end,
        samples=options.samples,
        rules=rules,
        synthetic=generated.agents,
    )
    again = fallen_dimensions(report) if options.confirm else {}
    if not judge.live:
        again = recorded_again(world, again, judge, span, samples=options.samples)
    if judge.live or again:
        golden = {agent_id: find_baseline(world.root, agent_id) for agent_id in agent_ids}
        report = confirm_report(world, report, judge, rules, span, golden, again=again, samples=options.samples)
    report.expenses += [*earlier, *generated.expenses]
    report.statistics |= report_sections(world, agent_ids, span)
    run = EvaluationRun(report, problems)
    if options.update_baseline:
        run.baselines = update_baselines(world, report)
        # What has just become the baseline is what the run is compared with.
        for agent_id, agent in report.agents.items():
            report.agents[agent_id] = report_agent(agent.evaluation, find_baseline(world.root, agent_id), rules)
        report.exit_code = exit_code_of(report.all_findings(), rules)
    return run


def update_baselines(world: World, report: RunReport) -> list[Path]:
    """Write what was scored in full to the agents' golden files; other dimensions in them stay as they are."""
    paths = []
    for agent_id, agent in report.agents.items():
        evaluation = agent.evaluation
        if evaluation.synthetic:
            # What was generated is no evidence of how the agent really talks.
            continue
        provenance = {
            "judge_model": evaluation.provenance["judge_model"],
            "prompt_version": evaluation.provenance["prompt_version"],
            "persona_hash": evaluation.provenance["persona_hash"],
            "window_start": evaluation.window_start.isoformat() if evaluation.window_start else None,
            "window_end": evaluation.window_end.isoformat(),
            "messages": evaluation.sample_size,
        }
        baseline = captured(agent_id, evaluation.dimensions, provenance, known=find_baseline(world.root, agent_id))
        if baseline.dimensions:
            paths.append(save_baseline(world.root, baseline))
            mark_baseline(world.store, evaluation.run_id)
    return paths


def planned_requests(world: World, options: RunOptions) -> list[JudgeRequest]:
    """Return every judgment a run would ask for, without asking."""
    agent_ids = select_agents(world, options.agents)
    dimensions = select_dimensions(options.dimensions)
    sync_agents(world, agent_ids, dimensions)
    span = resolve_window(world, options.window, options.as_of)
    return [
        request
        for agent_id in agent_ids
        for request in plan_agent(world, agent_id, dimensions, span, samples=options.samples).requests
    ]


def estimate_run(world: World, options: RunOptions) -> str:
    """Return what a live run would take, in words."""
    from persona_pipeline.judging.estimate import estimate

    return str(estimate(planned_requests(world, options)))


def _evaluate_earlier(
    world: World, judge: Judge, options: RunOptions, agent_ids: Sequence[str], span: Window
) -> list[Expense]:
    """Evaluate the windows before, so that their runs are in the store, and return what it cost.

    What they hold is history, not a finding.
    """
    expenses: list[Expense] = []
    if not options.history:
        return expenses
    asked = select_dimensions(options.dimensions)
    if options.window == ALL_TIME:
        raise ConfigError("--history needs a window of some length; write --window 7d")
    length: timedelta = parse_window(options.window)
    for back in range(options.history, 0, -1):
        earlier = replace(options, as_of=span.end - length * back)
        if not world.messages(resolve_window(world, options.window, earlier.as_of)):
            continue
        for evaluation in evaluate_agents(
            world,
            agent_ids,
            judge=judge,
            dimensions=asked,
            window=options.window,
            as_of=earlier.as_of,
            samples=options.samples,
        ):
            own = [item for name, item in evaluation.dimensions.items() if name in asked]
            expenses += expenses_of(evaluation.agent_id, own, "history")
    return expenses
