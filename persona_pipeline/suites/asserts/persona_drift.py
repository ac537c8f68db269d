"""``persona_drift``: the answer is no worse than the persona's baseline."""

from typing import Any

from pydantic import Field

from persona_pipeline.suites.answering.output import Output
from persona_pipeline.suites.asserts.propositions import check_dimensions
from persona_pipeline.suites.format.models import Limit, Text
from persona_pipeline.suites.format.problems import ConfigEntry, Reader
from persona_pipeline.suites.grading.base import Assert, Context
from persona_pipeline.suites.grading.results import Grade, UngradedError


class PersonaDrift(Assert):
    """The share of dimensions, 0-1, on which the answer does not fall behind the agent's baseline.

    A dimension falls behind when its score drops by more than ``delta``, or one of its claims by more than ``proposition_delta``
    (points of 0-9). Without a baseline, or where a claim could not be judged, the assert is an error.
    """

    judged = True

    agent: Text = Field(description="The agent whose baseline counts.")
    dimensions: list[Text] = Field(["adherence"], min_length=1, description="What is compared; `dimension` names one.")
    delta: Limit = Field(1.0, description="How far a dimension may drop, on 0-9.")
    proposition_delta: Limit = Field(3.0, description="How far one claim may drop, on 0-9.")

    @classmethod
    def prepare(cls, data: dict[str, Any], entry: ConfigEntry, label: str, reader: Reader) -> dict[str, Any]:
        if "dimension" in data:
            if "dimensions" in data:
                reader.fail(entry, f"{label}: keep one of dimension and dimensions", "dimension", key=True)
            data["dimensions"] = [data.pop("dimension")]
        return data

    def resolve(self, entry: ConfigEntry, label: str, reader: Reader) -> None:
        check_dimensions(self.dimensions, entry, label, reader)

    def default_name(self, spelled: str) -> str:
        return f"{spelled}-{self.agent}"

    def grade(self, output: Output, context: Context) -> Grade:
        from persona_pipeline.suites.grading.persona_evaluation import compare_output

        compared = compare_output(
            output, context, self.agent, self.dimensions, delta=self.delta, proposition_delta=self.proposition_delta
        )
        hits, misses = [], []
        details: dict[str, Any] = {}
        for name, item in compared.dimensions.items():
            if item.current is None or item.baseline is None:
                raise UngradedError("no_evidence", f"no claim of {name} could be judged on this answer")
            text = f"{name} {item.current:.2f} of 9, baseline {item.baseline:.2f}"
            drops = [f"{drop.proposition_id} {drop.current:.1f} from {drop.baseline:.1f}" for drop in item.drops]
            behind = item.status == "regressed" or bool(drops)
            (misses if behind else hits).append(f"{text}; dropped: {', '.join(drops)}." if drops else f"{text}.")
            details[name] = {"current": item.current, "baseline": item.baseline, "delta": item.delta}
        return Grade(len(hits) / len(compared.dimensions), hits, misses, details=details)
