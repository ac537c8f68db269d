"""Where a world stands in a code location: what its things are called, which settings are in force, and where its steps run."""

import contextvars
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.options import given
from persona_pipeline.base.settings import Settings, get_settings
from persona_pipeline.defs.platform.settings import OrchestrationSettings, orchestration
from persona_pipeline.judging.claims import PROMPT_VERSION


def build_executor(settings: OrchestrationSettings) -> dg.ExecutorDefinition:
    """Return the executor of the settings.

    A step costs 0.05 s in the run's process and 2 to 3 s in one of its own; judge calls wait inside the step. So more
    processes help only where one host is not enough.

    Raises:
        ImportError: Celery is asked for and its extra is not installed.
    """
    if settings.executor != "celery":
        return dg.in_process_executor
    try:
        from dagster_celery import celery_executor
    except ImportError as error:
        raise ImportError("PERSONA_EXECUTOR=celery needs the extra: pip install 'persona-pipeline[celery]'") from error
    return celery_executor.configured({"broker": settings.celery_broker, "backend": settings.celery_backend})


# The names by which functions ask for resources; in the code location they are those of the place.
WORLD, EVALUATION, VALUES = "world", "evaluation", "values"
_PART = re.compile(r"[A-Za-z0-9_]+")


@dataclass(frozen=True)
class Place:
    """One world among others in a code location. Nothing of two places has the same name.

    Attributes:
        prefix: what every asset key begins with; empty: this world has the code location for itself.
        options: of its evaluations, where the project says them.
        settings, orchestration_settings: the world's own; None: this process's, from the environment.

    Raises:
        ConfigError: the prefix is not made of letters, digits and underscores.
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
        """Return the name of a group or of what the instance keeps partitions under."""
        return "/".join([*self.prefix, name])

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
    def executor(self) -> dg.ExecutorDefinition:
        """Where the steps of its jobs run."""
        return build_executor(self.orchestration)

    @property
    def judge_pool(self) -> str:
        """The pool that steps which judge wait for."""
        return self.name("judge")

    @property
    def judge_version(self) -> str:
        """The version of scores: changing the judge or its prompt makes every score visibly stale."""
        return f"{PROMPT_VERSION}:{(self.settings or get_settings()).judge_model}"

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Put the world's settings in force."""
        with ExitStack() as stack:
            if self.settings is not None:
                stack.enter_context(get_settings.using(self.settings))
            if self.orchestration_settings is not None:
                stack.enter_context(orchestration.using(self.orchestration_settings))
            yield

    def bound(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function as Dagster is to call it: with resources by this place's names, and with its settings in force."""
        signature = inspect.signature(function, eval_str=True)
        renamed = {name: self.name(name) for name in (WORLD, EVALUATION) if name in signature.parameters}
        inner = {there: name for name, there in renamed.items()}

        def started(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[contextvars.Context, Any]:
            named = {inner.get(name, name): value for name, value in kwargs.items()}
            with self.entered():
                context = contextvars.copy_context()
            return context, context.run(function, *args, **named)

        def call(*args: Any, **kwargs: Any) -> Any:
            return started(args, kwargs)[1]

        def call_generator(*args: Any, **kwargs: Any) -> Iterator[Any]:
            return (yield from _continued(*started(args, kwargs)))

        # Dagster looks whether it is one.
        outer = call_generator if inspect.isgeneratorfunction(function) else call
        parameters = [item.replace(name=renamed.get(item.name, item.name)) for item in signature.parameters.values()]
        outer.__name__, outer.__doc__, outer.__module__ = function.__name__, function.__doc__, function.__module__
        outer.__signature__ = signature.replace(parameters=parameters)  # pyright: ignore[reportFunctionMemberAccess]
        return outer


def _continued(context: contextvars.Context, made: Any) -> Iterator[Any]:
    """Yield what a generator yields; between two values the settings of whoever takes them are in force, not its own."""
    try:
        while True:
            try:
                value = context.run(next, made)
            except StopIteration as end:
                return end.value
            yield value
    finally:
        context.run(made.close)
