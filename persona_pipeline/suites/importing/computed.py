"""Computed asserts: texts, patterns, JSON, limits, tool calls and programs."""

import csv
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from persona_pipeline.base.documents.yaml import parse_document
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.suites.asserts.is_json import keywords
from persona_pipeline.suites.format.registry import OF_CONTAINS
from persona_pipeline.suites.importing.findings import PROGRAM, TABLES, FilePart, listed
from persona_pipeline.suites.importing.prompts import plain

_AS_THEY_ARE = ("tool_trajectory", "field_accuracy", "token_usage", "execution_metrics")
_SAME_TEXT = ("equals", "contains", *OF_CONTAINS)
COMMON = ("type", "metric", "name", "weight", "negate", "required", "threshold", "min_score")
# Parts of patterns that differ in JavaScript.
_DIFFERENT: dict[str, str] = TABLES["asserts"]["different_in_patterns"]
_DIFFERENT_FIELDS: dict[str, str] = TABLES["asserts"]["different_in_fields"]
# Keywords of older drafts of JSON schema that promptfoo reads.
_DRAFT_7 = ("dependencies", "additionalItems")
# Formats with the same check in both tools.
_SAME_FORMATS = ("date", "time", "date-time", "email", "ipv4", "ipv6")


@dataclass(eq=False)
class ConvertedAssert(FilePart):
    """One assert during conversion, with its templates filled; keys that are read count as read in the file."""

    kind: str = ""
    variables: Mapping[str, Any] = field(default_factory=dict)
    threshold: float | None = None
    gates: bool = False

    @property
    def type(self) -> str:
        """The type as the file spells it."""
        return str(self.data["type"])

    def left(self, *but: str) -> dict[str, Any]:
        """Return what no rule has read, and mark it as read."""
        return {key: self.take(key) for key in list(self.data) if key not in self.used and key not in (*COMMON, *but)}

    def value(self) -> Any:
        """Return ``value``, or the text of the file that it names."""
        given = self.take("value")
        if isinstance(given, str) and given.startswith("file://"):
            return None if PROGRAM.search(given) else self.file(given, "value").read()
        return given

    def differs(self, said: str) -> None:
        self.warn(said, "value")

    def refused(self, what: str = "", remedy: str = "") -> None:
        """Report the whole assert as one without a counterpart."""
        self.dropped(f"assert {what or self.type}", remedy)


def _text(item: ConvertedAssert) -> dict[str, Any] | None:
    value = item.value()
    if item.kind == "equals" and isinstance(value, dict | list):
        return {"type": "is_json", "schema": {"const": value}}
    if isinstance(value, dict) or value is None:
        return item.refused(f"{item.type} with data", "compare fields with field_accuracy")
    if item.kind.endswith(("contains_all", "contains_any")) and isinstance(value, str):
        line = value.strip(" \t\r\n,").replace("\n", " ")
        if '"' in line:
            item.differs(
                f"{item.type} reads quotes as CSV does: a backslash is one, and spaces at the ends are left out"
            )
        try:
            value = [text.strip() for row in csv.reader([line], strict=True, skipinitialspace=True) for text in row]
        except csv.Error:
            return item.refused(f"{item.type} with quotes that do not end before a comma")
    item.name_numbers(value, "value")
    texts = [plain(part) for part in listed(value)]
    made = {"type": item.kind.replace("_", "-"), "value": texts if isinstance(value, list) else texts[0]}
    exact = item.findings.strict and item.kind in ("equals", "starts_with", "ends_with")
    return made | ({"trim": False} if exact else {})


def _regex(item: ConvertedAssert) -> dict[str, Any] | None:
    pattern, flags = plain(item.value() or ""), "" if item.findings.promptfoo else str(item.take("flags") or "")
    if set(flags) - set("imsg"):
        return item.refused(f"regex with flags {flags}")
    kept = "".join(flag for flag in "ims" if flag in flags)
    for sign, said in _DIFFERENT.items():
        if re.search(sign, f"(?{kept}:{pattern}"):
            item.differs(said)
    return {"type": "regex", "value": f"(?{kept}:{pattern})" if kept else pattern}


