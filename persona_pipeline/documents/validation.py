"""Documents against pydantic models: strict types, every problem at its place, did-you-mean for keys."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from persona_pipeline.documents.parsing import Document, Location
from persona_pipeline.errors import ConfigError, Problem, did_you_mean

Model = TypeVar("Model", bound=BaseModel)

# What is said of a value of the wrong kind, by the type of the pydantic error.
EXPECTED = {
    "string_type": "must be a string; quote it",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
    "finite_number": "must be a finite number",
    "missing": "is required",
}


def validate_document(model: type[Model], document: Document, *, context: Mapping[str, Any] | None = None) -> Model:
    """Validate a document against a strict pydantic model, every problem placed in the file.

    Raises:
        ConfigError: all problems at once.
    """
    try:
        return model.model_validate(document.data, strict=True, context=dict(context or {}))
    except ValidationError as error:
        raise ConfigError(model_problems(model, document, error)) from error


def model_problems(
    model: type[BaseModel], document: Document, error: ValidationError, prefix: Location = ()
) -> list[Problem]:
    """Return the problems of a pydantic error, placed in the document below ``prefix``."""
    problems = []
    for item in error.errors():
        location = (*prefix, *item["loc"])
        name = ".".join(str(part) for part in item["loc"]) or "the file"
        if item["type"] == "extra_forbidden":
            hint = did_you_mean(str(item["loc"][-1]), names_at(model, item["loc"][:-1]))
            problems.append(document.problem(location, f"unknown key {item['loc'][-1]!r}{hint}", key=True))
            continue
        if item["type"] == "missing":
            problems.append(document.problem(location[:-1], f"{name} is required"))
            continue
        text = EXPECTED.get(item["type"]) or item["msg"].removeprefix("Value error, ")
        problems.append(document.problem(location, f"{name}: {text}"))
    return problems


def names_at(model: type[BaseModel], location: tuple[str | int, ...]) -> list[str]:
    """Return the keys allowed at a location, aliases as they are written: walks the fields through lists and optional models."""
    current: Any = model
    for part in location:
        if isinstance(part, int):
            continue
        fields = getattr(current, "model_fields", {})
        found = next((info for name, info in fields.items() if part in (name, info.alias)), None)
        current = _model_in(found.annotation) if found else None
        if current is None:
            return []
    return [info.alias or name for name, info in current.model_fields.items()]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _model_in(argument)
        if found:
            return found
    return None
