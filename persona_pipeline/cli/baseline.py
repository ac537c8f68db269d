"""``persona-pipeline baseline``: take golden baselines."""

import sys
from typing import Annotated

import typer

from persona_pipeline.cli.options import (
    Agents,
    AsOf,
    Dimensions,
    JudgeName,
    MockJudge,
    WindowLength,
    judge_name,
    moment,
    names,
)


def baseline(
    agents: Agents = "all",
    dimensions: Dimensions = "all",
    window: WindowLength = "7d",
    as_of: AsOf = None,
    judge: JudgeName = "recorded",
    mock_judge: MockJudge = False,
    samples: Annotated[int, typer.Option(min=1, max=50, help="Judgments per claim.")] = 1,
    max_usd: Annotated[float | None, typer.Option(help="US dollars the run may cost.")] = None,
) -> None:
    """Evaluate agents and write their scores to baselines/. Dimensions that were not scored in full keep what the files say."""
    from persona_pipeline.evaluation.judges import JudgeOptions, open_judge
    from persona_pipeline.evaluation.run import RunOptions, run_evaluation
    from persona_pipeline.reporting.table import print_table
    from persona_pipeline.world import World

    world = World.open()
    if judge == "anthropic" and samples < 3:
        typer.echo("hint: a live baseline judged once is noisy; --samples 5 makes drops much easier to tell", err=True)
    opened = open_judge(judge_name(judge, mock_judge), world, JudgeOptions(max_usd=max_usd))
    run = run_evaluation(
        world,
        opened,
        RunOptions(
            agents=names(agents),
            dimensions=names(dimensions),
            window=window,
            as_of=moment(as_of),
            samples=samples,
            update_baseline=True,
        ),
    )
    print_table(run.report, sys.stderr)
    for path in run.baselines:
        typer.echo(str(path))
    raise typer.Exit(run.report.exit_code)
