"""What single asserts of promptfoo and AgentV become; groups of them are read by ``asserts``."""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from persona_pipeline.suites.asserts.contains import SPELLINGS
from persona_pipeline.suites.format.sources import Entry
from persona_pipeline.suites.importing.findings import Findings, listed

_AS_THEY_ARE = ("tool_trajectory", "field_accuracy", "token_usage", "execution_metrics")
_SAME_TEXT = ("equals", "contains", *SPELLINGS)
COMMON = ("type", "metric", "name", "weight", "negate", "required", "threshold", "min_score")
REMEDIES = {
    **dict.fromkeys(("javascript", "python", "ruby", "webhook"), "write a code_judge"),
    **dict.fromkeys(("select_best", "max_score"), "compare runs with pairwise or suite compare --pairwise"),
    **dict.fromkeys(("similar", "rouge_n", "bleu", "gleu", "meteor", "levenshtein"), "say in rubrics what must agree"),
}
_FACTS = "Agrees with these facts and contradicts none of them: "


@dataclass
class Item:
    """One assert being converted: what it says, filled in, and what of it nobody has read yet."""

    findings: Findings
    entry: Entry
    kind: str
    data: dict[str, Any]
    variables: Mapping[str, Any]
    threshold: float | None = None

    def take(self, *names: str) -> Any:
        """Return the first of these keys that is there, and mark it as read."""
        name = next((name for name in names if self.data.get(name) is not None), None)
        return None if name is None else self.data.pop(name)

    def value(self) -> Any:
        """Return ``value``; of a file its text."""
        given = self.take("value")
        if isinstance(given, str) and given.startswith("file://"):
            if re.search(r"\.(js|cjs|mjs|ts|py|rb)(:\w+)?$", given):
                return None
            return self.findings.text(self.entry, given, "value")
        return given

    def none(self, what: str = "", remedy: str = "") -> None:
        self.findings.none(self.entry, f"assert {what or self.data['type']}", remedy=remedy)


def _text(item: Item) -> dict[str, Any] | None:
    value = item.value()
    if isinstance(value, dict) or value is None:
        return item.none(f"{item.data['type']} with data", "compare fields with field_accuracy")
    if item.kind in ("contains_all", "contains_any", "icontains_all", "icontains_any") and isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    texts = [_plain(part) for part in listed(value)]
    return {"type": item.kind.replace("_", "-"), "value": texts if isinstance(value, list) else texts[0]}


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _regex(item: Item) -> dict[str, Any] | None:
    pattern, flags = _plain(item.value() or ""), item.take("flags") or ""
    if set(flags) - set("imgu"):
        return item.none(f"regex with flags {flags}")
    kept = "".join(flag for flag in "im" if flag in flags)
    return {"type": "regex", "value": f"(?{kept}:{pattern})" if kept else pattern}


def _json(item: Item) -> dict[str, Any] | None:
    schema = item.value()
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except ValueError:
            return item.none(f"{item.data['type']} with a schema that is no JSON")
    return {"type": item.kind} | ({} if schema is None else {"schema": schema})


def _limit(key: str, kind: str) -> Callable[[Item], dict[str, Any] | None]:
    def convert(item: Item) -> dict[str, Any] | None:
        limit = item.take(key, "threshold", "budget", "value")
        item.threshold = None
        return item.none(f"{kind} without a threshold") if limit is None else {"type": kind, key: limit}

    return convert


def _criteria(prefix: str = "", limit: float | None = None) -> Callable[[Item], dict[str, Any] | None]:
    def convert(item: Item) -> dict[str, Any] | None:
        value, prompt = item.value(), item.take("prompt", "rubricPrompt", "rubric_prompt")
        criteria = item.take("criteria", "rubrics")
        if _of_code(prompt):
            return item.none(f"{item.data['type']} with a program as its prompt", "write the prompt out")
        if isinstance(prompt, str) and prompt.startswith(("file://", "./", "../")):
            prompt = item.findings.relocated(item.entry, prompt)
        value = value if value is not None else criteria
        if isinstance(value, list) and value:
            made: dict[str, Any] = {"type": "rubrics", "criteria": _criteria_of(item, value)}
            return made | ({"prompt": prompt} if prompt else {})
        if isinstance(value, dict):
            return item.none(f"{item.data['type']} with data as its value", "write a list of criteria")
        passes = item.threshold if item.threshold is not None else limit
        if passes is None and isinstance(value, str) and not prompt:
            return {"type": "rubrics", "criteria": [prefix + value]}
        if value is not None and prompt:
            item.findings.none(item.entry, "a value beside a prompt", "value", remedy="write it into the prompt")
        text = prompt if prompt is not None else value
        made = {"type": "llm_judge"} | ({"prompt": prefix + text} if isinstance(text, str) else {})
        return made | ({"_passes_from": passes} if passes else {})

    return convert


