"""When Dagster asks for an agent's assets: one condition of this project, and Dagster's automation sensor."""

from collections.abc import Iterable

import dagster as dg

from persona_pipeline.defs.platform.dagster_internals import (
    MATERIALIZED,
    PLANNED,
    input_versions,
    newest_events,
    newest_versions,
)
from persona_pipeline.defs.platform.place import Place


class RestsOnAnEarlierVersion(dg.AutomationCondition):
    """Whether a source was reported since an asset was last planned, in another version than the asset rests on.

    It has no state: the event log decides. Dagster's ``data_version_changed().since_last_handled()`` forgets a change that it sees
    in the look after a request, or in the look that sees the results of the run.
    """

    def __init__(self, sources: Iterable[dg.AssetKey]) -> None:
        self.sources = tuple(sources)

    @property
    def name(self) -> str:
        """The name on the page of a tick."""
        return f"rests_on_an_earlier_version_of({', '.join(key.to_user_string() for key in self.sources)})"

    def evaluate(self, context: dg.AutomationContext) -> dg.AutomationResult:
        """Return the partitions for which the condition holds."""
        candidates = context.candidate_subset
        changed = self.changed(context.asset_graph_view.instance, context.key, context.max_storage_id or 0)
        wanted = changed & set(candidates.expensively_compute_partition_keys())
        return dg.AutomationResult(context, candidates.compute_intersection_with_partition_keys(wanted))

    def changed(self, instance: dg.DagsterInstance, key: dg.AssetKey, newest: int) -> set[str]:
        """Return the partitions of an asset for which the condition holds.

        ``newest``: later events wait for the next look; otherwise an agent's assets would be requested in two runs.
        """
        reported = {source: newest_events(instance, source, MATERIALIZED) for source in self.sources}
        planned = newest_events(instance, key, PLANNED)
        newer = {
            source: [name for name, event in events.items() if planned.get(name, 0) < event <= newest]
            for source, events in reported.items()
        }
        there = newest_events(instance, key, MATERIALIZED) if any(newer.values()) else {}
        asked = {name for names in newer.values() for name in names}
        rested = input_versions(instance, key, {name: there[name] for name in asked if name in there}, self.sources)
        found = asked - rested.keys()
        for source, names in newer.items():
            now = newest_versions(instance, source, MATERIALIZED, names) if names else {}
            found |= {name for name in names if name in rested and rested[name][source] != now.get(name)}
        return found


def when_changed(sources: Iterable[dg.AssetSpec]) -> dg.AutomationCondition:
    """Return when to request assets that depend on sources. A run in progress is excluded first, so its results are complete.

    New agents wait until all their sources are reported: then those of a look are requested together.
    """
    ready = ~dg.AutomationCondition.in_progress() & ~dg.AutomationCondition.any_deps_missing()
    return ready & RestsOnAnEarlierVersion(source.key for source in sources)


def with_what_it_rests_on() -> dg.AutomationCondition:
    """Return when to request an asset together with its upstream assets."""
    return dg.AutomationCondition.any_deps_match(dg.AutomationCondition.will_be_requested())


def build_automation(place: Place, judged: Iterable[dg.AssetSpec]) -> dg.AutomationConditionSensorDefinition:
    """Return Dagster's automation sensor, which requests the assets whose sources changed."""
    return dg.AutomationConditionSensorDefinition(
        name=place.name("automation"),
        target=dg.AssetSelection.assets(*(spec.key for spec in judged)),
        # Where our condition is known.
        use_user_code_server=True,
        default_status=place.orchestration.sensor_status,
        minimum_interval_seconds=max(1, place.orchestration.sensor_seconds // 3),
        description="Evaluates exactly what source_changes saw change: an edited persona its agent, an edited claim its dimension "
        "(of everybody for _default.yaml), an edited baseline the verdict, new messages their agent, an edited suite its targets.",
    )
