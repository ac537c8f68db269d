"""One reader for what judges write: the JSON object of an answer, with its numbers as the schema asks for them."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from persona_pipeline.base.documents.json import JsonError, strict_json, value_at
from persona_pipeline.base.text import shortened, storable_json
from persona_pipeline.base.turns import split_thinking

_OBJECT = re.compile(r'\{(?=\s*")')
_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?")


class InvalidAnswerError(ValueError):
    """The text does not answer the question; the message says why in one line."""


def parse_object(text: str, schema: Mapping[str, Any] | None = None, evidence: str = "") -> dict[str, Any]:
    """Return the JSON object that an answer holds.

    The object may stand after thinking, in a Markdown code fence, or with prose around it; it must be the only one.

    Args:
        schema: of the object. ``8.0`` and ``"8"`` are 8 where it asks for a number.
        evidence: what was judged. An object that the judge only repeats from it is not an answer.

    Raises:
        InvalidAnswerError: there is no such object, or it has a duplicate key, NaN or infinity.
    """
    # A byte order mark is not white space to ``strip``.
    text = storable_json(text).strip().strip("\ufeff").strip()
    if not text:
        raise InvalidAnswerError("the answer has no text")
    try:
        data = strict_json(text)
    except JsonError as error:
        data = _object_in(text, error, evidence)
    if not isinstance(data, dict):
        raise InvalidAnswerError(f"the answer is a JSON {type(data).__name__}, not an object: {shown(data)}")
    return data if schema is None else _fitted(schema, data)


def _object_in(text: str, why: JsonError, evidence: str) -> Any:
    """Return the one object in a text that is not JSON as a whole; ``why``: what is wrong with it."""
    said = split_thinking(text)[1]
    if not said.strip():
        raise InvalidAnswerError(f"the answer has no text after its thinking: {shown(text)}")
    reason = why.msg
    try:
        found = list(_objects(text, len(text) - len(said)))
        reason = f"{len(found)} objects, not one" if found else reason
    except JsonError as error:
        found, reason = [], error.msg
    if len(found) != 1:
        where = "in a code fence: " if "```" in said or "~~~" in said else ""
        raise InvalidAnswerError(f"the answer is not JSON ({where}{reason}): {shown(said)}")
    value, written = found[0]
    if _bare(written) in _bare(evidence):
        raise InvalidAnswerError(f"the answer only repeats an object that was judged: {shown(written)}")
    return value


def _objects(text: str, said_from: int) -> Iterator[tuple[Any, str]]:
    """Yield the outermost objects in a text, each with how it is written.

    ``said_from``: where thinking ends. Objects before it are drafts; but the tag that ends it may stand in a reason of the answer.
    ``JsonError``: an object behind it is broken.
    """
    end = 0
    while begun := _OBJECT.search(text, end):
        try:
            value, end = value_at(text, begun.start())
        except JsonError:
            if begun.start() >= said_from:
                raise
            end = begun.end()
        else:
            if end > said_from:
                yield value, text[begun.start() : end]


def _bare(text: str) -> str:
    """Return a text without white space and escapes, as it stands in evidence that is JSON itself."""
    return re.sub(r"[\s\\]+", "", text)


def _fitted(schema: Mapping[str, Any], value: Any) -> Any:
    """Return a value as the schema spells it: whole numbers as integers, digits in quotes as numbers, enums in their case."""
    choices = schema.get("anyOf")
    if isinstance(choices, list):
        fitted = (_fitted(choice, value) for choice in choices)
        return next((item for item in fitted if repr(item) != repr(value)), value)
    kind = schema.get("type")
    if kind == "object" and isinstance(value, dict):
        fields = schema.get("properties", {})
        return {key: _fitted(fields.get(key, {}), item) for key, item in value.items()}
    if kind == "array" and isinstance(value, list):
        return [_fitted(schema.get("items", {}), item) for item in value]
    if isinstance(value, str) and kind == "string":
        # Structured output does not promise the case of an enum.
        return next((item for item in schema.get("enum", ()) if item.lower() == value.strip().lower()), value)
    if isinstance(value, str) and kind in ("integer", "number") and _NUMBER.fullmatch(value.strip()):
        value = float(value)
    is_whole = kind == "integer" and isinstance(value, float) and value.is_integer()
    return int(value) if is_whole else value


def shown(value: Any) -> str:
    """Return what a judge wrote, short and on one line."""
    return shortened(json.dumps(value), 60)
