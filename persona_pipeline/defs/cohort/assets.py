"""All agents at once, from what is stored of them."""

import dagster as dg

from persona_pipeline.defs.agents.specs import Specs
from persona_pipeline.defs.agents.verdicts import overview, verdict
from persona_pipeline.defs.cohort.regression import GATE_PASSED, REPORT, gate_fields, report_metadata, write_reports
from persona_pipeline.defs.cohort.report import COHORT_REPORTS, newest_lines, report_of_interest
from persona_pipeline.defs.platform import run_tags
from persona_pipeline.defs.platform.failures import known_failures
from persona_pipeline.defs.platform.labels import OWNERS
from persona_pipeline.defs.platform.places import reports_folder
from persona_pipeline.defs.platform.resources import EvaluationSettings, WorldResource, known_agents
from persona_pipeline.evaluation.report import worst_exit_code


def build_regression_report(specs: Specs) -> dg.AssetsDefinition:
    """Return the report over all agents of a place."""
    key = specs.place.key(REPORT)

    @dg.asset(
        key=key,
        group_name=specs.place.path("evaluation"),
        deps=[specs.comparisons],
        kinds={"sql", "html"},
        owners=OWNERS,
        check_specs=[
            dg.AssetCheckSpec(
                GATE_PASSED,
                asset=key,
                blocking=True,
                description="No agent regressed, and everything that should be judged was.",
            )
        ],
    )
    @specs.place.bound
    def regression_report(
        context: dg.AssetExecutionContext, world: WorldResource, evaluation: EvaluationSettings
    ) -> dg.MaterializeResult:
        """Every agent's newest comparison with its baseline on one page, as `baseline_comparisons` left it. Judges nothing."""
        with known_failures():
            opened = world.open()
            fail_on = evaluation.asked(opened).fail_on
            lines = newest_lines(opened, known_agents(opened.root), fail_on)
            report = report_of_interest(opened, lines, fail_on)
            folder = write_reports(report, reports_folder(opened.root) / COHORT_REPORTS)
        said = verdict(lines)
        run_tags.label_verdict(context.instance, context.run_id, said)
        wrong = [text for line in lines for text in line.wrong] + [finding.text for finding in report.findings]
        exit_code = worst_exit_code({code for line in lines for code in line.exit_codes} | {report.exit_code})
        return dg.MaterializeResult(
            metadata={
                "verdict": said,
                "overview": dg.MetadataValue.md(overview(lines)),
                **report_metadata(report, folder, opened.root),
                "exit_code": exit_code,
            },
            check_results=[dg.AssetCheckResult(**gate_fields(wrong, exit_code, report.conclusion))],
        )

    return regression_report
