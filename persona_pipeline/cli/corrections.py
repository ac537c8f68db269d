"""``persona-pipeline corrections``: the service, its settings, statistics of the gate, and replays for choosing a threshold."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from persona_pipeline.base.errors import EXIT_BUDGET, EXIT_COVERAGE, EXIT_OK, ConfigError, did_you_mean, raise_problems
from persona_pipeline.cli.options import (
    Agents,
    Command,
    Estimate,
    HeaderTimeout,
    Host,
    Port,
    TokenEnv,
    WindowLength,
    asks,
    judge_name,
    names,
    open_world,
    request_of,
    require_token,
    say,
    taking,
    token_in,
)
from persona_pipeline.cli.running import CommandResult, shows

if TYPE_CHECKING:
    from persona_pipeline.corrections.configuration import StoredConfig
    from persona_pipeline.corrections.service.app import ModelUpstream
    from persona_pipeline.judging.verdict import Backend
    from persona_pipeline.world.world import World

DEFAULT_PORT = 8765

app = typer.Typer(help="Runtime corrections: serve, configure and count them.", no_args_is_help=True)
config = typer.Typer(help="Settings of an agent's corrections; all are off by default.", no_args_is_help=True)
app.add_typer(config, name="config")

Agent = Annotated[str, typer.Argument(help="The agent's id.")]


@app.command()
def serve(
    host: Host = "127.0.0.1",
    port: Port = DEFAULT_PORT,
    token_env: TokenEnv = "PERSONA_CORRECTIONS_TOKEN",
    config_token_env: Annotated[
        str,
        typer.Option(
            help="Environment variable with the token for changing settings; without it they cannot be changed."
        ),
    ] = "PERSONA_CORRECTIONS_CONFIG_TOKEN",
    unix_socket: Annotated[
        Path | None, typer.Option(help="Listen on this Unix socket instead; only this user can connect.")
    ] = None,
    judge: Annotated[
        str | None,
        typer.Option(
            help="'anthropic', 'openai', 'ollama' and others call a model; 'recorded' replays recordings; default: the live "
            "judge of PERSONA_JUDGE.",
            show_default="anthropic",
        ),
    ] = None,
    max_body: Annotated[int, typer.Option(min=1024, help="Largest request body in bytes.")] = 1024 * 1024,
    at_once: Annotated[
        int, typer.Option(min=1, help="Checks judged at once; others wait, and are sent unchecked at the deadline.")
    ] = 100,
    connections: Annotated[int, typer.Option(min=16, help="Open connections of all clients.")] = 2000,
    connections_per_address: Annotated[int, typer.Option(min=1, help="Open connections of one address.")] = 1000,
    header_timeout: HeaderTimeout = 5.0,
    upstream: Annotated[
        str | None,
        typer.Option(
            help="Forward other requests under /v1 to this server, such as https://api.openai.com/v1, and check the answers."
        ),
    ] = None,
    agent: Annotated[
        list[str] | None, typer.Option(help="MODEL=AGENT: the agent that speaks for this model; repeatable.")
    ] = None,
    agent_key_env: Annotated[
        list[str] | None,
        typer.Option(help="VARIABLE=AGENT: the agent that speaks for the key in this variable; repeatable."),
    ] = None,
    ask_again: Annotated[
        bool | None,
        typer.Option(
            "--ask-again/--no-ask-again",
            help="Send a request again when its answer is rejected. Only for servers without side effects, such as tools. "
            "Default: on for hosts known to serve only models.",
        ),
    ] = None,
) -> None:
    """Serve the gate and interventions over HTTP, or as a proxy of a model.

    GET /openapi.json describes the API.
    """
    token = token_in(token_env)
    config_token = token_in(config_token_env)
    if config_token is not None and config_token == token:
        raise ConfigError(
            f"{config_token_env} and {token_env} hold the same token; use two, as clients that check could change settings"
        )
    if unix_socket is None:
        require_token(token, token_env, host)
    from persona_pipeline.base.http_server import Access, ServerLimits
    from persona_pipeline.base.http_server import serve as serve_until_stopped
    from persona_pipeline.corrections.service.app import create_app

    world = open_world(sync=True)
    application = create_app(
        world,
        _backend(judge, world),
        access=Access(token, max_body, config_token),
        most_at_once=at_once,
        keep_text_days=world.settings.keep_text_days,
        upstream=_upstream(upstream, world, agent or [], agent_key_env or [], ask_again),
    )
    limits = ServerLimits(header_timeout, connections, connections_per_address)
    serve_until_stopped(application, host=host, port=port, unix_socket=unix_socket, limits=limits)


def _upstream(
    url: str | None, world: "World", models: list[str], variables: list[str], ask_again: bool | None
) -> "ModelUpstream | None":
    """Return the upstream of ``--upstream`` and its agents; an agent's id also names it as a model."""
    from persona_pipeline.corrections.service.app import ModelUpstream

    if url is None:
        if models or variables:
            raise ConfigError("--agent and --agent-key-env need --upstream")
        return None
    known = world.agent_ids()
    by_model = {name: name for name in known} | _agents_of(models, "--agent", known)
    by_variable = _agents_of(variables, "--agent-key-env", known)
    if missing := [name for name in by_variable if token_in(name) is None]:
        raise ConfigError(f"--agent-key-env: no key is in {', '.join(missing)}")
    keys = {token_in(name) or "": agent for name, agent in by_variable.items()}
    found = ModelUpstream(url, by_model, keys, ask_again)
    if not found.is_asked_again and ask_again is None:
        said = "rejected answers are sent and only counted, as this server may have side effects"
        say(f"--upstream {url}: {said}; if it only serves a model, add --ask-again")
    return found


