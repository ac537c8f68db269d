"""What an import decides beside the tool it came from: pairs of assert and answer and whole tests, verdict by verdict.

    python -m benchmarks.peers suites [--pairs 8000] [--structures 1500] [--seed 1] [--only promptfoo] [--show 10]

A seeded generator of our own writes each peer's tests; the peer grades the answers in its own process, `suite import` takes the
tests over and our suite grades the same answers. A difference is *named* where the import says something at that test, else it is a
defect and shown.
"""

import json
import random
import subprocess
import tempfile
import time
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from benchmarks.peers.installing import Installed
from persona_pipeline.suites import RunOptions, load_suite, read_responses, run_suite
from persona_pipeline.suites.importing.config import import_file, write_import

PROMPTFOO = """\
import promptfoo from "promptfoo";
import { readFileSync, writeFileSync } from "node:fs";
const [given, made] = process.argv.slice(2);
const found = [], began = process.cpuUsage();
for (const line of readFileSync(given, "utf8").split("\\n").filter(Boolean)) {
  const { test, answer } = JSON.parse(line);
  try {
    const { pass, score } = await promptfoo.assertions.runAssertions({
      test, vars: test.vars ?? {}, prompt: "p", latencyMs: answer.duration_ms,
      providerResponse: { output: answer.text, cost: answer.cost_usd },
    });
    found.push({ verdict: pass ? "pass" : "fail", score });
  } catch (error) {
    found.push({ verdict: "error", said: String(error.message).slice(0, 200) });
  }
}
const { user, system } = process.cpuUsage(began);
writeFileSync(made, JSON.stringify({ found, seconds: (user + system) / 1e6 }));
process.exit(0);
"""
AGENTV = """\
import { evaluate } from "@agentv/core";
import { readFileSync, writeFileSync } from "node:fs";
const [given, made] = process.argv.slice(2);
const answers = readFileSync(given, "utf8").split("\\n").filter(Boolean).map((line) => JSON.parse(line).answer.text);
const began = process.cpuUsage();
const { results } = await evaluate({
  specFile: given.replace(/jsonl$/, "eval.yaml"), workers: 8, maxRetries: 0,
  task: (input) => answers[Number(input.match(/row (\\d+)/)[1])],
});
const found = answers.map(() => ({ verdict: "out" }));
for (const { testId, score, scores, executionStatus, error } of results)
  found[Number(testId.slice(5)) - 1] = {
    verdict: executionStatus === "execution_error" ? "error" : score >= 0.8 - 1e-12 ? "pass" : "fail", score, said: error,
  };
const { user, system } = process.cpuUsage(began);
writeFileSync(made, JSON.stringify({ found, seconds: (user + system) / 1e6 }));
process.exit(0);
"""
PYDANTIC = """\
import json, sys, time
from pydantic_evals import Dataset
rows = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
dataset = Dataset.from_file(sys.argv[1].replace("jsonl", "dataset.yaml"))
began = time.process_time()
report = dataset.evaluate_sync(lambda inputs: rows[int(inputs.split()[1])]["answer"]["text"], progress=False)
found = [{"verdict": "out"} for _ in rows]
for case in report.cases:
    passed = all(result.value for result in case.assertions.values()) and not case.evaluator_failures
    found[int(case.name.split()[1])] = {"verdict": "pass" if passed else "fail"}
json.dump({"found": found, "seconds": time.process_time() - began}, open(sys.argv[2], "w"))
"""
DEEPEVAL = """\
import json, sys, time
from deepeval.metrics import ExactMatchMetric
from deepeval.test_case import LLMTestCase
rows, found, began = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")], [], time.process_time()
for row in rows:
    metric = ExactMatchMetric()
    case = LLMTestCase(input="p", actual_output=row["answer"]["text"], expected_output=row["test"]["assert"][0]["value"])
    try:
        metric.measure(case)
        found.append({"verdict": "pass" if metric.success else "fail", "score": metric.score})
    except Exception as error:
        found.append({"verdict": "error", "said": str(error)[:200]})
json.dump({"found": found, "seconds": time.process_time() - began}, open(sys.argv[2], "w"))
"""
SCRIPTS = {"promptfoo": PROMPTFOO, "agentv": AGENTV, "pydantic-evals": PYDANTIC, "deepeval": DEEPEVAL}
PEERS = tuple(SCRIPTS)


