"""The sensor's memory: data versions recorded as observations of the source assets."""

from collections.abc import Iterator, Mapping

import dagster as dg

from persona_pipeline.defs import assets, sources
from persona_pipeline.defs.changes import Changes, Recorded
from persona_pipeline.defs.versions import SourceVersions
from persona_pipeline.propositions import ALL_DIMENSIONS

DATA_VERSION = "dagster/data_version"


def recorded_versions(instance: dg.DagsterInstance) -> Recorded:
    """Return the last recorded version of every source of every agent."""
    return Recorded(
        personas=_recorded(instance, sources.persona_files.key),
        propositions={d: _recorded(instance, sources.proposition_files[d].key) for d in ALL_DIMENSIONS},
        baselines=_recorded(instance, sources.baseline_files.key),
        messages=_recorded(instance, sources.message_windows.key),
    )


def complete_agents(instance: dg.DagsterInstance) -> set[str]:
    """Return the agents whose last whole evaluation was finished after it was asked for."""
    storage = instance.event_log_storage
    observed, materialized = dg.DagsterEventType.ASSET_OBSERVATION, dg.DagsterEventType.ASSET_MATERIALIZATION
    finished = storage.get_latest_storage_id_by_partition(assets.evaluation_runs.key, materialized)
    asked = [
        storage.get_latest_storage_id_by_partition(key, observed)
        for key in (sources.persona_files.key, sources.message_windows.key)
    ]
    return {
        agent_id for agent_id, event in finished.items() if all(event > asking.get(agent_id, 0) for asking in asked)
    }


def observations(now: SourceVersions, recorded: Recorded, changes: Changes) -> Iterator[dg.AssetObservation]:
    """Yield what to remember: every version that changed of the agents that are evaluated, so that nothing is asked twice."""
    for agent_id in (work.agent_id for work in changes.work):
        current = {
            sources.persona_files.key: (now.personas[agent_id], recorded.personas),
            sources.baseline_files.key: (now.baselines[agent_id], recorded.baselines),
            sources.message_windows.key: (str(now.messages[agent_id]), recorded.messages),
        }
        for dimension, spec in sources.proposition_files.items():
            before = recorded.propositions.get(dimension, {})
            current[spec.key] = (now.propositions[dimension][agent_id], before)
        for key, (version, before) in current.items():
            if version != before.get(agent_id):
                yield dg.AssetObservation(key, partition=agent_id, tags={DATA_VERSION: version})


def _recorded(instance: dg.DagsterInstance, key: dg.AssetKey) -> Mapping[str, str]:
    tags = instance.event_log_storage.get_latest_tags_by_partition(
        key, dg.DagsterEventType.ASSET_OBSERVATION, tag_keys=[DATA_VERSION]
    )
    return {agent_id: tag[DATA_VERSION] for agent_id, tag in tags.items()}
