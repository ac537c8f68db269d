"""Many agents in one run: a run each costs seconds of start-up, a step each hundredths. Shards go to any host the executor has."""

from collections.abc import Iterator

import dagster as dg
from pydantic import BaseModel, ConfigDict, Field

from persona_pipeline.defs import regression, run_tags
from persona_pipeline.defs.assets import JUDGE_POOL
from persona_pipeline.defs.failures import known_failures, retry_unanswered
from persona_pipeline.defs.lineage import Lineage
from persona_pipeline.defs.resources import EvaluationSettings, WorldResource, known_agents
from persona_pipeline.defs.settings import orchestration
from persona_pipeline.evaluation.cohort import CohortResult, evaluate_cohort
from persona_pipeline.evaluation.gate import nothing_evaluated
from persona_pipeline.evaluation.report import (
    EXIT_CONFIG,
    AgentReport,
    Finding,
    RunReport,
    report_expenses,
    worst_exit_code,
)
from persona_pipeline.evaluation.saving import load_evaluation
from persona_pipeline.evaluation.steps import load_comparison
from persona_pipeline.evaluation.voices import voice_statistics
from persona_pipeline.reporting.text import markdown_code, markdown_text
from persona_pipeline.reporting.view import format_score
from persona_pipeline.world import World
from persona_pipeline.world.models import Window

REPORTS = ".persona/reports/cohort"
MOST_LISTED = 50


class CohortConfig(dg.Config):
    """Whom to evaluate, and what."""

    agents: list[str] = Field(default=[], description="Agents to evaluate; empty: everybody with a persona file.")
    dimensions: list[str] = Field(
        default=[],
        description="Score only these again, on each agent's last window; empty: everything, on the newest window.",
    )
    compare_only: bool = Field(
        default=False, description="Score nothing, only compare each agent's last run with its baseline again."
    )
    shard_size: int = Field(default=0, ge=0, description="Agents a step evaluates together; 0: PERSONA_SHARD_SIZE.")


class Shard(BaseModel):
    """A step's share of the cohort. ``dimensions`` None: everything."""

    model_config = ConfigDict(frozen=True)

    agents: list[str]
    dimensions: list[str] | None = None


class AgentLine(BaseModel):
    """One agent in a few words. ``broken``: why it could not be evaluated, ``file:line:column: what to do``."""

    agent_id: str
    overall: float | None = None
    run_id: str | None = None
    findings: list[Finding] = Field(default_factory=list)
    broken: list[str] = Field(default_factory=list)

    @property
    def exit_codes(self) -> set[int]:
        """The exit codes its findings ask for."""
        return {EXIT_CONFIG} if self.broken else {finding.exit_code for finding in self.findings}


@dg.op(out=dg.DynamicOut(dict, io_manager_key="values"))
def cohort_shards(
    context: dg.OpExecutionContext, world: WorldResource, config: CohortConfig
) -> Iterator[dg.DynamicOutput]:
    """Cut the cohort into shards, with the messages brought into the store once."""
    with known_failures():
        opened = world.open()
        for problem in opened.sync_messages().problems:
            context.log.warning(f"left out: {problem}")
    agents = sorted(set(config.agents)) or known_agents(opened.root)
    context.instance.add_run_tags(context.run_id, {run_tags.AGENT: f"{len(agents)} agents"})
    dimensions = [] if config.compare_only else config.dimensions or None
    size = config.shard_size or orchestration().shard_size
    for start in range(0, len(agents), size):
        shard = Shard(agents=agents[start : start + size], dimensions=dimensions)
        yield dg.DynamicOutput(
            shard.model_dump(), mapping_key=f"from_{start + 1}", metadata={"agents": ", ".join(shard.agents)}
        )


@dg.op(pool=JUDGE_POOL, out=dg.Out(list, io_manager_key="values"))
def evaluate_shard(
    context: dg.OpExecutionContext, shard: dict, world: WorldResource, evaluation: EvaluationSettings
) -> Iterator[dg.AssetMaterialization | dg.AssetCheckEvaluation | dg.Output]:
    """Evaluate a shard's agents with their judgments pooled. A broken agent is reported and stops no other."""
    part = Shard.model_validate(shard)
    lineage = Lineage(context.instance, part.agents)
    with known_failures():
        opened = world.open()
        judge = evaluation.open_judge(opened)
        result = evaluate_cohort(
            opened,
            part.agents,
            judge=judge,
            rules=evaluation.rules(judge),
            dimensions=part.dimensions,
            window=evaluation.window,
            as_of=evaluation.window_end,
            samples=evaluation.samples,
        )
    for report in result.reports.values():
        for dimension in report.evaluation.dimensions.values():
            retry_unanswered(dimension.unscored_reasons, judge, context.retry_number)
    yield from lineage.events(result, part.dimensions)
    lines = _lines(result)
    for line in lines:
        for problem in line.broken:
            context.log.error(f"{line.agent_id}: {problem}")
    yield dg.Output([line.model_dump() for line in lines], metadata={"overview": dg.MetadataValue.md(overview(lines))})


