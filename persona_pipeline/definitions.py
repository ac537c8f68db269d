"""What Dagster loads: the domains, merged."""

import warnings

import dagster as dg

# Partitioned asset checks are a preview in Dagster 1.13; the tests hold what we use of them.
warnings.filterwarnings("ignore", category=dg.PreviewWarning)
warnings.filterwarnings("ignore", category=dg.BetaWarning)

from persona_pipeline.defs.agents import definitions as agents  # noqa: E402
from persona_pipeline.defs.batches import definitions as batches  # noqa: E402
from persona_pipeline.defs.changes import definitions as changes  # noqa: E402
from persona_pipeline.defs.cohort import definitions as cohort  # noqa: E402
from persona_pipeline.defs.corrections import definitions as corrections  # noqa: E402
from persona_pipeline.defs.platform import definitions as platform  # noqa: E402
from persona_pipeline.defs.suites import definitions as suites  # noqa: E402
from persona_pipeline.defs.upkeep import definitions as upkeep  # noqa: E402

DOMAINS = (agents, cohort, changes, upkeep, suites, corrections, batches, platform)

defs = dg.Definitions.merge(*(domain.defs for domain in DOMAINS))
