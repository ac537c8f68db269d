"""``rubrics``: a judge checks criteria one by one."""

from typing import Any, ClassVar

from pydantic import Field, PrivateAttr

from persona_pipeline.suites.answering.output import Output
from persona_pipeline.suites.asserts.llm_judge import read_prompt
from persona_pipeline.suites.format.problems import ConfigEntry, Reader
from persona_pipeline.suites.grading.base import Assert, Context
from persona_pipeline.suites.grading.criteria import (
    PLACEHOLDER,
    Criterion,
    checks_asked,
    grade_checks,
    is_analytic,
    prepare_criteria,
    reply_problem,
    rules_and_schema,
)
from persona_pipeline.suites.grading.judge_questions import ask_judge, evidence, fill_prompt
from persona_pipeline.suites.grading.results import Grade


class Rubrics(Assert):
    """The weighted share of criteria that a judge finds satisfied, or their mean score over 10 where they have score ranges.

    An unmet ``required`` criterion makes it 0. A reply that leaves a criterion out is an error.
    """

    judged = True
    older_names: ClassVar[dict[str, str]] = {"criteria": "rubrics"}

    criteria: list[Criterion] = Field(min_length=1, description="What to check; weights are relative within the group.")
    model: str | None = Field(None, description="A judge model for this assert alone, where the judge is live.")
    prompt: str | None = Field(None, description="Further guidance for the judge.")
    config: dict[str, Any] | None = Field(None, description="Kept, not interpreted.")

    _prompt_text: str | None = PrivateAttr(None)

    @classmethod
    def prepare(cls, data: dict[str, Any], entry: ConfigEntry, label: str, reader: Reader) -> dict[str, Any]:
        key = "criteria" if "criteria" in data else "rubrics"
        if key in data:
            data[key] = prepare_criteria(data[key], key, entry, label, reader)
        elif entry.data.get("type") == "rubric":
            reader.fail(entry, f"{label}: rubrics is required, a list of criteria")
            data["criteria"] = [PLACEHOLDER]
        return data

    def resolve(self, entry: ConfigEntry, label: str, reader: Reader) -> None:
        if self.prompt is not None:
            self._prompt_text = read_prompt(self.prompt, entry, label, reader)

    def grade(self, output: Output, context: Context) -> Grade:
        prompt, (rules, schema) = self._prompt_text, rules_and_schema(self.criteria)
        subject = {"criteria": [item.asked() for item in self.criteria], "analytic": is_analytic(self.criteria)}
        data = ask_judge(
            "rubrics",
            evidence(output, context, prompt),
            context=context,
            name=self.name,
            rules=rules,
            ask=checks_asked(self.criteria, None if prompt is None else fill_prompt(prompt)),
            schema=schema,
            subject=subject | ({} if prompt is None else {"prompt": prompt}),
            check=lambda reply: reply_problem(reply, self.criteria),
            model=self.model,
        )
        return grade_checks(data, self.criteria)
