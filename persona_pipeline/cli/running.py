"""A run from the command line: judge opened, what was left out and the scores on stderr."""

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from persona_pipeline.cli.progress import watched_judging

if TYPE_CHECKING:
    from persona_pipeline.evaluation.judges import JudgeOptions
    from persona_pipeline.evaluation.request import EvaluationRequest
    from persona_pipeline.evaluation.run import EvaluationRun
    from persona_pipeline.world import World


def run_and_print(
    world: "World", request: "EvaluationRequest", *, judge: str, options: "JudgeOptions"
) -> "EvaluationRun":
    """Evaluate as asked; stderr gets the lines of message files that were left out, and the table of scores.

    Raises:
        ConfigError: bad input; nothing is evaluated then.
    """
    from persona_pipeline.evaluation.judges import open_judge
    from persona_pipeline.evaluation.run import run_evaluation

    with watched_judging() as progress:
        run = run_evaluation(world, open_judge(judge, world, replace(options, progress=progress)), request)
    for problem in run.problems:
        typer.echo(f"left out: {problem}", err=True)
    for note in run.notes:
        typer.echo(note, err=True)

    from persona_pipeline.reporting.gathering import gather
    from persona_pipeline.reporting.table import print_table

    gather(world, run.report)
    print_table(run.report, sys.stderr)
    return run
