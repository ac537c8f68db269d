"""Expectations in one cell of a table, such as ``contains:DENIED`` or ``latency(1000)``, as assert items."""

import re
from typing import Any

from persona_pipeline.errors import did_you_mean
from persona_pipeline.suites.format.javascript import parse_float

_SPELLED = re.compile(
    r"(?P<negated>not-)?(?P<kind>[a-z][a-z-]*)(?:\((?P<argument>[^()]*)\))?(?::(?P<value>.*))?\Z", re.DOTALL
)
_LISTS = ("contains-all", "contains-any", "icontains-all", "icontains-any")
_WITH_VALUE = ("contains", "equals", "regex", "icontains", "starts-with", "ends-with", *_LISTS)
_KNOWN = (*_WITH_VALUE, "is-json", "llm-rubric", "grade", "latency", "cost")


class ExpectationError(ValueError):
    """The text is no expectation; the message says what it could be."""


def read_expectation(text: str) -> dict[str, Any]:
    """Return the assert item of an expectation; plain text must be equalled.

    Raises:
        ExpectationError: it looks like an expectation of a kind that there is not, or its value does not fit.
    """
    text = text.strip()
    match = _SPELLED.match(text)
    kind = match["kind"] if match else ""
    if match is None or (kind not in _KNOWN and match["value"] is None):
        return {"type": "equals", "value": text}
    if kind not in _KNOWN:
        hint = did_you_mean(kind, _KNOWN)
        if not hint and not match["negated"] and not _looks_like_a_kind(kind):
            return {"type": "equals", "value": text}
        raise ExpectationError(f"there is no expectation {kind!r}{hint or '; known: ' + ', '.join(_KNOWN)}")
    item = _item(kind, match)
    return item | ({"negate": True} if match["negated"] else {})


def _item(kind: str, match: re.Match[str]) -> dict[str, Any]:
    value = (match["value"] or "").strip()
    if kind == "is-json":
        return {"type": "is_json"}
    if kind in ("latency", "cost"):
        number = parse_float(match["argument"] or value)
        if number is None:
            raise ExpectationError(f"{kind} needs a number, as in {kind}(1000)")
        return {"type": kind, "max_ms" if kind == "latency" else "max_usd": number}
    if not value:
        raise ExpectationError(f"{kind} needs a value, as in {kind}:text")
    if kind in _LISTS:
        value = [part.strip() for part in value.split(",") if part.strip()]
    if kind in _WITH_VALUE:
        return {"type": kind, "value": value}
    return {"type": "rubrics", "criteria": [value]}


def _looks_like_a_kind(word: str) -> bool:
    """Whether a word before a colon names a check of other tools: plain prose has such words too, but without a hyphen."""
    return "-" in word or word in (
        "javascript",
        "python",
        "webhook",
        "similar",
        "levenshtein",
        "factuality",
    )
