"""``persona-pipeline compare``, ``bisect``, ``changes`` and ``since``: two versions or two times, and what made the difference."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from persona_pipeline.base.errors import EXIT_OK, ConfigError
from persona_pipeline.base.options import OF_JUDGE, moment
from persona_pipeline.base.text import shown_json
from persona_pipeline.cli.options import (
    AsJson,
    Estimate,
    Format,
    JudgeName,
    MaxUsd,
    Output,
    asks,
    check_format,
    environment,
    judge_name,
    live_judge_name,
    names,
    open_world,
    request_of,
    require_known,
)
from persona_pipeline.cli.running import end, watched_judging
from persona_pipeline.cli.suites.run import AllowCode, AllowEnv, AllowPath, AllowTargets, TargetsFile, load

if TYPE_CHECKING:
    from persona_pipeline.lab.compare.compare import AskedVersions
    from persona_pipeline.lab.results import ComparisonRequest, VersionComparison
    from persona_pipeline.world.world import World

FAIL_ON = ("worse", "none")
_UNJUDGED = "hint: not all of it is judged; --judge anthropic --estimate says what that would cost"
Suites = Annotated[
    list[Path] | None,
    typer.Option("--suite", help="Scenes are the inputs of this suite's tests; repeatable.", show_default=False),
]


@asks("agents", "dimensions", "window", "as_of", "samples", *OF_JUDGE)
def compare(
    context: typer.Context,
    versions: Annotated[
        str, typer.Argument(help="REV..REV, REV...REV, or one: a commit, or a folder with a world.", show_default=False)
    ] = "",
    other: Annotated[
        str, typer.Argument(help="The other version: a commit or a folder; by default the world as it stands.")
    ] = "",
    scenes: Annotated[
        int | None, typer.Option(min=1, max=1000, help="Scenes an agent, at most: 40, and 96 of an interview.")
    ] = None,
    change: Annotated[
        float, typer.Option(help="Points that matter: where less is sure on both sides, a row has held.")
    ] = 1.0,
    target: Annotated[
        str | None,
        typer.Option(help="Who answers, by the name in the targets file: one, or BEFORE..AFTER.", show_default=False),
    ] = None,
    targets: TargetsFile = None,
    suite: Suites = None,
    interview: Annotated[
        bool, typer.Option("--interview", help="Scenes are those of each agent's interview, turn by turn.")
    ] = False,
    yardstick: Annotated[
        str, typer.Option(help="Whose persona and claims answers are judged by: after, before or own.")
    ] = "after",
    send_persona: Annotated[
        bool, typer.Option(help="Send the target each version's persona; off for a bot that has its own.")
    ] = True,
    allow_code: AllowCode = False,
    allow_env: AllowEnv = None,
    allow_targets: AllowTargets = False,
    allow_path: AllowPath = None,
    judges: Annotated[
        str | None,
        typer.Option(help="Compare two judges instead: MODEL..MODEL, on the same messages.", show_default=False),
    ] = None,
    estimate: Estimate = False,
    seed: Annotated[int, typer.Option(help="Of the order of scenes.")] = 0,
    output: Annotated[Path | None, typer.Option(help="Write the JSON to this file too.")] = None,
    format: Format = "table",
    fail_on: Annotated[str, typer.Option(help="worse: something fell; none.")] = "worse",
    **asked: Any,
) -> None:
    """Compare two versions scene by scene, and stop when it is decided.

    Without --target the same messages are judged by each version's persona and claims; with it both answer the same scenes.
    Commits are read from git as data; the checkout is not touched, and nothing of them is run.

    Exit codes: 0 nothing fell, 1 something did, 2 usage or configuration, 3 not fully judged, 4 budget.
    """
    from persona_pipeline.base.documents.json import write_atomically
    from persona_pipeline.judging.open import JudgeOptions
    from persona_pipeline.lab.compare.compare import AnsweringOptions, AskedVersions
    from persona_pipeline.lab.results import INTERVIEW_SCENES, SCENES, ComparisonRequest
    from persona_pipeline.reporting.pages.experiments import SHORT, comparison_page
    from persona_pipeline.reporting.render import write_page

    check_format(format)
    require_known("--fail-on", fail_on, FAIL_ON, " or ")
    if not versions and not judges and not (target and ".." in target):
        raise ConfigError("nothing to compare: name two versions (main..HEAD), --target A..B or --judges A..B")
    if suite and not target:
        raise ConfigError("--suite needs --target: somebody has to answer its tests")
    if interview and (suite or not target):
        raise ConfigError("--interview needs --target, and takes the place of --suite: somebody answers its scenes")
    if judges and target:
        raise ConfigError("--judges compares judges on the same messages; leave --target out")
    said = request_of(context, asked)
    request = ComparisonRequest(
        agents=said.agents,
        dimensions=said.dimensions,
        window=said.window,
        as_of=said.as_of,
        scenes=scenes or (INTERVIEW_SCENES if interview else SCENES),
        change=change,
        samples=said.samples,
        yardstick=yardstick,
        seed=seed,
        interview=interview,
    )
    comparing = AskedVersions(
        judge_name(said.judge),
        JudgeOptions.of(said),
        models=_pair(judges, "--judges") if judges else None,
        answering=None
        if target is None
        else AnsweringOptions(
            _pair(target, "--target") if ".." in target else (target, target),
            targets,
            with_persona=send_persona,
            allow_code=allow_code,
            environment=allow_env or (),
            network=allow_targets,
            suites=[load(path, allow_path) for path in suite or ()],
        ),
    )
    found = _compared(open_world(), (versions, other), request, comparing, estimate)
    if found is None:
        return
    data = found.model_dump(mode="json")
    if output is not None:
        write_atomically(output, f"{shown_json(data, 2)}\n")
        typer.echo(f"comparison written: {output}", err=True)
    write_page(comparison_page(found, SHORT) if format == "table" else comparison_page(found), data, format)
    if any(item.unjudged for agent in found.agents.values() for item in agent.dimensions.values()):
        typer.echo(_UNJUDGED, err=True)
    end(
        EXIT_OK if fail_on == "none" else found.exit_code,
        looked_at=sum(len(agent.dimensions) for agent in found.agents.values()),
        looked_for="scenes of agents that both versions have, judged on dimensions that both have",
    )


def _pair(text: str, option: str) -> tuple[str, str]:
    before, _, after = text.partition("..")
    if not before or not after:
        raise ConfigError(f"{option} {text!r} does not name two; write BEFORE..AFTER")
    return before, after


def _compared(
    world: "World",
    versions: tuple[str, str],
    request: "ComparisonRequest",
    asking: "AskedVersions",
    only_estimate: bool,
) -> "VersionComparison | None":
    from persona_pipeline.judging.open import RECORDED
    from persona_pipeline.lab.compare.compare import compare_versions, estimate_comparison, open_contest, scenes_of

    with watched_judging() as progress:
        live = asking.judge != RECORDED and not only_estimate
        # An estimate needs neither a key nor money.
        judged = asking if live else replace(asking, judge=RECORDED, options=replace(asking.options, record=False))
        judged = replace(judged, options=replace(judged.options, progress=progress))
        with open_contest(world, *versions, judged) as contest:
            for name in contest.unreadable:
                typer.echo(f"warning: recordings of {name} are not valid and are not used", err=True)
            scenes = scenes_of(contest, request, asking.answering.suites if asking.answering else ())
            if only_estimate or contest.pays:
                provider = None if asking.judge == RECORDED else asking.judge
                typer.echo(estimate_comparison(contest, scenes, request, provider, judged), err=not only_estimate)
            return None if only_estimate else compare_versions(contest, scenes, request)


@asks("window", "regression_delta", "proposition_delta")
def bisect(
    context: typer.Context,
    agent: Annotated[str, typer.Argument(help="The agent's id.", show_default=False)],
    good: Annotated[
        str | None,
        typer.Option(
            help="A commit where it was well; by default the last that wrote its baseline.", show_default=False
        ),
    ] = None,
    bad: Annotated[str, typer.Option(help="A commit where it is not.")] = "HEAD",
    dimension: Annotated[str | None, typer.Option(help="Only this dimension.", show_default=False)] = None,
    claim: Annotated[str | None, typer.Option(help="Only this claim of --dimension.", show_default=False)] = None,
    by: Annotated[
        str,
        typer.Option(
            help="commits, evaluations (those in the store), or auto: commits where messages are in git and changed there."
        ),
    ] = "auto",
    live: Annotated[bool, typer.Option(help="Ask a live judge for judgments that nobody made.")] = False,
    judge: JudgeName = None,
    max_usd: MaxUsd = None,
    as_json: AsJson = False,
    **asked: Any,
) -> None:
    """Name the commit that made an agent's scores drop, and what in it.

    The persona's line, the claim, the messages or the judge. Asks nobody: what is recorded or in the store is read. Where that
    does not tell, it says what it would cost to ask (--live).

    Exit codes: 0 every cause is named, or nothing dropped; 2 usage or configuration; 3 something cannot be told.
    """
    from persona_pipeline.judging.estimate import estimate
    from persona_pipeline.judging.open import JudgeOptions, open_judge
    from persona_pipeline.judging.providers.base import ModelOptions
    from persona_pipeline.lab.bisect.bisect import HISTORIES, BisectRequest
    from persona_pipeline.lab.bisect.bisect import bisect as search
    from persona_pipeline.reporting.pages.experiments import bisection_page
    from persona_pipeline.reporting.render import write_page

    require_known("--by", by, HISTORIES)
    if claim and not dimension:
        raise ConfigError("--claim needs --dimension: ids are of a dimension")
    if not live and (max_usd is not None or judge is not None):
        raise ConfigError("nobody is asked without --live; add it, or leave out --judge and --max-usd")
    if live and max_usd is None:
        raise ConfigError("--live needs a budget; add --max-usd")
    world = open_world()
    said = world.settled(request_of(context, asked))
    request = BisectRequest(
        agent, good, bad, dimension, claim, said.window, said.regression_delta, said.proposition_delta
    )
    asked_live = open_judge(live_judge_name(world, judge), world, JudgeOptions(max_usd=max_usd)) if live else None
    found, missing = search(world, request, by, asked_live)
    write_page(bisection_page(found), found.model_dump(mode="json"), "json" if as_json else "table")
    if missing:
        taken = estimate(missing, options=ModelOptions.from_settings(world.settings))
        asking = f"`persona-pipeline bisect {agent} --live --max-usd N` asks for them: {taken}"
        typer.echo(f"{len(missing)} judgments would tell more; {asking}", err=True)
    end(found.exit_code, looked_at=found.looked_at, looked_for=f"judgments of {agent} at {found.good} and {found.bad}")


def changes(
    base: Annotated[str, typer.Argument(help="The commit before, such as origin/main; HEAD^1 of a merge.")],
    head: Annotated[str, typer.Option(help="The commit after.")] = "HEAD",
    as_json: AsJson = False,
) -> None:
    """Name what differs between two commits, as Markdown.

    What is evaluated, and what decides about it.
    """
    from persona_pipeline.reporting.pages.experiments import changes_page
    from persona_pipeline.reporting.render import write_page
    from persona_pipeline.world.changes import changed_things
    from persona_pipeline.world.personas import find_world

    found = changed_things(find_world(environment()), base, head)
    write_page(changes_page(found), [asdict(item) for item in found], "json" if as_json else "markdown")


@asks("dimensions", "as_of", "samples", *OF_JUDGE)
def since(
    context: typer.Context,
    date: Annotated[
        str, typer.Argument(help="A day, such as 2026-11-24, or a time with its offset, such as 2026-11-24T10:00:00Z.")
    ],
    agent: Annotated[str, typer.Argument(help="One agent, or several with commas between them.")] = "all",
    window: Annotated[str, typer.Option(help="How much before the date counts: a length of time, or `all`.")] = "28d",
    estimate: Estimate = False,
    format: Format = "table",
    output: Output = None,
    **asked: Any,
) -> None:
    """Compare agents before and after a known event, such as a new model.

    No baseline is needed, and nothing is written.

    Exit codes: 0 no agent fell, 1 one has fewer messages in character, 2 usage or configuration, 3 cannot be told.
    """
    from persona_pipeline.judging.open import JudgeOptions, open_judge
    from persona_pipeline.lab.since import both_sides, compare_since
    from persona_pipeline.reporting.pages.experiments import since_page
    from persona_pipeline.reporting.render import write_page

    check_format(format)
    at = moment(f"{date}T00:00:00Z" if len(date) == len("2026-11-24") else date, "DATE")
    assert at is not None
    request, world = request_of(context, asked, agents=names(agent), window=window), open_world()
    options = JudgeOptions.of(request)
    if estimate:
        from persona_pipeline.evaluation.estimate import estimate_run

        for side, name in zip(both_sides(request, at), ("before", "after"), strict=True):
            typer.echo(f"{name}: {estimate_run(world, side, request.judge, options)}")
        return
    with watched_judging() as progress:
        judge = open_judge(judge_name(request.judge, world=world), world, replace(options, progress=progress))
        found = compare_since(world, judge, at, request)
    write_page(since_page(found), found.model_dump(mode="json"), format, output)
    if any(None in (item.before.share, item.after.share) for item in found.agents):
        typer.echo(_UNJUDGED, err=True)
    end(found.exit_code, looked_at=len(found.agents), looked_for="no agent said anything after that date")
