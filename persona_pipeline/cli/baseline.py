"""``persona-pipeline baseline``: take golden baselines."""

from typing import Annotated, Any

import typer

from persona_pipeline.cli.options import MockJudge, asks, judge_name, option, request_of
from persona_pipeline.cli.running import run_and_print
from persona_pipeline.options import OF_JUDGE

# What only a verdict depends on is no option here.
MEASURED = ("agents", "dimensions", "window", "as_of", "samples", *OF_JUDGE)


@asks(*MEASURED)
def baseline(
    context: typer.Context,
    mock_judge: MockJudge = False,
    windows: Annotated[int, option("baseline_windows", "--windows")] = 1,
    **asked: Any,
) -> None:
    """Evaluate agents and write their scores to baselines/. Dimensions that were not scored in full keep what the files say."""
    from persona_pipeline.evaluation.request import settled
    from persona_pipeline.world import World

    request = request_of(context, asked, update_baseline=True, baseline_windows=windows)
    world = World.open()
    judge = judge_name(request.judge, mock_judge, world=world)
    if judge != "recorded" and settled(world, request).samples < 3:
        typer.echo("hint: a live baseline judged once is noisy; --samples 5 makes drops much easier to tell", err=True)
    run = run_and_print(context, world, request, judge=judge)
    for path in run.baselines:
        typer.echo(str(path))
    raise typer.Exit(run.report.exit_code)
