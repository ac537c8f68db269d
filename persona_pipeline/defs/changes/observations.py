"""What the event log says about the sources: which versions were seen, and which of them nobody has acted upon yet."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

import dagster as dg

from persona_pipeline.changes.detection import Change, Work, work_of
from persona_pipeline.changes.versions import MESSAGES, PERSONA, message_versions
from persona_pipeline.defs.agents.specs import Specs
from persona_pipeline.defs.platform.dagster_internals import (
    DATA_VERSION,
    MATERIALIZED,
    OBSERVED,
    newest_events,
    newest_versions,
)
from persona_pipeline.store import Store

Events = Mapping[str, Mapping[str, int]]


def observation(specs: Specs, change: Change) -> dg.AssetObservation:
    """Return the event that records a change."""
    key = specs.sources.by_name[change.source].key
    return dg.AssetObservation(key, partition=change.agent_id, tags={DATA_VERSION: change.version})


def recorded_versions(specs: Specs, instance: dg.DagsterInstance) -> dict[str, Mapping[str, str]]:
    """Return the last recorded version of every source of every agent."""
    return {name: newest_versions(instance, spec.key, OBSERVED) for name, spec in specs.sources.by_name.items()}


def new_events(specs: Specs, instance: dg.DagsterInstance, after: int | None) -> dict[str, dict[str, int]]:
    """Return by agent which sources were observed since an event, with the newest event of each.

    ``after`` None: since the agent's last comparison with its baseline.
    """
    found: dict[str, dict[str, int]] = defaultdict(dict)
    compared = newest_events(instance, specs.comparisons.key, MATERIALIZED) if after is None else {}
    for name, spec in specs.sources.by_name.items():
        for agent_id, event in newest_events(instance, spec.key, OBSERVED, after=after).items():
            if event > compared.get(agent_id, 0):
                found[agent_id][name] = event
    return found


def find_work(
    specs: Specs, instance: dg.DagsterInstance, store: Store, changed: Mapping[str, Collection[str]]
) -> list[Work]:
    """Return what to evaluate of agents, by name; ``changed``: the sources by agent."""
    in_parts = _complete_agents(specs, instance) & _settled_agents(specs, instance, store, changed)
    return [work_of(agent_id, names, in_parts=agent_id in in_parts) for agent_id, names in sorted(changed.items())]


def _complete_agents(specs: Specs, instance: dg.DagsterInstance) -> set[str]:
    """Return the agents whose last whole evaluation was finished after it was asked for: only of those a part can be made."""
    finished = newest_events(instance, specs.runs.key, MATERIALIZED)
    asked = [newest_events(instance, specs.sources.by_name[name].key, OBSERVED) for name in (PERSONA, MESSAGES)]
    return {
        agent_id for agent_id, event in finished.items() if all(event > asking.get(agent_id, 0) for asking in asked)
    }


def _settled_agents(specs: Specs, instance: dg.DagsterInstance, store: Store, agent_ids: Iterable[str]) -> set[str]:
    """Return the agents that have said nothing since their messages were recorded: a part belongs to those messages."""
    heard = newest_versions(instance, specs.sources.message_windows.key, OBSERVED)
    now = message_versions(store, agent_ids)
    return {agent_id for agent_id, version in now.items() if str(version) == heard.get(agent_id)}
