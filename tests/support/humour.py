"""A sixth dimension from outside the package: humour, judged on what the agent said, with a computed part."""

from typing import Any

from persona_pipeline import Dimension

HUMOUR = Dimension(
    "humour",
    "tests.support.humour:plan_humour",
    "what it jokes about; the judge will see its messages",
    short_label="hum.",
    judged_weight=0.75,
    parts={"_exclamations": 0.25},
)


def plan_humour(case: Any, propositions: Any) -> Any:
    # The dimensions are known before anything of the package that reads them can be imported.
    from persona_pipeline.scoring.plan import JudgingContext, Part, judged_part, judged_plan, no_evidence
    from persona_pipeline.scoring.results import algorithmic_row
    from persona_pipeline.world.models import windowed

    if not case.messages:
        return no_evidence(case, propositions, "the agent said nothing in the window")
    entries = [case.entry(message) for message in case.messages]
    context = JudgingContext(windowed(entries, 10, 100), {"agent_name": case.display_name})

    def composed(judged: Any) -> Any:
        share = sum("!" in message.text for message in case.messages) / len(case.messages)
        row = algorithmic_row("_exclamations", "It exclaims", 9 * share, f"{share:.0%} of its messages")
        return [row], [Part(row.score, HUMOUR.parts["_exclamations"]), judged_part(judged, HUMOUR.judged_weight)], {}

    return judged_plan(case, propositions, [context], composed)
