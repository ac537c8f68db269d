"""How agents did, one a line, and the gate on ``verdicts``: only a blocking error fails a run, a warning asks a person to look."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg
from pydantic import BaseModel, Field

from persona_pipeline.base.errors import EXIT_CONFIG
from persona_pipeline.base.status import BROKEN, VERDICTS, Result
from persona_pipeline.base.text import some
from persona_pipeline.defs import metadata
from persona_pipeline.defs.agents.specs import Specs
from persona_pipeline.defs.platform.assets import evaluated
from persona_pipeline.defs.platform.dagster_internals import newest_materialization
from persona_pipeline.defs.platform.resources import known_agents
from persona_pipeline.evaluation.history import saved_run, saved_verdict
from persona_pipeline.evaluation.run import Run
from persona_pipeline.guard.gate import kept_rules, weighed
from persona_pipeline.guard.known_drift import OUT_OF_CHARACTER
from persona_pipeline.guard.report import (
    EXIT_OK,
    EXIT_REGRESSION,
    AgentReport,
    Conclusion,
    Finding,
    RunReport,
    worst_exit_code,
)
from persona_pipeline.reporting.text import format_score, one_line
from persona_pipeline.reporting.view import ReportView
from persona_pipeline.world.propositions.models import dimension_label
from persona_pipeline.world.runs import newest_rows, newest_run_row
from persona_pipeline.world.world import World

MOST_LISTED = 50
# Enough that the stack trace Dagster adds is out of sight in the run's page, and the beginning is visible.
MOST_SAID = 10
NOBODY, _HELD = "nobody was evaluated", Result.HELD.status.word


class AgentVerdict(BaseModel):
    """One agent in a few words. ``broken``: why it could not be evaluated, ``file:line:column: what to do``."""

    agent_id: str
    overall: float | None = None
    run_id: str | None = None
    conclusion: Conclusion = Conclusion()
    findings: list[Finding] = Field(default_factory=list)
    broken: list[str] = Field(default_factory=list)

    @property
    def label(self) -> str:
        """The word of the agent's status, as in every report."""
        return BROKEN.word if self.broken else self.conclusion.status.word

    @property
    def exit_codes(self) -> set[int]:
        """The exit codes its findings ask for."""
        return {EXIT_CONFIG} if self.broken else {finding.exit_code for finding in self.findings} - {EXIT_OK}

    @property
    def wrong(self) -> list[str]:
        """The failures, each as a sentence."""
        return self.broken or [finding.text for finding in self.findings if finding.exit_code]


def overview(lines: Sequence[AgentVerdict]) -> str:
    """Return Markdown: how many agents are fine, and those that are not, at most 50."""
    wrong = [line for line in lines if line.exit_codes]
    text = headline(lines)
    if not wrong:
        return text
    rows = [
        {
            "agent": line.agent_id,
            "overall": format_score(line.overall),
            "verdict": line.label,
            "what is wrong": _first_words(line),
        }
        for line in wrong[:MOST_LISTED]
    ]
    more = f"\n\nand {len(wrong) - MOST_LISTED} more" if len(wrong) > MOST_LISTED else ""
    return f"{text}\n\n{metadata.table(rows, tuple(rows[0])).value}{more}"


def _first_words(line: AgentVerdict) -> str:
    said = line.wrong
    more = f" (and {len(said) - 1} more)" if len(said) > 1 else ""
    decided = f"; decide it: {line.conclusion.command}" if line.conclusion.command else ""
    return one_line(said[0], metadata.MOST_TEXT) + more + decided


def agent_line(report: AgentReport, fail_on: Sequence[str] | None = None) -> AgentVerdict:
    """Return how one agent did. ``fail_on``: the names of findings that fail a run, see ``gate.counted``."""
    run = report.evaluation
    return AgentVerdict(
        agent_id=run.agent_id,
        overall=run.overall,
        run_id=run.run_id,
        conclusion=report.conclusion,
        findings=weighed(report.findings, fail_on),
    )


def agent_lines(result: Run) -> list[AgentVerdict]:
    """Return a line an agent, by name."""
    lines = [agent_line(report, result.fail_on) for report in result.reports.values()]
    broken = [
        AgentVerdict(agent_id=agent_id, broken=[str(problem) for problem in problems])
        for agent_id, problems in result.broken.items()
    ]
    return sorted(lines + broken, key=lambda line: line.agent_id)


def verdict(lines: Sequence[AgentVerdict], report: RunReport | None = None) -> str:
    """Return the outcome in a few words that fit a label, since when agents are out of character, and the terms that the runs keep.

    ``report``: of the whole run, which adds its own terms and findings, such as a baseline whose persona is gone.
    """
    found = [finding for line in lines for finding in line.findings if finding.kind == OUT_OF_CHARACTER]
    dates = [finding.message.removeprefix(f"{finding.agent_id}: ") for finding in found]
    return "; ".join([_outcome(lines, report), *([some(dates, between="; ")] if dates else [])])


