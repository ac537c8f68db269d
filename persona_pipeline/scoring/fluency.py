"""Fluency: is the language free of repetition? 40 % n-grams, 20 % catchphrases, 40 % judged structural variety."""

import random

from persona_pipeline.scoring.plan import (
    AgentCase,
    Composed,
    DimensionPlan,
    JudgedPropositions,
    JudgingContext,
    Part,
    judged_part,
    judged_plan,
    no_evidence,
)
from persona_pipeline.scoring.text.repetition import catchphrase_part, ngram_part
from persona_pipeline.scoring.text.said_again import said_again_statistics, said_again_text
from persona_pipeline.world.models import windowed
from persona_pipeline.world.propositions.models import FLUENCY, PropositionSet

MOST_MESSAGES = 10


def plan_fluency(case: AgentCase, propositions: PropositionSet) -> DimensionPlan:
    """Plan fluency; the weight of a part that does not apply is shared by the others."""
    if not case.messages:
        return no_evidence(case, propositions, "the agent said nothing in the window")
    texts = [message.text for message in case.messages]
    generator = random.Random(case.seed("structure"))
    count = min(MOST_MESSAGES, len(case.messages))
    chosen = [case.messages[index] for index in sorted(generator.sample(range(len(case.messages)), count))]
    entries = [case.entry(message) for message in chosen]
    context = JudgingContext(windowed(entries, *propositions.window()), {"agent_name": case.display_name})
    history = case.history.get(case.agent_id) or [message.text for message in case.earlier]

    def composed(judged: JudgedPropositions) -> Composed:
        ngram, repetition = ngram_part(texts, history)
        catchphrase, rates = catchphrase_part(texts, propositions.catchphrases)
        again = said_again_statistics(case.before or case.earlier, case.messages, propositions.catchphrases)
        ngram.reasoning += said_again_text(again)
        statistics = {"messages": len(texts), "repetition": repetition, "catchphrases": rates, "said_again": again}
        parts = [
            Part(ngram.score, FLUENCY.parts["_ngram"]),
            Part(catchphrase.score if catchphrase else None, FLUENCY.parts["_catchphrase"]),
            judged_part(judged, FLUENCY.judged_weight),
        ]
        rows = [row for row in (ngram, catchphrase) if row]
        return rows, parts, statistics

    # This dimension is judged without the persona, even if the file includes it.
    return judged_plan(case, propositions, [context], composed)
