"""Evaluating from Python, and opening judges and gates: the same calls as the command line's and the assets'."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from typing_extensions import Unpack

from persona_pipeline.api.results import Evaluation
from persona_pipeline.base.errors import ConfigError, did_you_mean
from persona_pipeline.base.options import BASELINE_WINDOWS, OF_JUDGE, Asking, EvaluationRequest
from persona_pipeline.corrections.gate import DEADLINE_SECONDS, ActionGate, gate_backend
from persona_pipeline.evaluation.against import fresh_world
from persona_pipeline.evaluation.run import run_evaluation
from persona_pipeline.guard.baselines.golden import BASELINES, find_baseline
from persona_pipeline.guard.baselines.models import Baseline
from persona_pipeline.judging.open import JudgeOptions, OpenedJudge
from persona_pipeline.judging.open import open_judge as _open_judge
from persona_pipeline.judging.verdict import Backend, Judge, JudgeRequest, Unscored, Verdict
from persona_pipeline.world.models import CorrectionSettings
from persona_pipeline.world.world import World

if TYPE_CHECKING:
    from persona_pipeline.evaluation.estimate import RunEstimate

# A world, or its folder.
WorldLike: TypeAlias = World | Path | str
JudgeFunction: TypeAlias = Callable[[JudgeRequest], int | Verdict | Awaitable[int | Verdict]]
# Requests to a function that waits, at once.
_AT_ONCE = 8


class JudgesRequests(Protocol):
    """A judge of the caller's own, which may leave out its name and whether it is live."""

    async def judge(self, requests: Sequence[JudgeRequest]) -> list[Verdict]: ...


# A judge, its name as in ``open_judge``, or a function of a request that returns a whole number 0-9, or a verdict.
JudgeLike: TypeAlias = JudgesRequests | JudgeFunction | str


