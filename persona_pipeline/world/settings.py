"""``persona.yaml`` at a world's root: settings of every evaluation of the world.

It names a judge's provider and model and alert receivers, but has no address, variable or key: otherwise a pull request could
choose where the key goes.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field

from persona_pipeline.base.documents.json import write_if_changed
from persona_pipeline.base.documents.yaml import Document, load_document, parse_document, to_yaml, validate_document
from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.base.options import FAIL_LISTS, RULES, AcceptedDrop, EvaluationRequest, with_options
from persona_pipeline.base.settings import PREFIX, Settings
from persona_pipeline.world.messages.files import MessageField
from persona_pipeline.world.propositions.models import select_dimensions
from persona_pipeline.world.revisions import files_at

WORLD_FILE = "persona.yaml"
# The options of an evaluation that a world has for all of them.
OF_A_WORLD = ("window", "samples", *RULES, "threshold", "min_coverage", *FAIL_LISTS, "require_calibration", "facts")
_OUTSIDE = re.compile(
    r"(?:^|_)(?:url|uri|webhook|endpoint|host|address|key|token|secret|password|env|variable)s?(?:$|_)"
)
_ADDRESS = re.compile(r"://|\$\{|\{\{|^(?:sk|xox[a-z])-")


class JudgeNames(BaseModel, extra="forbid"):
    """Who judges where neither an option nor the environment says it."""

    provider: str | None = Field(
        default=None, min_length=1, description="recorded, or who serves the model: anthropic, openai, ..."
    )
    model: str | None = Field(default=None, min_length=1, description="The model's name.")


def _known(dimension: str) -> str:
    try:
        return select_dimensions([dimension])[0]
    except ConfigError as error:
        raise ValueError(str(error)) from None


class AllowedDrops(BaseModel, extra="forbid"):
    """Allowed drops of a dimension, in points (0-9); default: those of all dimensions."""


if not TYPE_CHECKING:
    AllowedDrops = with_options(AllowedDrops, RULES, most=9)


# The field's suffix is the order of days and months in dates such as 03/04/2026.
ImportField = MessageField | Literal["role", "created_at:day-first", "created_at:month-first"]


class ImportRules(BaseModel, extra="forbid"):
    """How files of other programs are read."""

    fields: dict[str, ImportField] = Field(
        default_factory=dict, description="Fields of messages by another program's keys, as --map KEY=FIELD of ingest."
    )
    roles: dict[str, Literal["agent", "bot", "customer", "note", "system", "message"]] = Field(
        default_factory=dict, description="Whose messages are, by what stands in the column of roles."
    )


class WorldFile(BaseModel, extra="forbid", title="World"):
    """A world's settings as written; defaults are those of options, environment and package."""

    judge: JudgeNames = Field(default=JudgeNames(), description="Who judges, by names.")
    leave_out: list[str] = Field(
        default_factory=list, description="Agents that are not evaluated unless they are named."
    )
    accepted_drops: list[AcceptedDrop] = Field(
        default_factory=list, description="Drops that somebody answers for, until a day."
    )
    by_dimension: dict[Annotated[str, AfterValidator(_known)], AllowedDrops] = Field(
        default_factory=dict, description="Allowed drops of single dimensions."
    )
    alerts: list[Annotated[str, Field(pattern="^[A-Za-z][A-Za-z0-9_-]*$")]] = Field(
        default_factory=list,
        description="Names of who hears of failed runs; the environment has each one's address in PERSONA_ALERT_WEBHOOK_NAME.",
    )
    imports: ImportRules = Field(
        default=ImportRules(), alias="import", description="How files of other programs are read."
    )
    message_fields: dict[str, MessageField] = Field(
        default_factory=dict, description="The older name of import: fields."
    )
    people: list[str] = Field(
        default_factory=list, description="Names of speakers who are people, and no agents without a persona."
    )

    @property
    def import_rules(self) -> ImportRules:
        """How files of other programs are read, fields under their older name included."""
        return self.imports.model_copy(update={"fields": {**self.message_fields, **self.imports.fields}})

    @property
    def options(self) -> dict[str, Any]:
        """The options of an evaluation that it says."""
        return {name: value for name in OF_A_WORLD if (value := getattr(self, name)) is not None}

    @property
    def allowed_drops(self) -> dict[str, dict[str, float]]:
        """What it says of single dimensions."""
        return {name: drops.model_dump(exclude_none=True) for name, drops in self.by_dimension.items()}


