"""What the corrections did."""

import dagster as dg

from persona_pipeline.defs.corrections import assets, jobs, schedules

defs = dg.Definitions(
    assets=[assets.correction_statistics],
    jobs=[jobs.count_corrections],
    schedules=[schedules.daily_corrections],
)
