"""Everybody at once."""

from dataclasses import dataclass

import dagster as dg

from persona_pipeline.defs.agents.specs import Specs
from persona_pipeline.defs.cohort.assets import build_regression_report
from persona_pipeline.defs.cohort.jobs import (
    build_capture_baseline,
    build_evaluate_cohort,
    build_persona_regression,
    build_report_regressions,
)
from persona_pipeline.defs.cohort.schedules import build_nightly


@dataclass(frozen=True)
class Cohort:
    """What other parts of a place build upon."""

    evaluate_cohort: dg.JobDefinition
    definitions: dg.Definitions


def build_cohort(specs: Specs) -> Cohort:
    """Return what is about all agents of a place."""
    place = specs.place
    report, evaluate_cohort = build_regression_report(specs), build_evaluate_cohort(specs)
    definitions = dg.Definitions(
        assets=[report],
        jobs=[
            evaluate_cohort,
            build_persona_regression(place),
            build_report_regressions(place, report),
            build_capture_baseline(place),
        ],
        schedules=[build_nightly(place, evaluate_cohort)],
    )
    return Cohort(evaluate_cohort, definitions)
