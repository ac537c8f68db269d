"""The gate, on ``verdicts``: only a blocking error fails a run, a warning asks a person to look."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from persona_pipeline.defs import metadata
from persona_pipeline.defs.agents.specs import Specs
from persona_pipeline.defs.agents.verdicts import (
    AgentVerdict,
    agent_line,
    compared_lines,
    headline,
    overview,
    verdict,
)
from persona_pipeline.defs.platform.assets import evaluated
from persona_pipeline.defs.platform.dagster_internals import newest_materialization
from persona_pipeline.evaluation.history import saved_run
from persona_pipeline.guard.report import EXIT_OK, EXIT_REGRESSION, AgentReport, Result
from persona_pipeline.reporting.text import one_line
from persona_pipeline.world.propositions.models import dimension_label
from persona_pipeline.world.runs import newest_run_row
from persona_pipeline.world.world import World

ERROR, WARN = dg.AssetCheckSeverity.ERROR, dg.AssetCheckSeverity.WARN

ALL_IN_CHARACTER = "all_in_character"
_ALL = (
    "Every agent that was evaluated is in character, as of its newest run: over all of them, whichever a run is about."
)


@dataclass(frozen=True)
class GateCheck:
    """One question the gate asks of an agent's report.

    ``find``: returns what is wrong, line by line, nothing when it passes. ``compares``: a failure shows the scores beside the
    baseline.
    """

    name: str
    description: str
    severity: dg.AssetCheckSeverity
    find: Callable[[AgentReport, AgentVerdict], Sequence[str]]
    compares: bool = False

    @property
    def blocking(self) -> bool:
        """Whether a failure fails the run."""
        return self.severity is ERROR

    def result(self, specs: Specs, report: AgentReport, line: AgentVerdict) -> dg.AssetCheckResult:
        """Return the check's result; ``line``: the agent's, with what the run may fail on."""
        wrong = self.find(report, line)
        facts: metadata.Metadata = {"found": len(wrong)}
        # Where nothing is wrong, what is concluded and the comparison stand with the asset, once.
        if wrong:
            rows = [{"what": one_line(text, metadata.MOST_TEXT)} for text in wrong]
            facts |= {
                **metadata.conclusion_metadata(report.conclusion),
                "what_is_wrong": metadata.table(rows, ("what",)),
            }
        if wrong and self.compares:
            facts["comparison"] = metadata.comparison_table(report.comparison)
        return metadata.check_result(self.name, wrong, facts, asset_key=specs.verdicts.key, severity=self.severity)


def _injections(report: AgentReport, line: AgentVerdict) -> Sequence[str]:
    return [
        f"{dimension_label(name)}, {item.id}: the judged text seems to address the judge"
        for name, dimension in report.evaluation.dimensions.items()
        for item in dimension.propositions.values()
        if item.injection_suspected
    ]


GATE = (
    GateCheck(
        "no_regression",
        "No dimension and no claim dropped below its baseline by more than it may.",
        ERROR,
        lambda _, line: [item.text for item in line.findings if item.exit_code == EXIT_REGRESSION],
        compares=True,
    ),
    GateCheck(
        "full_coverage",
        "It can be told: all was judged by a judge that can be believed, has a baseline, and no large drop is left undecided.",
        ERROR,
        lambda _, line: [item.text for item in line.findings if item.exit_code not in (EXIT_OK, EXIT_REGRESSION)],
    ),
    GateCheck(
        "baseline_is_current",
        "The baseline was taken with the same judge, prompt and claims; if not, scores are not quite comparable.",
        WARN,
        lambda report, _: report.comparison.warnings,
    ),
    GateCheck("no_injection_suspected", "No message tries to talk the judge into a score.", WARN, _injections),
)


def check_specs(specs: Specs) -> list[dg.AssetCheckSpec]:
    """Return the gate's checks of verdicts, and the one over all agents."""
    key = specs.verdicts.key
    gates = [
        dg.AssetCheckSpec(
            gate.name, asset=key, blocking=gate.blocking, partitions_def=specs.agents, description=gate.description
        )
        for gate in GATE
    ]
    return [*gates, dg.AssetCheckSpec(ALL_IN_CHARACTER, asset=key, description=_ALL)]


def gate_evaluations(
    specs: Specs, reports: Mapping[str, AgentReport], fail_on: Sequence[str] | None, names: Collection[str]
) -> Iterator[dg.AssetCheckEvaluation]:
    """Yield what the checks of these names say of each agent. What failed comes last: Dagster shows what was answered last."""
    for gate in (gate for gate in GATE if gate.name in names):
        said = {
            agent_id: gate.result(specs, report, agent_line(report, fail_on)) for agent_id, report in reports.items()
        }
        for agent_id, result in sorted(said.items(), key=lambda item: not item[1].passed):
            yield evaluated(specs.verdicts.key, agent_id, result)


def all_in_character(
    specs: Specs, instance: dg.DagsterInstance, world: World, fail_on: Sequence[str] | None
) -> dg.AssetCheckEvaluation:
    """Return what the check over all agents says of the newest run of each."""
    lines = compared_lines(world, fail_on)
    wrong = [line for line in lines if line.exit_codes or line.conclusion.status.severity]
    fine = [line for line in lines if line not in wrong]
    said = [*([headline(fine)] if fine or not wrong else []), *([verdict(wrong)] if wrong else [])]
    held = any(line.conclusion.verdict is Result.HELD for line in lines)
    fell = any(line.conclusion.verdict is Result.FELL for line in wrong)
    return dg.AssetCheckEvaluation(
        asset_key=specs.verdicts.key,
        check_name=ALL_IN_CHARACTER,
        # A world in which no agent has a verdict is not in character.
        passed=held and not wrong,
        severity=ERROR if fell else WARN,
        # An agent in character does not fail for another that is not.
        blocking=False,
        description="; ".join(said),
        metadata={"overview": dg.MetadataValue.md(overview(lines))},
        # Without it Dagster shows the answer as out of date once a run beside this one has materialized another agent.
        target_materialization_data=newest_materialization(instance, specs.verdicts.key),
    )


def newest_reports(agent_ids: Sequence[str], world: World) -> dict[str, AgentReport]:
    """Return the reports of agents' newest runs, whatever became of them; agents without a run are left out."""
    runs = {agent_id: saved_run(newest_run_row(world.store, agent_id)) for agent_id in agent_ids}
    return {agent_id: run.report for agent_id, run in runs.items() if run}
