"""Questions to the judge, and criteria of rubrics. The wording is in ``rules.toml``; its hash is the prompt version."""

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from persona_pipeline.base.documents.json import list_schema, object_schema
from persona_pipeline.suites.answering.output import Output
from persona_pipeline.suites.format.models import StrictFields, Text, Weight, present
from persona_pipeline.suites.format.problems import ConfigEntry, Reader
from persona_pipeline.suites.format.text import stringify
from persona_pipeline.suites.grading.base import OLDER, Context, shown_messages
from persona_pipeline.suites.grading.results import Grade, SuiteVerdict, weighted_mean

if TYPE_CHECKING:
    from persona_pipeline.judging.verdict import Question


MOST_SENTENCES = 4
MAX_TOKENS = 2048
VARIABLES = (
    "answer", "expected_output", "question", "criteria", "reference_answer", "input", "output", "file_changes", "tool_calls",
)  # fmt: skip
_VARIABLE = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")

RULES: dict[str, str] = tomllib.loads((Path(__file__).parent / "data" / "rules.toml").read_text(encoding="utf-8"))
FREEFORM_RULES, CHECKLIST_RULES, ANALYTIC_RULES = (
    RULES["evidence"] + RULES[kind] for kind in ("freeform", "checklist", "analytic")
)

PAIRWISE_SCHEMA = object_schema(
    {"reasoning": {"type": "string"}, "better": {"type": "string", "enum": ["first", "second", "tie"]}}
)

_TEXTS = list_schema({"type": "string"})
FREEFORM_SCHEMA = object_schema(
    {"reasoning": {"type": "string"}, "hits": _TEXTS, "misses": _TEXTS, "score": {"type": "number"}}
)


def unknown_variables(prompt: str) -> list[str]:
    """Return the unknown variables of a prompt."""
    return sorted({name for name in _VARIABLE.findall(prompt) if name not in VARIABLES and name not in OLDER})


def fill_prompt(prompt: str) -> str:
    """Return the prompt with each variable replaced by a reference to a field of the evidence.

    The values stay in the evidence, so an answer cannot become part of the instructions.
    """
    return _VARIABLE.sub(_reference, prompt)


def _reference(match: re.Match[str]) -> str:
    name = OLDER.get(match[1], match[1])
    return f'[the field "{name}" of the evidence]' if name in VARIABLES else match[0]


def evidence(output: Output, context: Context, prompt: str | None = None) -> dict[str, Any]:
    """Return the evidence for the judge: the usual fields, and those that a prompt names."""
    test = context.test
    used = {OLDER.get(name, name) for name in _VARIABLE.findall(prompt or "")}
    # The request of a conversation is all its messages; the answer is the target's part.
    said = [*test.input_messages, *output.messages] if output.turns else test.input_messages
    fields = {
        "question": shown_messages(said),
        "criteria": test.expected_outcome or None,
        "reference_answer": test.reference_answer or None,
        "input": list(test.input_messages) if "input" in used else None,
        "expected_output": (list(test.expected_messages) or None) if "expected_output" in used else None,
        "output": output.messages if "output" in used else None,
        "file_changes": output.file_changes or None,
        "tool_calls": shown_calls(output) or None,
        "answer": output.text,
    }
    return present(fields)


def shown_calls(output: Output) -> list[dict[str, Any]]:
    """Return tool calls for a judge, without ids and times, which differ between runs."""
    return [{key: call[key] for key in ("tool", "input", "output") if key in call} for call in output.tool_calls]


def freeform_problem(data: Any) -> str | None:
    score = data.get("score") if isinstance(data, Mapping) else None
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
        return f"the score must be a number from 0 to 1, not {stringify(score)}"
    for key in ("hits", "misses"):
        value = data.get(key, [])
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            return f"{key} must be a list of texts"
    return None


def freeform_grade(data: Mapping[str, Any]) -> Grade:
    texts = {key: [text for text in data.get(key, ()) if text.strip()][:MOST_SENTENCES] for key in ("hits", "misses")}
    reasoning = data.get("reasoning")
    return Grade(
        float(data["score"]),
        texts["hits"],
        texts["misses"],
        reasoning if isinstance(reasoning, str) and reasoning else None,
    )


@dataclass(frozen=True)
class Reply:
    """The form of a judge's reply.

    Attributes:
        rules: what the judge is told.
        schema: JSON schema of the reply.
        problem: returns the problem of a reply, or None.
        grade: returns the grade of a reply without problems.
    """

    rules: str
    schema: Mapping[str, Any]
    problem: Callable[[Any], str | None]
    grade: Callable[[Mapping[str, Any]], Grade] = freeform_grade


FREEFORM = Reply(FREEFORM_RULES, FREEFORM_SCHEMA, freeform_problem)


