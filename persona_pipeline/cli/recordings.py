"""``persona-pipeline recordings``: sign them, judge some of them again, and list those nothing asks for."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from persona_pipeline.cli.options import (
    Agents,
    AsOf,
    Dimensions,
    MaxUsd,
    Samples,
    WindowLength,
    live_judge_name,
    moment,
    names,
)
from persona_pipeline.errors import ConfigError
from persona_pipeline.judging.layers import OpenedJudge
from persona_pipeline.judging.open import JudgeOptions, open_judge
from persona_pipeline.judging.recordings.replay import RecordedBackend

if TYPE_CHECKING:
    from persona_pipeline.evaluation import EvaluationRequest
    from persona_pipeline.world import World

app = typer.Typer(help="Recorded judgments: signed, judged again, unused.", no_args_is_help=True)


@app.command()
def sign() -> None:
    """Sign all recordings with PERSONA_RECORDINGS_SECRET. Where that is set, recordings without its signature are errors."""
    from persona_pipeline.judging.recordings.files import sign_recordings, signing_secret
    from persona_pipeline.settings import get_settings

    secret = signing_secret()
    if secret is None:
        raise ConfigError("there is nothing to sign with; set PERSONA_RECORDINGS_SECRET")
    for path in sign_recordings(get_settings().world_root / "recordings", secret):
        typer.echo(str(path))


@app.command()
def unused(
    agents: Agents = "all",
    dimensions: Dimensions = "all",
    window: WindowLength = "7d",
    as_of: AsOf = None,
    samples: Samples = 1,
) -> None:
    """List the recorded verdicts that a replay of this window does not ask for: stale, of another window, or slipped in."""
    world, options = _asked(agents, dimensions, window, as_of, samples)
    backend = _replayed(world, options)
    left = [item for item in backend.unused() if item.kind == "proposition"]
    for item in left:
        typer.echo(f"{item.agent_id}/{item.dimension}/{item.proposition_id} {item.key[:12]} {item.claim}")
    known = len(backend.recordings) + len(backend.failures)
    typer.echo(f"{len(left)} of {known} recordings are not asked for", err=True)


@app.command()
def rejudge(
    size: Annotated[int, typer.Option("--size", min=1, help="Recordings to judge again, drawn at random.")] = 20,
    seed: Annotated[int | None, typer.Option(help="Of the draw; by default another one every day.")] = None,
    most: Annotated[
        float, typer.Option(min=0, max=1, help="Share (0-1) of the sample that may disagree by 3 points or more.")
    ] = 0.1,
    max_usd: MaxUsd = None,
    agents: Agents = "all",
    dimensions: Dimensions = "all",
    window: WindowLength = "7d",
    as_of: AsOf = None,
    samples: Samples = 1,
) -> None:
    """Judge a random sample of the recordings again with the live judge, and report where it disagrees.

    Exit codes: 0 it agrees, 1 more disagree than may, 2 usage or configuration, 3 not fully judged.
    """
    from datetime import UTC, datetime

    from persona_pipeline.judging.recordings.replay import rejudge as judge_again

    world, options = _asked(agents, dimensions, window, as_of, samples)
    live = open_judge(live_judge_name(), world, JudgeOptions(max_usd, fresh=True, recorded=False))
    recorded = _replayed(world, options)
    day = datetime.now(UTC).toordinal() if seed is None else seed
    found = asyncio.run(judge_again(recorded.claims, OpenedJudge(recorded), live, size=size, seed=day))
    for row in found.disagreements:
        said = row.live.score if row.live.score is not None else row.live.unscored
        was = row.recorded.score if row.recorded.score is not None else row.recorded.unscored
        typer.echo(
            f"{row.request.agent_id}/{row.request.dimension}/{row.request.proposition_id}: recorded {was}, now {said}"
        )
    typer.echo(
        f"{len(found.disagreements)} of {len(found.answered)} disagree ({found.disagreement:.0%}); {len(found.rows)} drawn of "
        f"{found.recorded}; seed {day}",
        err=True,
    )
    if not found.rows or len(found.answered) < len(found.rows):
        raise typer.Exit(3)
    raise typer.Exit(int(found.disagreement > most))


def _asked(
    agents: str, dimensions: str, window: str, as_of: str | None, samples: int
) -> "tuple[World, EvaluationRequest]":
    from persona_pipeline.evaluation import EvaluationRequest
    from persona_pipeline.world import World

    options = EvaluationRequest(
        agents=names(agents), dimensions=names(dimensions), window=window, as_of=moment(as_of), samples=samples
    )
    return World.open(), options


def _replayed(world: "World", options: "EvaluationRequest") -> "RecordedBackend":
    from persona_pipeline.evaluation.run import run_evaluation

    recorded = RecordedBackend(world.root / "recordings")
    run_evaluation(world, OpenedJudge(recorded), options)
    return recorded
