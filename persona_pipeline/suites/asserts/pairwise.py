"""``pairwise``: a judge says which of two answers is better, twice, with their places exchanged."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
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
    evidence,
    fill_prompt,
    judge_question,
    label_of,
    shown_calls,
)
from persona_pipeline.suites.grading.results import Grade, UngradedError

if TYPE_CHECKING:
    from persona_pipeline.judging.verdict import Answer, Question

KIND = "pairwise"
SECOND = "second"
_PLACES = ("first", SECOND)
_BETTER = (*_PLACES, "tie")
_PLACE = re.compile(r"\{\{\s*(first|second)\s*\}\}")
_ALONE = re.compile(r"\{\{\s*(answer|output)\s*\}\}")


class PairwiseOutcome(StrEnum):
    """How an answer came out against another."""

    WIN = "win"
    TIE = "tie"
    LOSS = "loss"

    @property
    def score(self) -> float:
        return {PairwiseOutcome.WIN: 1.0, PairwiseOutcome.TIE: 0.5, PairwiseOutcome.LOSS: 0.0}[self]


@dataclass(frozen=True)
class ComparedAnswer:
    """One answer against another. ``orders``: the outcome with it in first and in second place; empty where nobody was asked."""

    outcome: PairwiseOutcome
    orders: tuple[PairwiseOutcome, ...] = ()
    reasoning: str | None = None

    @property
    def consistent(self) -> bool:
        """Whether exchanging the places left the outcome as it was."""
        return len(set(self.orders)) <= 1


class Pairwise(Prompted):
    """1 if a judge finds the answer better than another one, 0 if worse, 0.5 for a tie.

    It is asked twice, with the places exchanged; if the two do not agree, that is a tie. The other answer is the test's
    ``expected_output``, what ``target`` says, or what stands in ``responses``.
    """

    known = _PLACES

    target: Text | None = Field(None, description="Whose answer it is compared with; with responses: recorded there.")
    responses: Text | None = Field(None, description="A file of recorded answers to compare with.")
    prompt: str | None = Field(None, description="What makes an answer better: text, or a file.")

    _recorded: Responses | None = PrivateAttr(None)

    @property
    def asked(self) -> str | None:
        """The target that is asked for the other answer, None where it is known."""
        return self.target if self.responses is None else None

    def resolve(self, entry: ConfigEntry, label: str, reader: Reader) -> None:
        super().resolve(entry, label, reader)
        if named := _ALONE.search(self._prompt_text or ""):
            said = f"prompt names {{{{ {named[1]} }}}}; the two answers are {{{{ first }}}} and {{{{ second }}}}"
            reader.fail(entry, f"{label}: {said}", "prompt")
        if self.responses is not None:
            with reader.placing(entry, f"{label}: responses", "responses"), reader.collecting():
                path = reader.files.find(self.responses, reader.folders(entry))
                reader.files.read(path)
                self._recorded = load_responses(path, reader.files.roots)

    def grade(self, output: Output, context: Context) -> Grade:
        other = self._other(context)
        shown = shown_of(output, context, self._prompt_text, with_reference=self.target or self.responses)
        label = label_of(self.name, context)
        own = whole(output)
        found = alike(own, other)
        if found is None:
            questions = both_orders(shown, own, other, label=label, prompt=self._prompt_text)
            found = outcome_of(context.judge.answers(questions, context.time_left(), model=self.model))
        return grade_of(found)

    def _other(self, context: Context) -> str:
        if self._recorded is not None:
            return whole(self._recorded.output(context.test.id, self.target, context.attempt))
        if self.target is not None:
            if context.services.answer is None:
                raise UngradedError("no_target", f"this run has no targets to ask for {self.target!r}")
            return whole(context.services.answer(self.target, context))
        if not context.test.reference_answer:
            said = "the test has no expected_output to compare with; add one, or name target or responses"
            raise UngradedError("no_reference", said)
        return context.test.reference_answer


def shown_of(
    output: Output, context: Context, prompt: str | None = None, *, with_reference: Any = True
) -> dict[str, Any]:
    """Return what the judge sees beside the two answers. ``with_reference``: false where the reference is one of them."""
    hidden = {"answer", "output", "file_changes", "tool_calls"} | (
        set() if with_reference else {"reference_answer", "expected_output"}
    )
    return {key: value for key, value in evidence(output, context, prompt).items() if key not in hidden}


def whole(output: Output) -> str:
    """Return an answer as a judge compares it: its text, with its tool calls where it made some."""
    calls = shown_calls(output)
    return stringify({"answer": output.text, "tool_calls": calls}, indent=2) if calls else output.text


def alike(answer: str, other: str) -> ComparedAnswer | None:
    """Return the tie of two answers that are the same text, which nobody need be asked about."""
    return ComparedAnswer(PairwiseOutcome.TIE) if answer.strip() == other.strip() else None


def both_orders(
    shown: Mapping[str, Any], answer: str, other: str, *, label: str, prompt: str | None = None
) -> "list[Question]":
    """Return the two questions about an answer and another one: the answer first, and the answer second."""
    return [
        judge_question(
            KIND,
            {**shown, "first": first, SECOND: second},
            label=f"{label}, answer {place}",
            rules=RULES["pairwise"],
            ask=RULES["ask_pairwise"]
            if prompt is None
            else _PLACE.sub(r'[the field "\1" of the evidence]', fill_prompt(prompt)),
            schema=PAIRWISE_SCHEMA,
            subject={"prompt": prompt},
            check=reply_problem,
        )
        for place, first, second in (("first", answer, other), (SECOND, other, answer))
    ]


def outcome_of(answers: "Sequence[Answer]") -> ComparedAnswer:
    """Return what the answers to ``both_orders`` say: win and loss only where both agree."""
    for answer in answers:
        if answer.data is None:
            raise UngradedError(str(answer.unscored), answer.detail)
    found = [answer.data or {} for answer in answers]
    orders = tuple(
        {place: PairwiseOutcome.WIN, "tie": PairwiseOutcome.TIE}.get(reply["better"], PairwiseOutcome.LOSS)
        for reply, place in zip(found, _PLACES, strict=True)
    )
    outcome = orders[0] if len(set(orders)) == 1 else PairwiseOutcome.TIE
    return ComparedAnswer(
        outcome, orders, " | ".join(reply["reasoning"] for reply in found if reply["reasoning"]) or None
    )


def reply_problem(data: Any) -> str | None:
    if not isinstance(data, Mapping) or data.get("better") not in _BETTER:
        return f"better must be one of {', '.join(_BETTER)}: {stringify(data)[:60]}"
    reasoning = data.get("reasoning")
    return None if isinstance(reasoning, str) else f"reasoning must be a text, not {stringify(reasoning)[:60]}"


def grade_of(found: ComparedAnswer) -> Grade:
    if not found.orders:
        said = "Both answers are the same text."
    elif not found.consistent:
        said = "The judge's choice changed with the order of the answers: a tie."
    else:
        said = {
            PairwiseOutcome.WIN: "The answer is better than the other one, in either order.",
            PairwiseOutcome.TIE: "Neither answer is better, in either order.",
            PairwiseOutcome.LOSS: "The other answer is better, in either order.",
        }[found.outcome]
    details = {"outcome": found.outcome.value, "orders": [item.value for item in found.orders]}
    won = found.outcome is PairwiseOutcome.WIN
    return Grade.saying(said, won, found.outcome.score, reasoning=found.reasoning, details=details)