def judge_question(
    kind: str, shown: Mapping[str, Any], reply: Reply, *, label: str, ask: str, subject: Mapping[str, Any]
) -> "Question":
    """Return a question about evidence.

    ``subject``: key of the recording, together with the evidence: the question, not its wording.
    """
    from persona_pipeline.base.documents.json import content_hash
    from persona_pipeline.judging.claims import plain_json
    from persona_pipeline.judging.verdict import Question

    return Question(
        kind=kind,
        subject={"kind": kind, **subject, "evidence": shown},
        label=label,
        system=reply.rules,
        evidence=plain_json(shown),
        ask=ask,
        schema=reply.schema,
        max_tokens=MAX_TOKENS,
        prompt_version=content_hash([reply.rules, reply.schema])[:8],
        check=reply.problem,
    )


def ask_judge(
    kind: str, shown: Mapping[str, Any], reply: Reply, *, context: Context, name: str, model: str | None, **asked: Any
) -> Mapping[str, Any]:
    """Ask the judge about evidence and return its reply. ``asked``: further arguments of ``judge_question``."""
    question = judge_question(kind, shown, reply, label=label_of(name, context), **asked)
    return context.judge.ask(question, context.time_left(), model=model)


def label_of(name: str, context: Context) -> str:
    """Return the name of a question about a test."""
    return f"{name} of {context.suite.name}/{context.test.id}"


TOP, GOOD = 10, 7


class ScoreRange(StrictFields):
    """Meaning of the scores from ``low`` to ``high`` (0-10)."""

    score_range: list[int] = Field(min_length=2, max_length=2)
    outcome: Text

    @model_validator(mode="after")
    def _is_a_range(self) -> "ScoreRange":
        low, high = self.score_range
        if not 0 <= low <= TOP or not 0 <= high <= TOP:
            raise ValueError(f"score_range [{low}, {high}] must lie in 0-{TOP}")
        if low > high:
            raise ValueError(f"score_range [{low}, {high}]: min must be <= max")
        return self


def _spelled_out(ranges: Any) -> Any:
    """Return ranges for lower bounds, ``{0: Bad, 5: OK, 8: Good}``; the last one ends at 10."""
    if not isinstance(ranges, dict):
        return ranges
    numbers = {name: int(name) for name in ranges if name.isascii() and name.isdigit() and int(name) <= TOP}
    if len(numbers) < len(ranges) or not numbers:
        raise ValueError(f"keys must be whole numbers from 0 to {TOP}")
    ordered = sorted(numbers, key=numbers.__getitem__)
    if numbers[ordered[0]] != 0:
        raise ValueError("must start at 0")
    ends = [*(numbers[name] - 1 for name in ordered[1:]), TOP]
    return [
        {"score_range": [numbers[name], end], "outcome": ranges[name]} for name, end in zip(ordered, ends, strict=True)
    ]


class Criterion(StrictFields):
    """One criterion: met or not, or a score from 0 to 10 where the group has score ranges."""

    id: Text
    outcome: Text | None = None
    weight: Weight = 1.0
    required: bool = False
    required_min_score: int | None = Field(None, ge=0, le=TOP)
    score_ranges: Annotated[list[ScoreRange] | None, BeforeValidator(_spelled_out)] = None

    @model_validator(mode="after")
    def _is_complete(self) -> "Criterion":
        if self.score_ranges is None:
            if self.outcome is None:
                raise ValueError(f"criterion {self.id!r} needs an outcome")
            return self
        # Each score from 0 to 10 must be in exactly one range.
        seen: set[int] = set()
        for item in self.score_ranges:
            low, high = item.score_range
            numbers = set(range(low, high + 1))
            if seen & numbers:
                raise ValueError(f"Overlapping score_ranges at {', '.join(map(str, sorted(seen & numbers)))}")
            seen |= numbers
        if missing := sorted(set(range(TOP + 1)) - seen):
            said = f"missing coverage for scores: {', '.join(map(str, missing))}"
            raise ValueError(f"Incomplete score_ranges coverage: {said}. Ranges must cover all integers 0-{TOP}.")
        return self

    @property
    def minimum(self) -> int | None:
        """The score (0-10) below which the group scores 0; None without one."""
        return TOP if self.required and self.required_min_score is None else self.required_min_score

    def asked(self) -> dict[str, Any]:
        return self.model_dump(include={"id", "outcome", "score_ranges"}, exclude_none=True)


def _numbered(value: Any) -> Any:
    """Return criteria as mappings: text is a required outcome, and an id that is left out is a number."""
    if not isinstance(value, list):
        return value
    items = [{"outcome": item, "required": True} if isinstance(item, str) else item for item in value]
    return [
        {"id": f"rubric-{number}", **present(item)} if isinstance(item, dict) else item
        for number, item in enumerate(items, start=1)
    ]


def _distinct(criteria: list[Criterion]) -> list[Criterion]:
    for identity, count in Counter(item.id for item in criteria).items():
        if count > 1:
            raise ValueError(f"id {identity!r} is there twice; rename one")
    return criteria


