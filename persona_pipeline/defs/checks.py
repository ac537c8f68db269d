"""The gate, on ``baseline_comparisons``: only a blocking error fails a run."""

from collections.abc import Sequence

import dagster as dg

from persona_pipeline.baselines import BaselineComparison
from persona_pipeline.defs import assets, metadata
from persona_pipeline.defs.partitions import agents
from persona_pipeline.defs.resources import EvaluationSettings, WorldResource, failing_on_bad_input
from persona_pipeline.evaluation import steps
from persona_pipeline.evaluation.gate import FAILURES
from persona_pipeline.evaluation.report import Finding


def build_check(name: str, kinds: Sequence[str], description: str) -> dg.AssetChecksDefinition:
    """Return a blocking check that fails on findings of some kinds."""

    @dg.asset_check(
        asset=assets.baseline_comparisons, name=name, blocking=True, partitions_def=agents, description=description
    )
    def check(
        context: dg.AssetCheckExecutionContext, world: WorldResource, evaluation: EvaluationSettings
    ) -> dg.AssetCheckResult:
        _, findings = _compared(context.partition_key, world, evaluation)
        found = [finding for finding in findings if finding.kind in kinds]
        return dg.AssetCheckResult(
            passed=not found, severity=dg.AssetCheckSeverity.ERROR, metadata=metadata.findings_metadata(found)
        )

    return check


no_regression = build_check(
    "no_regression",
    FAILURES["regression"],
    "No dimension and no proposition fell below its baseline by more than it may.",
)
full_coverage = build_check(
    "full_coverage",
    [*FAILURES["coverage"], *FAILURES["no_baseline"], *FAILURES["budget"]],
    "Everything that should be judged was judged, and has a baseline.",
)


@dg.asset_check(asset=assets.baseline_comparisons, partitions_def=agents)
def baseline_is_current(
    context: dg.AssetCheckExecutionContext, world: WorldResource, evaluation: EvaluationSettings
) -> dg.AssetCheckResult:
    """The baseline was taken with the same judge, prompt and claims; if not, scores are not quite comparable."""
    comparison, _ = _compared(context.partition_key, world, evaluation)
    lines = "\n".join(f"- {metadata.escaped(warning)}" for warning in comparison.warnings)
    return dg.AssetCheckResult(
        passed=not comparison.warnings,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"warnings": dg.MetadataValue.md(lines or "none")},
    )


def _compared(
    agent_id: str, world: WorldResource, evaluation: EvaluationSettings
) -> tuple[BaselineComparison, list[Finding]]:
    with failing_on_bad_input():
        opened = world.open()
        run = steps.finish_run(opened, agent_id, judge=evaluation.open_judge(opened), samples=evaluation.samples)
    compared = steps.load_comparison(opened, run.run_id)
    if compared is None:
        raise dg.Failure(f"{agent_id} has not been compared; materialize baseline_comparisons", allow_retries=False)
    return compared


CHECKS = [no_regression, full_coverage, baseline_is_current]
