"""Messages that come out of an asset: its rows are brought into the store when there are new ones."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from persona_pipeline.defs.platform.failures import known_failures
from persona_pipeline.defs.platform.labels import OWNERS
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.resources import world_in_force
from persona_pipeline.world.world import bring_rows

_MOST_NAMED = 20


def build_message_rows(place: Place, upstream: dg.AssetKey, columns: Mapping[str, str]) -> dg.Definitions:
    """Return the asset that brings an asset's rows into the store of a place, and the sensor that has it follow that asset."""
    key = place.key("message_rows")

    @dg.asset(
        key=key,
        group_name=place.path("world"),
        ins={"rows": dg.AssetIn(key=upstream, metadata={"allow_missing_partitions": True})},
        kinds={"sql"},
        owners=OWNERS,
        # Not eager(): that waits until no partition of the other asset is missing.
        automation_condition=dg.AutomationCondition.any_deps_updated() & ~dg.AutomationCondition.in_progress(),
        description=f"The rows of `{upstream.to_user_string()}` as messages in the store, by id: they are added or updated, never "
        "removed. What is no message is left out and named in the log.",
    )
    @place.bound
    def message_rows(context: dg.AssetExecutionContext, rows: Any) -> dg.MaterializeResult:
        # That an agent is no partition yet tells sensors that it is new.
        with known_failures(), world_in_force() as world:
            result = bring_rows(world, rows, source=upstream.to_user_string(), columns=columns)
        for problem in result.problems[:_MOST_NAMED]:
            context.log.warning(f"left out: {problem}")
        written = result.written
        return dg.MaterializeResult(
            metadata={
                "added": written.inserted,
                "changed": written.updated,
                "unchanged": written.unchanged,
                "left_out": len(result.problems) + result.unnamed,
                "speakers": ", ".join(sorted(result.speakers)) or "nobody",
            }
        )

    follow = dg.AutomationConditionSensorDefinition(
        name=place.name("message_rows"),
        target=dg.AssetSelection.assets(key),
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=place.orchestration.sensor_seconds,
        description=f"Brings messages into the store when {upstream.to_user_string()} was materialized. Judges nothing.",
    )
    return dg.Definitions(assets=[message_rows], sensors=[follow])