@dataclass(frozen=True)
class OwnJudge:
    """A judge or function of the caller, with the guarantees of a judge: if it raises an error, its requests stay unscored."""

    given: Any

    @property
    def name(self) -> str:
        return str(getattr(self.given, "name", "") or getattr(self.given, "__name__", type(self.given).__name__))

    @property
    def live(self) -> bool:
        return bool(getattr(self.given, "live", False))

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the report."""
        return tuple(getattr(self.given, "notes", ()))

    async def judge(self, requests: Sequence[JudgeRequest]) -> list[Verdict]:
        if not hasattr(self.given, "judge"):
            free = asyncio.Semaphore(_AT_ONCE)
            return await asyncio.gather(*(self._verdict(request, free) for request in requests))
        try:
            verdicts = list(await self.given.judge(requests))
        except Exception as error:
            return [self._failed(request, error) for request in requests]
        if len(verdicts) != len(requests):
            count = f"{len(verdicts)} verdicts for {len(requests)} requests"
            raise ConfigError(f"judge {self.name!r} returned {count}; return one for each, in their order")
        return verdicts

    async def _verdict(self, request: JudgeRequest, free: asyncio.Semaphore) -> Verdict:
        async with free:
            try:
                said = self.given(request)
                said = await said if inspect.isawaitable(said) else said
                return said if isinstance(said, Verdict) else Verdict(request.proposition_id, score=said)
            except Exception as error:
                return self._failed(request, error)

    def _failed(self, request: JudgeRequest, error: Exception) -> Verdict:
        wrong = Unscored.INVALID_OUTPUT if isinstance(error, ValueError) else Unscored.API_ERROR
        return Verdict(request.proposition_id, unscored=wrong, detail=f"{self.name}: {type(error).__name__}: {error}")


def opened_world(world: WorldLike) -> World:
    """Return a world, opened where its folder is given; ConfigError as of ``load_world``."""
    return world if isinstance(world, World) else load_world(world)


def check_keywords(given: Mapping[str, Any], known: type) -> None:
    """Raise ``TypeError`` if a given keyword is not in a ``TypedDict``."""
    for name in given:
        if name not in known.__annotations__:
            raise TypeError(f"unexpected keyword argument {name!r}{did_you_mean(name, known.__annotations__)}")


def load_world(root: Path | str | None = None, *, database_url: str | None = None) -> World:
    """Open a world: a folder with personas, claims and messages.

    Args:
        root: the folder; None: ``PERSONA_ROOT``, else the current folder if it has ``personas/``.
        database_url: its store; None: ``PERSONA_DATABASE_URL``, else SQLite in ``<root>/.persona``.

    Raises:
        ConfigError: the folder is not a world, or the store cannot be opened.
    """
    return World.open(root, database_url)


def open_judge(
    world: WorldLike,
    judge: str | None = None,
    *,
    max_usd: float | None = None,
    record: bool = False,
    fresh: bool = False,
    grouping: int | None = None,
) -> Judge:
    """Open a judge for several evaluations.

    Args:
        judge: ``recorded``, or the provider of a live judge's model (``anthropic``, ``openai``, ``ollama`` and others); None: from
            the settings, ``recorded`` by default.
        max_usd, record, fresh, grouping: see ``Asking``.

    Raises:
        ConfigError: the name is unknown, an option does not fit it, or the key is missing.
    """
    world = opened_world(world)
    return _open_judge(judge or world.settings.judge, world, JudgeOptions(max_usd, record, fresh, grouping))


def evaluate(world: WorldLike, *, judge: JudgeLike | None = None, **asked: Unpack[Asking]) -> Evaluation:
    """Evaluate agents, compare them with their baselines, judge drops again, save the run, and return the result.

    Works inside a running event loop too, such as a notebook's; it blocks until it is done.

    Args:
        world: a world, or its folder.
        judge: a judge, its name as in ``open_judge``, or a function of a ``JudgeRequest``, async or not, that returns a whole
            number 0-9 or a ``Verdict``. If a judge raises an error, its requests stay unscored, with the error as the reason.
        asked: agents, dimensions, window and the rest: see ``Asking``.

    Raises:
        ConfigError: bad input (lists all problems; nothing is evaluated), or a judge returned too few verdicts.
    """
    return _evaluated(world, judge, _request(asked))


async def evaluate_async(world: WorldLike, *, judge: JudgeLike | None = None, **asked: Unpack[Asking]) -> Evaluation:
    """Evaluate agents as ``evaluate`` does, without blocking the event loop.

    A thread with a separate event loop does the work and calls the judge, so a custom judge must not reuse connections of
    another loop. Cancelling stops the waiting, not the work.

    Args:
        judge: as in ``evaluate``.
        asked: agents, dimensions, window and the rest: see ``Asking``.

    Raises:
        ConfigError: bad input (lists all problems; nothing is evaluated).
    """
    return await asyncio.to_thread(evaluate, world, judge=judge, **asked)


def take_baselines(
    world: WorldLike,
    *,
    judge: JudgeLike | None = None,
    windows: int = BASELINE_WINDOWS,
    accept: str | None = None,
    **asked: Unpack[Asking],
) -> Evaluation:
    """Evaluate agents and write their scores to ``baselines/``. Scores that are not complete do not replace those in the files.

    An agent is refused if its window spans a known drift or its scores are below its file: see the finding ``known_drift``.

    Args:
        judge: as in ``evaluate``.
        windows: number of windows to use, the current one and those before it; fewer if fewer exist.
        accept: why a refused baseline is written anyway, in one line; kept in the file.
        asked: see ``Asking``.

    Returns:
        The evaluation, compared with the new baselines; ``baselines`` are the files.

    Raises:
        ConfigError: bad input (lists all problems; nothing is evaluated).
    """
    taking = {"update_baseline": True, "baseline_windows": windows, "accept": accept}
    return _evaluated(world, judge, _request(asked, **taking))


async def take_baselines_async(
    world: WorldLike,
    *,
    judge: JudgeLike | None = None,
    windows: int = BASELINE_WINDOWS,
    accept: str | None = None,
    **asked: Unpack[Asking],
) -> Evaluation:
    """Take baselines as ``take_baselines`` does, without blocking the event loop; see ``evaluate_async``."""
    return await asyncio.to_thread(take_baselines, world, judge=judge, windows=windows, accept=accept, **asked)


def load_baseline(world: WorldLike, agent_id: str) -> Baseline | None:
    """Return an agent's golden baseline, or None.

    Raises:
        ConfigError: the file is not a valid baseline, or is another agent's.
    """
    return find_baseline(opened_world(world).root / BASELINES, agent_id)


def estimate(world: WorldLike, *, judge: str | None = None, **asked: Unpack[Asking]) -> "RunEstimate":
    """Return the calls, tokens and US dollars that a live evaluation would take; nothing is judged.

    Args:
        judge: the provider of the model; None: from the settings, else Anthropic.
        asked: see ``Asking``.

    Raises:
        ConfigError: bad input.
    """
    from persona_pipeline.evaluation.estimate import estimate_run

    request, world = _request(asked), opened_world(world)
    return estimate_run(world, request, judge or world.settings.judge, JudgeOptions.of(request))


def _evaluated(given: WorldLike, judge: JudgeLike | None, request: EvaluationRequest) -> Evaluation:
    world = opened_world(given)
    # Where a commit decides, nothing stored is believed.
    fresh = request.against and fresh_world(world.root, request.against, settings=world.environment)
    with fresh or nullcontext(world) as judged:
        if judge is None or isinstance(judge, str):
            opened = _open_judge(judge or judged.settings.judge, judged, JudgeOptions.of(request))
        elif wrong := [name for name in OF_JUDGE if getattr(request, name)]:
            raise ConfigError(f"{', '.join(wrong)} belong to opening a judge; give them to open_judge")
        else:
            opened = judge if isinstance(judge, OpenedJudge) else OwnJudge(judge)
        return Evaluation.of(run_evaluation(judged, opened, request), world)


def _request(asked: Mapping[str, Any], **more: Any) -> EvaluationRequest:
    check_keywords(asked, Asking)
    return EvaluationRequest.model_validate({**asked, **more})


def open_gate(
    world: WorldLike,
    *,
    backend: Backend | None = None,
    deadline: float = DEADLINE_SECONDS,
    settings: CorrectionSettings | None = None,
) -> ActionGate:
    """Open the action gate, which checks an agent's message before it is sent. On any error the message is sent (fail-open).

    Stores the personas first. Call ``await gate.check(...)`` in an event loop, ``gate.check_sync(...)`` elsewhere; use only one of
    the two per gate.

    Args:
        backend: the judge's backend; None: the live judge of the settings.
        deadline: seconds a check may take in total.
        settings: used instead of each agent's own, which leave the gate off unless it is turned on.

    Raises:
        ConfigError: a persona file is not valid, or the live judge has no key.
    """
    world = opened_world(world)
    world.sync()
    return ActionGate(world, backend or gate_backend(world.settings), deadline=deadline, settings=settings)
