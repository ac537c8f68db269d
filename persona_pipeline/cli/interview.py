"""``persona-pipeline interview`` and ``facts``: scenes asked of an agent, and its statements about itself."""

import shutil
from dataclasses import replace
from typing import Annotated, Any

import typer

from persona_pipeline.base.errors import EXIT_BUDGET, EXIT_COVERAGE, EXIT_OK, EXIT_REGRESSION, ConfigError
from persona_pipeline.base.options import OF_JUDGE
from persona_pipeline.cli.options import (
    AllowCode,
    AllowEnv,
    AllowTargets,
    Estimate,
    TargetsFile,
    asks,
    judge_name,
    names,
    open_world,
    request_of,
)
from persona_pipeline.cli.running import CommandResult, shows, watched_judging


@asks("dimensions", "samples", *OF_JUDGE)
@shows()
def interview(
    context: typer.Context,
    agent: Annotated[str, typer.Argument(help="The agent's id.", show_default=False)],
    target: Annotated[
        str | None, typer.Option(help="The target that answers, by its name in the targets file.", show_default=False)
    ] = None,
    sessions: Annotated[int, typer.Option(min=1, max=20, help="How often each scene is asked from its beginning.")] = 3,
    kind: Annotated[
        list[str] | None,
        typer.Option(help="Only this kind of scene, such as pressure; repeatable.", show_default=False),
    ] = None,
    language: Annotated[
        list[str] | None,
        typer.Option(
            help="Language of the built-in scenes; by default the agent's own; repeatable.", show_default=False
        ),
    ] = None,
    change: Annotated[float, typer.Option(help="Points that a dimension may drop below the baseline.")] = 1.0,
    hide_names: Annotated[
        bool, typer.Option("--hide-names/--show-names", help="Show the judge invented names instead of the agent's.")
    ] = True,
    targets: TargetsFile = None,
    send_persona: Annotated[
        bool, typer.Option(help="Send the target the persona; off for a bot that has its own.")
    ] = True,
    allow_code: AllowCode = False,
    allow_env: AllowEnv = None,
    allow_targets: AllowTargets = False,
    estimate: Estimate = False,
    baseline: Annotated[bool, typer.Option(help="Keep this interview as the baseline of later ones.")] = False,
    write: Annotated[
        bool, typer.Option(help="Let the judge's model write interviews/AGENT.yaml; holds no interview.")
    ] = False,
    **asked: Any,
) -> CommandResult | None:
    """Ask an agent prepared scenes and judge the answers by its claims.

    Small talk, pressure, off-topic and meta questions, flattery, long conversations. An interrupted interview continues from its
    answers.

    Exit codes: 0 in character, 1 drifted, 2 usage or configuration, 3 not fully judged or no baseline, 4 budget.
    """
    from persona_pipeline.cli.claims import let_write
    from persona_pipeline.judging.open import RECORDED, JudgeOptions, open_judge
    from persona_pipeline.lab.claims.drafts import plan_scenes
    from persona_pipeline.lab.compare.compare import ChosenTargets
    from persona_pipeline.lab.interview.interview import (
        InterviewRequest,
        estimate_interview,
        hold_interview,
        keep_answers,
    )
    from persona_pipeline.lab.interview.results import find_interview_baseline, save_interview_baseline
    from persona_pipeline.lab.scenes import interview_scenes
    from persona_pipeline.reporting.pages.versions import interview_page

    world, said = open_world(), request_of(context, asked)
    if write:
        return let_write(world, plan_scenes(world, agent, language), "scene", said, estimate)
    if not target:
        raise ConfigError("no target answers; name one of the targets file with --target")
    request = InterviewRequest(agent, said.dimensions, sessions, change, said.samples, hide_names)
    scenes = interview_scenes(world, agent, language, kinds=kind)
    named = judge_name(said.judge, world=world)
    with watched_judging() as progress:
        options = replace(JudgeOptions.of(said, progress), record=said.record and not estimate)
        opened = open_judge(RECORDED if estimate else named, world, options)
        chosen = ChosenTargets((target, target), targets, send_persona, allow_code, allow_env or (), allow_targets)
        answering = chosen.open(world, opened, options)
        try:
            provider = None if named == RECORDED else named
            typer.echo(estimate_interview(world, request, scenes, answering, provider), err=not estimate)
            if estimate:
                return None
            folder, count, since = keep_answers(world, agent, answering, fresh=said.fresh)
            if count:
                told = f"continues an unfinished interview: {count} answers of {since}; --fresh starts again"
                typer.echo(told, err=True)
            known = None if baseline else find_interview_baseline(world.root, agent)
            found = hold_interview(world, request, scenes, opened, answering, known)
        finally:
            answering.close()
    if found.whole:
        shutil.rmtree(folder, ignore_errors=True)
    notes = []
    if baseline:
        notes = [f"baseline written: {save_interview_baseline(world.root, found)}"]
    elif known is None:
        notes = ["hint: there is no baseline to compare with; --baseline keeps an interview as one"]
    code = EXIT_OK if baseline else found.exit_code
    return CommandResult(interview_page(found), found.model_dump(mode="json"), code, notes=notes)


@asks("as_of", "judge", "max_usd", "record", "fresh")
@shows()
def facts(
    context: typer.Context,
    agents: Annotated[str, typer.Argument(help="'all', or agents separated by commas.")],
    canon: Annotated[str | None, typer.Option(metavar="ID", help="Mark this fact as canon; reads nothing.")] = None,
    window: Annotated[str, typer.Option(help="The messages to read: a length of time such as 30d, or 'all'.")] = "all",
    estimate: Estimate = False,
    **asked: Any,
) -> CommandResult | None:
    """List statements that agents made about themselves, and contradictions.

    A judge reads each conversation once; recorded and stored answers are reused.

    Exit codes: 0 all read and no contradiction, 1 a contradiction, 2 usage or configuration,
    3 not all was read or compared, 4 budget.
    """
    from pydantic_core import to_jsonable_python

    from persona_pipeline.evaluation.estimate import estimate_facts
    from persona_pipeline.evaluation.run import read_facts
    from persona_pipeline.judging.open import JudgeOptions, open_judge
    from persona_pipeline.reporting.pages.instruments import facts_page
    from persona_pipeline.scoring.facts.known import known_facts, mark_canon

    request, world = request_of(context, asked, agents=names(agents), window=window, facts=True), open_world()
    if canon is not None:
        with world.store.connect() as connection:
            known = {item.id: item for item in known_facts(connection, agents)}
        if canon not in known:
            raise ConfigError(f"{agents!r} has no fact {canon!r}; `persona-pipeline facts {agents}` lists them")
        typer.echo(f"canon: {mark_canon(world.root, agents, known[canon])}")
        return None
    if estimate:
        typer.echo(estimate_facts(world, request))
        return None
    with watched_judging() as progress:
        judge = open_judge(judge_name(request.judge, world=world), world, JudgeOptions.of(request, progress))
        found = read_facts(world, judge, request)
    short = EXIT_BUDGET if any("budget" in item.failed for item in found) else EXIT_COVERAGE
    code = EXIT_OK if all(item.is_whole for item in found) else short
    return CommandResult(
        facts_page(found),
        {"agents": to_jsonable_python(found)},
        EXIT_REGRESSION if any(item.contradictions for item in found) else code,
        summary="; ".join(f"{item.agent_id}: {item.summary}" for item in found),
        looked_at=sum(item.conversations for item in found),
        looked_for=f"conversations of {agents} in --window {window}",
    )
