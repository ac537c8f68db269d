"""One partition an agent, one key a persona file. Keys come and go while Dagster runs."""

import dagster as dg

from persona_pipeline.defs.platform.resources import AGENTS

agents = dg.DynamicPartitionsDefinition(name=AGENTS)