def _agents_of(written: list[str], option: str, known: list[str]) -> dict[str, str]:
    found = {name: agent for name, _, agent in (item.rpartition("=") for item in written)}
    for name, agent in found.items():
        if not name or agent not in known:
            raise ConfigError(f"{option} {name}={agent}: the world has no agent {agent!r}{did_you_mean(agent, known)}")
    return found


@config.command("show")
@shows()
def show(agent: Agent) -> CommandResult:
    """Show an agent's settings and their source."""
    from persona_pipeline.corrections.configuration import read_config

    world = _synced_world()
    stored = read_config(world.store, agent)
    if stored.source is None:
        raise ConfigError(f"agent {agent!r} has no settings; write personas/{agent}.yaml")
    return _shown(stored)


# Options of ``config set`` by setting; a switch is named after its correction.
_SETTABLE = {
    "action_gate_enabled": (bool, "Check messages before they are sent."),
    "action_gate_threshold": (float, "Score (0-9) that a message must reach."),
    "anti_convergence_enabled": (bool, "Nudge when a channel agrees too much."),
    "convergence_threshold": (float, "Share (0-1) of agreeing messages above which it nudges."),
    "repetition_suppression_enabled": (bool, "Nudge when the agent repeats itself."),
    "repetition_threshold": (float, "Share (0-1) of repeated three-word phrases above which it nudges."),
    "max_correction_attempts": (int, "Rejections (0-10) after which a message is sent unchanged."),
    "shadow_mode": (bool, "Only record what corrections would have done."),
}


def _settable(command: Command) -> Command:
    made = {}
    for name, (kind, told) in _SETTABLE.items():
        dashed = name.removesuffix("_enabled").removesuffix("_mode").replace("_", "-")
        flag = f"--{dashed}/--no-{dashed}" if kind is bool else f"--{dashed}"
        made[name] = (Annotated[kind | None, typer.Option(flag, help=told)], None)
    return taking(command, made)


@config.command("set")
@_settable
@shows()
def set_(agent: Agent, **given: Any) -> CommandResult:
    """Change some of an agent's settings.

    Afterwards its persona file no longer changes them (see reset).
    """
    from pydantic import ValidationError

    from persona_pipeline.corrections.configuration import read_config, write_config
    from persona_pipeline.world.models import CorrectionSettings

    changes = {name: value for name, value in given.items() if value is not None}
    if not changes:
        raise ConfigError("no setting is given; add at least one option, see --help")
    world = _synced_world()
    current = read_config(world.store, agent).settings
    try:
        settings = CorrectionSettings(**{**current.model_dump(), **changes})
    except ValidationError as error:
        problems = [f"--{str(item['loc'][0]).replace('_', '-')}: {item['msg']}" for item in error.errors()]
        raise ConfigError("\n".join(problems)) from error
    return _shown(write_config(world.store, agent, settings))


