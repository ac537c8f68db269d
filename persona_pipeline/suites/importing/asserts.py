"""Asserts of promptfoo and AgentV as asserts of ours; one that has no counterpart is named and left out."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from persona_pipeline.base.documents.yaml import parse_document
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.suites.asserts import registry
from persona_pipeline.suites.asserts.is_json import keywords
from persona_pipeline.suites.asserts.texts import SPELLINGS
from persona_pipeline.suites.format.javascript import WHITESPACE, stringify, trim
from persona_pipeline.suites.format.loading.tests import read_assert
from persona_pipeline.suites.format.models import apart
from persona_pipeline.suites.format.patterns import in_halves
from persona_pipeline.suites.format.problems import ConfigEntry, Reader
from persona_pipeline.suites.importing.evaluators import as_assert
from persona_pipeline.suites.importing.findings import PYDANTIC_EVALS, Findings, listed
from persona_pipeline.suites.importing.prompts import alone_in, filled

_AS_THEY_ARE = ("tool_trajectory", "field_accuracy", "token_usage", "execution_metrics")
_SAME_TEXT = ("equals", "contains", *SPELLINGS)
COMMON = ("type", "metric", "name", "weight", "negate", "required", "threshold", "min_score")
REMEDIES = {
    **dict.fromkeys(("ruby", "webhook"), "write a code_judge"),
    **dict.fromkeys(("select_best", "max_score"), "compare runs with pairwise or suite compare --pairwise"),
    **dict.fromkeys(("similar", "rouge_n", "bleu", "gleu", "meteor", "levenshtein"), "say in rubrics what must agree"),
}
# Types whose threshold alone decides: 0 lets everything pass.
_PASS_FROM_THRESHOLD = ("assert_set", "g_eval")
_GROUPS = ("assert", "assertions", "evaluators")
_FACTS = "Agrees with these facts and contradicts none of them: "
# One text of several in a line: quoted, with commas and quotes in it that are doubled or escaped, or plain.
_MEMBER = re.compile(rf""""(?P<quoted>(?:\\["\\]|""|[^"])*+)"[{WHITESPACE}]*(?=,|\Z)|(?P<plain>[^",][^,]*)""")
_QUOTED = re.compile(r'''\\(["\\])|""''')
# What only the drafts of JSON schema that promptfoo reads say.
_DRAFT_7 = ("dependencies", "additionalItems")
# Formats that are checked here and there alike.
_SAME_FORMATS = ("date", "time", "date-time", "email", "ipv4", "ipv6")
_PROGRAM = re.compile(r"\.(js|mjs|ts|py)(:\w+)?$")


@dataclass
class ConvertedAssert:
    """One assert being converted: what it says, filled in, and what of it nobody has read yet."""

    findings: Findings
    entry: ConfigEntry
    kind: str
    data: dict[str, Any]
    variables: Mapping[str, Any]
    threshold: float | None = None
    gates: bool = False

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


def _text(item: ConvertedAssert) -> dict[str, Any] | None:
    value = item.value()
    if item.kind == "equals" and isinstance(value, dict | list):
        return {"type": "is_json", "schema": {"const": value}}
    if isinstance(value, dict) or value is None:
        return item.none(f"{item.data['type']} with data", "compare fields with field_accuracy")
    if item.kind.endswith(("contains_all", "contains_any")) and isinstance(value, str):
        value = _members(value)
        if value is None:
            return item.none(f"{item.data['type']} with quotes that do not end before a comma")
    texts = [_plain(part) for part in listed(value)]
    made = {"type": item.kind.replace("_", "-"), "value": texts if isinstance(value, list) else texts[0]}
    exact = item.findings.strict and item.kind in ("equals", "starts_with", "ends_with")
    return made | ({"trim": False} if exact else {})


def _members(text: str) -> list[str] | None:
    """Return the texts that stand in a line between commas; None where quotes are not closed."""
    found = []
    while text := text.lstrip(WHITESPACE + ","):
        match = _MEMBER.match(text)
        if match is None:
            return None
        plain = match["plain"]
        found.append(trim(plain) if plain else _QUOTED.sub(lambda one: one[1] or '"', match["quoted"]))
        text = text[match.end() :]
    return found


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else stringify(value)


def _regex(item: ConvertedAssert) -> dict[str, Any] | None:
    pattern, flags = _plain(item.value() or ""), "" if item.findings.promptfoo else item.take("flags") or ""
    if set(flags) - set("imsg"):
        return item.none(f"regex with flags {flags}")
    kept = "".join(flag for flag in "ims" if flag in flags)
    if not in_halves(pattern):
        said = r"\p{...} and \u{...} are classes and characters here; there they are text without the flag u"
        item.findings.differs(item.entry, said, "value")
    if re.search(r"[\^$]", pattern) and ("m" in kept or re.search(r"\(\?[is]*m", pattern)):
        item.findings.differs(
            item.entry, r"with the flag m a line ends at \n alone here, there at \r, \u2028 and \u2029 too", "value"
        )
    if re.search(r"\[.*(?:\\u|[^\0-\x7f])", pattern) and ("i" in kept or re.search(r"\(\?[ms]*i", pattern)):
        said = "with the flag i a class of letters beyond ASCII can hold s and k here"
        item.findings.differs(item.entry, said, "value")
    return {"type": "regex", "value": f"(?{kept}:{pattern})" if kept else pattern}


def _json(item: ConvertedAssert) -> dict[str, Any] | None:
    schema = item.value()
    if isinstance(schema, str):
        try:
            schema = parse_document(schema).data
        except ConfigError:
            return item.none(f"{item.data['type']} with a schema that is no YAML")
    if item.kind == "contains_json" and item.findings.promptfoo:
        said = (
            "contains-json passes there for text in braces that is almost JSON, and for no list; here it must be JSON"
        )
        item.findings.differs(item.entry, said, "type")
    return {"type": item.kind} | ({} if schema is None else {"schema": _schema(item, schema)})


def _schema(item: ConvertedAssert, schema: Any) -> Any:
    """Return a schema in the language it is written in; what is checked otherwise there is a finding."""
    if not isinstance(schema, dict):
        return schema
    older = False
    for key, value in keywords(schema):
        older |= key in _DRAFT_7 or (key == "items" and isinstance(value, list))
        if (key == "nullable" and value is True) or (key == "format" and value not in _SAME_FORMATS):
            shown = f"{key} {value}" if key == "format" else key
            item.findings.differs(item.entry, f"{shown} of a schema is checked otherwise here", "value")
    return {"$schema": "http://json-schema.org/draft-07/schema#", **schema} if older else schema


def _limit(key: str, kind: str) -> Callable[[ConvertedAssert], dict[str, Any] | None]:
    def convert(item: ConvertedAssert) -> dict[str, Any] | None:
        limit = item.take(key, "threshold", "budget", "value")
        item.threshold = None
        return item.none(f"{kind} without a threshold") if limit is None else {"type": kind, key: limit}

    return convert


def _criteria(prefix: str = "", limit: float | None = None) -> Callable[[ConvertedAssert], dict[str, Any] | None]:
    def convert(item: ConvertedAssert) -> dict[str, Any] | None:
        value, prompt = item.value(), item.take("prompt", "rubricPrompt", "rubric_prompt")
        criteria = item.take("criteria", "rubrics")
        if isinstance(prompt, dict | list) or (isinstance(prompt, str) and _PROGRAM.search(prompt)):
            return item.none(f"{item.data['type']} with a program as its prompt", "write the prompt out")
        if isinstance(prompt, str) and prompt.startswith(("file://", "./", "../")):
            prompt = item.findings.relocated(item.entry, prompt)
        value = value if value is not None else criteria
        if isinstance(value, list) and value:
            marks = {"score_ranges", "min_score", "required_min_score"}
            scored = any(isinstance(one, dict) and marks & set(one) for one in value)
            made: dict[str, Any] = {"type": "rubrics", "criteria": [_criterion(item, one, scored) for one in value]}
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


def _criterion(item: ConvertedAssert, value: Any, scored: bool) -> Any:
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


def _as_it_is(item: ConvertedAssert) -> dict[str, Any]:
    item.threshold = None
    return {"type": item.kind} | {key: item.take(key) for key in list(item.data) if key not in COMMON}


def _program(item: ConvertedAssert) -> dict[str, Any] | None:
    script, cwd = item.take("command", "script"), item.take("cwd")
    if script is None:
        return item.none(f"{item.data['type']} without a command")
    made: dict[str, Any] = {"type": "code_judge", "script": script}
    made["cwd"] = item.findings.relocated(item.entry, cwd if isinstance(cwd, str) else ".")
    config, target = item.take("config"), item.take("target")
    if isinstance(target, bool | dict):
        made["target"] = target
    # What else stands there is the program's, as it is here.
    own = {key: item.take(key) for key in list(item.data) if key not in (*COMMON, "transform")}
    return made | own | (config if isinstance(config, dict) else {})


# Programs around an assert's own code. They print its score; where each assert must pass, whether it does.
_PYTHON = """\
import json, sys, textwrap
given = json.load(sys.stdin)
config = given["config"]
code, least = config["code"].strip(), config["threshold"]
body = code if "\\n" in code or code.startswith("return ") else "return " + code
scope = {"json": json}
exec("def check(output, context):\\n" + textwrap.indent(body, "    "), scope)
found = scope["check"](given["answer"], {"vars": config["vars"], "config": config["config"], "prompt": given["question"]})
said = found if isinstance(found, dict) else {"score": found}
passed = said.get("pass", said.get("pass_")) if said is found else True
score = said.get("score", passed)
if not isinstance(score, (bool, int, float)) or not isinstance(passed, bool):
    sys.exit(f"the code gives {found!r}, which is no score and no verdict")
passed = passed and (bool(score) if isinstance(found, bool) else score > 0 if least is None else score >= least)
print(json.dumps({"score": float(passed if config["gate"] else score), "reasoning": str(said.get("reason", ""))}))
"""
_JAVASCRIPT = """\
const given = JSON.parse(require("fs").readFileSync(0, "utf8"));
const { code, threshold, vars, config, gate } = given.config;
const body = code.includes("\\n") || code.startsWith("return ") ? code : "return " + code;
const check = new (async () => {}).constructor("output", "context", body);
check(given.answer, { vars, config, prompt: given.question }).then((found) => {
  const said = found !== null && typeof found === "object" ? found : { score: found };
  let passed = said === found ? said.pass : true;
  const score = said.score ?? passed;
  if (!["boolean", "number"].includes(typeof score) || typeof passed !== "boolean" || said.score === null)
    throw new Error(`the code gives ${JSON.stringify(found)}, which is no score and no verdict`);
  passed = passed && (typeof found === "boolean" ? found : threshold === null ? score > 0 : score >= threshold);
  console.log(JSON.stringify({ score: Number(gate ? passed : score), reasoning: String(said.reason ?? "") }));
});
"""
_INTERPRETERS = {"python": ["python3", "-c", _PYTHON], "javascript": ["node", "-e", _JAVASCRIPT]}


def _code(item: ConvertedAssert) -> dict[str, Any] | None:
    """An assert that is code becomes a program of the suite's: it runs where code is allowed."""
    code = item.value()
    if not isinstance(code, str) or not code.strip():
        return item.none(remedy="write a code_judge")
    least, item.threshold = item.threshold, None
    variables = dict(item.variables) if "vars" in code else {}
    config = {
        "code": code.strip(),
        "threshold": least,
        "gate": item.gates,
        "vars": variables,
        "config": item.take("config"),
    }
    return {"type": "code_judge", "script": _INTERPRETERS[item.kind], "config": config}


def _used(item: ConvertedAssert) -> dict[str, Any] | None:
    tools = listed(item.value())
    minimums = {}
    for tool in tools:
        name, least = (tool.get("name"), tool.get("min", 1)) if isinstance(tool, dict) else (tool, 1)
        if not isinstance(name, str) or (isinstance(tool, dict) and set(tool) - {"name", "min"}):
            return item.none(f"{item.data['type']} with patterns or maxima")
        minimums[name] = least
    made = {"type": "tool_trajectory", "mode": "any_order", "minimums": minimums}
    return _all_of(item, made, len(minimums)) if minimums else item.none()


def _sequence(item: ConvertedAssert) -> dict[str, Any] | None:
    value = item.value()
    given = value if isinstance(value, dict) else {"steps": value}
    steps, mode = given.get("steps"), given.get("mode", "in_order")
    named = [step.get("name") if isinstance(step, dict) else step for step in listed(steps)]
    if not named or not all(isinstance(name, str) for name in named) or mode not in ("in_order", "exact"):
        return item.none(f"{item.data['type']} with patterns")
    made = {"type": "tool_trajectory", "mode": mode, "expected": [{"tool": name} for name in named]}
    return _all_of(item, made, len(named))


def _all_of(item: ConvertedAssert, made: dict[str, Any], count: int) -> dict[str, Any]:
    """Several calls must all be there; where the score counts they are a share here."""
    if count > 1 and item.gates and not item.entry.data["type"].startswith("not-"):
        return made | {"_passes_from": 1.0}
    if count > 1:
        item.findings.differs(
            item.entry, f"{item.data['type']} gives a share of its calls here, there all or nothing", "type"
        )
    return made


def _arguments(item: ConvertedAssert) -> dict[str, Any] | None:
    value = item.value()
    given = value if isinstance(value, dict) else {}
    name, arguments, mode = given.get("name"), given.get("args", given.get("arguments")), given.get("mode", "partial")
    if (
        not isinstance(name, str)
        or not isinstance(arguments, dict)
        or set(given) - {"name", "args", "arguments", "mode"}
    ):
        return item.none(f"{item.data['type']} with patterns, defaults or arguments to ignore")
    if mode == "partial" and any(isinstance(argument, dict | list) for argument in arguments.values()):
        said = f"{item.data['type']} compares data within arguments whole here, there key by key"
        item.findings.differs(item.entry, said, "value")
    call = {"tool": name, "args": arguments} | ({"args_match": "exact"} if mode == "exact" else {})
    return {"type": "tool_trajectory", "mode": "in_order", "expected": [call]}


def _steps(item: ConvertedAssert) -> dict[str, Any] | None:
    value = item.value()
    if not isinstance(value, dict) or set(value) != {"type", "max"} or value["type"] != "tool":
        return item.none(f"{item.data['type']} but for the most tools")
    return {"type": "execution_metrics", "max_tool_calls": value["max"]}


# From here on a mean score is no failure, and from there on a pass.
NO_FAILURE, PASSES = 0.6, 0.8


def read_asserts(
    findings: Findings, entries: Sequence[ConfigEntry], variables: Mapping[str, Any], *, gates: bool
) -> list[dict[str, Any]]:
    """Return the asserts that these have a counterpart in.

    ``variables``: fill the templates in them. ``gates``: each must pass for the test to pass, as promptfoo has it where no
    threshold is given.
    """
    found: list[dict[str, Any]] = []
    if findings.origin == PYDANTIC_EVALS:
        entries = [made for entry in entries if (made := as_assert(findings, entry, variables)) is not None]
    criteria = [entry for entry in entries if isinstance(entry.data, str) and entry.data.strip()]
    texts = [text for entry in criteria if (text := filled(findings, entry, entry.data, variables)) is not None]
    if texts:
        found.append({"type": "rubrics", "criteria": texts, "weight": len(texts)})
    for entry in entries:
        if isinstance(entry.data, str):
            continue
        entry = _referenced(findings, entry)
        if not isinstance(entry.data, dict) or not isinstance(entry.data.get("type"), str):
            findings.none(entry, "an assert without type")
            continue
        made = _converted(findings, entry, variables, gates)
        if made is not None and (checked := _checked(findings, entry, made)):
            found.append(checked)
    if findings.promptfoo and found and all(made.get("weight") == 0 for made in found):
        findings.differs(entries[0], "asserts that all have weight 0 pass always; here nothing is left to score by")
    taken: set[str] = set()
    for made in found:
        if made.get("name"):
            made["name"] = apart(made["name"], taken)
    return found


def _referenced(findings: Findings, entry: ConfigEntry) -> ConfigEntry:
    """Follow ``$ref: '#/assertionTemplates/name'``."""
    reference = entry.data.get("$ref") if isinstance(entry.data, dict) else None
    document = getattr(entry.source, "data", None)
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return entry
    keys = reference[2:].split("/")
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    if document is None:
        return entry
    own = {key: value for key, value in entry.data.items() if key != "$ref"}
    return ConfigEntry({**document, **own} if isinstance(document, dict) else document, entry.source, tuple(keys))


def _converted(
    findings: Findings, entry: ConfigEntry, variables: Mapping[str, Any], gates: bool
) -> dict[str, Any] | None:
    spelled = entry.data["type"]
    negated = spelled.startswith("not-")
    kind = spelled.removeprefix("not-").replace("-", "_")
    convert = _CONVERTERS.get(kind)
    if convert is None:
        findings.none(entry, f"assert {spelled}", "type", remedy=REMEDIES.get(kind, ""))
        return None
    # Templates in data are promptfoo's text.
    inner = {
        key: value
        for key, value in entry.data.items()
        if key in _GROUPS or (findings.promptfoo and key == "value" and isinstance(value, dict))
    }
    data = filled(findings, entry, {k: v for k, v in entry.data.items() if k not in inner}, variables)
    if data is None:
        return None
    if findings.promptfoo and any(
        isinstance(variables.get(name), dict | list) for name in alone_in(entry.data.get("value"))
    ):
        findings.differs(entry, "data in an assert's template is [object Object] there; here it is JSON", "value")
    item = ConvertedAssert(findings, entry, kind, {**data, **inner}, variables, gates=gates)
    limit = data.get("threshold", data.get("min_score"))
    item.threshold = float(limit) if isinstance(limit, int | float) and not isinstance(limit, bool) else None
    made = convert(item)
    if made is None:
        return None
    for key in sorted(set(item.data) - set(COMMON)):
        if item.data[key] is not None:
            findings.none(entry, f"{key} of assert {spelled}", key)
    return _with_common(item, made, gates, negated=negated != (data.get("negate") is True))


def _with_common(item: ConvertedAssert, made: dict[str, Any], gates: bool, *, negated: bool) -> dict[str, Any]:
    name = item.data.get("metric") or item.data.get("name")
    head: dict[str, Any] = {"type": made.pop("type")}
    if isinstance(name, str):
        head["name"] = name
    weight, required = item.data.get("weight"), item.data.get("required")
    if weight is not None:
        made["weight"] = weight
    if negated:
        made["negate"] = True
    limit = made.pop("_passes_from", None) or (item.threshold if required is True else None)
    always = item.findings.promptfoo and item.threshold == 0 and item.kind in _PASS_FROM_THRESHOLD
    # A weight of 0 frees an assert from its verdict, but not a set.
    gate = required or (gates and not always and (weight != 0 or item.kind == "assert_set"))
    if always:
        said = f"{item.entry.data['type']} with a threshold of 0 passes always; here its score still counts"
        item.findings.differs(item.entry, said, "threshold")
    if gate:
        made["required"] = required if limit is None or isinstance(required, float) else limit
        made["required"] = made["required"] or True
    if limit and gate and limit < PASSES:
        said = f"passes from {limit:g} on, and counts with its score: below {PASSES} it can keep a test from passing"
        item.findings.differs(item.entry, f"{item.entry.data['type']} {said}", "threshold")
    elif limit and not gate and not item.findings.promptfoo:
        item.findings.none(item.entry, f"threshold of {item.entry.data['type']} that is not required", "threshold")
    return head | made


def _checked(findings: Findings, entry: ConfigEntry, made: dict[str, Any]) -> dict[str, Any] | None:
    """Return an assert as it is if a suite may hold it; what is wrong with it is a finding at its origin."""
    reader = Reader(findings.reader.files, findings.out, registry)
    read = read_assert(reader, ConfigEntry(made, entry.source, entry.location), "assert", 0)
    if read is None:
        findings.reader.warnings += reader.problems
        return None
    return made


def _group(item: ConvertedAssert) -> dict[str, Any] | None:
    key = next((name for name in _GROUPS if name in item.data), "assert")
    members = item.take(key)
    aggregator = item.take("aggregator")
    if not isinstance(members, list):
        return item.none(f"{item.data['type']} without asserts")
    strict = item.gates and item.threshold is None
    entries = [item.entry.child(key, index) for index in range(len(members))]
    for place in entries:
        _say_of_member(item, place)
    found = read_asserts(item.findings, entries, item.variables, gates=strict)
    if not found:
        return item.none(f"{item.data['type']} of which nothing is left")
    made = {"type": "composite", "assert": found, "aggregator": aggregator or {"type": "weighted_average"}}
    return made | ({"_passes_from": item.threshold} if item.threshold else {})


def _say_of_member(item: ConvertedAssert, place: ConfigEntry) -> None:
    """Name what decides in a group here and not there."""
    member = place.data if isinstance(place.data, dict) else {}
    if item.findings.promptfoo and member.get("type") == "assert-set":
        item.findings.differs(place, "an assert-set in an assert-set is an error there; here it counts")
    if item.kind == "composite" and not item.findings.promptfoo:
        for key in (
            key
            for key, usual in (("negate", False), ("weight", 1), ("required", False))
            if member.get(key, usual) != usual
        ):
            item.findings.differs(place, f"{key} of a composite's member counts here; AgentV leaves it aside", key)


def over_threshold(
    findings: Findings, entry: ConfigEntry, asserts: list[dict[str, Any]], threshold: float
) -> list[dict[str, Any]]:
    """Return asserts of which the mean must reach a threshold: one group that is a gate."""
    if threshold < NO_FAILURE:
        said = f"threshold {threshold:g}: a test fails below {NO_FAILURE}, which is the least a suite can ask"
        findings.differs(entry, said, "threshold")
    if threshold <= 0 or not asserts:
        return asserts
    group = {"type": "composite", "name": "all", "assert": asserts, "aggregator": {"type": "weighted_average"}}
    return [group | {"required": min(1.0, threshold)}]


_CONVERTERS: dict[str, Callable[[ConvertedAssert], dict[str, Any] | None]] = {
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
    **dict.fromkeys(_INTERPRETERS, _code),
    **dict.fromkeys(_AS_THEY_ARE, _as_it_is),
    "trajectory:tool_used": _used,
    "trajectory:tool_sequence": _sequence,
    "trajectory:tool_args_match": _arguments,
    "trajectory:step_count": _steps,
    **dict.fromkeys(("assert_set", "composite"), _group),
}
# Types another tool has, whether they have a counterpart or not: what a table's cell may begin with.
KNOWN = {*_CONVERTERS, *REMEDIES, "is_html", "contains_html", "is_xml", "contains_xml", "is_sql"}