def _json(item: ConvertedAssert) -> dict[str, Any] | None:
    schema = item.value()
    if isinstance(schema, str):
        try:
            schema = parse_document(schema).data
        except ConfigError:
            return item.refused(f"{item.type} with a schema that is no YAML")
    if item.kind == "contains_json" and item.findings.promptfoo:
        item.differs(
            "contains-json passes there for text in braces that is almost JSON, and for no list; here it must be JSON"
        )
    return {"type": item.kind} | ({} if schema is None else {"schema": _schema(item, schema)})


def _schema(item: ConvertedAssert, schema: Any) -> Any:
    """Return a schema with its JSON schema version; keywords that are checked differently are findings."""
    if not isinstance(schema, dict):
        return schema
    older = False
    for key, value in keywords(schema):
        older |= key in _DRAFT_7 or (key == "items" and isinstance(value, list))
        if (key == "nullable" and value is True) or (key == "format" and value not in _SAME_FORMATS):
            item.differs(f"{key} {value} of a schema is checked otherwise here")
    return {"$schema": "http://json-schema.org/draft-07/schema#", **schema} if older else schema


def _limit(key: str, kind: str) -> Callable[[ConvertedAssert], dict[str, Any] | None]:
    def convert(item: ConvertedAssert) -> dict[str, Any] | None:
        limit = item.take(key, "threshold", "budget", "value")
        item.threshold = None
        return item.refused(f"{kind} without a threshold") if limit is None else {"type": kind, key: limit}

    return convert


def _as_it_is(item: ConvertedAssert) -> dict[str, Any]:
    item.threshold = None
    made = item.left()
    for check in listed(made.get("fields")):
        if said := _DIFFERENT_FIELDS.get(str(check.get("match"))) if isinstance(check, dict) else None:
            item.warn(said, "fields")
    return {"type": item.kind} | made


def _program(item: ConvertedAssert) -> dict[str, Any] | None:
    script, cwd = item.take("command", "script"), item.take("cwd")
    if script is None:
        return item.refused(f"{item.type} without a command")
    made: dict[str, Any] = {"type": "code_judge", "script": script}
    made["cwd"] = item.file(cwd if isinstance(cwd, str) else ".", "cwd").written()
    if made["cwd"] is None:
        return None
    config = item.take("config")
    if item.take("target"):
        item.none(f"target of {item.type}", "target", remedy="a program here grades what was answered")
    # Further keys belong to the program.
    return made | item.left("transform") | (config if isinstance(config, dict) else {})


# Programs that run an assert's code. They print its score, or for a gate whether it passes.
_DATA = Path(__file__).parent / "data"
_INTERPRETERS = {
    "python": ["python3", "-c", (_DATA / "python.txt").read_text(encoding="utf-8")],
    "javascript": ["node", "-e", (_DATA / "javascript.txt").read_text(encoding="utf-8")],
}


def _code(item: ConvertedAssert) -> dict[str, Any] | None:
    """Convert an assert with code to a program of the suite, which runs if code is allowed."""
    code = item.value()
    if not isinstance(code, str) or not code.strip():
        return item.refused(remedy="write a code_judge")
    least, item.threshold = item.threshold, None
    variables = dict(item.variables) if "vars" in code else {}
    config = {"code": code.strip(), "threshold": least, "gate": item.gates, "vars": variables}
    config["config"] = item.take("config")
    return {"type": "code_judge", "script": _INTERPRETERS[item.kind], "config": config}


CONVERTERS: dict[str, Callable[[ConvertedAssert], dict[str, Any] | None]] = {
    **dict.fromkeys(_SAME_TEXT, _text),
    "regex": _regex,
    "is_json": _json,
    "contains_json": _json,
    "latency": _limit("max_ms", "latency"),
    "cost": _limit("max_usd", "cost"),
    **dict.fromkeys(("script", "script_grader", "code_grader", "code_judge", "code"), _program),
    **dict.fromkeys(_INTERPRETERS, _code),
    **dict.fromkeys(_AS_THEY_ARE, _as_it_is),
}