@dataclass
class Row:
    """One test of a peer's and the answer it grades."""

    test: dict[str, Any]
    answer: dict[str, Any]


@dataclass
class Counts:
    """How verdicts compare: by what was decided on both sides, and what nobody named; processor seconds of grading alone."""

    total: int = 0
    their_seconds: float = 0.0
    our_seconds: float = 0.0
    alike: int = 0
    named: Counter[str] = field(default_factory=Counter)
    unnamed: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        why = "; ".join(f"{count} {said}" for said, count in self.named.most_common(12))
        return (
            f"{self.total:,} compared: {self.alike:,} alike, {sum(self.named.values()):,} named, "
            f"{len(self.unnamed):,} differ unnamed{f' ({why})' if why else ''}"
        )


WORDS = [
    "order", "Thursday", "Paris", "\u212a", "PARI\u017f", "straße", "STRASSE", "Größe", "ΣΑΣ", "σας", "ﬁne", "fine",
    "İstanbul", "ſign", "sign", "K", "k",
    "naïve", "42", "3.5", "true", "null", "a, b", 'say "hi"', "it's", "x*y", "(a)", "[b]", "c:\\d", "100%", "😀", "👩‍🚀",
    "東京", " ",
    "\u00a0", "\ufeff", "\u0085", "line\nbreak", "tab\t", "{x}", "{{ name }}", "{{name}}!", "$5.00", "é", "e\u0301", "-0",
    "1e3",
]  # fmt: skip
VARIABLES = {"name": "Pam", "count": 3, "share": 1.0, "small": 1e-7, "on": True, "order": {"items": "two", "id": 7}}
TEMPLATES = [
    "{{ name }}", "{{ count }}", "{{ share }}", "{{ small }}", "{{ on }}", "{{ order.items }}", "{{ order.id }}", "{{ order }}",
    "x{{ order }}", "{{ name | upper }}", "x{{ name }}y", "{% if on %}yes{% endif %}",
]  # fmt: skip
FILLED = ["Pam", "3", "1", "1e-7", "true", "two", "7", '{"items":"two","id":7}', "x{}", "PAM", "xPamy", "yes"]
PATTERNS = [
    r"^\d+$", r"\bThursday\b", r"^.$", r"^.{2}$", r"^[^a]$", r"^\W+$", r"(?i:paris)", r"(?s:line.break)", r"line.break",
    r"a\sb",
    r"^[\u0080-\uffff]", r"^\s", r"\S$", r"[😀]", "😀+", r"^(?:order|Paris)", r"(?<first>o)rder", r"[^]", r"[]", r"^$",
    r"\w+, \w+", r"\u00e9",
    r"\ud83d", r"\p{L}", r"\u{1F600}", r"(?=x)x", r"(a)\1", r"(", r"[[]", r"\$\d+\.\d\d", r"x{2,3}", r"$", r"^\S*$",
    r"straße|strasse",
    r"^[\s\S]{1,5}$", r"\x41", r"\cJ", r"\-", r"\/", r"(?i:straSSE)", r"(?i:k)", r"(?-s:.)",
]  # fmt: skip
DATA = [
    "{}", "[]", "1", '"x"', "null", '{"a": 1}', '{"a": 1.0}', '{"a": "x@y.de"}', '{"a": "x@"}', '{"a": "2024-02-30"}',
    '{"a": null}',
    '{"a": 1,}', "{a: 1}", "{'a': 1}", '```json\n{"a": 1}\n```', 'so: {"a": 1} and [2]', "[1, 2]",
    '{"a": 1', "NaN", "-0", "1e999",
    '{"a": "2024-02-03"}', '{"a": "12:00:00Z"}', '{"a": true, "b": [1, 2, 2]}', '{"a": {"b": "c"}}', '{"b": 2}',
    '{"a": "x y"}', "{x}",
    '{"a": 1, "a": 2}', ' {"a": 1} ', '{"a": "1.2.3.4"}', '{"a": "😀"}', "01", "[1,]", '{"a": 5} {"a": "x"}',
    "prose with {braces}",
]  # fmt: skip
SCHEMAS: list[Any] = [
    {"type": "object"}, {"required": ["a"]}, {"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"type": "array"},
    *({"properties": {"a": {"type": "string", "format": name}}, "required": ["a"]} for name in ("email", "date", "ipv4",
    "time", "uri")),
    {"properties": {"a": {"enum": [1, "x", None]}}}, {"properties": {"a": {"type": "string", "nullable": True}}},
    {"additionalProperties": False, "properties": {"a": {}}}, {"properties": {"a": {"type": "string", "pattern": "^.$"}}},
    {"properties": {"a": {"type": "string", "maxLength": 1}}}, {"dependencies": {"a": ["b"]}},
    {"properties": {"b": {"uniqueItems": True}}},
    {"not": {"required": ["b"]}}, {"anyOf": [{"type": "string"}, {"required": ["a"]}]}, {"items": [{"type": "number"}]},
    {"properties": {"a": {"multipleOf": 0.1}}}, {"const": {"a": 1}},
    {"definitions": {"t": {"type": "object"}}, "$ref": "#/definitions/t"},
    '{"type": "object"}', "type: object\nrequired: [a]", {"minProperties": 1},
    {"oneOf": [{"type": "object"}, {"required": ["a"]}]},
]  # fmt: skip


class Generator:
    """Asserts, answers and structures of one peer, the same for one seed."""

    def __init__(self, peer: str, seed: int) -> None:
        self.peer = peer
        self.random = random.Random(f"{peer} {seed}")

    def text(self) -> str:
        words = self.random.choices(WORDS, k=self.random.choice((1, 1, 1, 2, 3)))
        return self.random.choice((" ", "", ", ")).join(words)

    def near(self, text: str) -> str:
        """Return an answer that may or may not hold the text."""
        return self.random.choice(self._near)(self, text)

    _near: tuple[Callable[["Generator", str], str], ...] = (
        lambda self, text: text,
        lambda self, text: text,
        lambda self, text: f"The answer is {text}.",
        lambda self, text: self.random.choice((" ", "\n", "\t", "\u00a0", "\ufeff", "\u0085")) + text,
        lambda self, text: text + self.random.choice((" ", "\n", "\r\n", "\u2028")),
        lambda self, text: text.upper(),
        lambda self, text: text.lower(),
        lambda self, text: text.swapcase(),
        lambda self, text: f"{text} and more",
        lambda self, text: f"At first {text}",
        lambda self, text: text[:-1],
        lambda self, text: self.text(),
        lambda self, text: "",
    )

    def pair(self) -> tuple[dict[str, Any], str]:
        kinds = ["contains", "icontains", "starts-with", "equals", "several", "several", "regex", "is-json"]
        if self.peer == "promptfoo":
            kinds += ["contains-json", "json-schema", "json-schema", "template", "number", "data", "limit"]
        else:
            kinds += ["ends-with", "flags"]
        kind = self.random.choice(kinds)
        item, answer = getattr(self, f"_{kind.replace('-', '_')}", lambda: self._plain(kind))()
        if self.random.random() < 0.2:
            item |= {"negate": True} if self.peer == "agentv" else {"type": f"not-{item['type']}"}
        return item, answer

    def _plain(self, kind: str) -> tuple[dict[str, Any], str]:
        value = self.text()
        return {"type": kind, "value": value}, self.near(value)

    def _several(self) -> tuple[dict[str, Any], str]:
        values = [self.text() for _ in range(self.random.choice((1, 2, 3)))]
        given: Any = values
        if self.peer == "promptfoo" and self.random.random() < 0.5:
            quoted = (f'"{v.replace(chr(34), self.random.choice((chr(34) * 2, chr(92) + chr(34))))}"' for v in values)
            given = self.random.choice((", ", ",", " ,")).join(
                self.random.choice((text, plain)) for text, plain in zip(quoted, values, strict=True)
            )
        kind = self.random.choice(("contains-any", "contains-all", "icontains-any", "icontains-all"))
        joined = " ".join(self.random.sample(values, self.random.randint(1, len(values))))
        return {"type": kind, "value": given}, self.near(joined)

    def _regex(self) -> tuple[dict[str, Any], str]:
        item: dict[str, Any] = {"type": "regex", "value": self.random.choice(PATTERNS)}
        return item, self.near(self.text())

    def _flags(self) -> tuple[dict[str, Any], str]:
        item, answer = self._regex()
        return item | {"flags": self.random.choice(("i", "m", "im", "s", "u", "g"))}, answer

    def _is_json(self) -> tuple[dict[str, Any], str]:
        return {"type": "is-json"}, self.random.choice(DATA)

    def _contains_json(self) -> tuple[dict[str, Any], str]:
        answer = self.random.choice((self.random.choice(DATA), f"Here: {self.random.choice(DATA)} done"))
        return {"type": "contains-json"}, answer

    def _json_schema(self) -> tuple[dict[str, Any], str]:
        kind = self.random.choice(("is-json", "is-json", "contains-json"))
        return {"type": kind, "value": self.random.choice(SCHEMAS)}, self.random.choice(DATA)

    def _template(self) -> tuple[dict[str, Any], str]:
        number = self.random.randrange(len(TEMPLATES))
        kind = self.random.choice(("contains", "equals", "starts-with", "icontains"))
        return {"type": kind, "value": TEMPLATES[number]}, self.near(FILLED[number])

    def _number(self) -> tuple[dict[str, Any], str]:
        value = self.random.choice((0, 7, 1.5, -3, 1e21, 1e-7, 2.0, 10**15))
        shown = {1e21: "1e+21", 1e-7: "1e-7", 2.0: "2"}.get(value, str(value))
        kind = self.random.choice(("contains", "equals", "icontains", "contains-any"))
        return {"type": kind, "value": [value] if kind == "contains-any" else value}, self.near(shown)

    def _data(self) -> tuple[dict[str, Any], str]:
        value = self.random.choice(({"a": 1}, [1, 2], {}, {"a": {"b": "c"}}, {"a": None}))
        return {"type": "equals", "value": value}, self.random.choice((json.dumps(value), *DATA))

    def _limit(self) -> tuple[dict[str, Any], str]:
        kind = self.random.choice(("latency", "cost"))
        limits = (0, 100, 250, 1000) if kind == "latency" else (0, 0.001, 0.002, 0.5)
        return {"type": kind, "threshold": self.random.choice(limits)}, self.text()

    def answer(self, text: str) -> dict[str, Any]:
        cost = self.random.choice((0, 0.001, 0.002, 0.1))
        return {"text": text, "duration_ms": self.random.choice((0, 100, 250, 900)), "cost_usd": cost}

    def pairs(self, count: int) -> Iterator[Row]:
        for _ in range(count):
            item, answer = self.pair()
            yield Row({"vars": VARIABLES, "assert": [item]}, self.answer(answer))

    def _leaf(self) -> dict[str, Any]:
        """Return an assert on an answer that holds a and b and no z."""
        item: dict[str, Any] = {
            "type": self.random.choice(("contains", "icontains")), "value": self.random.choice(("a", "b", "z", "z")),
        }  # fmt: skip
        if self.random.random() < 0.25:
            item |= {"negate": True} if self.peer == "agentv" else {"type": f"not-{item['type']}"}
        if self.random.random() < 0.4:
            item["weight"] = self.random.choice((0, 0, 0.5, 1, 2, 3, 0.1, 0.3, 10))
        if self.peer == "agentv":
            # AgentV leaves out what has no name in a group.
            item["name"] = f"leaf-{self.random.randrange(10**6)}"
        elif self.random.random() < 0.15:
            item["metric"] = self.random.choice(("m", "n"))
        if self.peer == "agentv" and self.random.random() < 0.2:
            item["required"] = self.random.choice((True, 0.5, 1))
        return item

    def _group(self, depth: int) -> dict[str, Any]:
        members = [self._member(depth + 1) for _ in range(self.random.randint(1, 3))]
        if self.peer == "agentv":
            item = {"type": "composite", "name": f"group-{self.random.randrange(10**6)}", "assert": members}
            kind = self.random.choice(("weighted_average", "threshold"))
            item["aggregator"] = {"type": kind} | (
                {"threshold": self.random.choice((0, 0.5, 1))} if kind == "threshold" else {}
            )
        else:
            item = {"type": "assert-set", "assert": members}
            if self.random.random() < 0.5:
                item["threshold"] = self.random.choice((0, 0.25, 0.3, 0.5, 0.75, 0.8, 1))
        if self.random.random() < 0.4:
            item["weight"] = self.random.choice((0, 0.5, 2, 3))
        return item

    def _member(self, depth: int) -> dict[str, Any]:
        deep = 0.3 if depth == 0 else 0.1 if depth == 1 else 0
        return self._group(depth) if self.random.random() < deep else self._leaf()

    def structures(self, count: int) -> Iterator[Row]:
        for _ in range(count):
            test: dict[str, Any] = {"assert": [self._member(0) for _ in range(self.random.randint(1, 4))]}
            if self.peer == "promptfoo" and self.random.random() < 0.35:
                test["threshold"] = self.random.choice((0, 0.2, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 1))
            yield Row(test, self.answer("a b"))


def cases(seed: int, count: int) -> Iterator[Row]:
    """Yield cases of pydantic-evals with one evaluator each, and answers that may or may not meet it."""
    chosen, generator = random.Random(f"pydantic {seed}"), Generator("pydantic-evals", seed)
    for number in range(count):
        value = chosen.choice(WORDS)
        options: list[tuple[Any, Any]] = [
            ({"Equals": {"value": value}}, None), ("EqualsExpected", value), ({"Contains": {"value": value}}, None),
            ({"Contains": value}, None), ({"Contains": {"value": value, "case_sensitive": False}}, None),
            ({"IsInstance": {"type_name": chosen.choice(("str", "dict"))}}, None), ({"MaxDuration": {"seconds": 60.0}}, None),
            ("EqualsExpected", None), ({"Equals": value}, None),
        ]  # fmt: skip
        evaluator, wanted = chosen.choice(options)
        case = {"name": f"row {number}", "inputs": f"row {number}", "evaluators": [evaluator]}
        answer = generator.answer(generator.near(value))
        yield Row(case | ({} if wanted is None else {"expected_output": wanted}), answer)


def exact_matches(seed: int, count: int) -> Iterator[Row]:
    """Yield tests whose answer must equal a text, written as promptfoo has them, which deepeval's metric grades too."""
    chosen, generator = random.Random(f"deepeval {seed}"), Generator("deepeval", seed)
    for _ in range(count):
        value = chosen.choice([word for word in WORDS if "{" not in word])
        yield Row({"assert": [{"type": "equals", "value": value}]}, generator.answer(generator.near(value)))


def write_rows(folder: Path, peer: str, rows: list[Row]) -> Path:
    """Write the rows and the file of tests a peer would have of them; return that file."""
    lines = [json.dumps({"test": row.test, "answer": row.answer}) for row in rows]
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    if peer == "pydantic-evals":
        path = folder / "rows.dataset.yaml"
        shown = (
            yaml.safe_dump(row.test, default_flow_style=True, default_style='"', width=10**9).strip() for row in rows
        )
        path.write_text("cases:\n" + "".join(f"- {case}\n" for case in shown), encoding="utf-8")
        return path
    tests = [
        row.test if peer != "agentv" else {
            "id": f"test-{number + 1}", "criteria": "Right", "input": f"row {number}", "assertions": row.test["assert"],
        }
        for number, row in enumerate(rows)
    ]  # fmt: skip
    (folder / "tests.jsonl").write_text("".join(json.dumps(test) + "\n" for test in tests), encoding="utf-8")
    path = folder / ("rows.eval.yaml" if peer == "agentv" else "promptfooconfig.yaml")
    head = (
        {"prompts": ["p"], "tests": "file://tests.jsonl"}
        if peer != "agentv"
        else {"description": "rows", "tests": "./tests.jsonl"}
    )
    path.write_text(json.dumps(head), encoding="utf-8")
    return path


def ours(
    folder: Path, path: Path, rows: list[Row], peer: str
) -> tuple[list[tuple[str, float | None]], dict[int, list[str]], float]:
    """Return what our suite decides of each row, what the import says of each, and processor seconds of grading."""
    out = folder / "imported"
    imported = import_file(path, out, "promptfoo" if peer == "deepeval" else peer)
    write_import(imported, path, out)
    said: dict[int, list[str]] = {}
    cases = (
        number
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1)
        if line.startswith("- ")
    )
    starts = list(cases) if peer == "pydantic-evals" else range(1, len(rows) + 1)
    for finding in imported.findings:
        said.setdefault(bisect_right(starts, finding.line or 0), []).append(finding.message)
    suite = load_suite(next(out.glob("*.eval.yaml")))
    names = [row.test.get("name", f"test-{number}") for number, row in enumerate(rows, start=1)]
    there = {test["id"] for test in imported.suite["tests"]}
    answers = {name: row.answer for name, row in zip(names, rows, strict=True) if name in there}
    began = time.process_time()
    result = run_suite(suite, responses=read_responses(answers), options=RunOptions(allow_code=True))
    seconds = time.process_time() - began
    decided = {test.id: (test.verdict.value, test.score) for test in result.tests}
    # AgentV knows no borderline: what is no pass has failed.
    shown = {"borderline": "fail" if peer == "agentv" else "pass"}
    found = [decided.get(name, ("out", None)) for name in names]
    return [(shown.get(verdict, verdict), score) for verdict, score in found], said, seconds


