"""The resources of runs: the world, and how it is evaluated; and which errors fail or retry a run."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import dagster as dg
from pydantic import BaseModel, Field, PrivateAttr, model_validator
from sqlalchemy.exc import OperationalError

from persona_pipeline.base.errors import ConfigError, did_you_mean
from persona_pipeline.base.options import (
    OF_BASELINES,
    EvaluationRequest,
    given,
    option_fields,
    with_options,
)
from persona_pipeline.defs.platform import run_tags
from persona_pipeline.defs.platform.dagster_internals import PARTITION, RANGE, PlainError
from persona_pipeline.defs.platform.place import EVALUATION, WORLD, Place
from persona_pipeline.judging.open import JudgeOptions, OpenedJudge, Progress, open_judge
from persona_pipeline.judging.verdict import Judge, Unscored
from persona_pipeline.reporting.text import markdown_code
from persona_pipeline.world.personas import PERSONAS, is_agent_id, yaml_stems
from persona_pipeline.world.settings import load_world_file
from persona_pipeline.world.world import World

# What the instance keeps the agents under, a partition each.
AGENTS = "agents"

ResourceT = TypeVar("ResourceT", bound=dg.ConfigurableResource)


# A locked SQLite file, a Postgres server that restarts: gone in seconds or not at all.
DATABASE_RETRIES, DATABASE_SECONDS = 3, 5.0
# Overload and network: the judgments that were answered are in the cache, so a retry pays for the others only.
JUDGE_RETRIES, JUDGE_SECONDS = 2, 30.0
_PASSING = (Unscored.API_ERROR, Unscored.TIMEOUT)


@contextmanager
def known_failures(*, retry: bool = True) -> Iterator[None]:
    """Turn bad input into a failure that is not retried and shows file and line, and a lost database into a retry.

    Everything else is a defect: it fails at once, with its trace.
    """
    try:
        yield
    except ConfigError as error:
        raise PlainError(bad_input(error)) from None
    except dg.Failure as failure:
        raise PlainError(failure) from None
    except OperationalError as error:
        if not retry:
            raise
        raise dg.RetryRequested(max_retries=DATABASE_RETRIES, seconds_to_wait=DATABASE_SECONDS) from error


def bad_input(error: ConfigError) -> dg.Failure:
    """Return the failure that shows every problem with its place."""
    listed = "\n".join(f"- {markdown_code(str(problem))}" for problem in error.problems)
    shown = {"problems": dg.MetadataValue.md(listed)}
    return dg.Failure(str(error), metadata=shown, allow_retries=False)


def retry_unanswered(reasons: Mapping[str, int], judge: Judge, retry_number: int) -> None:
    """Raise ``RetryRequested`` when a live judge was overloaded or out of reach; refusals, bad answers, budgets stay as they are.

    ``reasons``: how many judgments are missing, by reason.
    """
    unanswered = sum(reasons.get(reason.value, 0) for reason in _PASSING)
    if judge.live and unanswered and retry_number < JUDGE_RETRIES:
        raise dg.RetryRequested(max_retries=JUDGE_RETRIES, seconds_to_wait=JUDGE_SECONDS * 2**retry_number)


class WorldResource(dg.ConfigurableResource):
    """The world on disk and its store. Registers the agents as partitions when a run of some starts."""

    place: ClassVar[Place] = Place()

    root: str = Field(default="", description="The world's folder; empty: PERSONA_ROOT, else the current folder.")
    database_url: str = Field(
        default="", description="The store; empty: PERSONA_DATABASE_URL, else SQLite in the world."
    )
    _world: World | None = PrivateAttr(default=None)

    def open(self) -> World:
        """Return the world, opened once in a process; ``dagster.Failure``: it cannot be opened, and a retry would not help."""
        if self._world is None:
            with known_failures(retry=False):
                self._world = self.place.open_world(self.root or None, self.database_url or None)
        return self._world

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        # A blank instance (CI) knows no agents, and a step's output fails on a partition that is not registered.
        # A run without agents registers none: the sensor finds new agents by their missing partition.
        if context.instance and context.run and any(tag.startswith((PARTITION, *RANGE)) for tag in context.run.tags):
            context.instance.add_dynamic_partitions(self.place.path(AGENTS), known_agents(self.open().root))

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        if self._world is not None:
            self._world.store.close()
            self._world = None


def opened_judge(world: World, request: EvaluationRequest) -> OpenedJudge:
    """Return the judge of a request; the step's log says how far it is."""
    progress = Progress(lambda line: dg.get_dagster_logger().info(line))
    return open_judge(request.judge or world.settings.judge, world, JudgeOptions.of(request, progress))


