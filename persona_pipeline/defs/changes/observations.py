"""The sensor's memory: data versions recorded as observations of the source assets."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from persona_pipeline.changes.detection import Changes, Recorded
from persona_pipeline.changes.versions import SourceVersions
from persona_pipeline.defs.agents import assets, sources
from persona_pipeline.defs.changes.looks import requested_runs, unfinished_looks
from persona_pipeline.defs.platform.dagster_internals import (
    DATA_VERSION,
    MATERIALIZED,
    OBSERVED,
    PARTITION,
    newest_events,
    newest_versions,
)
from persona_pipeline.defs.platform.run_tags import LOOK
from persona_pipeline.propositions import ALL_DIMENSIONS


@dataclass(frozen=True)
class Unfinished:
    """What looks recorded whose runs are not certain.

    Attributes:
        agents: by source, those that no run was started for: their versions count as never recorded.
        newest: the number of the newest such look, 0: there is none.
    """

    agents: Mapping[dg.AssetKey, Collection[str]] = field(default_factory=dict)
    newest: int = 0


def unfinished_work(instance: dg.DagsterInstance, last: int) -> Unfinished:
    """Return what looks after the last finished one recorded without seeing to the runs."""
    looks = {spec.key: unfinished_looks(instance, spec.key, last) for spec in sources.SOURCES}
    numbers = {look for found in looks.values() for look in found.values()}
    if not numbers:
        return Unfinished()
    started: dict[str, int] = {}
    for look, run in requested_runs(instance, numbers):
        for agent_id in evaluated_agents(run):
            started[agent_id] = max(look, started.get(agent_id, 0))
    return Unfinished(
        {
            key: {agent_id for agent_id, look in found.items() if agent_id and started.get(agent_id, 0) < look}
            for key, found in looks.items()
        },
        max(numbers),
    )


def evaluated_agents(run: dg.DagsterRun) -> list[str]:
    """Return whom a run the sensor asked for evaluates."""
    if PARTITION in run.tags:
        return [run.tags[PARTITION]]
    config: Any = run.run_config
    return list(config.get("ops", {}).get("cohort_shards", {}).get("config", {}).get("agents", ()))


def recorded_versions(instance: dg.DagsterInstance, unfinished: Unfinished) -> Recorded:
    """Return the last version of every source of every agent that was acted upon."""

    def recorded(spec: dg.AssetSpec) -> Mapping[str, str]:
        found, forgotten = newest_versions(instance, spec.key, OBSERVED), unfinished.agents.get(spec.key, ())
        return {agent_id: version for agent_id, version in found.items() if agent_id not in forgotten}

    return Recorded(
        personas=recorded(sources.persona_files),
        propositions={d: recorded(sources.proposition_files[d]) for d in ALL_DIMENSIONS},
        baselines=recorded(sources.baseline_files),
        messages=recorded(sources.message_windows),
    )


def complete_agents(instance: dg.DagsterInstance) -> set[str]:
    """Return the agents whose last whole evaluation was finished after it was asked for."""
    finished = newest_events(instance, assets.evaluation_runs.key, MATERIALIZED)
    asked = [newest_events(instance, key, OBSERVED) for key in (sources.persona_files.key, sources.message_windows.key)]
    return {
        agent_id for agent_id, event in finished.items() if all(event > asking.get(agent_id, 0) for asking in asked)
    }


def observations(now: SourceVersions, recorded: Recorded, changes: Changes, look: int) -> Iterator[dg.AssetObservation]:
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
                yield dg.AssetObservation(key, partition=agent_id, tags={DATA_VERSION: version, LOOK: str(look)})
