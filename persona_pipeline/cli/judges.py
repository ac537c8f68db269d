"""``persona-pipeline calibrate``, ``canary`` and ``recordings``: can a judge be believed, did it change, what did it say."""

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from persona_pipeline.base.errors import EXIT_COVERAGE, ConfigError
from persona_pipeline.cli.options import (
    EitherDimensions,
    Estimate,
    Format,
    MaxUsd,
    Output,
    asks,
    check_format,
    environment,
    live_judge_name,
    names,
    open_world,
    request_of,
)
from persona_pipeline.cli.running import end

if TYPE_CHECKING:
    from persona_pipeline.base.options import EvaluationRequest
    from persona_pipeline.judging.recordings.replay import RecordedBackend
    from persona_pipeline.world.world import World


def calibrate(
    dimensions: EitherDimensions = "all",
    format: Format = "table",
    output: Output = None,
    require_calibration: Annotated[
        bool, typer.Option("--require-calibration", help="Fail when a dimension has too few labels to tell.")
    ] = False,
) -> None:
    """Measure each judge against people's labels; asks nobody.

    Rank correlation and judge bias.

    Exit codes: 0 no judge is known to be bad, 1 one is no better than chance on a dimension, 2 usage or configuration, 3 not known
    (with --require-calibration).
    """
    from persona_pipeline.evaluation.calibrate import calibrate_world
    from persona_pipeline.reporting.pages.instruments import calibration_page
    from persona_pipeline.reporting.render import write_page

    check_format(format)
    found = calibrate_world(open_world(), names(dimensions))
    data = found.model_dump(mode="json")
    for row, item in zip(data["dimensions"], found.dimensions, strict=True):
        row |= {"missing": item.missing, "belief": item.belief}
    write_page(calibration_page(found), data, format, output)
    if require_calibration and (not found.dimensions or any(item.missing for item in found.dimensions)):
        end(EXIT_COVERAGE)
    end(
        int(any(item.belief == "chance" for item in found.dimensions)),
        looked_at=sum(item.labelled for item in found.dimensions),
        looked_for="labels of this world's judgments; people give them in `persona-pipeline view`",
    )


def canary(
    anchors: Annotated[int, typer.Option(min=20, max=2000, help="Judgments made again for each earlier judge.")] = 80,
    before: Annotated[
        str | None, typer.Option(help="Model of the earlier judge; default: the judges of the baselines.")
    ] = None,
    estimate: Estimate = False,
    max_usd: MaxUsd = None,
) -> None:
    """Ask the live judge what the baselines' judge was asked: has it changed?

    People's labels are used where there are some. What was found is written to calibration/judge_changes.json: with it, runs of the
    new judge are compared with baselines of the old one.

    Exit codes: 0 it did not change, 1 it did, 2 usage or configuration, 3 not fully judged.
    """
    from persona_pipeline.evaluation.calibrate import plan_canaries, run_canary
    from persona_pipeline.guard.baselines.golden import BASELINES
    from persona_pipeline.guard.calibration.judge_change import CHANGES, FEWEST_ANCHORS, JudgeName, save_judge_changes
    from persona_pipeline.judging.claims import PROMPT_VERSION
    from persona_pipeline.judging.estimate import estimate as estimated
    from persona_pipeline.judging.open import JudgeOptions, open_judge
    from persona_pipeline.judging.providers.base import ModelOptions
    from persona_pipeline.reporting.pages.instruments import judge_change_page
    from persona_pipeline.reporting.render import print_page
    from persona_pipeline.reporting.text import cost_line
    from persona_pipeline.scoring.results import add_usage

    world = open_world()
    now = JudgeName(model=world.settings.judge_model, prompt_version=PROMPT_VERSION)
    canaries = plan_canaries(world, now, before=before, anchors=anchors)
    if not canaries:
        golden = sorted((world.root / BASELINES).glob("*.json"))
        if golden:
            typer.echo(f"every baseline was judged by {now}, the current judge: there is nothing to compare")
        end(looked_at=len(golden), looked_for="baselines; `persona-pipeline baseline` takes them")
    for item in canaries:
        typer.echo(
            f"{item.before}: {len(item.requests)} judgments are made again, {item.labelled} of them labelled by people",
            err=True,
        )
        if len(item.requests) < FEWEST_ANCHORS:
            typer.echo(f"hint: below {FEWEST_ANCHORS} a change is seen in less than half of the cases", err=True)
    requests = [request for item in canaries for request in item.requests]
    typer.echo(str(estimated(requests, options=ModelOptions.from_settings(world.settings))), err=True)
    if estimate:
        return
    # Asked itself, whatever is recorded: recordings hold what the earlier judge said.
    judge = open_judge(live_judge_name(world), world, JudgeOptions(max_usd, recorded=False))
    compared = [run_canary(item, judge) for item in canaries]
    for item in compared:
        print_page(judge_change_page(item.change))
    typer.echo(cost_line(add_usage(item.usage for item in compared)), err=True)
    if any(item.failed for item in compared):
        typer.echo(
            f"{sum(item.failed for item in compared)} judgments were not made: nothing is written; run it again",
            err=True,
        )
        end(EXIT_COVERAGE)
    path = save_judge_changes(world.root / CHANGES, [item.change for item in compared])
    typer.echo(f"written: {path}", err=True)
    end(int(any(item.change.changed for item in compared)))


