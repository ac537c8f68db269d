"""``composite``: several asserts graded as one."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, InstanceOf, PrivateAttr, SerializeAsAny

from persona_pipeline.base.errors import did_you_mean
from persona_pipeline.suites.answering.output import Output
from persona_pipeline.suites.asserts.code_judge import Script, read_grade, run_script
from persona_pipeline.suites.asserts.llm_judge import read_prompt
from persona_pipeline.suites.format.models import AssertFields, Share, StrictFields, Text, Weight, apart, rename
from persona_pipeline.suites.format.problems import ConfigEntry, Reader
from persona_pipeline.suites.format.tests import read_asserts
from persona_pipeline.suites.grading.base import Assert, Context, run_assert
from persona_pipeline.suites.grading.judge_questions import FREEFORM, ask_judge
from persona_pipeline.suites.grading.results import (
    AssertResult,
    Grade,
    SuiteVerdict,
    UngradedError,
    reaches,
    weighted_mean,
)

_SUM_UP = "Give the score that sums these results up: how far the answer meets all of them together."
_RESULTS = "EVALUATOR_RESULTS_JSON"
_RESULTS_VARIABLE = re.compile(r"\{\{\s*" + _RESULTS + r"\s*\}\}")


class WeightedAverage(StrictFields):
    """Weighted mean of the members: by ``weights`` where they name a member, else by its own weight."""

    type: Literal["weighted_average"]
    weights: dict[str, Weight] | None = None


class Threshold(StrictFields):
    """The share of members that pass or are borderline; pass when it reaches ``threshold``."""

    type: Literal["threshold"]
    threshold: Share


class CodeAggregator(StrictFields):
    """A program that gets ``{"results": {member: ...}}`` and prints a grade; its ``verdict`` counts."""

    type: Literal["code_judge"]
    script: Script = Field(alias="path", min_length=1)


class JudgeAggregator(StrictFields):
    """A judge that sees the members' results."""

    type: Literal["llm_judge"]
    prompt: Text | None = None
    model: str | None = None


Aggregator = Annotated[WeightedAverage | Threshold | CodeAggregator | JudgeAggregator, Field(discriminator="type")]