def compare(peer: str, program: Path, rows: list[Row], show: int, home: Path) -> Counts:
    """Have a peer and ourselves grade the rows, and count."""
    with tempfile.TemporaryDirectory(dir=home) as name:
        folder = Path(name)
        path = write_rows(folder, peer, rows)
        script = folder / ("grade.mjs" if peer in ("promptfoo", "agentv") else "grade.py")
        script.write_text(SCRIPTS[peer], encoding="utf-8")
        subprocess.run(
            [str(program), str(script), str(folder / "rows.jsonl"), str(folder / "found.json")],
            cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={"PATH": "/usr/bin:/bin", "HOME": name, "PROMPTFOO_DISABLE_TELEMETRY": "1", "DEEPEVAL_TELEMETRY_OPT_OUT": "YES"},
        )  # fmt: skip
        written = json.loads((folder / "found.json").read_text(encoding="utf-8"))
        theirs = written["found"]
        mine, said, seconds = ours(folder, path, rows, peer)
    counts = Counts(len(rows), their_seconds=written["seconds"], our_seconds=seconds)
    for number, (row, other, (verdict, score)) in enumerate(zip(rows, theirs, mine, strict=True), start=1):
        if other["verdict"] == verdict:
            counts.alike += 1
        elif number in said:
            counts.named[_why(said[number][0])] += 1
        elif peer == "deepeval" and not row.answer["text"].strip():
            counts.named["an empty answer is an error there"] += 1
        elif verdict == "error" and not row.answer["text"].strip():
            counts.named["an empty answer is not reported here"] += 1
        elif not unicodedata.is_normalized("NFC", row.answer["text"]):
            counts.named["composed letters are the same here"] += 1
        elif peer == "deepeval" and other["verdict"] == "pass":
            counts.named["blanks at the ends are nothing there"] += 1
        else:
            shown = f"{peer}: {other['verdict']} ({other.get('score', other.get('said'))}), here: {verdict} ({score})"
            counts.unnamed.append(f"{shown}\n    {json.dumps(row.test)}\n    {row.answer}")
    print(f"  {peer}: {counts}", flush=True)
    for text in counts.unnamed[:show]:
        print(f"  {text}")
    return counts