if not TYPE_CHECKING:
    WorldFile = with_options(WorldFile, OF_A_WORLD)


def load_world_file(root: Path) -> WorldFile:
    """Read a world's settings; without a file nothing is said.

    Raises ``ConfigError``: it is not valid, or holds what belongs into the environment; every problem with its place.
    """
    path = root / WORLD_FILE
    return _read(load_document(path)) if path.is_file() else WorldFile()


def world_file_at(root: Path, commit: str) -> WorldFile:
    """Read a world's settings as a commit has them."""
    texts = [data.decode("utf-8", "replace") for data in files_at(root, commit, [WORLD_FILE]).values()]
    return _read(parse_document(texts[0], f"{commit[:10]}:{WORLD_FILE}")) if texts else WorldFile()


def with_rule(text: str, key: str, value: Any) -> str:
    """Return the text of a world's settings with another value under a key; all the rest stays as it is written."""
    block, parsed = to_yaml({key: value}), parse_document(text, WORLD_FILE).data
    if not isinstance(parsed, dict) or key not in parsed:
        return f"{text.rstrip()}\n{block}".lstrip("\n")
    return re.sub(rf"^{key}:.*\n?(?:[ \t-].*\n?|\n)*", lambda _: block, text, count=1, flags=re.MULTILINE)


def remember(root: Path, *, fields: Mapping[str, str] | None = None, people: Iterable[str] = ()) -> None:
    """Add names of columns and people to a world's settings."""
    path, known = root / WORLD_FILE, load_world_file(root)
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if fields:
        rules = known.imports.model_dump(exclude_defaults=True)
        text = with_rule(text, "import", {**rules, "fields": {**known.imports.fields, **fields}})
    if people:
        text = with_rule(text, "people", sorted({*known.people, *people}))
    write_if_changed(path, text)


def merged(settings: Settings, file: WorldFile) -> Settings:
    """Return settings with what the file says where neither a caller nor the environment does."""
    said = {"judge": file.judge.provider, "judge_model": file.judge.model}
    new = {name: value for name, value in said.items() if value and name not in settings.model_fields_set}
    return settings.model_copy(update=new)


def origins(settings: Settings, file: WorldFile) -> list[tuple[str, Any, str]]:
    """Return what holds where no option says otherwise: name, value, and where it comes from.

    ``settings``: those of the environment.
    """
    names = {"judge": file.judge.provider, "judge_model": file.judge.model, **dict.fromkeys(OF_A_WORLD)}
    said = {name: value for name, value in {**names, **file.options}.items() if value is not None}
    found = []
    for name in names:
        default = EvaluationRequest.model_fields.get(name)
        value = getattr(settings, name, default.default if default else None)
        if name in settings.model_fields_set:
            found.append((name, value, f"{PREFIX}{name.upper()}"))
        else:
            found.append((name, said.get(name, value), WORLD_FILE if name in said else "default"))
    also = {
        "leave_out": ", ".join(file.leave_out),
        "accepted_drops": "; ".join(
            f"{item.agent}/{item.dimension} until {item.until}" for item in file.accepted_drops
        ),
        "by_dimension": "; ".join(
            f"{dimension}: {', '.join(f'{name} {value:g}' for name, value in said.items())}"
            for dimension, said in file.allowed_drops.items()
        ),
        "alerts": ", ".join(file.alerts),
    }
    return [*found, *((name, text, WORLD_FILE) for name, text in also.items() if text)]


def _read(document: Document) -> WorldFile:
    if document.data is None:
        return WorldFile()
    if problems := list(_of_the_environment(document, document.data, ())):
        raise ConfigError(problems)
    return validate_document(WorldFile, document)


def _of_the_environment(document: Document, value: Any, place: tuple[str | int, ...]) -> Iterator[Problem]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if _OUTSIDE.search(str(key).lower()):
                yield _outside(document, (*place, key), f"{key!r} is no setting of a world", key=True)
            else:
                yield from _of_the_environment(document, item, (*place, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _of_the_environment(document, item, (*place, number))
    elif isinstance(value, str) and place[-1:] != ("why",) and _ADDRESS.search(value):
        yield _outside(document, place, f"{'.'.join(map(str, place))} is an address or a secret")


def _outside(document: Document, place: tuple[str | int, ...], said: str, *, key: bool = False) -> Problem:
    return document.problem(
        place,
        f"{said}: whoever changes this file would choose where the key goes; take it out and set it in the environment "
        "(docs/reference/command-line.md has the variables) or by an option",
        key=key,
    )
