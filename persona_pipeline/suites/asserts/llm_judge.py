"""``llm_judge``: a judge gives a score, by the test's goal or a prompt of the suite; ``rubrics``: it checks criteria one by one."""

import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Discriminator, Field, PrivateAttr, Tag

from persona_pipeline.base.errors import did_you_mean
from persona_pipeline.suites.answering.output import Need, Output
from persona_pipeline.suites.asserts.code_judge import Script, payload, run_script
from persona_pipeline.suites.format.files import FileError
from persona_pipeline.suites.format.models import StrictFields
from persona_pipeline.suites.format.problems import ConfigEntry, Reader
from persona_pipeline.suites.grading.base import OLDER, Assert, Context
from persona_pipeline.suites.grading.judge_questions import (
    FREEFORM,
    RULES,
    VARIABLES,
    Criteria,
    Reply,
    ask_judge,
    checks_asked,
    checks_reply,
    evidence,
    fill_prompt,
    is_analytic,
    rename_description,
    unknown_variables,
)
from persona_pipeline.suites.grading.results import Grade, UngradedError

_PROMPT_STARTS = ("./", "../", "/", "~/", "file://", ".\\", "..\\")
_PROMPT_ENDINGS = (".md", ".txt", ".prompt", ".j2", ".jinja", ".jinja2", ".tmpl", ".mustache", ".liquid")


class PromptScript(StrictFields):
    """A program that prints the prompt. It gets the same JSON as a code judge, with this ``config``."""

    script: Script = Field(min_length=1)
    config: dict[str, Any] | None = None


# The tags are not keys of a script, so that a problem's place is the key in the file.
Prompt = Annotated[
    Annotated[str, Tag("text")] | Annotated[PromptScript, Tag("program")],
    Discriminator(lambda value: "text" if not isinstance(value, dict | PromptScript) else "program"),
]


class Prompted(Assert):
    """A judge's grade of an answer, with a prompt that is text or a file. Subclasses define the use of the prompt."""

    judged = True
    needs = (Need.ANSWER, Need.COMPLETE)
    # Variables of a prompt that are not fields of a test.
    known: ClassVar[Sequence[str]] = ()

    prompt: Any = None
    model: str | None = Field(None, description="A judge model for this assert alone, where the judge is live.")

    _prompt_text: str | None = PrivateAttr(None)

    def resolve(self, entry: ConfigEntry, reader: Reader) -> None:
        if isinstance(self.prompt, str):
            self._prompt_text = read_prompt(self.prompt, entry, reader, known=self.known)

    def judged_by(self, reply: Reply, output: Output, context: Context, prompt: str | None, **asked: Any) -> Grade:
        """Return the judge's grade of an output. ``asked``: ``ask`` and ``subject`` of the question."""
        shown = evidence(output, context, prompt)
        data = ask_judge(self.type, shown, reply, context=context, name=self.name, model=self.model, **asked)
        return reply.grade(data)


class LlmJudge(Prompted):
    """The score, 0-1, of a judge for how well the answer meets the test's goal, or ``prompt``.

    ``prompt`` is text or a file; its variables, such as ``{{ answer }}``, name the evidence for the judge. With ``rubrics``
    this is the ``rubrics`` assert.
    """

    prompt: Prompt | None = Field(None, description="What to judge: text, a file, or a script that prints it.")
    config: dict[str, Any] | None = Field(None, description="Kept, not interpreted.")

    @property
    def program(self) -> tuple[Sequence[str], str | None] | None:
        return (self.prompt.script, None) if isinstance(self.prompt, PromptScript) else None

    def resolve(self, entry: ConfigEntry, reader: Reader) -> None:
        super().resolve(entry, reader)
        if isinstance(self.prompt, PromptScript):
            reader.check_program(self.prompt.script, entry.named("prompt"), "prompt")

    def grade(self, output: Output, context: Context) -> Grade:
        prompt = self._prompt_text
        if isinstance(self.prompt, PromptScript):
            prompt = printed_prompt(self.prompt, output, context)
        ask = RULES["ask_freeform"] if prompt is None else fill_prompt(prompt)
        return self.judged_by(FREEFORM, output, context, prompt, ask=ask, subject={"prompt": prompt})


class Rubrics(Prompted):
    """The weighted share of criteria that a judge finds satisfied, or their mean score over 10 where they have score ranges.

    An unmet ``required`` criterion makes it 0. A reply that leaves a criterion out is an error.
    """

    older_names: ClassVar[dict[str, str]] = {"criteria": "rubrics"}

    criteria: Criteria = Field(description="What to check; weights are relative within the group.")
    prompt: str | None = Field(None, description="Further guidance for the judge.")
    config: dict[str, Any] | None = Field(None, description="Kept, not interpreted.")

    @classmethod
    def prepare(cls, data: dict[str, Any], entry: ConfigEntry, reader: Reader) -> dict[str, Any]:
        rename_description(data, "criteria" if "criteria" in data else "rubrics", entry, reader)
        return data

    def grade(self, output: Output, context: Context) -> Grade:
        prompt = self._prompt_text
        subject = {"criteria": [item.asked() for item in self.criteria], "analytic": is_analytic(self.criteria)}
        subject |= {} if prompt is None else {"prompt": prompt}
        ask = checks_asked(self.criteria, None if prompt is None else fill_prompt(prompt))
        return self.judged_by(checks_reply(self.criteria), output, context, prompt, ask=ask, subject=subject)


def read_prompt(prompt: str, entry: ConfigEntry, reader: Reader, *, known: Collection[str] = ()) -> str:
    """Return the text of a prompt, or of the file it names. A prompt that looks like a path must be one.

    It need not name the answer, which the judge always gets as evidence. ``known``: variables that are not fields of a test.
    """
    text = prompt
    if len(prompt) < 500 and "\n" not in prompt and "{{" not in prompt:
        try:
            text = reader.files.read(reader.files.find(prompt, reader.folders(entry)))
        except FileError as problem:
            # The prompt can only be a path.
            ends = Path(prompt).suffix.lower() in _PROMPT_ENDINGS and " " not in prompt
            if ends or prompt.startswith(_PROMPT_STARTS):
                reader.fail(entry, f"prompt: {problem}", "prompt")
    if not text.strip():
        reader.fail(entry, "prompt must not be empty", "prompt")
    for name in sorted({*unknown_variables(text)} - {*known}):
        said = f"prompt names {{{{ {name} }}}}, which is not in the evidence"
        if hint := did_you_mean(name, [*VARIABLES, *OLDER, *known]):
            reader.fail(entry, f"{said}{hint}", "prompt")
        else:
            reader.warn(entry, f"{said} and stays as it is", "prompt")
    return text


def printed_prompt(prompt: PromptScript, output: Output, context: Context) -> str:
    context.require_code("a prompt script")
    with tempfile.TemporaryDirectory(prefix="persona-judge-") as folder:
        data = payload(output, context, prompt.config, Path(folder))
        printed = run_script(prompt.script, data, context.suite.path.parent, context, called="the prompt script")
    text = printed.decode("utf-8", "replace")
    if not text.strip():
        raise UngradedError("script_failed", "the prompt script printed nothing")
    return text
