"""``propositions``: the claims about a persona as an assert."""

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from persona_pipeline.base.errors import did_you_mean
from persona_pipeline.suites.answering.output import Output
from persona_pipeline.suites.format.models import PASS, Text
from persona_pipeline.suites.format.problems import ConfigEntry, Reader
from persona_pipeline.suites.grading.base import Assert, Context
from persona_pipeline.suites.grading.results import Grade, UngradedError, reaches

TOP = 9.0


class PropositionClaims(Assert):
    """How far the answer lives up to the claims of one dimension about an agent: the dimension's score over 9, so 0-1.

    The claims are those of the world's ``propositions`` folder; ``only`` picks some by id. The answer's assistant messages are what
    the agent said. Claims whose situation does not come up leave the score; one that could not be judged makes the assert an error.
    """

    judged = True

    agent: Text = Field(description="The agent whose claims are checked.")
    dimension: Text = Field("adherence", description="The dimension: adherence, fluency, consistency, ...")
    only: list[Text] | None = Field(None, min_length=1, description="Ids of the claims to check; all by default.")

    def resolve(self, entry: ConfigEntry, label: str, reader: Reader) -> None:
        check_dimensions([self.dimension], entry, label, reader)

    def default_name(self, spelled: str) -> str:
        return f"{spelled}-{self.agent}-{self.dimension}"

    def grade(self, output: Output, context: Context) -> Grade:
        from persona_pipeline.suites.grading.persona_evaluation import evaluate_output

        found = evaluate_output(output, context, self.agent, self.dimension, only=self.only)
        if found.score is None:
            raise UngradedError(
                found.unscored or "no_evidence", f"no claim of {self.dimension} could be judged on this answer"
            )
        hits, misses = [], []
        missed: dict[str, Any] = {}
        for item in found.propositions.values():
            if item.score is not None:
                text = f"[{item.id}] {item.score:.1f} of 9: {item.reasoning or item.claim}"
                if reaches(item.score, PASS * TOP):
                    hits.append(text)
                else:
                    misses.append(text)
                    missed[item.id] = {"claim": item.claim, "quotes": [quote.quote for quote in item.evidence]}
        scores = {item.id: item.score for item in found.propositions.values()}
        details: dict[str, Any] = {"dimension": self.dimension, "score": found.score, "propositions": scores}
        details |= {"missed": missed} if missed else {}
        return Grade(
            min(1.0, found.score / TOP), hits, misses, f"{self.dimension} {found.score:.2f} of 9", details=details
        )


def check_dimensions(names: Sequence[str], entry: ConfigEntry, label: str, reader: Reader) -> None:
    """Add a problem for every name that is no dimension."""
    from persona_pipeline.world.propositions.models import ALL_DIMENSIONS

    for index, name in enumerate(names):
        if name not in ALL_DIMENSIONS:
            hint = did_you_mean(name, ALL_DIMENSIONS) or f"; the dimensions are {', '.join(ALL_DIMENSIONS)}"
            place = ("dimensions", index) if "dimensions" in entry.data else ("dimension",)
            reader.fail(entry, f"{label}: there is no dimension {name!r}{hint}", *place)
