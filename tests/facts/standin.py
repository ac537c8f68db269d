"""A stand-in for the model: it lists facts by plain patterns and compares them by their values."""

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

from persona_pipeline.judging.verdict import Question, Unscored
from persona_pipeline.scoring.facts.reading import Fact

Data = Mapping[str, Any]
START = datetime(2026, 3, 2, 9, tzinfo=UTC)
PATTERNS = (
    (r"\bI(?:'m| am) (\d+)\b", "age", ""),
    (r"\bmy sister (\w+)", "family", "sister's name"),
    (r"\bI live in (\w+)", "home", "where it lives"),
    (r"\bI (?:love|like|hate) (\w+)", "preferences", ""),
)


def known(number: int, value: str, kind: str = "age", about: str = "", **changes: Any) -> Fact:
    """Return a fact that is known."""
    line, at = f"I say {value} {number}", START + timedelta(days=number)
    said = {"quote": line, "line": line, "source": f"x{number}", "said_at": at}
    return Fact.model_validate({"kind": kind, "about": about, "value": value, **said, **changes})


def fact(
    quote: str, message: str = "m1", kind: str = "age", about: str = "", value: str = "34", holds: bool = True
) -> Data:
    """Return a fact as a model lists it."""
    evidence = {"message": message, "quote": quote}
    return {"evidence": evidence, "kind": kind, "about": about, "value": value, "holds": holds}


def extracted(shown: list[Data]) -> Data:
    """Return the facts of a conversation."""
    found = []
    for entry in shown:
        for pattern, kind, about in PATTERNS if entry["speaker"] == "AGENT" else ():
            for match in re.finditer(pattern, entry["text"]):
                value = match[0] if kind == "preferences" else match[1]
                found.append(fact(match[0], entry["id"], kind, about or match[1], value))
    return {"facts": found}


def compared(shown: list[Data]) -> Data:
    """Return each pair of the same kind with other values."""
    pairs = [(a, b) for i, a in enumerate(shown) for b in shown[i + 1 :] if a["kind"] == b["kind"]]
    return {"contradictions": [contradiction(a, b) for a, b in pairs if a["value"] != b["value"]]}


def contradiction(first: Data, second: Data, changes: Data = MappingProxyType({})) -> Data:
    """Return a contradiction as a model lists it."""
    sides = {side: {"message": row["id"], "quote": row["text"]} for side, row in (("first", first), ("second", second))}
    return {**sides, "reasoning": "both cannot be", "verdict": "contradiction"} | changes


Rule = Callable[[list[Data]], Data | Unscored]


def reply(facts: Rule = extracted, contradictions: Rule = compared) -> Callable[[Question], Data | Unscored]:
    """Return what answers questions of both kinds."""
    rules = {"facts": facts, "contradictions": contradictions}
    return lambda question: rules[question.kind](json.loads(question.evidence))
