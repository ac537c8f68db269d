"""``persona-pipeline compare``, ``interview``, ``bisect``, ``changes`` and ``since``: versions and times, and why they differ."""

import shutil
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from persona_pipeline.base.errors import EXIT_OK, ConfigError
from persona_pipeline.base.options import OF_JUDGE, moment
from persona_pipeline.cli.options import (
    AllowCode,
    AllowEnv,
    AllowTargets,
    Estimate,
    JudgeName,
    MaxUsd,
    TargetsFile,
    asks,
    environment,
    judge_name,
    live_judge_name,
    names,
    open_world,
    request_of,
    require_known,
    say,
)
from persona_pipeline.cli.running import CommandResult, shows, watched_judging

if TYPE_CHECKING:
    from persona_pipeline.judging.open import JudgeOptions
    from persona_pipeline.lab.compare.compare import ChosenTargets
    from persona_pipeline.lab.results import ComparisonRequest, VersionComparison

FAIL_ON = ("worse", "none")
_UNJUDGED = "hint: not everything is judged; --judge anthropic --estimate prints the cost"


@asks("agents", "dimensions", "window", "as_of", "samples", *OF_JUDGE)
@shows()
def compare(
    context: typer.Context,
    versions: Annotated[
        str, typer.Argument(help="REV..REV, REV...REV, or one: a commit, or a folder with a world.")
    ] = "",
    other: Annotated[
        str, typer.Argument(help="The other version: a commit or a folder; by default the working world.")
    ] = "",
    scenes: Annotated[
        int | None, typer.Option(min=1, max=1000, help="Scenes an agent, at most: 40, and 96 of an interview.")
    ] = None,
    change: Annotated[
        float, typer.Option(help="Points that matter: a row is unchanged when its interval lies within them.")
    ] = 1.0,
    target: Annotated[
        str | None,
        typer.Option(help="The target that answers, by its name in the targets file: one, or BEFORE..AFTER."),
    ] = None,
    targets: TargetsFile = None,
    interview: Annotated[
        bool, typer.Option("--interview", help="Use the scenes of each agent's interview, turn by turn.")
    ] = False,
    send_persona: Annotated[
        bool, typer.Option(help="Send the target each version's persona; off for a bot that has its own.")
    ] = True,
    allow_code: AllowCode = False,
    allow_env: AllowEnv = None,
    allow_targets: AllowTargets = False,
    estimate: Estimate = False,
    seed: Annotated[int, typer.Option(help="Seed of the order of scenes.")] = 0,
    fail_on: Annotated[str, typer.Option(help="worse: a score dropped; none.")] = "worse",
    **asked: Any,
) -> CommandResult | None:
    """Compare two versions scene by scene, and stop when it is decided.

    Without --target, each version's persona and claims judge the same messages; with it, both versions answer the same scenes.
    Commits are read from git as data; the checkout is not changed, and no code of them is run.

    Exit codes: 0 no drop, 1 a drop, 2 usage or configuration, 3 not fully judged, 4 budget.
    """
    from persona_pipeline.judging.open import JudgeOptions
    from persona_pipeline.lab.compare.compare import ChosenTargets
    from persona_pipeline.lab.results import INTERVIEW_SCENES, SCENES, ComparisonRequest
    from persona_pipeline.reporting.pages.versions import comparison_page

    require_known("--fail-on", fail_on, FAIL_ON, " or ")
    if not versions and not (target and ".." in target):
        raise ConfigError("nothing to compare: name two versions (main..HEAD) or --target A..B")
    if interview and not target:
        raise ConfigError("--interview needs --target, which answers its scenes")
    said = request_of(context, asked)
    request = ComparisonRequest(
        agents=said.agents,
        dimensions=said.dimensions,
        window=said.window,
        as_of=said.as_of,
        scenes=scenes or (INTERVIEW_SCENES if interview else SCENES),
        change=change,
        samples=said.samples,
        seed=seed,
        interview=interview,
    )
    chosen = None
    if target is not None:
        both = _pair(target) if ".." in target else (target, target)
        chosen = ChosenTargets(both, targets, send_persona, allow_code, allow_env or (), allow_targets)
    found = _compared((versions, other), request, judge_name(said.judge), JudgeOptions.of(said), chosen, estimate)
    if found is None:
        return None
    unjudged = any(item.unjudged for agent in found.agents.values() for item in agent.dimensions.values())
    return CommandResult(
        comparison_page(found),
        found.model_dump(mode="json"),
        EXIT_OK if fail_on == "none" else found.exit_code,
        notes=[_UNJUDGED] if unjudged else [],
        looked_at=sum(len(agent.dimensions) for agent in found.agents.values()),
        looked_for="scenes of agents that both versions have, judged on dimensions that both have",
    )


