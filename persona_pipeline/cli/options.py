"""Options that several commands share: those of an evaluation, of output, and of servers."""

import inspect
import ipaddress
import os
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import typer

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.options import (
    EVERYTHING,
    OF_JUDGE,
    EvaluationRequest,
    bounds_of,
    kind_of,
    option_fields,
    told,
)
from persona_pipeline.base.text import names_in

if TYPE_CHECKING:
    from persona_pipeline.base.settings import Settings
    from persona_pipeline.world.world import World


# The panel of each option in ``--help``; other options of an evaluation go to Verdict, a command's own options to Output.
_WHAT = ("agents", "dimensions", "window", "windows", "as_of", "since", "synthetic", "facts", "history", "touched")
_ABOUT: dict[str, str] = dict.fromkeys(_WHAT, "What is evaluated")
_ABOUT |= dict.fromkeys((*OF_JUDGE, "samples", "confirm", "mock_judge", "estimate"), "Judge")


def option(name: str, flag: str | None = None) -> Any:
    """Return the command-line option of an evaluation option; ``flag`` replaces its usual name."""
    dashed = f"--{name.replace('_', '-')}"
    both = f"{dashed}/--no-{dashed[2:]}" if _kind(name) is bool else dashed
    least, most = bounds_of(name)
    metavar = "COMMIT" if name == "against" else None
    return typer.Option(flag or both, help=told(name), min=least, max=most, metavar=metavar)


Command = Callable[..., Any]


def taking(command: Command, options: Mapping[str, tuple[Any, Any]], *, last: bool = False) -> Command:
    """Add options (type and default by name) to a command, before or after its own; it gets them as ``**`` arguments."""
    signature = inspect.signature(command)
    own = [item for item in signature.parameters.values() if item.kind is not item.VAR_KEYWORD]
    first, kind = own[:1], inspect.Parameter.POSITIONAL_OR_KEYWORD
    made = [inspect.Parameter(name, kind, annotation=type_, default=value) for name, (type_, value) in options.items()]
    ordered = [*own[1:], *made] if last else [*made, *own[1:]]
    ordered.sort(key=lambda item: item.default is not item.empty)
    vars(command)["__signature__"] = signature.replace(parameters=[*first, *ordered])
    return command


def asks(*only: str, without: Sequence[str] = (), grouped: bool = False) -> Callable[[Command], Command]:
    """Give a command the options of an evaluation, all or some, as ``**asked``; ``grouped``: in panels of ``--help``."""
    whole = {"agents": EVERYTHING, "dimensions": EVERYTHING}
    made = {
        name: (
            Annotated[_kind(name) | None, option(name)],
            whole.get(name, EvaluationRequest.model_fields[name].default),
        )
        for name in option_fields(without=without)
        if name in (only or EvaluationRequest.model_fields)
    }
    return lambda command: _grouped(taking(command, made)) if grouped else taking(command, made)


def _grouped(command: Command) -> Command:
    signature = inspect.signature(command)
    found = []
    for name, item in signature.parameters.items():
        if get_origin(item.annotation) is Annotated:
            kind, shown = get_args(item.annotation)[0], copy(item.annotation.__metadata__[0])
            shown.rich_help_panel = _ABOUT.get(name, "Verdict" if name in EvaluationRequest.model_fields else "Output")
            item = item.replace(annotation=Annotated[kind, shown])
        found.append(item)
    vars(command)["__signature__"] = signature.replace(parameters=found)
    return command


def request_of(context: typer.Context, asked: Mapping[str, Any], **more: Any) -> EvaluationRequest:
    """Return the options that the command line gives; ConfigError: a value is not valid."""
    sources = {name: context.get_parameter_source(name) for name in asked}
    given = {name for name, source in sources.items() if source and source.name != "DEFAULT"}
    return EvaluationRequest(**{name: asked[name] for name in given}, **more)


def _kind(name: str) -> type:
    kind = kind_of(name)
    return str if kind is list else kind