class RequestConfig(BaseModel):
    """Options of an evaluation in run config; values that older releases used for None are read as None."""

    @model_validator(mode="before")
    @classmethod
    def _as_it_is_spelled_now(cls, values: Any) -> Any:
        if wrong := [name for name in values if name not in cls.model_fields]:
            raise ValueError(f"there is no {wrong[0]!r}{did_you_mean(wrong[0], cls.model_fields)}")
        kept = given(values)
        return {
            name: value for name, value in values.items() if name in kept or name not in EvaluationRequest.model_fields
        }

    @property
    def given(self) -> dict[str, Any]:
        """The options that are set."""
        return given({name: getattr(self, name) for name in EvaluationRequest.model_fields if hasattr(self, name)})


class EvaluationSettings(RequestConfig, dg.ConfigurableResource):
    """How a run evaluates: window, judge, and when it fails."""

    place: ClassVar[Place] = Place()

    @cached_property
    def _judges(self) -> dict[str, OpenedJudge]:
        return {}

    def asked(self, world: World) -> EvaluationRequest:
        """Return the request of an evaluation without agents; the world's settings fill in the other options."""
        return world.settled(EvaluationRequest(**self.given))

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        if context.instance and context.run:
            run_tags.label_run(context.instance, context.run, self.given, self.place)

    def open_judge(self, world: World) -> OpenedJudge:
        """Return the judge, opened once a process and world."""
        key = str(world.root)
        if key not in self._judges:
            self._judges[key] = opened_judge(world, self.asked(world))
        return self._judges[key]

    def request(
        self, world: World, agents: Sequence[str] | None = None, dimensions: Sequence[str] | None = None
    ) -> EvaluationRequest:
        """Return the request of an evaluation of these agents; ConfigError: a time or the settings are not valid."""
        return self.asked(world).model_copy(update={"agents": agents, "dimensions": dimensions})


def world_of(place: Place, context: Any) -> World:
    """Return the world of a step, a sensor or a check, opened."""
    return getattr(context.resources, place.name(WORLD)).open()


def evaluation_of(place: Place, context: Any) -> EvaluationSettings:
    """Return how a step evaluates."""
    return getattr(context.resources, place.name(EVALUATION))


# An asset has its own partitions and dimensions; these are options of the job for CI.
NOT_OF_ASSETS = ("agents", "dimensions", "synthetic", "against", "accept_baseline", *OF_BASELINES)
if not TYPE_CHECKING:
    EvaluationSettings = with_options(EvaluationSettings, option_fields(without=NOT_OF_ASSETS))


@contextmanager
def opened_world(place: Place) -> Iterator[World]:
    """Open the world of a place, for a step that makes no agent a partition, and close it again."""
    opened = place.open_world()
    try:
        yield opened
    finally:
        opened.store.close()


def at_place(resource: type[ResourceT], place: Place) -> type[ResourceT]:
    """Return a resource whose settings are those of a place."""
    return type(
        resource.__name__, (resource,), {"place": place, "__module__": resource.__module__, "__doc__": resource.__doc__}
    )


def known_agents(root: Path) -> list[str]:
    """Return the agents with a persona file that are not left out, sorted; files with an invalid agent id are ignored."""
    try:
        left_out = load_world_file(root).leave_out
    except ConfigError:
        # The evaluation reports the error.
        left_out = []
    return [stem for stem in yaml_stems(root / PERSONAS) if is_agent_id(stem) and stem not in left_out]


def build_platform(place: Place) -> dg.Definitions:
    evaluation = at_place(EvaluationSettings, place)
    return dg.Definitions(
        resources={
            place.name(WORLD): at_place(WorldResource, place)(),
            place.name(EVALUATION): evaluation(**place.asked),
        }
    )
