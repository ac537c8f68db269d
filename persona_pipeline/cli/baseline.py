"""``persona-pipeline baseline``: take golden baselines."""

from typing import Annotated

import typer

from persona_pipeline.cli.options import (
    Agents,
    AsOf,
    Dimensions,
    Fresh,
    Grouping,
    JudgeName,
    MaxUsd,
    MockJudge,
    Record,
    Samples,
    WindowLength,
    judge_name,
    moment,
    names,
)
from persona_pipeline.cli.running import run_and_print


def baseline(
    context: typer.Context,
    agents: Agents = "all",
    dimensions: Dimensions = "all",
    window: WindowLength = "7d",
    as_of: AsOf = None,
    judge: JudgeName = None,
    mock_judge: MockJudge = False,
    samples: Samples = 1,
    record: Record = False,
    fresh: Fresh = False,
    grouping: Grouping = None,
    max_usd: MaxUsd = None,
    windows: Annotated[
        int,
        typer.Option(
            min=1, max=60, help="From how many windows, this one and those before; 4 and more tell weeks from falls."
        ),
    ] = 1,
) -> None:
    """Evaluate agents and write their scores to baselines/. Dimensions that were not scored in full keep what the files say."""
    from persona_pipeline.evaluation.request import EvaluationRequest
    from persona_pipeline.judging.open import JudgeOptions
    from persona_pipeline.world import World

    request = EvaluationRequest(
        agents=names(agents),
        dimensions=names(dimensions),
        window=window,
        as_of=moment(as_of),
        samples=samples,
        update_baseline=True,
        baseline_windows=windows,
    )
    judge = judge_name(judge, mock_judge)
    if judge != "recorded" and samples < 3:
        typer.echo("hint: a live baseline judged once is noisy; --samples 5 makes drops much easier to tell", err=True)
    options = JudgeOptions(max_usd=max_usd, record=record, fresh=fresh, grouping=grouping)
    run = run_and_print(context, World.open(), request, judge=judge, options=options)
    for path in run.baselines:
        typer.echo(str(path))
    raise typer.Exit(run.report.exit_code)
