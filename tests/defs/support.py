"""Driving the Dagster layer the way its daemon does, in this process and on a temporary instance."""

import logging
import re
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import dagster as dg
from dagster._core.events import AssetMaterializationPlannedData

from persona_pipeline.definitions import defs
from persona_pipeline.defs.agents.specs import build_specs
from persona_pipeline.defs.platform import resources
from persona_pipeline.defs.platform.dagster_internals import (
    MATERIALIZED,
    RANGE,
    lineage_tags,
    newest_events,
    newest_versions,
)
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.resources import AGENTS, WorldResource, known_agents
from persona_pipeline.judging.verdict import Judge

BEFORE_THE_DRIFT = "2026-06-14T23:59:59Z"
PARTITION, RUN_KEY = "dagster/partition", "dagster/run_key"


def metadata_of(result: dg.ExecuteInProcessResult, name: str) -> dict[str, dg.MetadataValue]:
    """Return the metadata a run materialized an asset with."""
    [event] = [item for item in result.get_asset_materialization_events() if item.asset_key == dg.AssetKey(name)]
    return dict(event.step_materialization_data.materialization.metadata)


def requested_by(
    schedule: dg.ScheduleDefinition, project: "Project", at: datetime | None = None
) -> list[dg.RunRequest]:
    """Return the runs that a schedule asks for. Dagster's context for tests takes an instance on disk only."""
    context = SimpleNamespace(
        instance=project.instance,
        resources=SimpleNamespace(world=project.world),
        scheduled_execution_time=at,
        log=logging.getLogger("schedule"),
    )
    function: Any = schedule._execution_fn
    asked = function.decorated_fn(context)
    asked = [asked] if isinstance(asked, dg.RunRequest | dg.SkipReason) else list(asked)
    return [item for item in asked if isinstance(item, dg.RunRequest)]


@contextmanager
def judged_by(judge: Judge) -> Iterator[None]:
    """Have every run judged by this judge."""
    with patch.object(resources, "open_judge", lambda *_: judge):
        yield


def rows_of(shown: dg.MetadataValue | str) -> list[dict[str, str]]:
    """Return the rows of a table in Markdown by its titles, as they are read."""
    lines = [re.split(r"(?<!\\) ?\| ?", line)[1:-1] for line in str(getattr(shown, "value", shown)).splitlines()]
    cells = [[re.sub(r"\\(.)", r"\1", cell) for cell in line] for line in lines]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]


def automation_result(
    definitions: dg.Definitions, instance: dg.DagsterInstance, assets: Iterable[dg.AssetKey | str]
) -> dg.EvaluateAutomationConditionsResult:
    """Return what the conditions of assets ask for, each partition set looked up once, as the daemon does.

    Dagster's function for tests looks it up for every part of every condition.
    """
    with patch.object(instance, "get_dynamic_partitions", cache(instance.get_dynamic_partitions)):
        return dg.evaluate_automation_conditions(definitions, instance, dg.AssetSelection.assets(*assets))


def note_run(
    instance: dg.DagsterInstance, job: str, assets: Iterable[dg.AssetKey], partition: str, status: dg.DagsterRunStatus
) -> None:
    """Note a run that does nothing, and what it planned; ``create_run_for_job`` makes a snapshot of the job first."""
    keys = frozenset(assets)
    run = instance.add_run(
        dg.DagsterRun(job_name=job, tags={PARTITION: partition}, asset_selection=keys, status=status)
    )
    for key in keys:
        planned = AssetMaterializationPlannedData(key, partition=partition)
        event = dg.DagsterEvent.build_asset_materialization_planned_event(job, "evaluate", planned)
        instance.report_dagster_event(event, run.run_id)


EVALUATED = ("adherence_scores", "consistency_scores", "convergence_scores", "fluency_scores", "ideas_quantity_scores")
JUDGED = (*EVALUATED, "in_character", "verdicts")


@dataclass(frozen=True)
class Requested:
    """What a tick asked for of one agent."""

    agent_id: str
    assets: tuple[str, ...]


@dataclass(frozen=True)
class Watched:
    """A world, the Dagster instance that watches it, and the cursors of its sensors."""

    root: Path
    instance: dg.DagsterInstance
    database_url: str = ""
    cursors: dict[str, Any] = field(default_factory=dict)

    @property
    def world(self) -> WorldResource:
        return WorldResource(root=str(self.root), database_url=self.database_url)

    @property
    def code(self) -> dg.Definitions:
        """The code location that watches it."""
        return defs

    def look(self, name: str) -> tuple[dg.SensorResult | dg.SkipReason, str | None]:
        """Run a sensor once and return its result and cursor; nothing is done with them."""
        with dg.build_sensor_context(
            instance=self.instance, resources={"world": self.world}, cursor=self.cursors.get(name)
        ) as context:
            result = self.code.resolve_sensor_def(name)._raw_fn(context)
            cursor = context.cursor
        assert isinstance(result, dg.SensorResult | dg.SkipReason)
        return result, cursor

    def requests(self, name: str, *, dies_after: int | None = None) -> list[dg.RunRequest]:
        """Run a sensor once, do what the daemon does with its result, and return the runs it asked for.

        Args:
            dies_after: how many observations the daemon still records before it dies, and the runs with it; None: it lives.
        """
        result, cursor = self.look(name)
        if isinstance(result, dg.SkipReason):
            self.cursors[name] = cursor
            return []
        # In the daemon's order: what was seen is recorded first, then partitions come and go, then runs and cursor are noted.
        for event in result.asset_events[:dies_after]:
            self.instance.report_runless_asset_event(event)
        if dies_after is not None:
            return []
        for request in result.dynamic_partitions_requests or ():
            if isinstance(request, dg.AddDynamicPartitionsRequest):
                self.instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
            else:
                for key in request.partition_keys:
                    self.instance.delete_dynamic_partition(request.partitions_def_name, key)
        self.cursors[name] = result.cursor or cursor
        return [request for request in result.run_requests or () if not self._known(request)]

    def _known(self, request: dg.RunRequest) -> bool:
        """Return whether a run was started under this key: the daemon starts no other."""
        return bool(request.run_key and self.instance.get_runs(dg.RunsFilter(tags={RUN_KEY: request.run_key})))

    def start(self, request: dg.RunRequest) -> None:
        """Note a run as the daemon does when it starts it; it does nothing."""
        partition = {PARTITION: request.partition_key} if request.partition_key else {}
        key = {RUN_KEY: request.run_key} if request.run_key else {}
        tags, job = {**request.tags, **partition, **key}, request.job_name or "run_eval_suites"
        self.instance.add_run(dg.DagsterRun(job_name=job, run_config=request.run_config, tags=tags))