class Composite(Assert):
    """Members graded one by one, combined by an aggregator.

    A member that is a gate and is not met makes the composite 0, and with it the test. Otherwise a member with an error
    makes the composite an error.
    """

    older_names: ClassVar[dict[str, str]] = {"assert": "evaluators"}

    members: list[SerializeAsAny[InstanceOf[Assert]]] = Field(alias="assert", min_length=1, description="The members.")
    aggregator: Aggregator = Field(description="How the members' results become one.")

    _prompt_text: str | None = PrivateAttr(None)

    @classmethod
    def prepare(cls, data: dict[str, Any], entry: ConfigEntry, reader: Reader) -> dict[str, Any]:
        key = _members_key(data)
        if key in data:
            if key == "assertions":
                reader.deprecated(entry, key, "rename it to assert", key)
            before = len(reader.problems)
            reader.depth += 1
            data["assert"] = _distinct(read_asserts(reader, entry, key))
            reader.depth -= 1
            if not data["assert"] and len(reader.problems) > before:
                data["assert"] = [_PLACEHOLDER]
            if key != "assert":
                del data[key]
        if isinstance(data.get("aggregator"), dict):
            how = data["aggregator"] = dict(data["aggregator"])
            if isinstance(how.get("type"), str):
                how["type"] = how["type"].replace("-", "_")
            if how.get("type") == "code_judge":
                rename(how, "script", "path")
        return data

    def resolve(self, entry: ConfigEntry, reader: Reader) -> None:
        how = self.aggregator
        if self.negate and any(member.has_gate for member in self.members):
            said = "a gate in a negated composite decides only its score, which is then turned round: missed, it helps to pass"
            reader.warn(entry, f"{said}; remove required, or negate", "negate")
        names = [member.name for member in self.members]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            said = f"members {', '.join(map(repr, twice))} are there twice; give each its own name"
            reader.fail(entry, said, _members_key(entry.data))
        for name in (how.weights or ()) if isinstance(how, WeightedAverage) else ():
            if name not in names:
                hint = did_you_mean(name, names)
                place = ("aggregator", "weights", name)
                reader.fail(entry, f"aggregator.weights: there is no member {name!r}{hint}", *place, key=True)
        if isinstance(how, CodeAggregator):
            reader.check_program(how.script, entry.named("aggregator"), "aggregator")
        if isinstance(how, JudgeAggregator) and how.prompt is not None:
            place = entry.child("aggregator", label="aggregator")
            self._prompt_text = read_prompt(how.prompt, place, reader, known=(_RESULTS,))

    @property
    def needs_judge(self) -> bool:
        return isinstance(self.aggregator, JudgeAggregator) or any(member.needs_judge for member in self.members)

    @property
    def program(self) -> tuple[Sequence[str], str | None] | None:
        return (self.aggregator.script, None) if isinstance(self.aggregator, CodeAggregator) else None

    @property
    def parts(self) -> Sequence[AssertFields]:
        return self.members

    def dump(self) -> dict[str, Any]:
        data = super().dump()
        return data | {"assert": [member.dump() for member in self.members]}

    def grade(self, output: Output, context: Context) -> Grade:
        results = [run_assert(member, output, context) for member in self.members]
        errors = [(item.name, item.error) for item in results if item.error]
        gates = [item for item in results if item.gate_failed]
        if gates:
            return _gated(gates, results)
        if errors:
            raise UngradedError(errors[0][1].reason, "; ".join(f"[{name}] {error.message}" for name, error in errors))
        grade = self._aggregate(results, context)
        hits = [*(f"[{item.name}] {text}" for item in results for text in item.hits), *grade.hits]
        misses = [*(f"[{item.name}] {text}" for item in results for text in item.misses), *grade.misses]
        empty = grade.empty or any(item.empty for item in results)
        return replace(grade, hits=hits, misses=misses, children=grade.children or results, empty=empty)

    def _aggregate(self, results: list[AssertResult], context: Context) -> Grade:
        how = self.aggregator
        if isinstance(how, WeightedAverage):
            weights = how.weights or {}
            weighted = [replace(item, weight=weights.get(item.name, item.weight)) for item in results]
            mean = weighted_mean((item.score or 0.0, item.weight) for item in weighted)
            return Grade(mean or 0.0, children=weighted, empty=mean is None)
        if isinstance(how, Threshold):
            good = sum(item.verdict in (SuiteVerdict.PASS, SuiteVerdict.BORDERLINE) for item in results)
            share = good / len(results)
            verdict = SuiteVerdict.PASS if reaches(share, how.threshold) else SuiteVerdict.FAIL
            return Grade(share, reasoning=f"{good} of {len(results)} members are good enough.", verdict=verdict)
        shown = {"results": {item.name: item.to_dict() for item in results}}
        if isinstance(how, CodeAggregator):
            context.require_code(f"the aggregator of {self.name!r}")
            printed = run_script(how.script, shown, context.suite.path.parent, context)
            return read_grade(printed, own_verdict=True)
        data = ask_judge(
            "composite",
            {"question": context.question, "criteria": context.test.expected_outcome, **json.loads(json.dumps(shown))},
            FREEFORM,
            context=context,
            name=self.name,
            ask=_RESULTS_VARIABLE.sub('[the field "results" of the evidence]', self._prompt_text or _SUM_UP),
            subject={"prompt": self._prompt_text},
            model=how.model,
        )
        return FREEFORM.grade(data)


def _members_key(data: Mapping[str, Any]) -> str:
    return next((key for key in ("assert", "assertions") if key in data), "evaluators")


def _gated(gates: Sequence[AssertResult], results: Sequence[AssertResult]) -> Grade:
    """Return 0 for members with missed gates; their misses come first, members that could not be judged last."""
    failed = [f"{item.name} > {inner}" for item in gates for inner in item.failed_gates or ("",)]
    others = [item for item in results if item not in gates]
    misses = [f"[{item.name}] {text}" for item in (*gates, *others) for text in item.misses]
    misses += [f"[{item.name}] could not be judged: {item.error}" for item in results if item.error]
    return Grade(
        0.0,
        [f"[{item.name}] {text}" for item in results for text in item.hits],
        misses,
        verdict=SuiteVerdict.FAIL,
        children=results,
        failed_gates=[name.removesuffix(" > ") for name in failed],
    )


def _distinct(members: list[AssertFields]) -> list[AssertFields]:
    """Number the members whose default names are equal."""
    taken: set[str] = set()
    for member in members:
        if member.entry is not None and member.entry.data.get("name"):
            taken.add(member.name)
        else:
            object.__setattr__(member, "name", apart(member.name, taken))
    return members


_PLACEHOLDER = Assert.model_construct(name="-", type="-")