@config.command("reset")
@shows()
def reset(agent: Agent) -> CommandResult:
    """Restore the settings of an agent's persona file."""
    from persona_pipeline.corrections.configuration import reset_config

    world = _synced_world()
    return _shown(reset_config(world.store, agent, world.sync_persona(agent).corrections))


@app.command()
@shows()
def statistics(agents: Agents = "all", window: WindowLength = "all") -> CommandResult:
    """Count the results of the gate by action, up to now."""
    from datetime import UTC, datetime

    from persona_pipeline.corrections.statistics import correction_statistics
    from persona_pipeline.evaluation.read import WorldReader
    from persona_pipeline.reporting.pages.instruments import statistics_page

    world = open_world()
    span = None if window == "all" else WorldReader(world).window(window, datetime.now(UTC))
    found = correction_statistics(world.store, span, agent_ids=names(agents))
    return CommandResult(
        statistics_page(found),
        found.model_dump(mode="json"),
        summary=f"{found.total.actions:,} messages checked",
        looked_at=found.total.actions,
        looked_for=f"messages of {agents} that the gate checked, in --window {window}",
    )


def _synced_world() -> "World":
    world = open_world()
    raise_problems(world.sync_personas(world.agent_ids())[1])
    return world


def _backend(judge: str | None, world: "World") -> "Backend":
    if judge == "recorded":
        from persona_pipeline.judging.open import open_judge

        return open_judge(judge, world)
    from persona_pipeline.corrections.gate import gate_backend
    from persona_pipeline.judging.providers.base import ModelOptions

    return gate_backend(world.settings, ModelOptions.from_settings(world.settings, judge))


def _shown(stored: "StoredConfig") -> CommandResult:
    from persona_pipeline.reporting.pages.instruments import settings_page

    told = stored.settings.model_dump() | {"source": stored.source}
    return CommandResult(settings_page(stored.agent_id, told), told)


@app.command()
@asks("as_of", "judge", "max_usd", "record", "fresh")
@shows()
def replay(
    context: typer.Context,
    agents: Annotated[list[str], typer.Argument(help="The agents' ids.")],
    window: WindowLength = "all",
    newest: Annotated[
        int | None, typer.Option(min=1, help="Number of messages of each agent, the newest of the window.")
    ] = None,
    estimate: Estimate = False,
    **asked: Any,
) -> CommandResult | None:
    """Show which stored messages the gate would have held.

    For each threshold: the number of messages held, and of those out of character by the judge's verdict, else by people's labels.

    Scores and verdicts come from recordings or a live judge. Messages are not changed.

    Exit codes: 0 done, 2 usage or configuration, 3 not every message has a score, 4 budget.
    """
    from persona_pipeline.corrections.replay import ReplayRequest, estimate_replay
    from persona_pipeline.corrections.replay import replay as run_replay
    from persona_pipeline.evaluation.read import WorldReader
    from persona_pipeline.judging.open import JudgeOptions, open_judge
    from persona_pipeline.reporting.pages.instruments import replay_page

    world, said = open_world(), request_of(context, asked)
    say(*(f"left out: {problem}" for problem in world.sync().problems))
    request = ReplayRequest(
        agents=list(dict.fromkeys(agents)),
        window=WorldReader(world).window(window, said.as_of or world.newest_message_time() or world.horizon),
        newest=newest,
    )
    if estimate:
        typer.echo(estimate_replay(world, request, said.judge, fresh=said.fresh))
        return None
    backend = open_judge(judge_name(said.judge, world=world), world, JudgeOptions.of(said))
    found = run_replay(world, request, backend)
    unmeasured = {reason for item in found.results for reason in item.unmeasured}
    code = EXIT_BUDGET if "budget" in unmeasured else EXIT_COVERAGE if unmeasured - {"not_applicable"} else EXIT_OK
    return CommandResult(replay_page(found), found.model_dump(mode="json"), code)
