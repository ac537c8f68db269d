"""Evaluating agents: the one path the command line, the assets and the tests call."""

from collections.abc import Collection, Sequence
from datetime import datetime

from persona_pipeline import __version__
from persona_pipeline.baselines import Baseline, compare, find_baseline
from persona_pipeline.evaluation.cases import (
    AgentPlan,
    plan_agent,
    resolve_window,
    run_identity,
    total_usage,
)
from persona_pipeline.evaluation.concurrency import run_async
from persona_pipeline.evaluation.gate import GateRules, exit_code_of, judge_agent, nothing_evaluated
from persona_pipeline.evaluation.report import AgentReport, RunReport, report_expenses
from persona_pipeline.evaluation.results import AgentEvaluation
from persona_pipeline.evaluation.saving import save_evaluation
from persona_pipeline.evaluation.selection import default_coverage, select_agents, select_dimensions
from persona_pipeline.evaluation.syncing import sync_agents
from persona_pipeline.judging.verdict import Judge, Unscored, Verdict
from persona_pipeline.propositions import ALL_DIMENSIONS
from persona_pipeline.scoring import DimensionEvaluation, overall_score
from persona_pipeline.world import World
from persona_pipeline.world.models import Window

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
    synthetic: Collection[str] = (),
    named: bool = False,
) -> list[AgentEvaluation]:
    """Evaluate several agents with their judgments pooled in one call to the judge; see ``evaluate_agent``.

    Args:
        named: the dimensions were asked for by name, so that each agent must have propositions of them.
    """
    sync_agents(world, agent_ids, dimensions, named=named)
    span = resolve_window(world, window, as_of)
    return evaluate_stored(
        world, agent_ids, span, judge=judge, dimensions=dimensions, samples=samples, synthetic=synthetic
    )


def evaluate_stored(
    world: World,
    agent_ids: Sequence[str],
    window: Window,
    *,
    judge: Judge,
    dimensions: Sequence[str] = ALL_DIMENSIONS,
    samples: int = 1,
    complete: bool = True,
    synthetic: Collection[str] = (),
) -> list[AgentEvaluation]:
    """Evaluate agents on what the store holds, without reading the world's files, and save the runs.

    Args:
        complete: False while other dimensions of the same runs are still to come.
        synthetic: agents whose generated conversations are evaluated instead of what they really said.

    Raises:
        ConfigError: a persona or a proposition set is not in the store.
    """
    plans = [
        plan_agent(world, agent_id, dimensions, window, samples=samples, synthetic=agent_id in synthetic)
        for agent_id in agent_ids
    ]
    evaluations = []
    for item in judge_plans(plans, judge):
        # What the agent has no propositions of any more must not be read from an earlier run of the same messages.
        gone = [name for name in dimensions if name not in item.dimensions]
        saved = save_evaluation(world.store, item, complete=complete, gone=gone)
        # The row keeps what the run cost when it was paid for; the caller learns what it cost now.
        evaluations.append(saved.model_copy(update={"dimensions": {**saved.dimensions, **item.dimensions}}))
    return evaluations


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
    synthetic: Collection[str] = (),
) -> RunReport:
    """Evaluate agents, compare them with their baselines and return the whole run.

    Args:
        agents: None for everybody with a persona file.
        dimensions: None for all that have propositions; a named one must have some.
        rules: what makes the run fail; by default spec/2's rules with the judge's minimum coverage.
        synthetic: agents evaluated on generated conversations; they are compared with no baseline.

    Raises:
        ConfigError: bad input, everything wrong with it; nothing is evaluated then.
    """
    agent_ids = select_agents(world, agents)
    asked = select_dimensions(dimensions)
    rules = rules or GateRules(min_coverage=default_coverage(judge))
    baselines = {agent_id: find_baseline(world.root, agent_id) for agent_id in agent_ids}
    evaluations = evaluate_agents(
        world,
        agent_ids,
        judge=judge,
        dimensions=asked,
        window=window,
        as_of=as_of,
        samples=samples,
        synthetic=synthetic,
        named=dimensions is not None,
    )
    reports: dict[str, AgentReport] = {}
    for evaluation in evaluations:
        # A run may hold dimensions of an earlier, wider evaluation of the same inputs; this run speaks of its own.
        own = {name: item for name, item in evaluation.dimensions.items() if name in asked}
        evaluation = evaluation.with_dimensions(own)
        baseline = None if evaluation.synthetic else baselines[evaluation.agent_id]
        reports[evaluation.agent_id] = report_agent(expecting(evaluation, baseline, asked), baseline, rules)
    return assemble(reports, judge=judge, rules=rules, window=window, dimensions=asked, samples=samples)


def expecting(evaluation: AgentEvaluation, baseline: Baseline | None, asked: Sequence[str]) -> AgentEvaluation:
    """Return the evaluation with every asked dimension of the baseline in it: one that is gone is unscored, not passed."""
    golden = baseline.dimensions if baseline else {}
    gone = {
        name: DimensionEvaluation(dimension=name, unscored=Unscored.NO_EVIDENCE.value)
        for name in asked
        if name in golden and name not in evaluation.dimensions
    }
    if not gone:
        return evaluation
    found = {**evaluation.dimensions, **gone}
    return evaluation.model_copy(update={"dimensions": {name: found[name] for name in ALL_DIMENSIONS if name in found}})


def report_agent(evaluation: AgentEvaluation, baseline: Baseline | None, rules: GateRules) -> AgentReport:
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
        expenses=report_expenses(reports),
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
    notes = getattr(getattr(judge, "backend", None), "notes", ())
    if notes:
        # What was different about this endpoint, such as asking for JSON in words.
        run.provenance["judge_notes"] = list(notes)
    return run


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