def _why(text: str) -> str:
    return text.partition(";")[0][:60]


def programs(installed: Mapping[str, Installed], only: Sequence[str] = PEERS) -> dict[str, Path]:
    """Return what runs the script of each peer that is there."""
    found = {name: installed[name].program for name in only}
    return {name: program for name, program in found.items() if program is not None}


def compare_all(
    installed: Mapping[str, Installed],
    pairs: int,
    structures: int,
    seed: int,
    *,
    only: Sequence[str] = PEERS,
    show: int = 0,
) -> dict[tuple[str, str], Counts]:
    """Compare with every peer that is there, ``pairs`` and ``structures`` of tests; counts by peer and kind."""
    found: dict[tuple[str, str], Counts] = {}
    with tempfile.TemporaryDirectory() as home:
        for peer, program in programs(installed, only).items():
            if peer in ("promptfoo", "agentv"):
                generator = Generator(peer, seed)
                sets = {"pairs": list(generator.pairs(pairs)), "structures": list(generator.structures(structures))}
            else:
                sets = {"pairs": list((cases if peer == "pydantic-evals" else exact_matches)(seed, structures))}
            for what, rows in sets.items():
                found[peer, what] = compare(peer, program, rows, show, _home(Path(home), peer, program))
    return found


def _home(folder: Path, peer: str, program: Path) -> Path:
    """Return a folder for a peer's scripts; those of Node look for what they import in the folders above them."""
    if peer in ("promptfoo", "agentv"):
        return program.parents[2] / peer
    folder = folder / peer
    folder.mkdir(exist_ok=True)
    return folder
