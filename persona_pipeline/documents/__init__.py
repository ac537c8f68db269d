"""Strict YAML 1.2 with positions, and strict JSON: what every configuration file of the project is read with."""

from typing import TYPE_CHECKING, Any

from persona_pipeline.documents.parsing import DEFAULT_LIMITS, Document, Limits, Location, load_document, parse_document
from persona_pipeline.documents.strict_json import JsonError, strict_array, strict_json

if TYPE_CHECKING:
    from persona_pipeline.documents.validation import model_problems, validate_document

__all__ = [
    "DEFAULT_LIMITS",
    "Document",
    "JsonError",
    "Limits",
    "Location",
    "load_document",
    "model_problems",
    "parse_document",
    "strict_array",
    "strict_json",
    "validate_document",
]


def __getattr__(name: str) -> Any:
    # Validation brings in pydantic; who only parses does not pay for it.
    if name in ("model_problems", "validate_document"):
        from persona_pipeline.documents import validation

        return getattr(validation, name)
    raise AttributeError(name)