def _pair(text: str) -> tuple[str, str]:
    before, _, after = text.partition("..")
    if not before or not after:
        raise ConfigError(f"--target {text!r} does not name two; write BEFORE..AFTER")
    return before, after


def _compared(
    versions: tuple[str, str],
    request: "ComparisonRequest",
    judge: str,
    options: "JudgeOptions",
    targets: "ChosenTargets | None",
    only_estimate: bool,
) -> "VersionComparison | None":
    from persona_pipeline.judging.open import RECORDED
    from persona_pipeline.lab.compare.compare import compare_versions, estimate_comparison, open_contest, scenes_of

    provider = None if judge == RECORDED else judge
    with watched_judging() as progress:
        options = replace(options, progress=progress)
        if only_estimate:
            # An estimate needs neither a key nor money.
            judge, options = RECORDED, replace(options, record=False)
        with open_contest(open_world(), *versions, judge, options, targets) as contest:
            say(*(f"warning: recordings of {name} are not valid and are not used" for name in contest.unreadable))
            scenes = scenes_of(contest, request)
            if only_estimate or contest.pays:
                said = estimate_comparison(contest, scenes, request, provider, fresh=options.fresh)
                typer.echo(said, err=not only_estimate)
            return None if only_estimate else compare_versions(contest, scenes, request)


