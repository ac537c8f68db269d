"""``persona-pipeline corrections replay``: choose thresholds by what was said."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from persona_pipeline.cli.options import (
    AsOf,
    Fresh,
    JudgeName,
    MaxUsd,
    Record,
    WindowLength,
    judge_name,
    moment,
    names,
)
from persona_pipeline.errors import ConfigError
from persona_pipeline.judging.open import open_judge

if TYPE_CHECKING:
    from persona_pipeline.corrections.replay.models import Correction, Replay
    from persona_pipeline.world import Window, World


def replay(
    agents: Annotated[list[str], typer.Argument(help="The agents' ids.")],
    corrections: Annotated[
        str,
        typer.Option(help="'all', or with commas between them: action_gate, anti_convergence, repetition_suppression."),
    ] = "all",
    window: WindowLength = "all",
    as_of: AsOf = None,
    newest: Annotated[
        int | None, typer.Option(min=1, help="Only so many messages of each agent, the newest of the window.")
    ] = None,
    good_until: Annotated[
        str | None, typer.Option(help="Messages sent until then (RFC 3339 with offset) are taken to be good.")
    ] = None,
    bad_from: Annotated[
        str | None, typer.Option(help="Messages sent from then on (RFC 3339 with offset) are taken to be bad.")
    ] = None,
    marks: Annotated[
        Path | None, typer.Option(help="CSV file of message ids, each with 'good' or 'bad'; it wins over labels.")
    ] = None,
    hold_at_most: Annotated[
        float | None,
        typer.Option(help="Share (0-1) of good messages that may be held: look for the threshold that keeps it."),
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Set the thresholds found, as config set does.")] = False,
    judge: JudgeName = None,
    estimate: Annotated[
        bool,
        typer.Option("--estimate", help="Print calls, tokens and US dollars a live replay would take; ask nothing."),
    ] = False,
    max_usd: MaxUsd = None,
    record: Record = False,
    fresh: Fresh = False,
    format: Annotated[str, typer.Option(help="table, json, markdown or html.")] = "table",
    output: Annotated[Path | None, typer.Option(help="Write the report to this file instead of stdout.")] = None,
) -> None:
    """Say what corrections would have done to stored messages at each threshold, and which one keeps a stated risk.

    The gate takes its scores from recordings, or asks a live judge; the others need none. Nothing is corrected by it.

    Exit codes: 0 done, 2 usage or configuration, 3 not every message has a score, 4 budget.
    """
    import yaml

    from persona_pipeline.cli.propositions import check_format, emit
    from persona_pipeline.corrections.replay.run import ReplayRequest, estimate_replay
    from persona_pipeline.corrections.replay.run import replay as run_replay
    from persona_pipeline.judging.open import JudgeOptions
    from persona_pipeline.reporting.pages.corrections import replay_page
    from persona_pipeline.world import World

    check_format(format)
    if hold_at_most is not None and not 0 < hold_at_most < 1:
        raise ConfigError(f"--hold-at-most {hold_at_most:g} is no share between 0 and 1; for 2 % write 0.02")
    if write and hold_at_most is None:
        raise ConfigError("--write sets what --hold-at-most finds; give that too")
    world = World.open()
    for problem in world.sync().problems:
        typer.echo(f"left out: {problem}", err=True)
    request = ReplayRequest(
        agents=list(dict.fromkeys(agents)),
        corrections=_corrections(corrections),
        window=_window(world, window, as_of),
        newest=newest,
        good_until=moment(good_until, "--good-until"),
        bad_from=moment(bad_from, "--bad-from"),
        marks=marks,
        risk=hold_at_most,
    )
    if estimate:
        typer.echo(estimate_replay(world, request, judge, fresh=fresh))
        return
    backend = open_judge(judge_name(judge), world, JudgeOptions(max_usd=max_usd, record=record, fresh=fresh))
    found = run_replay(world, request, backend)
    emit(replay_page(found), found.model_dump(mode="json"), format, output)
    for agent_id, values in _proposed(found).items():
        if write:
            _set(world, agent_id, values)
        else:
            said = yaml.safe_dump({"corrections": values}, sort_keys=False).rstrip()
            typer.echo(f"\npersonas/{agent_id}.yaml, or --write:\n{said}", err=True)
    raise typer.Exit(_exit_code({reason for item in found.results for reason in item.unmeasured}))


def _proposed(found: "Replay") -> dict[str, dict[str, float]]:
    """Return the proposed thresholds by agent and name of the setting."""
    settings: dict[str, dict[str, float]] = {}
    for item in found.results:
        if item.risk and item.risk.threshold is not None:
            settings.setdefault(item.agent_id, {})[item.correction.setting] = item.risk.threshold
    return settings


def _set(world: "World", agent_id: str, values: dict[str, float]) -> None:
    from persona_pipeline.corrections.configuration import read_config, write_config

    settings = read_config(world.store, agent_id).settings
    write_config(world.store, agent_id, settings.model_copy(update=values))
    said = ", ".join(f"{name} {value:g}" for name, value in values.items())
    typer.echo(f"{agent_id}: {said} from now on; its persona file does not change it until config reset", err=True)


def _corrections(text: str) -> "list[Correction]":
    from persona_pipeline.corrections.replay.models import Correction
    from persona_pipeline.errors import did_you_mean

    wanted = names(text)
    if wanted is None:
        return list(Correction)
    known = [item.value for item in Correction]
    for name in wanted:
        if name not in known:
            raise ConfigError(f"--corrections: unknown correction {name!r}{did_you_mean(name, known)}")
    return [Correction(name) for name in dict.fromkeys(wanted)]


def _window(world: "World", length: str, as_of: str | None) -> "Window":
    from persona_pipeline.world import Window, parse_window

    end = moment(as_of) or world.newest_message_time() or world.horizon
    return Window.ending(end, None if length == "all" else parse_window(length))


def _exit_code(unmeasured: set[str]) -> int:
    if "budget" in unmeasured:
        return 4
    return 3 if unmeasured - {"not_applicable", "nothing_to_look_at"} else 0
