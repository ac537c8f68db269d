"""``pairwise``: a judge compares two answers, twice, with their places exchanged."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field, PrivateAttr

from persona_pipeline.suites.answering.base import Responses, load_responses
from persona_pipeline.suites.answering.output import Output
from persona_pipeline.suites.asserts.llm_judge import Prompted
from persona_pipeline.suites.format.models import Text
from persona_pipeline.suites.format.problems import ConfigEntry, Reader
from persona_pipeline.suites.format.text import stringify
from persona_pipeline.suites.grading.base import Context
from persona_pipeline.suites.grading.judge_questions import (
    PAIRWISE_SCHEMA,
    RULES,
    Reply,
    evidence,
    fill_prompt,
    judge_question,
    label_of,
    shown_calls,
)
from persona_pipeline.suites.grading.results import Grade, UngradedError

if TYPE_CHECKING:
    from persona_pipeline.judging.verdict import Question

_PLACES = ("first", "second")
# Evidence that is part of the answers themselves.
_SHOWN_AS_ANSWERS = ("answer", "output", "file_changes", "tool_calls")
_BETTER = (*_PLACES, "tie")
_PLACE = re.compile(r"\{\{\s*(first|second)\s*\}\}")
_ALONE = re.compile(r"\{\{\s*(answer|output)\s*\}\}")


class Pairwise(Prompted):
    """1 if a judge finds the answer better than another one, 0 if worse, 0.5 for a tie.

    The judge is asked twice, with the places exchanged; if the two judgments disagree, it is a tie. The other answer is the
    test's ``expected_output``, or the one in ``responses``.
    """

    known = _PLACES

    target: Text | None = Field(None, description="Whose recorded answer in responses it is compared with.")
    responses: Text | None = Field(None, description="A file of recorded answers to compare with.")
    prompt: str | None = Field(None, description="What makes an answer better: text, or a file.")

    _recorded: Responses | None = PrivateAttr(None)

    def resolve(self, entry: ConfigEntry, reader: Reader) -> None:
        super().resolve(entry, reader)
        if named := _ALONE.search(self._prompt_text or ""):
            said = f"prompt names {{{{ {named[1]} }}}}; the two answers are {{{{ first }}}} and {{{{ second }}}}"
            reader.fail(entry, said, "prompt")
        if self.target is not None and self.responses is None:
            said = "target needs responses, its recorded answers; write them with suite run --target NAME --output FILE"
            reader.fail(entry, said, "target")
        if self.responses is not None:
            with reader.placing(entry, "responses", "responses"), reader.collecting():
                path = reader.files.find(self.responses, reader.folders(entry))
                reader.files.read(path)
                self._recorded = load_responses(path, reader.files.roots)

    def grade(self, output: Output, context: Context) -> Grade:
        own, other = whole(output), self._other(context)
        if own.strip() == other.strip():
            return _tie("Both answers are the same text.", [])
        answers = context.judge.answers(
            self._questions(output, context, own, other), context.time_left(), model=self.model
        )
        for answer in answers:
            if answer.data is None:
                raise UngradedError(str(answer.unscored), answer.detail)
        found = [answer.data or {} for answer in answers]
        orders = [
            {place: "win", "tie": "tie"}.get(reply["better"], "loss")
            for reply, place in zip(found, _PLACES, strict=True)
        ]
        why = " | ".join(reply["reasoning"] for reply in found if reply["reasoning"]) or None
        if len(set(orders)) > 1:
            return _tie("The judge's choice changed with the order of the answers: a tie.", orders, why)
        if orders[0] == "tie":
            return _tie("Neither answer is better, in either order.", orders, why)
        won = orders[0] == "win"
        said = f"The {'answer is better than the other one' if won else 'other answer is better'}, in either order."
        details = {"outcome": orders[0], "orders": orders}
        return Grade.saying(said, won, float(won), reasoning=why, details=details)

    def _questions(self, output: Output, context: Context, own: str, other: str) -> "list[Question]":
        """Return the two questions: with the answer first, and with the answer second."""
        prompt = self._prompt_text
        # The judge must not know which answer is the reference.
        is_reference = self.responses is None
        hidden = (*_SHOWN_AS_ANSWERS, *(("reference_answer", "expected_output") if is_reference else ()))
        shown = {key: value for key, value in evidence(output, context, prompt).items() if key not in hidden}
        asked = (
            _PLACE.sub(r'[the field "\1" of the evidence]', fill_prompt(prompt)) if prompt else RULES["ask_pairwise"]
        )
        return [
            judge_question(
                "pairwise",
                {**shown, "first": first, "second": second},
                Reply(RULES["pairwise"], PAIRWISE_SCHEMA, reply_problem),
                label=f"{label_of(self.name, context)}, answer {place}",
                ask=asked,
                subject={"prompt": prompt},
            )
            for place, first, second in (("first", own, other), ("second", other, own))
        ]

    def _other(self, context: Context) -> str:
        if self._recorded is not None:
            return whole(self._recorded.output(context.test.id, self.target, context.attempt, context.request_key))
        if not context.test.reference_answer:
            said = "the test has no expected_output to compare with; add one, or name responses"
            raise UngradedError("no_reference", said)
        return context.test.reference_answer


def whole(output: Output) -> str:
    """Return the text of an answer, with its tool calls as JSON if it has some."""
    calls = shown_calls(output)
    return stringify({"answer": output.text, "tool_calls": calls}, indent=2) if calls else output.text


def reply_problem(data: Any) -> str | None:
    if not isinstance(data, Mapping) or data.get("better") not in _BETTER:
        return f"better must be one of {', '.join(_BETTER)}: {stringify(data)[:60]}"
    reasoning = data.get("reasoning")
    return None if isinstance(reasoning, str) else f"reasoning must be a text, not {stringify(reasoning)[:60]}"


def _tie(said: str, orders: list[str], reasoning: str | None = None) -> Grade:
    return Grade.saying(said, False, 0.5, reasoning=reasoning, details={"outcome": "tie", "orders": orders})