Criteria = Annotated[list[Criterion], BeforeValidator(_numbered), AfterValidator(_distinct), Field(min_length=1)]


def rename_description(data: dict[str, Any], key: str, entry: ConfigEntry, reader: Reader) -> None:
    """Rename ``description`` of the criteria at a key, the older name of ``outcome``."""
    if not isinstance(data.get(key), list):
        return
    for index, item in enumerate(data[key]):
        if isinstance(item, dict) and "description" in item and "outcome" not in item:
            place = (key, index, "description")
            reader.deprecated(entry, f"{key}[{index}].description", "rename it to outcome", *place)
            data[key] = [*data[key]]
            data[key][index] = {"outcome" if name == "description" else name: part for name, part in item.items()}


def is_analytic(criteria: Sequence[Criterion]) -> bool:
    """Return whether a group is scored from 0 to 10: a criterion has such scores."""
    return any(item.score_ranges or item.required_min_score is not None for item in criteria)


def checks_asked(criteria: Sequence[Criterion], task: str | None = None) -> str:
    """Return the task for the judge, with the list of criteria."""
    from persona_pipeline.judging.claims import plain_json

    listed = f"Check these criteria:\n{plain_json({'criteria': [item.asked() for item in criteria]})}"
    return listed if task is None else f"{task}\n\n{listed}"


def checks_reply(criteria: Sequence[Criterion]) -> Reply:
    """Return the form of a reply that checks criteria. Reasons come before the decision."""
    check: dict[str, Any] = {"id": {"type": "string"}, "reasoning": {"type": "string"}}
    if is_analytic(criteria):
        rules, check["score"] = ANALYTIC_RULES, {"type": "integer", "enum": list(range(TOP + 1))}
    else:
        rules, check["satisfied"] = CHECKLIST_RULES, {"type": "boolean"}
    checks = list_schema(object_schema(check))
    schema = object_schema({"checks": checks, "overall_reasoning": {"type": "string"}})
    return Reply(rules, schema, partial(_checks_problem, criteria), partial(_checks_grade, criteria))


def _checks_problem(criteria: Sequence[Criterion], data: Any) -> str | None:
    analytic = is_analytic(criteria)
    checks = data.get("checks") if isinstance(data, Mapping) else None
    if not isinstance(checks, list) or not all(isinstance(item, Mapping) for item in checks):
        return f"the reply has no list of checks: {stringify(data)[:60]}"
    ids = [item.get("id") for item in checks]
    wanted = [item.id for item in criteria]
    if sorted(map(str, ids)) != sorted(wanted):
        missing = [identity for identity in wanted if identity not in ids]
        return f"the reply must check every criterion once; missing: {missing}, given: {ids}"
    for item in checks:
        value = item.get("score" if analytic else "satisfied")
        if analytic and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= TOP):
            return f"check {item['id']!r} has no whole score from 0 to {TOP}, but {stringify(value)[:60]}"
        if not analytic and not isinstance(value, bool):
            return f"check {item['id']!r} must say true or false for satisfied, not {stringify(value)[:60]}"
    return None


def _checks_grade(criteria: Sequence[Criterion], data: Mapping[str, Any]) -> Grade:
    """Return the grade of a valid reply.

    Checklist: satisfied weight over all weight. Analytic: weighted mean of score / 10. Either is 0 and fails if a required
    criterion is not met, or a score is below its minimum (10 for a required one).
    """
    analytic = is_analytic(criteria)
    checks = {item["id"]: item for item in data["checks"]}
    hits, misses = [], []
    scores: list[tuple[float, float]] = []
    gated = False
    for criterion in criteria:
        check = checks[criterion.id]
        share = check["score"] / TOP if analytic else float(check["satisfied"])
        if analytic:
            short = criterion.minimum is not None and check["score"] < criterion.minimum
            met = check["score"] >= GOOD and not short
        else:
            met = bool(check["satisfied"])
            short = criterion.required and not met
        gated = gated or short
        scores.append((share, criterion.weight))
        text = f"[{criterion.id}] {criterion.outcome or ''}".rstrip() + f": {check.get('reasoning') or ''}".rstrip(": ")
        (hits if met else misses).append(text)
    details: dict[str, Any] = {}
    if analytic:
        raw = {identity: item["score"] for identity, item in checks.items()}
        details = {"raw_scores": raw, "normalization": "score / 10", "aggregation": "weighted_average"}
    reasoning, mean = data.get("overall_reasoning"), weighted_mean(scores)
    return Grade(
        0.0 if gated else mean or 0.0,
        hits,
        misses,
        reasoning if isinstance(reasoning, str) and reasoning else None,
        SuiteVerdict.FAIL if gated else None,
        details or None,
        empty=mean is None and not gated,
    )
