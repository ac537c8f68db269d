"""Options that several commands share, made of those of an evaluation; and where and to whom commands listen."""

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


# What options are about, in ``--help``; of the others those of an evaluation are about its verdict, a command's own about output.
_WHAT = ("agents", "dimensions", "window", "windows", "as_of", "since", "synthetic", "facts", "history", "touched")
_ABOUT: dict[str, str] = dict.fromkeys(_WHAT, "What is evaluated")
_ABOUT |= dict.fromkeys((*OF_JUDGE, "samples", "confirm", "mock_judge", "estimate"), "Judge")


def option(name: str, flag: str | None = None) -> Any:
    """Return an option of an evaluation as the command line has it; ``flag``: where a command calls it otherwise."""
    dashed = f"--{name.replace('_', '-')}"
    both = f"{dashed}/--no-{dashed[2:]}" if _kind(name) is bool else dashed
    least, most = bounds_of(name)
    return typer.Option(
        flag or both, help=told(name), min=least, max=most, metavar="COMMIT" if name == "against" else None
    )


Command = Callable[..., None]


def taking(command: Command, options: Mapping[str, tuple[Any, Any]]) -> Command:
    """Return a command that takes these options before its own, type and default by name; they come to its ``**``."""
    signature = inspect.signature(command)
    first, *own = [item for item in signature.parameters.values() if item.kind is not item.VAR_KEYWORD]
    made = [first.replace(name=name, annotation=kind, default=default) for name, (kind, default) in options.items()]
    ordered = sorted([*made, *own], key=lambda item: item.default is not item.empty)
    vars(command)["__signature__"] = signature.replace(parameters=[first, *ordered])
    return command


def asks(*only: str, without: Sequence[str] = (), grouped: bool = False) -> Callable[[Command], Command]:
    """Give a command the options of an evaluation, all or some, as ``**asked``; ``grouped``: by what they are about."""
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
    """Return what was asked for on the command line; ConfigError: a value cannot be."""
    sources = {name: context.get_parameter_source(name) for name in asked}
    given = {name for name, source in sources.items() if source and source.name != "DEFAULT"}
    return EvaluationRequest(**{name: asked[name] for name in given}, **more)


def _kind(name: str) -> type:
    kind = kind_of(name)
    return str if kind is list else kind


Agents = Annotated[str, option("agents")]
Dimensions = Annotated[str, option("dimensions")]
WindowLength = Annotated[str, option("window")]
JudgeName = Annotated[str | None, option("judge")]
MockJudge = Annotated[bool, typer.Option("--mock-judge", help="The same as --judge recorded.")]
MaxUsd = Annotated[float | None, option("max_usd")]
Record = Annotated[bool, option("record")]
Notify = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Tell this alert of persona.yaml by webhook where something dropped or cannot be told; repeatable.",
        show_default=False,
    ),
]


def names(text: str) -> list[str] | None:
    """Return the names in a comma list, None for ``all``; ConfigError: the list is empty."""
    if text.strip() == "all":
        return None
    if not (found := names_in(text)):
        raise ConfigError("a list of names is empty; write 'all' or names with commas between them")
    return found


def environment() -> "Settings":
    """Return what the environment sets."""
    from persona_pipeline.base.settings import get_settings

    return get_settings()


def world_settings() -> "Settings":
    """Return what the environment sets and, where it sets nothing, what ``persona.yaml`` of its world says."""
    from persona_pipeline.world.settings import load_world_file, merged

    return merged(environment(), load_world_file(environment().world_root))


def open_world(root: Path | None = None, *, sync: bool = False) -> "World":
    """Return the world; ``sync``: its files are brought into the store first, and what is wrong with them is said."""
    from persona_pipeline.world.world import World

    world = World.open(root)
    for problem in world.sync().problems if sync else ():
        typer.echo(str(problem), err=True)
    return world


def require_known(option: str, value: str, known: Sequence[str], between: str = ", ") -> None:
    """Raise ``ConfigError`` where an option's value is none of those that are known."""
    if value not in known:
        raise ConfigError(f"{option} {value!r} is unknown; use {between.join(known)}")


def judge_name(judge: str | None, mock_judge: bool = False, *, world: "World | None" = None) -> str:
    """Return the judge that is meant; ConfigError: the two options contradict each other."""
    if mock_judge and judge not in (None, "recorded"):
        raise ConfigError(f"--mock-judge contradicts --judge {judge}; leave one out")
    if mock_judge:
        return "recorded"
    return judge or (world.settings if world else world_settings()).judge


def live_judge_name(world: "World", judge: str | None = None) -> str:
    """Return the judge that is meant where only a live one will do: the world's, else Anthropic."""
    named = judge_name(judge, world=world)
    return "anthropic" if judge is None and named == "recorded" else named


Host = Annotated[str, typer.Option(help="Address to listen on.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")]
TokenEnv = Annotated[
    str,
    typer.Option(help="Environment variable that holds the bearer token; needed to listen on more than this machine."),
]
HeaderTimeout = Annotated[float, typer.Option(min=0.1, help="Seconds for the head of a request to arrive.")]


def token_in(variable: str) -> str | None:
    """Return the token in an environment variable, None where there is none."""
    return os.environ.get(variable, "").strip() or None


def require_token(token: str | None, variable: str, host: str) -> None:
    """Raise ``ConfigError`` where an address can be reached from outside, and there is no token."""
    try:
        outside = not ipaddress.ip_address(host).is_loopback
    except ValueError:
        outside = host != "localhost"
    if token is None and outside:
        raise ConfigError(f"{host} can be reached from outside; put a token into {variable}, or listen on 127.0.0.1")
