"""Evaluating from Python: the same call as the command line's and the assets'."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from typing_extensions import Unpack

from persona_pipeline.api.keywords import check_keywords
from persona_pipeline.api.results import Evaluation
from persona_pipeline.baselines import Baseline, find_baseline
from persona_pipeline.errors import ConfigError
from persona_pipeline.evaluation.request import EvaluationRequest
from persona_pipeline.evaluation.run import run_evaluation
from persona_pipeline.judging.open import JudgeOptions
from persona_pipeline.judging.open import open_judge as _open_judge
from persona_pipeline.judging.verdict import Judge
from persona_pipeline.settings import get_settings
from persona_pipeline.world import World
from persona_pipeline.world.ingest import parse_time

if TYPE_CHECKING:
    from persona_pipeline.evaluation.estimating import RunEstimate

_OF_JUDGE = ("max_usd", "record", "fresh", "grouping")


class Asking(TypedDict, total=False):
    """What may be asked of an evaluation by name; the options of ``persona-pipeline evaluate`` in Python.

    Attributes:
        agents: an id or several; None: everybody with a persona file.
        dimensions: a name or several; None: all that have claims.
        window: a length of time (``7d``, ``12h``) or ``all``.
        as_of: where the window ends, a time with an offset or RFC 3339; None: at the newest message.
        since: where the window begins instead, that moment left out.
        samples: judgments a claim.
        history: how many windows before are evaluated too.
        touched: evaluate again the earlier windows whose messages changed since.
        synthetic: generate conversations for agents that have hardly said anything.
        confirm: what fell is judged again before it is called a regression.
        threshold: the overall score, 0-9, an agent must reach.
        regression_delta, proposition_delta: points, 0-9, a dimension or a claim may fall.
        min_coverage: share, 0-1, of due judgments that must be scored; None: the judge's.
        fail_on: which findings set the exit code; None: all but the warnings.
        require_calibration: fail a dimension whose judge people's labels do not bear out; None: as the settings say.
        max_usd: US dollars a live judge may cost; what that stops is unscored.
        record: write the verdicts of a live judge to the world's recordings.
        fresh: ask a live judge anew what recordings or the store already answer.
        grouping: claims of one transcript in one call of a live judge; None: as the settings say.
    """

    agents: Sequence[str] | str | None
    dimensions: Sequence[str] | str | None
    window: str
    as_of: datetime | str | None
    since: datetime | str | None
    samples: int
    history: int
    touched: bool
    synthetic: bool
    confirm: bool
    threshold: float | None
    regression_delta: float
    proposition_delta: float
    min_coverage: float | None
    fail_on: Sequence[str] | None
    require_calibration: bool | None
    max_usd: float | None
    record: bool
    fresh: bool
    grouping: int | None


def load_world(root: Path | str | None = None, *, database_url: str | None = None) -> World:
    """Open a world: a folder with personas, claims and messages.

    Args:
        root: the folder; None: what ``PERSONA_ROOT`` says, else the current folder if it has ``personas/``.
        database_url: its store; None: what ``PERSONA_DATABASE_URL`` says, else SQLite in ``<root>/.persona``.

    Raises:
        ConfigError: the folder is no world, or the store cannot be opened.
    """
    return World.open(root, database_url)


def open_judge(
    world: World,
    judge: str | None = None,
    *,
    max_usd: float | None = None,
    record: bool = False,
    fresh: bool = False,
    grouping: int | None = None,
) -> Judge:
    """Open a judge for several evaluations.

    Args:
        judge: ``recorded``, or who serves a live judge's model (``anthropic``, ``bedrock``, ``vertex``, ``openai``); None: as the
            settings say, which is ``recorded`` unless set.
        max_usd, record, fresh, grouping: see ``Asking``.

    Raises:
        ConfigError: the name is unknown, an option does not fit it, or there is no key.
    """
    return _open_judge(judge or get_settings().judge, world, JudgeOptions(max_usd, record, fresh, grouping))


def evaluate(world: World, *, judge: Judge | str | None = None, **asked: Unpack[Asking]) -> Evaluation:
    """Evaluate agents, compare them with their baselines, judge again what fell, save the run, and return all of it.

    Works inside a running event loop too, such as a notebook's; it blocks until it is done.

    Args:
        judge: a judge, or the name of one as in ``open_judge``.
        asked: agents, dimensions, window and the rest: see ``Asking``.

    Raises:
        ConfigError: bad input, everything wrong with it; nothing is evaluated then.
    """
    request, opened = _prepared(world, judge, asked)
    return Evaluation.of(run_evaluation(world, opened, request), world)


async def evaluate_async(world: World, *, judge: Judge | str | None = None, **asked: Unpack[Asking]) -> Evaluation:
    """Do what ``evaluate`` does without holding up the event loop.

    The work is done by a thread with a loop of its own, in which the judge is asked too: a judge of yours must not keep
    connections of another loop. Cancelling stops the waiting and not the work.

    Args:
        judge: a judge, or the name of one as in ``open_judge``.
        asked: agents, dimensions, window and the rest: see ``Asking``.

    Raises:
        ConfigError: bad input, everything wrong with it; nothing is evaluated then.
    """
    return await asyncio.to_thread(evaluate, world, judge=judge, **asked)


def take_baselines(
    world: World, *, judge: Judge | str | None = None, windows: int = 1, **asked: Unpack[Asking]
) -> Evaluation:
    """Evaluate agents and write their scores to ``baselines/``; what was not scored in full keeps what the files say.

    Args:
        judge: a judge, or the name of one as in ``open_judge``.
        windows: from how many windows, this one and those before; four and more tell weeks from falls.
        asked: see ``Asking``.

    Returns:
        The evaluation, compared with what has just been written; ``baselines`` are the files.

    Raises:
        ConfigError: bad input, everything wrong with it; nothing is evaluated then.
    """
    request, opened = _prepared(world, judge, asked)
    request = replace(request, update_baseline=True, baseline_windows=windows)
    return Evaluation.of(run_evaluation(world, opened, request), world)


async def take_baselines_async(
    world: World, *, judge: Judge | str | None = None, windows: int = 1, **asked: Unpack[Asking]
) -> Evaluation:
    """Do what ``take_baselines`` does without holding up the event loop; see ``evaluate_async``."""
    return await asyncio.to_thread(take_baselines, world, judge=judge, windows=windows, **asked)


def load_baseline(world: World, agent_id: str) -> Baseline | None:
    """Return an agent's golden baseline, None when it has none.

    Raises:
        ConfigError: the file is not a valid baseline, or is another agent's.
    """
    return find_baseline(world.root, agent_id)


def estimate(world: World, *, judge: str | None = None, **asked: Unpack[Asking]) -> "RunEstimate":
    """Return the calls, tokens and US dollars a live evaluation would take; nothing is judged.

    Args:
        judge: who would serve the model; None: as the settings say, else Anthropic.
        asked: see ``Asking``.

    Raises:
        ConfigError: bad input.
    """
    from persona_pipeline.evaluation.estimating import estimate_run

    request, options = _request(asked)
    return estimate_run(world, request, judge or get_settings().judge, options)


def _prepared(world: World, judge: Judge | str | None, asked: Mapping[str, Any]) -> tuple[EvaluationRequest, Judge]:
    request, options = _request(asked)
    if judge is None or isinstance(judge, str):
        return request, _open_judge(judge or get_settings().judge, world, options)
    given = [name for name in _OF_JUDGE if asked.get(name)]
    if given:
        raise ConfigError(f"{', '.join(given)} belong to opening a judge; give them to open_judge")
    return request, judge


def _request(asked: Mapping[str, Any]) -> tuple[EvaluationRequest, JudgeOptions]:
    check_keywords(asked, Asking)
    options = {name: asked[name] for name in (*_OF_JUDGE, "min_coverage") if name in asked}
    fields = {name: value for name, value in asked.items() if name not in _OF_JUDGE}
    for name in ("agents", "dimensions"):
        # A text is a sequence of its letters.
        if isinstance(fields.get(name), str):
            fields[name] = [fields[name]]
    for name in ("as_of", "since"):
        if isinstance(fields.get(name), str):
            fields[name] = _moment(fields[name], name)
    return EvaluationRequest(**fields), JudgeOptions(**options)


def _moment(text: str, name: str) -> datetime:
    try:
        return parse_time(text, name=name)
    except ValueError as error:
        raise ConfigError(str(error)) from error
