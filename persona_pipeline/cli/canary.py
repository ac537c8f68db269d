"""``persona-pipeline canary``: has the judge changed? Earlier judgments are made again and compared."""

from typing import Annotated

import typer

from persona_pipeline.cli.options import MaxUsd, live_judge_name
from persona_pipeline.judging.open import JudgeOptions, open_judge


def canary(
    anchors: Annotated[int, typer.Option(min=20, max=2000, help="Judgments made again for each earlier judge.")] = 80,
    before: Annotated[
        str | None, typer.Option(help="Model of the earlier judge; default: the judges of the baselines.")
    ] = None,
    estimate: Annotated[bool, typer.Option("--estimate", help="Print what it would take; ask nobody.")] = False,
    max_usd: MaxUsd = None,
) -> None:
    """Make judgments of the baselines' judge again with the live judge, and say whether the judge changed.

    People's labels are used where there are some. What was found is written to calibration/judge_changes.json: with it, runs of the
    new judge are compared with baselines of the old one.

    Exit codes: 0 it did not change, 1 it did, 2 usage or configuration, 3 not fully judged.
    """
    from persona_pipeline.calibration.judge_change import FEWEST_ANCHORS, JudgeName, save_judge_changes
    from persona_pipeline.evaluation.comparing_judges import plan_canaries, run_canary
    from persona_pipeline.judging.claims import PROMPT_VERSION
    from persona_pipeline.judging.estimate import estimate as estimated
    from persona_pipeline.reporting.pages.judges import judge_change_page
    from persona_pipeline.reporting.terminal import print_page
    from persona_pipeline.settings import get_settings
    from persona_pipeline.world import World

    world = World.open()
    now = JudgeName(model=get_settings().judge_model, prompt_version=PROMPT_VERSION)
    canaries = plan_canaries(world, now, before=before, anchors=anchors)
    if not canaries:
        typer.echo(f"every baseline was judged by {now}, the judge of now: there is nothing to compare")
        return
    for item in canaries:
        typer.echo(
            f"{item.before}: {len(item.requests)} judgments are made again, {item.labelled} of them labelled by people",
            err=True,
        )
        if len(item.requests) < FEWEST_ANCHORS:
            typer.echo(f"hint: below {FEWEST_ANCHORS} a change is seen in less than half of the cases", err=True)
    typer.echo(str(estimated([request for item in canaries for request in item.requests])), err=True)
    if estimate:
        return
    # Asked itself, whatever is recorded: recordings hold what the earlier judge said.
    judge = open_judge(live_judge_name(), world, JudgeOptions(max_usd, recorded=False))
    compared = [run_canary(item, judge) for item in canaries]
    for item in compared:
        print_page(judge_change_page(item.change))
    if any(item.failed for item in compared):
        typer.echo(
            f"{sum(item.failed for item in compared)} judgments were not made: nothing is written; run it again",
            err=True,
        )
        raise typer.Exit(3)
    path = save_judge_changes(world.root, [item.change for item in compared])
    typer.echo(f"written: {path}", err=True)
    raise typer.Exit(int(any(item.change.changed for item in compared)))