Agents = Annotated[str, option("agents")]
Dimensions = Annotated[str, option("dimensions")]
EitherDimensions = Annotated[str, typer.Option("--dimension", "--dimensions", help=told("dimensions"))]
WindowLength = Annotated[str, option("window")]
JudgeName = Annotated[str | None, option("judge")]
MockJudge = Annotated[bool, typer.Option("--mock-judge", help="The same as --judge recorded.")]
MaxUsd = Annotated[float | None, option("max_usd")]
Record = Annotated[bool, option("record")]
Estimate = Annotated[
    bool, typer.Option("--estimate", help="Print calls, tokens and US dollars of the run; asks no model.")
]
Output = Annotated[Path | None, typer.Option(help="Write to this file instead of stdout.")]
AsJson = Annotated[bool, typer.Option("--json", help="The same as --format json.")]
Notify = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Send a webhook to this alert of persona.yaml on a drop or an inconclusive result; repeatable.",
    ),
]
# Options that only a target of a suite, an interview or a comparison needs.
TargetsFile = Annotated[Path | None, typer.Option(help="The targets file; by default the nearest targets.yaml.")]
AllowCode = Annotated[bool, typer.Option(help="Allow targets to run programs.")]
AllowEnv = Annotated[
    list[str] | None, typer.Option(help="An environment variable that the targets file may read; repeatable.")
]
AllowTargets = Annotated[bool, typer.Option(help="Allow targets named by the suite to call servers.")]
AllowPath = Annotated[
    list[Path] | None, typer.Option(help="A further folder whose files the suite may name; repeatable.")
]


def format_option(formats: Sequence[str]) -> Any:
    """Return ``--format`` of a command that has these formats."""
    said = (
        f"{', '.join(formats[:-1])} or {formats[-1]}; by default what the name of --output ends in, else {formats[0]}."
    )
    return typer.Option("--format", help=said)


def chosen_format(format: str | None, output: Path | None, known: Sequence[str], *, as_json: bool = False) -> str:
    """Return the format of a report: as asked for, else by the ending of its file, else the first that is known.

    Raises ``ConfigError`` where a command does not have the format.
    """
    from persona_pipeline.reporting.render import ENDINGS

    if format is None and output is not None and not as_json:
        format = ENDINGS.get(output.suffix.lower())
        format = format if format in known else None
    chosen = "json" if as_json else format or known[0]
    require_known("--format", chosen, known)
    return chosen


def names(text: str) -> list[str] | None:
    """Return the names of a comma-separated list, None for ``all``; ConfigError: the list is empty."""
    if text.strip() == "all":
        return None
    if not (found := names_in(text)):
        raise ConfigError("the list of names is empty; write 'all' or names separated by commas")
    return found


def environment() -> "Settings":
    """Return the settings of the environment."""
    from persona_pipeline.base.settings import get_settings

    return get_settings()


def world_settings() -> "Settings":
    """Return the settings of the environment, completed by the ``persona.yaml`` of its world."""
    from persona_pipeline.world.settings import load_world_file, merged

    return merged(environment(), load_world_file(environment().world_root))


def say(*lines: object) -> None:
    """Print lines on stderr."""
    for line in lines:
        typer.echo(str(line), err=True)


def open_world(root: Path | None = None, *, sync: bool = False) -> "World":
    """Return the world; ``sync``: read its files into the store first and print their problems."""
    from persona_pipeline.world.world import World

    world = World.open(root)
    say(*world.sync().problems if sync else ())
    return world


def require_known(option: str, value: str, known: Sequence[str], between: str = ", ") -> None:
    """Raise ``ConfigError`` where the value of an option is not known."""
    if value not in known:
        raise ConfigError(f"{option} {value!r} is unknown; use {between.join(known)}")


def judge_name(judge: str | None, mock_judge: bool = False, *, world: "World | None" = None) -> str:
    """Return the name of the judge; ConfigError: the two options contradict each other."""
    if mock_judge and judge not in (None, "recorded"):
        raise ConfigError(f"--mock-judge contradicts --judge {judge}; leave one out")
    if mock_judge:
        return "recorded"
    return judge or (world.settings if world else world_settings()).judge


def live_judge_name(world: "World", judge: str | None = None) -> str:
    """Return the name of a live judge: the one given, else the world's, else ``anthropic``."""
    named = judge_name(judge, world=world)
    return "anthropic" if judge is None and named == "recorded" else named


Host = Annotated[str, typer.Option(help="Address to listen on.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 chooses a free one.")]
TokenEnv = Annotated[
    str, typer.Option(help="Environment variable with the bearer token; required to listen beyond this machine.")
]
HeaderTimeout = Annotated[float, typer.Option(min=0.1, help="Seconds for the head of a request to arrive.")]


def token_in(variable: str) -> str | None:
    """Return the token in an environment variable, or None if it is not set."""
    return os.environ.get(variable, "").strip() or None


def require_token(token: str | None, variable: str, host: str) -> None:
    """Raise ``ConfigError`` if an address can be reached from outside and the token is missing."""
    try:
        outside = not ipaddress.ip_address(host).is_loopback
    except ValueError:
        outside = host != "localhost"
    if token is None and outside:
        raise ConfigError(f"{host} can be reached from outside; set {variable} to a token, or listen on 127.0.0.1")