def _of_code(prompt: Any) -> bool:
    return isinstance(prompt, dict | list) or (
        isinstance(prompt, str) and bool(re.search(r"\.(js|mjs|ts|py)(:\w+)?$", prompt))
    )


def _criteria_of(item: Item, values: list[Any]) -> list[Any]:
    scored = any(
        isinstance(value, dict) and {"score_ranges", "min_score", "required_min_score"} & set(value) for value in values
    )
    return [_criterion(item, value, scored) for value in values]


def _criterion(item: Item, value: Any, scored: bool) -> Any:
    """A criterion of AgentV: met or not, it is required unless it says no; a minimum is a share, an operator turns the question."""
    if not isinstance(value, dict):
        return {"outcome": _plain(value)} if scored else _plain(value)
    made = {key: part for key, part in value.items() if key not in ("operator", "min_score", "description")}
    if "description" in value:
        made.setdefault("outcome", value["description"])
    if value.get("operator") == "contradiction":
        made["outcome"] = f"Says nothing that contradicts this, or does not speak of it: {made.get('outcome', '')}"
    elif value.get("operator") not in (None, "correctness"):
        item.findings.none(item.entry, f"operator {value['operator']}", "value")
    if isinstance(value.get("min_score"), int | float):
        made["required_min_score"] = math.ceil(10 * value["min_score"] - 1e-9)
    if not scored:
        made.setdefault("required", True)
    return made


def _as_it_is(item: Item) -> dict[str, Any]:
    item.threshold = None
    return {"type": item.kind} | {key: item.take(key) for key in list(item.data) if key not in COMMON}


def _program(item: Item) -> dict[str, Any] | None:
    script, cwd = item.take("command", "script"), item.take("cwd")
    if script is None:
        return item.none(f"{item.data['type']} without a command")
    made: dict[str, Any] = {"type": "code_judge", "script": script}
    made["cwd"] = item.findings.relocated(item.entry, cwd if isinstance(cwd, str) else ".")
    config, target = item.take("config"), item.take("target")
    return (
        made
        | ({"target": target} if isinstance(target, bool | dict) else {})
        | (config if isinstance(config, dict) else {})
    )


def _used(item: Item) -> dict[str, Any] | None:
    tools = listed(item.value())
    minimums = {}
    for tool in tools:
        name, least = (tool.get("name"), tool.get("min", 1)) if isinstance(tool, dict) else (tool, 1)
        if not isinstance(name, str) or (isinstance(tool, dict) and set(tool) - {"name", "min"}):
            return item.none(f"{item.data['type']} with patterns or maxima")
        minimums[name] = least
    return {"type": "tool_trajectory", "mode": "any_order", "minimums": minimums} if minimums else item.none()


def _sequence(item: Item) -> dict[str, Any] | None:
    value = item.value()
    steps, mode = (
        (value.get("steps"), value.get("mode", "in_order")) if isinstance(value, dict) else (value, "in_order")
    )
    named = [step.get("name") if isinstance(step, dict) else step for step in listed(steps)]
    if not named or not all(isinstance(name, str) for name in named) or mode not in ("in_order", "exact"):
        return item.none(f"{item.data['type']} with patterns")
    return {"type": "tool_trajectory", "mode": mode, "expected": [{"tool": name} for name in named]}


CONVERTERS: dict[str, Callable[[Item], dict[str, Any] | None]] = {
    **dict.fromkeys(_SAME_TEXT, _text),
    "regex": _regex,
    "is_json": _json,
    "contains_json": _json,
    "latency": _limit("max_ms", "latency"),
    "cost": _limit("max_usd", "cost"),
    **dict.fromkeys(("llm_rubric", "model_graded_closedqa", "rubrics", "rubric"), _criteria()),
    **dict.fromkeys(("llm_grader", "llm_judge"), _criteria()),
    **dict.fromkeys(("factuality", "model_graded_factuality"), _criteria(_FACTS)),
    "g_eval": _criteria(limit=0.7),
    **dict.fromkeys(("script", "script_grader", "code_grader", "code_judge", "code"), _program),
    **dict.fromkeys(_AS_THEY_ARE, _as_it_is),
    "trajectory:tool_used": _used,
    "trajectory:tool_sequence": _sequence,
}
