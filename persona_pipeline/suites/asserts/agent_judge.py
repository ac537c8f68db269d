"""``agent_judge``: a judge that looks through the workspace before it decides."""

from pathlib import Path
from typing import Any

from pydantic import Field, PrivateAttr

from persona_pipeline.suites.asserts.base import Assert
from persona_pipeline.suites.asserts.context import Context
from persona_pipeline.suites.asserts.criteria import Criterion, grade_checks, prepare_criteria, reply_problem
from persona_pipeline.suites.asserts.grades import Grade, UngradedError
from persona_pipeline.suites.asserts.judge_questions import freeform_grade, freeform_problem
from persona_pipeline.suites.asserts.llm_judge import read_prompt
from persona_pipeline.suites.asserts.workspace_inspection import Inspection, ask_target, inspect_workspace
from persona_pipeline.suites.format.problems import Reader
from persona_pipeline.suites.format.sources import Entry
from persona_pipeline.suites.targets.output import Output


class AgentJudge(Assert):
    """The score, 0-1, of a judge that may list, read and search the workspace, ``max_steps`` times at most.

    With ``target`` that target is asked instead, once, in the workspace. It is an error when there is no workspace, and when the
    judge has not decided after its last step.
    """

    judged = True

    prompt: str | None = Field(None, description="What to look for: text or a file.")
    max_steps: int = Field(10, ge=1, le=50, description="Most looks into the workspace.")
    temperature: float | None = Field(None, ge=0, le=2, description="Accepted; the judge's models have no temperature.")
    target: str | None = Field(None, min_length=1, description="A target that judges instead of the project's judge.")
    criteria: list[Criterion] | None = Field(
        None, alias="rubrics", min_length=1, description="Criteria to check one by one."
    )
    model: str | None = Field(None, description="A judge model for this assert alone, where the judge is live.")

    _prompt_text: str | None = PrivateAttr(None)

    @property
    def needs_judge(self) -> bool:
        return self.target is None

    @classmethod
    def prepare(cls, data: dict[str, Any], entry: Entry, label: str, reader: Reader) -> dict[str, Any]:
        if data.get("rubrics") is not None:
            data["rubrics"] = prepare_criteria(data["rubrics"], "rubrics", entry, label, reader)
        return data

    def resolve(self, entry: Entry, label: str, reader: Reader) -> None:
        if self.prompt is not None:
            self._prompt_text = read_prompt(self.prompt, entry, label, reader)

    def grade(self, output: Output, context: Context) -> Grade:
        inspection = Inspection(self.name, self._prompt_text, self.criteria or [], self.max_steps, self.model)
        if self.target is not None:
            data = ask_target(inspection, self.target, output, context)
        elif output.workspace is None:
            raise UngradedError("no_workspace", "agent_judge needs a workspace; give the suite or the test one")
        else:
            data = inspect_workspace(inspection, Path(output.workspace), output, context)
        problem = reply_problem(data, self.criteria) if self.criteria else freeform_problem(data)
        if problem:
            raise UngradedError("invalid_output", problem)
        return grade_checks(data, self.criteria) if self.criteria else freeform_grade(data)