@asks("dimensions", "samples", *OF_JUDGE)
@shows()
def interview(
    context: typer.Context,
    agent: Annotated[str, typer.Argument(help="The agent's id.")],
    target: Annotated[str, typer.Option(help="The target that answers, by its name in the targets file.")],
    sessions: Annotated[int, typer.Option(min=1, max=20, help="How often each scene is asked from its beginning.")] = 3,
    kind: Annotated[
        list[str] | None, typer.Option(help="Only this kind of scene, such as pressure; repeatable.")
    ] = None,
    language: Annotated[
        list[str] | None, typer.Option(help="Language of the built-in scenes; by default the agent's own; repeatable.")
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
    **asked: Any,
) -> CommandResult | None:
    """Ask an agent prepared scenes and judge the answers by its claims.

    Small talk, pressure, off-topic and meta questions, flattery, long conversations. An interrupted interview continues from its
    answers.

    Exit codes: 0 in character, 1 drifted, 2 usage or configuration, 3 not fully judged or no baseline, 4 budget.
    """
    from persona_pipeline.judging.open import RECORDED, JudgeOptions, open_judge
    from persona_pipeline.lab.compare.compare import ChosenTargets
    from persona_pipeline.lab.interview import (
        InterviewRequest,
        estimate_interview,
        find_interview_baseline,
        hold_interview,
        keep_answers,
        save_interview_baseline,
    )
    from persona_pipeline.lab.scenes import interview_scenes
    from persona_pipeline.reporting.pages.versions import interview_page

    world, said = open_world(), request_of(context, asked)
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
                say(told)
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


@asks("window", "regression_delta", "proposition_delta")
@shows()
def bisect(
    context: typer.Context,
    agent: Annotated[str, typer.Argument(help="The agent's id.")],
    good: Annotated[
        str | None, typer.Option(help="A commit without the drop; by default the last that wrote the baseline.")
    ] = None,
    bad: Annotated[str, typer.Option(help="A commit with the drop.")] = "HEAD",
    dimension: Annotated[str | None, typer.Option(help="Only this dimension.")] = None,
    claim: Annotated[str | None, typer.Option(help="Only this claim of --dimension.")] = None,
    by: Annotated[
        str,
        typer.Option(help="commits, evaluations (those in the store), or auto: commits where git has the messages."),
    ] = "auto",
    live: Annotated[bool, typer.Option(help="Ask a live judge for missing judgments.")] = False,
    judge: JudgeName = None,
    max_usd: MaxUsd = None,
    **asked: Any,
) -> CommandResult:
    """Find the commit that made an agent's scores drop, and the cause.

    The cause is a line of the persona, a claim, the messages or the judge. Recorded and stored judgments are read; without --live
    it makes no API calls and prints what the missing judgments would cost.

    Exit codes: 0 every cause is named, or no drop; 2 usage or configuration; 3 inconclusive.
    """
    from persona_pipeline.judging.estimate import estimate
    from persona_pipeline.judging.open import JudgeOptions, open_judge
    from persona_pipeline.judging.providers.base import ModelOptions
    from persona_pipeline.lab.bisect.bisect import HISTORIES, BisectRequest
    from persona_pipeline.lab.bisect.bisect import bisect as search
    from persona_pipeline.reporting.pages.experiments import bisection_page

    require_known("--by", by, HISTORIES)
    if claim and not dimension:
        raise ConfigError("--claim needs --dimension, as ids are unique within a dimension")
    if not live and (max_usd is not None or judge is not None):
        raise ConfigError("--judge and --max-usd need --live; add it, or leave them out")
    if live and max_usd is None:
        raise ConfigError("--live needs a budget; add --max-usd")
    world = open_world()
    said = world.settled(request_of(context, asked))
    request = BisectRequest(
        agent, good, bad, dimension, claim, said.window, said.regression_delta, said.proposition_delta
    )
    asked_live = open_judge(live_judge_name(world, judge), world, JudgeOptions(max_usd=max_usd)) if live else None
    found, missing = search(world, request, by, asked_live)
    notes = []
    if missing:
        taken = estimate(missing, options=ModelOptions.from_settings(world.settings))
        asking = f"`persona-pipeline bisect {agent} --live --max-usd N` asks for them: {taken}"
        notes = [f"{len(missing)} more judgments would help; {asking}"]
    return CommandResult(
        bisection_page(found),
        found.model_dump(mode="json"),
        found.exit_code,
        notes=notes,
        looked_at=found.looked_at,
        looked_for=f"judgments of {agent} at {found.good} and {found.bad}",
    )


@shows("markdown")
def changes(
    base: Annotated[str, typer.Argument(help="The commit before, such as origin/main; HEAD^1 of a merge.")],
    head: Annotated[str, typer.Option(help="The commit after.")] = "HEAD",
) -> CommandResult:
    """List the evaluation files that differ between two commits.

    They are the evaluated files and those that decide the verdict.
    """
    from persona_pipeline.reporting.pages.experiments import changes_page
    from persona_pipeline.world.changes import changed_things
    from persona_pipeline.world.personas import find_world

    found = changed_things(find_world(environment()), base, head)
    return CommandResult(
        changes_page(found), [asdict(item) for item in found], summary=f"{len(found)} changes from {base} to {head}"
    )


@asks("dimensions", "as_of", "samples", *OF_JUDGE)
@shows()
def since(
    context: typer.Context,
    date: Annotated[
        str, typer.Argument(help="A day, such as 2026-11-24, or a time with its offset, such as 2026-11-24T10:00:00Z.")
    ],
    agent: Annotated[str, typer.Argument(help="One agent, or several separated by commas.")] = "all",
    window: Annotated[str, typer.Option(help="The time before the date that counts: a length, or 'all'.")] = "28d",
    estimate: Estimate = False,
    **asked: Any,
) -> CommandResult | None:
    """Compare agents before and after a known event, such as a new model.

    It needs no baseline and writes nothing.

    Exit codes: 0 no drop, 1 fewer messages in character, 2 usage or configuration, 3 inconclusive.
    """
    from persona_pipeline.judging.open import JudgeOptions, open_judge
    from persona_pipeline.lab.since import both_sides, compare_since
    from persona_pipeline.reporting.pages.experiments import since_page

    at = moment(f"{date}T00:00:00Z" if len(date) == len("2026-11-24") else date, "DATE")
    assert at is not None
    request, world = request_of(context, asked, agents=names(agent), window=window), open_world()
    options = JudgeOptions.of(request)
    if estimate:
        from persona_pipeline.evaluation.estimate import estimate_run

        for side, name in zip(both_sides(request, at), ("before", "after"), strict=True):
            typer.echo(f"{name}: {estimate_run(world, side, request.judge, options)}")
        return None
    with watched_judging() as progress:
        judge = open_judge(judge_name(request.judge, world=world), world, replace(options, progress=progress))
        found = compare_since(world, judge, at, request)
    unjudged = any(None in (item.before.share, item.after.share) for item in found.agents)
    return CommandResult(
        since_page(found),
        found.model_dump(mode="json"),
        found.exit_code,
        notes=[_UNJUDGED] if unjudged else [],
        looked_at=len(found.agents),
        looked_for="messages of agents after that date",
    )
