"""The name that ``dagster.yaml`` of earlier releases has for Dagster's own folder of step logs."""

from persona_pipeline.defs.platform.dagster_internals import LocalComputeLogManager as EnvironmentStepLogs

__all__ = ["EnvironmentStepLogs"]
