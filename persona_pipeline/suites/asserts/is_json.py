"""``is_json``: the answer is JSON, or holds some, and fits a schema where one is given."""

import json
from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from persona_pipeline.suites.answering.output import Output
from persona_pipeline.suites.format.javascript import is_json, parse_json, reject
from persona_pipeline.suites.format.patterns import PatternError, compile_pattern, search
from persona_pipeline.suites.grading.base import Assert, Context
from persona_pipeline.suites.grading.results import Grade, UngradedError

# What other spellings of the type say beside it.
SPELLINGS: dict[str, dict[str, Any]] = {"contains_json": {"anywhere": True}}
_MOST_PLACES = 1000


def _usable(schema: dict[str, Any]) -> dict[str, Any]:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise ValueError(f"is no JSON schema: {error.message}") from None
    for key, value in _keywords(schema):
        if key in ("$ref", "$dynamicRef") and isinstance(value, str) and not value.startswith("#"):
            raise ValueError(f"{key} {value!r} leads out of the schema; write it here")
        if key == "format" and isinstance(value, str) and value not in Draft202012Validator.FORMAT_CHECKER.checkers:
            raise ValueError(f"format {value!r} is none that can be checked; describe it with a pattern")
        if key == "patternProperties":
            raise ValueError("patternProperties is not supported; name the properties")
        if key == "pattern" and isinstance(value, str):
            try:
                compile_pattern(value)
            except PatternError as error:
                raise ValueError(f"pattern {value!r} {error}") from None
    return schema


def _keywords(schema: Any) -> Iterator[tuple[str, Any]]:
    """Yield the keywords of a schema and those in it; names of properties are none."""
    waiting = [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            yield from value.items()
            for key, inner in value.items():
                waiting += inner.values() if key in ("properties", "$defs") and isinstance(inner, dict) else [inner]


class IsJson(Assert):
    """1 if the whole answer is one JSON value, scalars included; 0 for code fences, trailing commas, NaN and prose.

    With ``anywhere`` an object or a list in the answer is enough. With ``schema`` it must fit that.
    """

    spellings = SPELLINGS
    unsaid: ClassVar = {"anywhere": False}

    schema_: Annotated[dict[str, Any], AfterValidator(_usable)] | None = Field(
        None,
        alias="schema",
        description="JSON schema (2020-12) of it; patterns as in regex, no references to elsewhere.",
    )
    anywhere: bool = Field(False, description="Whether an object or a list within the answer is enough.")

    def grade(self, output: Output, context: Context) -> Grade:
        try:
            if self.schema_ is None and not self.anywhere:
                return Grade.of(is_json(output.text), "The answer is valid JSON.", "The answer is not valid JSON.")
            found = list(_values(output.text)) if self.anywhere else _whole(output.text)
            problems = [self._problem(value) for value in found]
        except RecursionError as error:
            raise UngradedError("too_deep", "the answer nests too deep to be read") from error
        where = "holds" if self.anywhere else "is"
        if not found:
            return Grade(0.0, misses=(f"The answer {where} no valid JSON.",))
        fits = " that fits the schema" if self.schema_ is not None else ""
        return Grade.of(
            None in problems, f"The answer {where} valid JSON{fits}.", f"The answer's JSON does not fit: {problems[0]}"
        )

    def _problem(self, value: Any) -> str | None:
        from jsonschema.exceptions import best_match

        problem = None if self.schema_ is None else best_match(self._validator.iter_errors(value))
        return None if problem is None else f"{problem.json_path}: {problem.message}"

    @cached_property
    def _validator(self) -> Any:
        from jsonschema import Draft202012Validator, ValidationError
        from jsonschema.validators import extend
        from referencing import Registry

        def matches(validator: Any, pattern: str, value: Any, schema: Any) -> Iterator[ValidationError]:
            if isinstance(value, str) and not search(pattern, value):
                yield ValidationError(f"{value!r} does not match {pattern!r}")

        return extend(Draft202012Validator, {"pattern": matches})(
            self.schema_ or {}, registry=Registry(), format_checker=Draft202012Validator.FORMAT_CHECKER
        )


def _whole(text: str) -> list[Any]:
    """Return the value that a text is, if it is one whose numbers can be told."""
    try:
        return [parse_json(text)] if is_json(text) else []
    except ValueError:
        return []


def _values(text: str) -> Iterator[Any]:
    """Yield the JSON objects and lists that stand in a text, the outermost of each."""
    decoder = json.JSONDecoder(parse_constant=reject)
    position, tried = 0, 0
    while position < len(text) and tried < _MOST_PLACES:
        if text[position] not in "{[":
            position += 1
            continue
        tried += 1
        try:
            value, position = decoder.raw_decode(text, position)
        except ValueError:
            position += 1
        else:
            yield value
