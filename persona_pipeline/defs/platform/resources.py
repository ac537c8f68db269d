"""What every asset needs: the world, and how to judge it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import ClassVar, TypeVar

import dagster as dg
from pydantic import Field, PrivateAttr

from persona_pipeline.defs.platform import run_tags
from persona_pipeline.defs.platform.failures import known_failures
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.errors import ConfigError
from persona_pipeline.evaluation import EvaluationRequest
from persona_pipeline.judging.layers import OpenedJudge
from persona_pipeline.judging.open import JudgeOptions, open_judge
from persona_pipeline.judging.progress import Progress
from persona_pipeline.world import World
from persona_pipeline.world.files import is_agent_id, yaml_stems
from persona_pipeline.world.ingest import parse_time
from persona_pipeline.world.personas import PERSONAS

# What the instance keeps the agents under, a partition each.
AGENTS = "agents"
# The job that reads message files. It makes no agent a partition: that an agent is none yet tells sensors that it is new.
READS_MESSAGES = "read_messages"

ResourceT = TypeVar("ResourceT", bound=dg.ConfigurableResource)


class WorldResource(dg.ConfigurableResource):
    """The world on disk and its store. Registers the agents as partitions when a run starts."""

    place: ClassVar[Place] = Place()

    root: str = Field(default="", description="The world's folder; empty: PERSONA_ROOT, else the project.")
    database_url: str = Field(
        default="", description="The store; empty: PERSONA_DATABASE_URL, else SQLite in the world."
    )
    _world: World | None = PrivateAttr(default=None)

    def open(self) -> World:
        """Return the world, opened once a process.

        Raises:
            dagster.Failure: it cannot be opened; nothing a retry would mend.
        """
        if self._world is None:
            with known_failures(retry=False), self.place.entered():
                self._world = World.open(self.root or None, self.database_url or None)
        return self._world

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        # A blank instance (CI) knows no agents, and a step's output fails on a partition that is not registered.
        # Outside a run the sensor adds and removes them.
        if context.instance and context.run and context.run.job_name != self.place.name(READS_MESSAGES):
            context.instance.add_dynamic_partitions(self.place.path(AGENTS), known_agents(self.open().root))

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        if self._world is not None:
            self._world.store.close()
            self._world = None


def logged_progress() -> Progress:
    """Return what says in the step's log how far a live judge is."""
    return Progress(lambda line: dg.get_dagster_logger().info(line))


class EvaluationSettings(dg.ConfigurableResource):
    """How a run evaluates: window, judge, and when it fails."""

    place: ClassVar[Place] = Place()

    window: str = Field(default="7d", description="Length of the window, such as 7d or 12h, or 'all'.")
    as_of: str = Field(default="", description="Where the window ends (RFC 3339); empty: the newest message.")
    since: str = Field(
        default="",
        description="Where the window begins instead (RFC 3339, that moment left out); empty: as `window` says.",
    )
    judge: str = Field(
        default="recorded",
        description="'recorded', or the provider of a live judge: anthropic, bedrock, vertex, openai.",
    )
    grouping: int = Field(
        default=0, ge=0, description="Claims of one transcript in one call of a live judge; 0: PERSONA_JUDGE_GROUPING."
    )
    fresh: bool = Field(default=False, description="Ask a live judge anew what recordings or the store already answer.")
    samples: int = Field(default=1, ge=1, description="Judgments per claim.")
    max_usd: float = Field(
        default=0.0,
        ge=0,
        description="US dollars a run may spend (where every step has a process of its own: a step); 0: no limit.",
    )
    min_coverage: float = Field(
        default=-1.0, le=1, description="Share (0-1) of judgments that must be scored; negative: the judge's default."
    )
    regression_delta: float = Field(default=1.0, ge=0, description="How far a dimension may fall, on 0-9.")
    proposition_delta: float = Field(default=3.0, ge=0, description="How far one claim may fall, on 0-9.")

    @cached_property
    def _judges(self) -> dict[str, OpenedJudge]:
        return {}

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        if context.instance and context.run:
            begins = f"since {self.since}" if self.since else self.window
            with self.place.entered():
                run_tags.label_run(context.instance, context.run, judge=self.judge, window=begins, as_of=self.as_of)

    def open_judge(self, world: World) -> OpenedJudge:
        """Return the judge, opened once a process and world."""
        key = str(world.root)
        if key not in self._judges:
            self._judges[key] = open_judge(
                self.judge,
                world,
                JudgeOptions(
                    max_usd=self.max_usd or None,
                    fresh=self.fresh,
                    grouping=self.grouping or None,
                    progress=logged_progress(),
                ),
            )
        return self._judges[key]

    def request(
        self, agents: Sequence[str] | None = None, dimensions: Sequence[str] | None = None
    ) -> EvaluationRequest:
        """Return what is asked of an evaluation of these agents.

        Raises:
            ConfigError: ``as_of`` or ``since`` is no time.
        """
        return EvaluationRequest(
            agents=agents,
            dimensions=dimensions,
            window=self.window,
            as_of=moment_of(self.as_of, "as_of"),
            since=moment_of(self.since, "since"),
            samples=self.samples,
            min_coverage=None if self.min_coverage < 0 else self.min_coverage,
            regression_delta=self.regression_delta,
            proposition_delta=self.proposition_delta,
        )


@contextmanager
def world_in_force() -> Iterator[World]:
    """Open the world of the settings in force, for a step that makes no agent a partition, and close it again."""
    opened = World.open()
    try:
        yield opened
    finally:
        opened.store.close()


def at_place(resource: type[ResourceT], place: Place) -> type[ResourceT]:
    """Return a resource whose settings are those of a place."""
    return type(
        resource.__name__, (resource,), {"place": place, "__module__": resource.__module__, "__doc__": resource.__doc__}
    )


def moment_of(text: str, name: str) -> datetime | None:
    """Return the time written in run config, None when it is empty.

    Raises:
        ConfigError: it is no RFC 3339 time with an offset.
    """
    if not text:
        return None
    try:
        return parse_time(text, name=name)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def known_agents(root: Path) -> list[str]:
    """Return who has a persona file, sorted; a file whose name cannot be an agent's id stops nobody else."""
    return [stem for stem in yaml_stems(root / PERSONAS) if is_agent_id(stem)]
