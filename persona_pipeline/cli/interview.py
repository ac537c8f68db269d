"""``persona-pipeline interview``: prepared scenes asked of an agent, and held against an earlier interview."""

import shutil
from dataclasses import replace
from typing import Annotated, Any

import typer

from persona_pipeline.base.options import OF_JUDGE
from persona_pipeline.cli.options import (
    Estimate,
    Format,
    Output,
    asks,
    check_format,
    judge_name,
    open_world,
    request_of,
)
from persona_pipeline.cli.suites.run import AllowCode, AllowEnv, AllowTargets, TargetsFile


@asks("dimensions", "samples", *OF_JUDGE)
def interview(
    context: typer.Context,
    agent: Annotated[str, typer.Argument(help="The agent's id.", show_default=False)],
    target: Annotated[
        str | None, typer.Option(help="Who answers, by the name in the targets file.", show_default=False)
    ] = None,
    sessions: Annotated[
        int, typer.Option(min=1, max=20, help="How often every scene is asked, from its beginning.")
    ] = 3,
    kind: Annotated[
        list[str] | None,
        typer.Option(help="Only this kind of scene, such as pressure; repeatable.", show_default=False),
    ] = None,
    language: Annotated[
        list[str] | None,
        typer.Option(help="Of the scenes that ship, the agent's own first; repeatable.", show_default=False),
    ] = None,
    change: Annotated[float, typer.Option(help="Points that a dimension may drop below the baseline.")] = 1.0,
    hide_names: Annotated[
        bool, typer.Option("--hide-names/--show-names", help="Show the judge invented names in place of the agent's.")
    ] = True,
    targets: TargetsFile = None,
    send_persona: Annotated[
        bool, typer.Option(help="Send the target the persona; off for a bot that has its own.")
    ] = True,
    allow_code: AllowCode = False,
    allow_env: AllowEnv = None,
    allow_targets: AllowTargets = False,
    estimate: Estimate = False,
    baseline: Annotated[bool, typer.Option(help="Keep it as what later interviews are held against.")] = False,
    write: Annotated[
        bool, typer.Option(help="Let the judge's model write interviews/AGENT.yaml; no interview is held.")
    ] = False,
    output: Output = None,
    format: Format = "table",
    **asked: Any,
) -> None:
    """Ask an agent prepared scenes in several sessions, and judge it by its claims.

    Small talk, pressure, off-topic and meta questions, flattery, long conversations. One that was stopped goes on from its answers.

    Exit codes: 0 all held, 1 something dropped, 2 usage or configuration, 3 not fully judged or no baseline, 4 budget.
    """
    from persona_pipeline.base.errors import ConfigError
    from persona_pipeline.cli.claims import asked_for_draft, tell_of_draft
    from persona_pipeline.cli.running import end, watched_judging
    from persona_pipeline.judging.open import RECORDED, JudgeOptions, open_judge
    from persona_pipeline.lab.claims.drafts import plan_scenes, write_scenes
    from persona_pipeline.lab.compare.compare import AnsweringOptions, open_answering
    from persona_pipeline.lab.interview.interview import (
        InterviewRequest,
        estimate_interview,
        hold_interview,
        keep_answers,
    )
    from persona_pipeline.lab.interview.results import find_interview_baseline, save_interview_baseline
    from persona_pipeline.lab.interview_scenes import interview_scenes
    from persona_pipeline.reporting.pages.interview import interview_page
    from persona_pipeline.reporting.render import write_page

    check_format(format)
    world, said = open_world(), request_of(context, asked)
    if write:
        plan = plan_scenes(world, agent, language)
        backend = asked_for_draft(
            world, plan.question, said.judge, estimate=estimate, max_usd=said.max_usd, record=said.record
        )
        tell_of_draft(write_scenes(plan, backend), "scene")
        return
    if not target:
        raise ConfigError("nobody answers: name a target of the targets file with --target")
    request = InterviewRequest(agent, said.dimensions, sessions, change, said.samples, hide_names)
    scenes = interview_scenes(world, agent, language, kinds=kind)
    named = judge_name(said.judge, world=world)
    with watched_judging() as progress:
        options = replace(JudgeOptions.of(said, progress), record=said.record and not estimate)
        opened = open_judge(RECORDED if estimate else named, world, options)
        answering = open_answering(
            world,
            AnsweringOptions(
                (target, target), targets, send_persona, allow_code, environment=allow_env or (), network=allow_targets
            ),
            opened,
            options,
        )
        try:
            provider = None if named == RECORDED else named
            typer.echo(estimate_interview(world, request, scenes, answering, provider), err=not estimate)
            if estimate:
                return
            folder, count, since = keep_answers(world, agent, answering, fresh=said.fresh)
            if count:
                told = f"goes on from {count} answers of {since}, which was not finished; --fresh asks anew"
                typer.echo(told, err=True)
            known = None if baseline else find_interview_baseline(world.root, agent)
            found = hold_interview(world, request, scenes, opened, answering, known)
        finally:
            answering.close()
    if found.whole:
        shutil.rmtree(folder, ignore_errors=True)
    write_page(interview_page(found), found.model_dump(mode="json"), format, output)
    if baseline:
        typer.echo(f"baseline written: {save_interview_baseline(world.root, found)}", err=True)
    elif known is None:
        typer.echo("hint: there is no baseline to hold it against; --baseline keeps an interview as one", err=True)
    end(0 if baseline else found.exit_code)