@dataclass(frozen=True)
class Project(Watched):
    """A world whose agents are watched."""

    def copied(self, root: Path, instance: dg.DagsterInstance) -> "Project":
        """Return a project that is where this one is, in a folder and on an instance in memory of its own, which are new."""
        shutil.copytree(self.root, root)
        for storage in ("run_storage", "event_log_storage"):
            source, target = (getattr(one, storage)._held_conn for one in (self.instance, instance))
            source.connection.driver_connection.backup(target.connection.driver_connection)
        return replace(self, root=root, instance=instance, cursors={**self.cursors})

    def observe(self) -> None:
        """Let the sensor that is always on have message files read and report what is there."""
        self.read_messages()
        self.requests("source_changes")

    def read_messages(self) -> None:
        """Let the sensor that is always on ask for the run that reads message files, and run it."""
        for _ in self.requests("source_changes"):
            assert self.materialize("message_files").success

    def asked_for(self, *, started: bool = True) -> list[Requested]:
        """Let Dagster's own sensor look, note a run of what it asks for, which does nothing, and return it.

        ``started``: whether the daemon lived to note the runs.
        """
        found: dict[str, list[str]] = defaultdict(list)
        result = automation_result(defs, self.instance, JUDGED)
        for name in JUDGED:
            for agent_id in result.get_requested_partitions(dg.AssetKey(name)):
                found[agent_id or ""].append(name)
        for agent_id, names in found.items() if started else ():
            note_run(self.instance, "evaluate_agent", map(dg.AssetKey, names), agent_id, dg.DagsterRunStatus.FAILURE)
        return [Requested(agent_id, tuple(sorted(names))) for agent_id, names in sorted(found.items())]

    def tick(self) -> list[Requested]:
        """Report once, then return what is asked for."""
        self.observe()
        return self.asked_for()

    def remember(self) -> None:
        """Report what is there, and say that everybody was evaluated on it."""
        self.observe()
        specs = build_specs(Place())
        agent_ids = self.instance.get_dynamic_partitions(AGENTS)
        for spec in specs.judged:
            newest = {dep.asset_key: self._newest(dep.asset_key, agent_ids) for dep in spec.deps}
            for agent_id in agent_ids:
                inputs = {key: found[agent_id] for key, found in newest.items()}
                tags = lineage_tags("evaluated", spec.code_version, inputs)
                self.instance.report_runless_asset_event(
                    dg.AssetMaterialization(spec.key, partition=agent_id, tags=tags)
                )
        for agent_id in agent_ids:
            judged = [spec.key for spec in specs.judged]
            note_run(self.instance, "evaluate_agent", judged, agent_id, dg.DagsterRunStatus.SUCCESS)

    def _newest(self, key: dg.AssetKey, agent_ids: Sequence[str]) -> dict[str, tuple[str | None, int | None]]:
        """Return version and event of an asset's newest materialization of each agent."""
        versions = newest_versions(self.instance, key, MATERIALIZED, agent_ids)
        events = newest_events(self.instance, key, MATERIALIZED, set(agent_ids))
        return {agent_id: (versions.get(agent_id), events.get(agent_id)) for agent_id in agent_ids}

    def agents_requested(self) -> list[str]:
        """Report once and return whom Dagster asks to evaluate."""
        return [item.agent_id for item in self.tick()]

    def why_idle(self, sensor: str = "source_changes") -> str:
        """Run a sensor once and return why it did nothing."""
        self.read_messages()
        result, _ = self.look(sensor)
        assert isinstance(result, dg.SkipReason)
        # The code location has the suites of another world.
        return str(result.skip_message).partition("; the graph was loaded")[0]

    def evaluate(
        self, agent_id: str, assets: tuple[str, ...] | None = None, **settings: Any
    ) -> dg.ExecuteInProcessResult:
        """Run ``evaluate_agent``, all of it or some assets of it."""
        return self.run("evaluate_agent", {PARTITION: agent_id}, assets, **settings)

    def evaluate_all(
        self, assets: tuple[str, ...] | None = None, agent_ids: Sequence[str] = (), **settings: Any
    ) -> dg.ExecuteInProcessResult:
        """Evaluate partitions that follow each other in one run, as a backfill does; by default all."""
        there = agent_ids or known_agents(self.root)
        self.instance.add_dynamic_partitions(AGENTS, list(there))
        return self.run("evaluate_agent", dict(zip(RANGE, (there[0], there[-1]), strict=True)), assets, **settings)

    def materialize(
        self,
        asset: str,
        run_config: dict[str, Any] | None = None,
        tags: dict[str, str] | None = None,
        **settings: Any,
    ) -> dg.ExecuteInProcessResult:
        """Materialize an asset by hand."""
        return self.run("__ASSET_JOB", tags, (asset,), run_config, **settings)

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