app = typer.Typer(help="Recorded judgments: signed, judged again, unused.", no_args_is_help=True)


@app.command()
def sign() -> None:
    """Sign all recordings with PERSONA_RECORDINGS_SECRET.

    Where that is set, recordings without its signature are errors.
    """
    from persona_pipeline.judging.recordings.replay import sign_recordings
    from persona_pipeline.world.personas import find_world

    settings = environment()
    secret = settings.signing_secret
    if secret is None:
        raise ConfigError("there is nothing to sign with; set PERSONA_RECORDINGS_SECRET")
    signed = sign_recordings(find_world(settings) / "recordings", secret)
    for path in signed:
        typer.echo(str(path))
    end(looked_at=len(signed), looked_for="recordings")


_OF_A_REPLAY = ("agents", "dimensions", "window", "as_of", "samples")


@app.command()
@asks(*_OF_A_REPLAY)
def unused(context: typer.Context, **asked: Any) -> None:
    """List the recorded verdicts that a replay of this window does not ask for.

    They are stale, of another window, or slipped in.
    """
    from persona_pipeline.guard.calibration.reading import READINGS, load_readings

    world = open_world()
    backend = _replayed(world, request_of(context, asked))
    # What the reading test asked is no window's.
    tested = {key for reading in load_readings(world.root / READINGS) for key in reading.keys}
    left = [item for item in backend.unused() if item.kind == "proposition" and item.key not in tested]
    for item in left:
        typer.echo(f"{item.agent_id}/{item.dimension}/{item.proposition_id} {item.key[:12]} {item.claim}")
    known = len(backend.recordings) + len(backend.failures)
    typer.echo(f"{len(left)} of {known} recordings are not asked for", err=True)
    end(looked_at=known, looked_for="recordings")


@app.command()
@asks(*_OF_A_REPLAY)
def rejudge(
    context: typer.Context,
    size: Annotated[int, typer.Option("--size", min=1, help="Recordings to judge again, drawn at random.")] = 20,
    seed: Annotated[int | None, typer.Option(help="Of the draw; by default another one every day.")] = None,
    most: Annotated[
        float, typer.Option(min=0, max=1, help="Share (0-1) of the sample that may disagree by 3 points or more.")
    ] = 0.1,
    max_usd: MaxUsd = None,
    **asked: Any,
) -> None:
    """Judge a random sample of the recordings again, and report what differs.

    Asks the live judge. Exit codes: 0 it agrees, 1 more disagree than may, 2 usage or configuration, 3 not fully judged.
    """
    from datetime import UTC, datetime

    from persona_pipeline.judging.open import JudgeOptions, OpenedJudge, open_judge
    from persona_pipeline.judging.recordings.replay import rejudge as judge_again

    world = open_world()
    live = open_judge(live_judge_name(world), world, JudgeOptions(max_usd, fresh=True, recorded=False))
    recorded = _replayed(world, request_of(context, asked))
    day = datetime.now(UTC).toordinal() if seed is None else seed
    found = asyncio.run(judge_again(recorded.claims or (), OpenedJudge(recorded), live, size=size, seed=day))
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
    short = len(found.answered) < len(found.rows)
    end(
        EXIT_COVERAGE if short else int(found.disagreement > most),
        looked_at=len(found.rows),
        looked_for="recordings that a replay of this window asks for",
    )


def _replayed(world: "World", request: "EvaluationRequest") -> "RecordedBackend":
    from persona_pipeline.evaluation.run import run_evaluation
    from persona_pipeline.judging.open import OpenedJudge
    from persona_pipeline.judging.recordings.replay import RecordedBackend

    recorded = RecordedBackend(world.root / "recordings", settings=world.settings)
    recorded.claims = []
    run_evaluation(world, OpenedJudge(recorded), request)
    return recorded
