"""Pages that are written from the code: every command with its options, every setting, every public name of Python."""

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer
from pydantic_settings import BaseSettings

import persona_pipeline
from persona_pipeline import corrections
from persona_pipeline.base.options import OF_BASELINES, EvaluationRequest, kind_of, option_fields, told
from persona_pipeline.base.settings import PREFIX, Settings
from persona_pipeline.cli.app import app
from persona_pipeline.defs.platform.settings import OrchestrationSettings

PROJECT = Path(__file__).resolve().parents[2]
_HEAD = "| option | default | meaning |\n|---|---|---|\n"
# A job writes nothing that would stay in the repository, and what judges a pull request is its input `base`.
NOT_OF_THE_ACTION = ("record", "against", *OF_BASELINES)
DEFAULTS_OF_THE_ACTION = {"judge": "recorded", "max_usd": "1"}
# Types are told by their names.
_MODULE = re.compile(r"\b(?:[a-z_]+\.)+(?=[A-Z])")
_ENTRY = re.compile(r"^    ([\w, ]+): (.*)$")


def generated_pages() -> dict[str, str]:
    """Return the generated pages by their path on the site."""
    return {
        "reference/commands.md": _commands(),
        "reference/settings.md": _settings(),
        "reference/python-names.md": _names(),
    }


def written_places() -> dict[Path, str]:
    """Return the files of the repository that have the options of an evaluation in them, as they should be."""
    reference, action = PROJECT / "docs" / "reference" / "command-line.md", PROJECT / "action.yml"
    inputs = "".join(map(_input, option_fields(without=NOT_OF_THE_ACTION)))
    rows = "".join(map(_row, option_fields(without=["baseline_windows"])))
    return {
        reference: _between(reference, "<!-- options -->\n\n", "\n<!-- /options -->", _HEAD + rows),
        action: _between(action, "generated.py.\n", "  # The end of its options.", inputs),
    }


def _between(path: Path, start: str, end: str, text: str) -> str:
    before, _, rest = path.read_text(encoding="utf-8").partition(start)
    return f"{before}{start}{text}{end}{rest.partition(end)[2]}"


def _row(name: str) -> str:
    default = EvaluationRequest.model_fields[name].default
    shown = "" if default is None else "off" if default is False else "on" if default is True else f"`{default}`"
    option = f"--{name.replace('_', '-')}"
    other = f", `--no-{option[2:]}`" if kind_of(name) is bool and default is not False else ""
    return f"| `{option}`{other} | {shown} | {_cell(told(name, links=True))} |\n"


def _input(name: str) -> str:
    default = DEFAULTS_OF_THE_ACTION.get(name, "")
    return (
        f"  {name.replace('_', '-')}:\n    description: {json.dumps(told(name))}\n    default: {json.dumps(default)}\n"
    )


def cli_commands() -> Iterator[tuple[str, Any]]:
    """Yield every command of the command line with its whole name, groups left out."""
    todo = [("", typer.main.get_command(app))]
    while todo:
        name, command = todo.pop()
        subcommands: dict[str, Any] = getattr(command, "commands", {})
        todo += [(f"{name} {key}".strip(), value) for key, value in subcommands.items()]
        if not subcommands:
            yield name, command


def described_fields(model: type[BaseSettings]) -> Mapping[str, str]:
    """Return what a settings class says of its fields, by their names."""
    found: dict[str, str] = {}
    names: list[str] = []
    for line in inspect.cleandoc(model.__doc__ or "").partition("Attributes:")[2].splitlines():
        if entry := _ENTRY.match(line):
            names = entry[1].split(", ")
            found |= dict.fromkeys(names, entry[2])
        elif line.strip():
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
    return found


def _commands() -> str:
    lines = [
        "# Commands",
        "",
        "Every command of `persona-pipeline` with its arguments and options, as `--help` says it.",
    ]
    for name, command in sorted(cli_commands()):
        lines += ["", f"## {name}", "", *inspect.cleandoc(command.help or "").splitlines(), ""]
        usage = [f"[{p.name}]" if not p.required else p.name for p in command.params if not p.opts[0].startswith("-")]
        lines += ["```", " ".join(["persona-pipeline", name, *usage, "[OPTIONS]"]), "```", ""]
        rows = [_option(parameter) for parameter in command.params]
        if rows:
            lines += [*_HEAD.splitlines(), *rows]
    return "\n".join(lines) + "\n"


def _option(parameter: Any) -> str:
    names = ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
    default = getattr(parameter, "show_default", None)
    value = default if isinstance(default, str) else parameter.default
    nothing = value is None or callable(value) or value == "" or "Sentinel" in type(value).__name__
    told = (
        "required"
        if parameter.required
        else ""
        if nothing
        else f"`{str(value).lower() if value in (True, False) else value}`"
    )
    return f"| {names} | {told} | {_cell(getattr(parameter, 'help', '') or '')} |"


def _settings() -> str:
    lines = ["# Settings", "", "Environment variables that are read, their defaults and what they mean."]
    for title, model in (("Everywhere", Settings), ("Dagster", OrchestrationSettings)):
        known = described_fields(model)
        lines += ["", f"## {title}", "", "| variable | default | meaning |", "|---|---|---|"]
        for name, field in model.model_fields.items():
            default = "none" if field.default is None else f"`{field.default}`" if field.default != "" else ""
            meaning = field.description or known[name]
            lines.append(f"| `{PREFIX}{name.upper()}` | {_cell(default)} | {_cell(meaning)} |")
    return "\n".join(lines) + "\n"


def _names() -> str:
    lines = ["# Public names", "", "What can be imported and stays. [python.md](python.md) shows how they are used."]
    for module in (persona_pipeline, corrections):
        lines += ["", f"## {module.__name__}"]
        for name in module.__all__:
            value = getattr(module, name)
            lines += ["", f"### {name}", "", "```python", _signature(name, value), "```", ""]
            lines += ["```text", inspect.getdoc(value) or "", "```"]
            for method, function in _methods(value):
                lines += ["", f"**`{_signature(method, function)}`** {_first(function)}"]
    return "\n".join(lines) + "\n"


def _methods(value: Any) -> Iterator[tuple[str, Any]]:
    if inspect.isclass(value) and value.__module__.startswith("persona_pipeline"):
        for name, member in vars(value).items():
            function = getattr(member, "__func__", member)
            if not name.startswith("_") and inspect.isfunction(function) and function.__doc__:
                yield name, function


def _signature(name: str, value: Any) -> str:
    try:
        return _MODULE.sub("", f"{name}{inspect.signature(value)}")
    except (TypeError, ValueError):
        return name


def _first(value: Any) -> str:
    return (inspect.getdoc(value) or "").splitlines()[0]


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
