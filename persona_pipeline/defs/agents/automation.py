"""When Dagster asks for what is made of an agent: the one condition that is ours, and its own sensor, which asks."""

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
    """Whether a source was reported since somebody last meant to make an asset, in another version than the asset rests on.

    It keeps nothing: what is in the event log decides. Dagster's ``data_version_changed().since_last_handled()`` forgets a change
    that it sees in the look after a request, or in the one that sees what the run made.
    """

    def __init__(self, sources: Iterable[dg.AssetKey]) -> None:
        self.sources = tuple(sources)

    @property
    def name(self) -> str:
        """What the page of a tick calls it."""
        return f"rests_on_an_earlier_version_of({', '.join(key.to_user_string() for key in self.sources)})"

    def evaluate(self, context: dg.AutomationContext) -> dg.AutomationResult:
        """Return the partitions it is true of."""
        candidates = context.candidate_subset
        changed = self.changed(context.asset_graph_view.instance, context.key, context.max_storage_id or 0)
        wanted = changed & set(candidates.expensively_compute_partition_keys())
        return dg.AutomationResult(context, candidates.compute_intersection_with_partition_keys(wanted))

    def changed(self, instance: dg.DagsterInstance, key: dg.AssetKey, newest: int) -> set[str]:
        """Return the partitions of an asset that it is true of.

        ``newest``: what is reported after this event waits for the next look, or assets of one agent would be asked for apart.
        """
        reported = {source: newest_events(instance, source, MATERIALIZED) for source in self.sources}
        planned = newest_events(instance, key, PLANNED)
        newer = {
            source: [name for name, event in events.items() if planned.get(name, 0) < event <= newest]
            for source, events in reported.items()
        }
        there = newest_events(instance, key, MATERIALIZED) if any(newer.values()) else {}
        found = {name for names in newer.values() for name in names if name not in there}
        for source, names in newer.items():
            now = newest_versions(instance, source, MATERIALIZED, names) if names else {}
            for name in set(names) - found:
                if input_versions(instance, key, name).get(source) != now.get(name):
                    found.add(name)
        return found


def when_changed(sources: Iterable[dg.AssetSpec]) -> dg.AutomationCondition:
    """Return when to ask for what rests on sources. First it is seen that no run makes it: what a run writes is then all there."""
    return ~dg.AutomationCondition.in_progress() & RestsOnAnEarlierVersion(source.key for source in sources)


def with_what_it_rests_on() -> dg.AutomationCondition:
    """Return when to ask for what is made together with something else."""
    return dg.AutomationCondition.any_deps_match(dg.AutomationCondition.will_be_requested())


def build_automation(place: Place, judged: Iterable[dg.AssetSpec]) -> dg.AutomationConditionSensorDefinition:
    """Return Dagster's own sensor, which asks for what rests on something that changed."""
    return dg.AutomationConditionSensorDefinition(
        name=place.name("automation"),
        target=dg.AssetSelection.assets(*(spec.key for spec in judged)),
        # Where our condition is known.
        use_user_code_server=True,
        default_status=place.orchestration.sensor_status,
        minimum_interval_seconds=max(1, place.orchestration.sensor_seconds // 3),
        description="Evaluates exactly what source_changes saw change: an edited persona its agent, an edited claim its dimension "
        "(of everybody for _default.yaml), an edited baseline the verdict, new messages their agent.",
    )
