"""``persona-pipeline doctor``: check the requirements of an evaluation, with a remedy for each missing one."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.cli.options import MaxUsd, environment, open_world, say
from persona_pipeline.cli.running import CommandResult, shows

if TYPE_CHECKING:
    from persona_pipeline.base.settings import Settings
    from persona_pipeline.judging.model.probe import ProbeFinding

EXIT_BROKEN, EXIT_CANNOT_JUDGE = 2, 3
_DAGSTER_SECONDS = 120
# Dagster runs in another process, as importing it here would cost each command 1.5 seconds.
_ASK_DAGSTER = ("-m", "persona_pipeline.definitions")


@shows()
def doctor(
    calls: Annotated[bool, typer.Option(help="Ask the live judge for a test verdict; costs less than a cent.")] = True,
    dagster: Annotated[bool, typer.Option(help="Check the Dagster instance.")] = True,
    judge: Annotated[
        bool, typer.Option("--judge", help="Also check the judge with 40 messages that have a known verdict.")
    ] = False,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="With --judge: only print the cost of the check.")
    ] = False,
    max_usd: MaxUsd = None,
    record: Annotated[bool, typer.Option("--record", hidden=True, help="Accepted and ignored.")] = False,
) -> CommandResult | None:
    """Check all that an evaluation needs: world, database, key, model, Dagster.

    It checks whether the model can judge, its structured output and its caching.

    Exit codes: 0 all that is needed works, 2 something does not, 3 the judge cannot judge or fails its check.
    """
    from persona_pipeline.judging.model.probe import ProbeLevel
    from persona_pipeline.reporting.pages.instruments import doctor_page

    if estimate and not judge:
        raise ConfigError("--estimate needs --judge; add it")
    findings = [] if estimate else diagnose(environment(), calls=calls, dagster=dagster)
    if judge:
        found = _check_judge(max_usd=max_usd, estimate=estimate)
        findings += [found] if found else []
    errors = [finding for finding in findings if finding.level is ProbeLevel.ERROR]
    code = EXIT_BROKEN if errors else 0
    if errors and all(finding.cannot_judge for finding in errors):
        code = EXIT_CANNOT_JUDGE
    counts = Counter(finding.level for finding in findings)
    said = ", ".join(f"{count} {level.value}" for level, count in counts.items()) or "nothing was checked"
    return CommandResult(doctor_page(findings), [vars(finding) for finding in findings], code, summary=said)


def diagnose(settings: "Settings", *, calls: bool = True, dagster: bool = True) -> "list[ProbeFinding]":
    """Return the findings in the order of display."""
    from persona_pipeline.judging.model.probe import ProbeLevel
    from persona_pipeline.world.personas import is_world
    from persona_pipeline.world.settings import load_world_file, merged

    # Without a world, a check would create stores in a folder that is not a world.
    there = is_world(settings.world_root)
    asked = _start_dagster() if dagster and (there or "DAGSTER_HOME" in os.environ) else None
    findings = [_checked("world", _world, settings), _checked("settings", _settings, settings)]
    if there or settings.database_url is not None:
        findings.append(_checked("database", _database, settings))
        if findings[-1].level is not ProbeLevel.ERROR:
            findings.append(_checked("messages", _messages, settings))
    findings.append(_checked("recordings", _recordings, settings))
    with suppress(ConfigError):
        # An invalid file was reported above.
        settings = merged(settings, load_world_file(settings.world_root))
    findings += _judge(settings, calls)
    if asked is not None:
        findings.append(_dagster(asked))
    return findings


def _finding(name: str, level: str, said: str, remedy: str = "", *, cannot_judge: bool = False) -> "ProbeFinding":
    from persona_pipeline.judging.model.probe import ProbeFinding, ProbeLevel

    return ProbeFinding(name, ProbeLevel(level), said, remedy, cannot_judge)


def _checked(name: str, check: "Callable[[Settings], ProbeFinding]", settings: "Settings") -> "ProbeFinding":
    try:
        return check(settings)
    except ConfigError as error:
        first, *rest = str(error).splitlines()
        more = f" (and {len(rest)} more)" if rest else ""
        return _finding(name, "error", first + more, "correct it; `persona-pipeline validate` lists every problem")


def _world(settings: "Settings") -> "ProbeFinding":
    from persona_pipeline.world.personas import agent_ids, find_world, load_persona

    try:
        root = find_world(settings)
    except ConfigError as error:
        said, _, remedy = str(error).partition("; ")
        return _finding("world", "error", said, remedy)
    agents = agent_ids(root)
    for agent_id in agents:
        load_persona(root, agent_id)
    if not agents:
        return _finding("world", "error", f"{root} has no personas", "add personas/AGENT.yaml")
    return _finding("world", "ok", f"{root}: {', '.join(agents)}")


def _settings(settings: "Settings") -> "ProbeFinding":
    """The defaults of an evaluation, each with its source; those that are off are left out."""
    from persona_pipeline.world.settings import load_world_file, origins

    told = [
        f"{name} {'not set' if value is None else value} ({source})"
        for name, value, source in origins(settings, load_world_file(settings.world_root))
        if value or source != "default"
    ]
    return _finding("settings", "ok", "; ".join(told))


def _database(settings: "Settings") -> "ProbeFinding":
    import sqlalchemy as sa

    from persona_pipeline.base.database.engine import default_url, open_store
    from persona_pipeline.base.database.tables import run_messages

    url = default_url(settings)
    with closing(open_store(url)) as store:
        count = store.value(sa.select(sa.func.count()).select_from(run_messages))
    return _finding("database", "ok", f"{url.render_as_string(hide_password=True)}: {count} messages")


def _messages(settings: "Settings") -> "ProbeFinding":
    from persona_pipeline.base.database.engine import default_url, open_store
    from persona_pipeline.world.names import alias_problems
    from persona_pipeline.world.speakers import stored_names
    from persona_pipeline.world.world import World

    with closing(open_store(default_url(settings))) as store:
        world = World(settings.world_root, store, environment=settings)
        if wrong := [problem for found in alias_problems(world.names()).values() for problem in found]:
            raise ConfigError(list(dict.fromkeys(wrong)))
        world.sync_messages()
        match = stored_names(world)
    if warnings := match.warnings():
        remedy = "list other names under aliases in a persona file; `persona-pipeline validate` lists them all"
        return _finding("messages", "note", "; ".join(warnings), remedy)
    return _finding("messages", "ok", match.note() or "every agent has messages, and every speaker a persona")


def _recordings(settings: "Settings") -> "ProbeFinding":
    from persona_pipeline.judging.recordings.replay import load_recordings

    folder = settings.world_root / "recordings"
    recordings = load_recordings(folder, settings.signing_secret)
    if recordings:
        agents = len({item.agent_id for item in recordings.values() if item.agent_id})
        return _finding("recordings", "ok", f"{len(recordings)} judgments of {agents} agents")
    remedy = (
        "record some with `persona-pipeline evaluate --judge anthropic --record`; without them a replay has no scores"
    )
    return _finding("recordings", "note", f"{folder} is empty", remedy)


def _judge(settings: "Settings", calls: bool) -> "list[ProbeFinding]":
    import asyncio

    from persona_pipeline.judging.model.probe import probe
    from persona_pipeline.judging.providers.base import ModelOptions

    try:
        options = ModelOptions.from_settings(settings)
        if not options.has_credentials():
            remedy = f"{options.provider.key_help} to use the live judge; replaying recordings needs none"
            return [_finding("key", "note", "no key for the live judge", remedy)]
        options.require_usable()
    except ConfigError as error:
        remedy = "replaying recordings needs no live judge: unset PERSONA_JUDGE, or correct judge in persona.yaml"
        return [_finding("judge", "error", str(error), remedy)]
    said = "is set" if options.is_anthropic else f"is set, or not needed by {options.endpoint}"
    found = [_finding("key", "ok", said)]
    if not calls:
        return found
    return [*found, *asyncio.run(probe(options))]


def _check_judge(*, max_usd: float | None, estimate: bool) -> "ProbeFinding | None":
    """Check the live judge with anchors after printing the price; None: only the price was asked for."""
    from persona_pipeline.base.calls import run_async
    from persona_pipeline.evaluation.read import WorldReader
    from persona_pipeline.guard.anchors import DOCTOR_SIZE, AnchorRound, check_of
    from persona_pipeline.judging.estimate import estimate as estimated
    from persona_pipeline.judging.open import JudgeOptions, open_judge
    from persona_pipeline.judging.providers.base import ModelOptions
    from persona_pipeline.scoring.messages.reading import read_messages

    world = open_world()
    asked = AnchorRound(WorldReader(world).newest_anchors(DOCTOR_SIZE), world.horizon.date())
    options = ModelOptions.from_settings(world.settings)
    if not asked.agents:
        remedy = (
            "the check needs an agent with adherence claims and 5 messages before its newest week, or message labels"
        )
        return _finding("judge check", "note", "judge not checked: no message has a known verdict", remedy)
    if not options.has_credentials():
        return _finding(
            "judge check", "note", "judge not checked: no key for the live judge", options.provider.key_help
        )
    say(str(estimated([], options=options, also=[call.question for call in asked.calls])))
    if estimate:
        return None
    # Recorded and stored answers are not used.
    judge = open_judge(options.provider.name, world, JudgeOptions(max_usd, fresh=True, recorded=False))
    found = check_of(asked.answers(run_async(read_messages([([call], 0) for call in asked.calls], judge.ask))))
    if found.passed:
        return _finding("judge check", "ok", found.text)
    remedy = "choose a stronger model with PERSONA_JUDGE_MODEL"
    return _finding("judge check", "note" if found.passed is None else "error", found.text, remedy, cannot_judge=True)


def _home() -> Path:
    return Path(os.environ.get("DAGSTER_HOME") or Path.cwd())


def _start_dagster() -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", *_ASK_DAGSTER, str(_home())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
    )


def _dagster(asked: "subprocess.Popen[str]") -> "ProbeFinding":
    home = _home()
    try:
        out, errors = asked.communicate(timeout=_DAGSTER_SECONDS)
    except subprocess.TimeoutExpired:
        asked.kill()
        asked.communicate()
        remedy = "check that the database of its storage answers"
        return _finding("dagster", "error", f"no answer in {_DAGSTER_SECONDS} s", remedy)
    if asked.returncode != 0:
        last = (errors.strip().splitlines() or ["no reason given"])[-1][:200]
        remedy = f"check {home / 'dagster.yaml'} and its database; DAGSTER_HOME is its folder"
        return _finding("dagster", "error", last, remedy)
    told = json.loads(out.strip().splitlines()[-1])
    return _finding("dagster", "ok", f"instance at {home}: {told['runs']} runs; {told['jobs']} jobs are defined")
