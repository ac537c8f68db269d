"""One partition an agent, one key a persona file. Keys come and go while Dagster runs."""

import dagster as dg

AGENTS = "agents"
agents = dg.DynamicPartitionsDefinition(name=AGENTS)
