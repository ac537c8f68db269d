"""The place of a world in a code location: its prefix, its settings, and how its assets and jobs are built."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.options import given
from persona_pipeline.base.settings import Settings, get_settings
from persona_pipeline.defs.platform.settings import OrchestrationSettings, orchestration
from persona_pipeline.judging.claims import PROMPT_VERSION
from persona_pipeline.world.world import World

# The names by which functions ask for resources; in the code location they are those of the place.
WORLD, EVALUATION = "world", "evaluation"
OWNERS = ["team:persona-quality"]
_PART = re.compile(r"[A-Za-z0-9_]+")


@dataclass(frozen=True)
class Place:
    """One world among others in a code location. Nothing of two places has the same name.

    ``prefix``: what every asset key begins with; empty: this world has the code location for itself. ``options``: of its
    evaluations, where the project says them. ``settings``, ``orchestration_settings``: the world's own; None: this process's,
    from the environment. Raises ``ConfigError``: the prefix is not made of letters, digits and underscores.
    """

    prefix: tuple[str, ...] = ()
    settings: Settings | None = None
    orchestration_settings: OrchestrationSettings | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if wrong := [part for part in self.prefix if not _PART.fullmatch(part)]:
            raise ConfigError(
                f"{wrong[0]!r} cannot begin a key; write letters, digits and underscores, and / between parts"
            )

    def key(self, name: str | Sequence[str]) -> dg.AssetKey:
        """Return the key of an asset."""
        return dg.AssetKey([*self.prefix, *([name] if isinstance(name, str) else name)])

    def name(self, name: str) -> str:
        """Return the name of a job, sensor, schedule, step, resource or pool; Dagster itself joins a key's parts so."""
        return "__".join([*self.prefix, name])

    def path(self, name: str) -> str:
        """Return the name of a group or of a partitions definition."""
        return "/".join([*self.prefix, name])

    def owns(self, run: dg.DagsterRun) -> bool:
        """Return whether a run belongs to this place: by its job, or because all its assets do."""
        if not self.prefix:
            return True
        keys = run.asset_selection or {check.asset_key for check in run.asset_check_selection or ()}
        own = bool(keys) and all(tuple(key.path[: len(self.prefix)]) == self.prefix for key in keys)
        # Dagster names the job of a scheduled asset after the schedule.
        return own or run.job_name.removeprefix("__anonymous_asset_job_").startswith(self.name(""))

    @property
    def environment(self) -> Settings:
        """The world's settings, as the project or the environment says them."""
        return self.settings or get_settings()

    @property
    def orchestration(self) -> OrchestrationSettings:
        """How it is run."""
        return self.orchestration_settings or orchestration()

    @property
    def asked(self) -> dict[str, Any]:
        """The options of its evaluations that the project or the environment says."""
        settings = self.orchestration
        running = {name: getattr(settings, name) for name in ("judge", "window", "max_usd")}
        said = {name: value for name, value in running.items() if name in settings.model_fields_set}
        return given({**said, **self.options})

    @property
    def judge_pool(self) -> str:
        """The pool that steps which judge wait for."""
        return self.name("judge")

    @property
    def judge_version(self) -> str:
        """The version of scores: changing the judge or its prompt makes every score visibly stale."""
        return f"{PROMPT_VERSION}:{self.environment.judge_model}"

    def open_world(self, root: str | None = None, database_url: str | None = None) -> World:
        """Return the world, with the settings it has here."""
        return World.open(root, database_url, settings=self.environment)

    def names(self, resources: Iterable[str]) -> set[str]:
        """Return the names of resources, as a step asks for them."""
        return {self.name(resource) for resource in resources}

    def job(
        self, name: str, description: str, *, uses: Iterable[str] = (WORLD,), **more: Any
    ) -> Callable[[Callable[..., Any]], dg.JobDefinition]:
        """Make a job of a function, its one step; in config and logs that has the function's name at every place.

        ``uses``: its resources.
        """

        def made(function: Callable[..., Any]) -> dg.JobDefinition:
            needed, own = self.names(uses), function.__name__
            step = dg.op(name=self.name(own), required_resource_keys=needed, **more)(function).alias(own)

            def composed() -> None:
                step()

            return dg.job(name=self.name(name), description=description)(composed)

        return made

    def spec(
        self,
        name: str | Sequence[str],
        group: str,
        deps: Iterable[dg.AssetSpec],
        kinds: set[str],
        text: str,
        *,
        at: str = "",
        table: str = "",
        **more: Any,
    ) -> dg.AssetSpec:
        """Return an asset of a step with several; ``at``: its file or folder in the world; ``table``: in the store."""
        links = {"dagster/uri": (self.environment.world_root.absolute() / at).as_uri()} if at else {}
        return dg.AssetSpec(
            self.key(name),
            deps=deps,
            group_name=self.path(group),
            kinds=kinds,
            description=text,
            owners=OWNERS,
            metadata={**links, **({"dagster/table_name": table} if table else {})},
            # The step itself yields the events: none for a past moment, else one for each partition.
            skippable=True,
            **more,
        )

    def asset(
        self,
        name: str | Sequence[str],
        group: str,
        *,
        checks: Mapping[str, str] | None = None,
        blocking: bool = False,
        uses: Iterable[str] = (WORLD,),
        **more: Any,
    ) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
        """Make an asset of a function; ``checks``: descriptions by name; ``uses``: its resources."""
        key = self.key(name)
        partitions = more.get("partitions_def")
        specs = [
            dg.AssetCheckSpec(check, asset=key, description=text, blocking=blocking, partitions_def=partitions)
            for check, text in (checks or {}).items()
        ]
        fields = {"key": key, "group_name": self.path(group), "owners": OWNERS, "check_specs": specs, **more}
        return lambda function: dg.asset(**fields, required_resource_keys=self.names(uses))(function)

    def sensor(self, **more: Any) -> Callable[[Callable[..., Any]], dg.SensorDefinition]:
        """Make a sensor of a function, under its name."""
        needed = self.names([WORLD])
        return lambda function: dg.sensor(name=self.name(function.__name__), required_resource_keys=needed, **more)(
            function
        )

    def schedule(
        self, name: str, what: dg.JobDefinition | dg.AssetsDefinition, cron: str, description: str, **more: Any
    ) -> dg.ScheduleDefinition:
        """Return a schedule of a job, or of an asset, which needs none, by the world's clock."""
        return dg.ScheduleDefinition(
            name=self.name(name),
            target=what,
            cron_schedule=cron,
            execution_timezone=self.orchestration.timezone,
            default_status=self.orchestration.schedule_status,
            description=description,
            **more,
        )
