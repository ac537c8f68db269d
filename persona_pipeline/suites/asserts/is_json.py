"""``is_json``: the answer is JSON, or holds some, and fits a schema where one is given."""

import json
from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Any, ClassVar, NoReturn

from pydantic import AfterValidator, Field

from persona_pipeline.suites.answering.output import Need, Output
from persona_pipeline.suites.format.text import PatternError, compile_pattern, search
from persona_pipeline.suites.grading.base import Assert, Context
from persona_pipeline.suites.grading.results import Grade, UngradedError

_MOST_PLACES = 1000
_MOST_DIGITS = 4000


# Dots between atoms, and a domain of two labels or more: jsonschema itself asks for an @ alone.
_ATOM, _LABEL = r"[\w!#$%&'*+/=?^`{|}~-]+", r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_EMAIL = rf"^{_ATOM}(?:\.{_ATOM})*@(?:{_LABEL}\.)+{_LABEL}$"


def _language(schema: dict[str, Any]) -> Any:
    """Return the validator for a schema's ``$schema``, by default that of 2020-12."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for

    return validator_for(schema, default=Draft202012Validator)


def usable_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON schema if it can be used. Raises ``ValueError`` with the reason."""
    from jsonschema import FormatChecker
    from jsonschema.exceptions import SchemaError

    language = _language(schema)
    try:
        # Patterns are those of ``regex``, which accepts more than Python's ``re``; they are compiled below.
        language.check_schema(schema, format_checker=FormatChecker(()))
    except SchemaError as error:
        raise ValueError(f"is no JSON schema: {error.message}") from None
    for key, value in keywords(schema):
        if key in ("$ref", "$dynamicRef") and isinstance(value, str) and not value.startswith("#"):
            raise ValueError(f"{key} {value!r} leads out of the schema; write it here")
        if key == "format" and isinstance(value, str) and value not in language.FORMAT_CHECKER.checkers:
            raise ValueError(f"format {value!r} is none that can be checked; describe it with a pattern")
        if key == "patternProperties":
            raise ValueError("patternProperties is not supported; name the properties")
        if key == "pattern" and isinstance(value, str):
            try:
                compile_pattern(value)
            except PatternError as error:
                raise ValueError(f"pattern {value!r} {error}") from None
    return schema


def keywords(schema: Any) -> Iterator[tuple[str, Any]]:
    """Yield the keywords of a schema and its subschemas, without names of properties."""
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

    needs = (Need.TEXT, Need.COMPLETE)
    unsaid: ClassVar = {"anywhere": False}

    schema_: Annotated[dict[str, Any], AfterValidator(usable_schema)] | None = Field(
        None,
        alias="schema",
        description="JSON schema of it, 2020-12 unless its $schema says another; patterns as in regex, no references to elsewhere.",
    )
    anywhere: bool = Field(False, description="Whether an object or a list within the answer is enough.")

    def grade(self, output: Output, context: Context) -> Grade:
        try:
            found = list(_values(output.text)) if self.anywhere else _whole(output.text)
            problems = [self._problem(value) for value in found]
        except RecursionError as error:
            raise UngradedError("too_deep", "the answer nests too deep to be read") from error
        if not found:
            return Grade(0.0, misses=(f"The answer {'holds no' if self.anywhere else 'is not'} valid JSON.",))
        where = "holds" if self.anywhere else "is"
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
        """The validator of the schema: patterns run in bounded time, and references lead nowhere else."""
        from jsonschema import FormatChecker, ValidationError
        from jsonschema.validators import extend
        from referencing import Registry

        def matches(validator: Any, pattern: str, value: Any, schema: Any) -> Iterator[ValidationError]:
            if isinstance(value, str) and not search(pattern, value):
                yield ValidationError(f"{value!r} does not match {pattern!r}")

        schema = self.schema_ or {}
        language = _language(schema)
        formats = FormatChecker(())
        is_email = (lambda value: not isinstance(value, str) or search(_EMAIL, value), ())
        formats.checkers = {**language.FORMAT_CHECKER.checkers, "email": is_email}
        return extend(language, {"pattern": matches})(schema, registry=Registry(), format_checker=formats)


def _refuse(constant: str) -> NoReturn:
    """Raise ``ValueError`` for NaN and infinity, which only Python's JSON has."""
    raise ValueError(f"{constant} is not JSON")


def _number(text: str) -> float:
    # Python refuses integers of more than 4,300 digits, JSON does not.
    return int(text) if len(text) <= _MOST_DIGITS else float(text)


_DECODER = json.JSONDecoder(parse_constant=_refuse, parse_int=_number)


def _whole(text: str) -> list[Any]:
    """Return the value of a text that is JSON; a number that is too large is infinite."""
    try:
        return [_DECODER.decode(text)]
    except ValueError:
        return []


def _values(text: str) -> Iterator[Any]:
    """Yield the outermost JSON objects and lists in a text."""
    position, tried = 0, 0
    while position < len(text) and tried < _MOST_PLACES:
        if text[position] not in "{[":
            position += 1
            continue
        tried += 1
        try:
            value, position = _DECODER.raw_decode(text, position)
        except ValueError:
            position += 1
        else:
            yield value
    if position < len(text):
        raise UngradedError(
            "too_many", f"more than {_MOST_PLACES} brackets stand in the answer; what follows was not read"
        )