@dg.op
def cohort_report(context: dg.OpExecutionContext, world: WorldResource, shards: list) -> None:
    """Say how the cohort did; fails when an agent is broken, regressed or could not be judged."""
    lines = [AgentLine.model_validate(line) for shard in shards for line in shard]
    with known_failures():
        opened = world.open()
        report = _report_of_interest(opened, lines)
    folder = regression.write_reports(report, opened.root / REPORTS)
    facts = {
        "agents": len(lines),
        "overview": dg.MetadataValue.md(overview(lines)),
        **regression.report_metadata(report, folder),
    }
    exit_code = worst_exit_code({code for line in lines for code in line.exit_codes} | {report.exit_code})
    facts["exit_code"] = exit_code
    if exit_code:
        wrong = [line for line in lines if line.exit_codes]
        said = [text for line in wrong for text in (line.broken or [finding.text for finding in line.findings])]
        text = "\n".join(said[:MOST_LISTED])
        raise dg.Failure(f"exit code {exit_code}, {len(wrong)} agents\n{text}", metadata=facts, allow_retries=False)
    context.add_output_metadata(facts)


@dg.job(
    name="evaluate_cohort",
    tags={"persona/cohort": "true"},
    description="Many agents in one run, shard by shard; each agent's assets and checks are reported as if it had run alone.",
)
def evaluate_cohort_job() -> None:
    cohort_report(cohort_shards().map(evaluate_shard).collect())


def overview(lines: list[AgentLine]) -> str:
    """Return Markdown: how many agents are fine, and those that are not, at most 50."""
    wrong = [line for line in lines if line.exit_codes]
    text = f"{len(lines) - len(wrong)} of {len(lines)} agents are as their baselines."
    if not wrong:
        return text
    rows = [
        f"| {markdown_code(line.agent_id, in_table=True)} | {format_score(line.overall)} | {_first_words(line)} |"
        for line in wrong[:MOST_LISTED]
    ]
    more = f"\n\nand {len(wrong) - MOST_LISTED} more" if len(wrong) > MOST_LISTED else ""
    return "\n".join([text, "", "| Agent | Overall | What is wrong |", "|:--|--:|:--|", *rows]) + more


def _first_words(line: AgentLine) -> str:
    said = line.broken or [finding.text for finding in line.findings]
    more = f" (and {len(said) - 1} more)" if len(said) > 1 else ""
    return markdown_text(said[0], 200) + more


def _lines(result: CohortResult) -> list[AgentLine]:
    lines = [
        AgentLine(
            agent_id=agent_id,
            overall=report.evaluation.overall,
            run_id=report.evaluation.run_id,
            findings=report.findings,
        )
        for agent_id, report in result.reports.items()
    ]
    broken = [
        AgentLine(agent_id=agent_id, broken=[str(problem) for problem in problems])
        for agent_id, problems in result.broken.items()
    ]
    return sorted(lines + broken, key=lambda line: line.agent_id)


def _report_of_interest(world: World, lines: list[AgentLine]) -> RunReport:
    """Return the full report of the agents with findings, filled up with others: a page of 50 can be read, one of 1,000 cannot."""
    report = RunReport()
    for line in sorted(lines, key=lambda line: not line.findings)[:MOST_LISTED]:
        evaluation = load_evaluation(world.store, line.run_id) if line.run_id else None
        compared = load_comparison(world, line.run_id) if line.run_id else None
        if evaluation and compared:
            comparison, findings = compared
            report.agents[line.agent_id] = AgentReport(evaluation=evaluation, comparison=comparison, findings=findings)
    report.findings = nothing_evaluated(report.agents.values())
    report.expenses = report_expenses(report.agents)
    report.exit_code = worst_exit_code({finding.exit_code for finding in report.all_findings()})
    if report.agents:
        newest = max((item.evaluation for item in report.agents.values()), key=lambda item: item.window_end)
        window = Window(end=newest.window_end, start=newest.window_start)
        report.statistics["voice_map"] = voice_statistics(world, list(report.agents), window)
    return report
