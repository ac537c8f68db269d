"""The questions asserts put to the judge. Their wording is in ``rules.toml`` and nowhere else; its hash is the prompt version."""

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from persona_pipeline.base.documents.json import list_schema, object_schema
from persona_pipeline.suites.answering.output import Output
from persona_pipeline.suites.format.models import present
from persona_pipeline.suites.format.text import stringify
from persona_pipeline.suites.grading.base import Context, shown_messages
from persona_pipeline.suites.grading.results import Grade

if TYPE_CHECKING:
    from persona_pipeline.judging.verdict import Question

MOST_SENTENCES = 4
MAX_TOKENS = 2048
VARIABLES = (
    "answer", "expected_output", "question", "criteria", "reference_answer", "input", "output", "file_changes", "tool_calls",
)  # fmt: skip
# What older prompt files call the same things.
OLDER = {"candidate_answer": "answer", "expected_messages": "expected_output", "expected_outcome": "criteria"}
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
    """Return the variables of a prompt that stand for nothing."""
    return sorted({name for name in _VARIABLE.findall(prompt) if name not in VARIABLES and name not in OLDER})


def fill_prompt(prompt: str) -> str:
    """Return the prompt with each variable replaced by the name of the evidence's field that holds its value.

    The values themselves stay in the evidence: an answer cannot become part of the instructions.
    """
    return _VARIABLE.sub(_reference, prompt)


def _reference(match: re.Match[str]) -> str:
    name = OLDER.get(match[1], match[1])
    return f'[the field "{name}" of the evidence]' if name in VARIABLES else match[0]


def evidence(output: Output, context: Context, prompt: str | None = None) -> dict[str, Any]:
    """Return what the judge sees of a test and its answer: the usual fields, and those a prompt names."""
    test = context.test
    used = {OLDER.get(name, name) for name in _VARIABLE.findall(prompt or "")}
    # Of a conversation the request is all that was said, and the answer what the target said of it.
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
    """Return the tool calls of an answer as a judge sees them: without ids and times, which differ from run to run."""
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


def judge_question(
    kind: str,
    shown: Mapping[str, Any],
    *,
    label: str,
    rules: str,
    ask: str,
    schema: Mapping[str, Any],
    subject: Mapping[str, Any],
    check: Callable[[Any], str | None],
) -> "Question":
    """Return a question about evidence.

    ``subject``: what makes the recording's key beside the evidence: what is asked, not how the prompt words it. ``check``: says
    what is wrong with a reply, None when it can be used.
    """
    from persona_pipeline.base.documents.json import content_hash
    from persona_pipeline.judging.claims import plain_json
    from persona_pipeline.judging.verdict import Question

    return Question(
        kind=kind,
        subject={"kind": kind, **subject, "evidence": shown},
        label=label,
        system=rules,
        evidence=plain_json(shown),
        ask=ask,
        schema=schema,
        max_tokens=MAX_TOKENS,
        prompt_version=content_hash([rules, schema])[:8],
        check=check,
    )


def ask_judge(
    kind: str, shown: Mapping[str, Any], *, context: Context, name: str, model: str | None, **asked: Any
) -> Mapping[str, Any]:
    """Ask the judge about evidence and return its reply. ``asked``: the rest of ``judge_question``."""
    question = judge_question(kind, shown, label=label_of(name, context), **asked)
    return context.judge.ask(question, context.time_left(), model=model)


def label_of(name: str, context: Context) -> str:
    """Return what people call a question about a test."""
    return f"{name} of {context.suite.name}/{context.test.id}"


def ask_freeform(
    kind: str, shown: Mapping[str, Any], *, context: Context, name: str, ask: str, prompt: str | None, model: str | None
) -> Grade:
    """Ask the judge for a score from 0 to 1 and return its grade. ``prompt``: the suite's own, None without one."""
    data = ask_judge(
        kind,
        shown,
        context=context,
        name=name,
        rules=FREEFORM_RULES,
        ask=ask,
        schema=FREEFORM_SCHEMA,
        subject={"prompt": prompt},
        check=freeform_problem,
        model=model,
    )
    return freeform_grade(data)