def _outcome(lines: Sequence[AgentVerdict], report: RunReport | None = None) -> str:
    said = [f"{group}: {some(names, 5)}" for group, names in _grouped(lines)]
    if report and (told := Conclusion.of(report.findings)):
        said.append(f"{told.status.word}: the run as a whole")
    terms = [*_terms(lines), *(ReportView(report).terms if report else ())]
    return "; ".join([*(said or [_HELD if lines else NOBODY]), *dict.fromkeys(terms)])


def _terms(lines: Sequence[AgentVerdict]) -> list[str]:
    return kept_rules(finding for line in lines for finding in line.findings)


def headline(lines: Sequence[AgentVerdict]) -> str:
    """Return how many agents are in character, drifted and so on, all of them counted."""
    held = sum(line.label == _HELD for line in lines)
    counts = [(_HELD, held), *((group, len(names)) for group, names in _grouped(lines))]
    said = ", ".join(f"{count} {group}" for group, count in counts if count) or NOBODY
    return "; ".join([said, *_terms(lines)])


def _grouped(lines: Sequence[AgentVerdict]) -> list[tuple[str, list[str]]]:
    words = [status.word for status in VERDICTS if status.word != _HELD]
    found = [(word, [line.agent_id for line in lines if line.label == word]) for word in words]
    return [(word, names) for word, names in found if names]


def compared_lines(world: World, fail_on: Sequence[str] | None = None) -> list[AgentVerdict]:
    """Return the verdict of the newest run of each agent of a world; agents without a run are left out.

    Asked in every run of any agent: of each it reads a few short columns.
    """
    known = set(known_agents(world.root))
    return [
        AgentVerdict(
            agent_id=row.agent_id,
            overall=row.overall_score,
            run_id=str(row.id),
            conclusion=told,
            findings=weighed(findings, fail_on),
        )
        for row in newest_rows(world.store, ("id", "overall_score", "status", "verdict", "findings"))
        if row.agent_id in known
        for told, findings in [saved_verdict(row)]
    ]


def failure_of(lines: Sequence[AgentVerdict]) -> dg.Failure | None:
    """Return why a run over these agents fails; None: it does not."""
    code = worst_exit_code({code for line in lines for code in line.exit_codes})
    if not code:
        return None
    said = [text for line in lines for text in line.wrong]
    text = "\n".join(
        [
            f"{_outcome(lines)} (exit code {code})",
            *metadata.listed([one_line(text, metadata.MOST_TEXT) for text in said], MOST_SAID),
        ]
    )
    shown = {"overview": dg.MetadataValue.md(overview(lines)), "exit_code": code}
    return dg.Failure(text, metadata=shown, allow_retries=False)


ERROR, WARN = dg.AssetCheckSeverity.ERROR, dg.AssetCheckSeverity.WARN

ALL_IN_CHARACTER = "all_in_character"
_ALL = (
    "Every agent that was evaluated is in character, as of its newest run: over all of them, whichever a run is about."
)


@dataclass(frozen=True)
class GateCheck:
    """A check of the gate on an agent's report.

    ``find``: returns the failures as lines. ``compares``: a failure shows the comparison with the baseline.
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
        # Without a failure the asset has the conclusion and the comparison already.
        facts = metadata.conclusion_metadata(report.conclusion) if wrong else {}
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
    """Yield the results of the checks with these names for each agent, failures last: Dagster shows the last result."""
    for gate in (gate for gate in GATE if gate.name in names):
        said = {
            agent_id: gate.result(specs, report, agent_line(report, fail_on)) for agent_id, report in reports.items()
        }
        for agent_id, result in sorted(said.items(), key=lambda item: not item[1].passed):
            yield evaluated(specs.verdicts.key, agent_id, result)


def all_in_character(
    specs: Specs, instance: dg.DagsterInstance, world: World, fail_on: Sequence[str] | None
) -> dg.AssetCheckEvaluation:
    """Return the result of the check over all agents, from the newest run of each."""
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
        metadata={"agents": len(lines), "found": len(wrong), "overview": dg.MetadataValue.md(overview(lines))},
        # Without it Dagster shows the result as out of date once another run has materialized another agent.
        target_materialization_data=newest_materialization(instance, specs.verdicts.key),
    )


def newest_reports(agent_ids: Sequence[str], world: World) -> dict[str, AgentReport]:
    """Return the reports of agents' newest runs, whatever became of them; agents without a run are left out."""
    runs = {agent_id: saved_run(newest_run_row(world.store, agent_id)) for agent_id in agent_ids}
    return {agent_id: run for agent_id, run in runs.items() if run}
