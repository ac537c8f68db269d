"""Driving the Dagster layer the way its daemon does, in this process and on a temporary instance."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from persona_pipeline.definitions import defs
from persona_pipeline.defs import sensors
from persona_pipeline.defs.partitions import AGENTS
from persona_pipeline.defs.resources import WorldResource

PARTITION = "dagster/partition"


@dataclass(frozen=True)
class Requested:
    """One run a tick asked for. ``assets`` None: the whole job."""

    job: str
    agent_id: str | None
    assets: tuple[str, ...] | None
    config: dict[str, Any]


@dataclass(frozen=True)
class Project:
    """A world and the Dagster instance that watches it."""

    root: Path
    instance: dg.DagsterInstance
    database_url: str = ""

    @property
    def world(self) -> WorldResource:
        return WorldResource(root=str(self.root), database_url=self.database_url)

    def look(self) -> dg.SensorResult | dg.SkipReason:
        """Run the sensor once and do nothing with its result."""
        with dg.build_sensor_context(instance=self.instance, resources={"world": self.world}) as context:
            result = sensors.world_changes(context)
        assert isinstance(result, dg.SensorResult | dg.SkipReason)
        return result

    def tick(self) -> list[Requested]:
        """Run the sensor once, do what the daemon does with its result, and return the runs it asked for."""
        result = self.look()
        if isinstance(result, dg.SkipReason):
            return []
        # In the daemon's order: what was seen is remembered first, then partitions come and go, then runs start.
        for event in result.asset_events:
            self.instance.report_runless_asset_event(event)
        for request in result.dynamic_partitions_requests or ():
            if isinstance(request, dg.AddDynamicPartitionsRequest):
                self.instance.add_dynamic_partitions(AGENTS, list(request.partition_keys))
            else:
                for key in request.partition_keys:
                    self.instance.delete_dynamic_partition(AGENTS, key)
        return [
            Requested(
                request.job_name or "",
                request.partition_key,
                tuple(sorted(key.to_user_string() for key in request.asset_selection))
                if request.asset_selection is not None
                else None,
                dict(request.run_config),
            )
            for request in result.run_requests or ()
        ]

    def agents_requested(self) -> list[str]:
        """Run the sensor once and return whom it asked to evaluate."""
        return [item.agent_id or "" for item in self.tick()]

    def why_idle(self) -> str:
        """Run the sensor once and return why it asked for nothing."""
        result = self.look()
        assert isinstance(result, dg.SkipReason)
        return str(result.skip_message)

    def evaluate(
        self, agent_id: str, assets: tuple[str, ...] | None = None, **settings: Any
    ) -> dg.ExecuteInProcessResult:
        """Run ``evaluate_agent``, all of it or some assets of it."""
        return self.run("evaluate_agent", {PARTITION: agent_id}, assets, **settings)

    def run(
        self,
        job: str,
        tags: dict[str, str] | None = None,
        assets: tuple[str, ...] | None = None,
        run_config: dict[str, Any] | None = None,
        **settings: Any,
    ) -> dg.ExecuteInProcessResult:
        """Run a job in this process on this world; ``settings`` are those of the evaluation resource."""
        resources = {
            "world": {"config": {"root": str(self.root), "database_url": self.database_url}},
            "evaluation": {"config": settings},
        }
        definition = defs.resolve_job_def(job)
        known = {key: value for key, value in resources.items() if key in definition.resource_defs}
        return definition.execute_in_process(
            instance=self.instance,
            tags=tags,
            asset_selection=[dg.AssetKey.from_user_string(name) for name in assets] if assets else None,
            run_config={"resources": known, **(run_config or {})},
            raise_on_error=False,
        )
