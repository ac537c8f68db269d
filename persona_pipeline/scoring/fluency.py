"""Fluency: is the language free of repetition? 40 % n-grams, 20 % catchphrases, 40 % judged structural variety."""

import random
from collections.abc import Sequence
from statistics import fmean

from persona_pipeline.judging.verdict import Verdict
from persona_pipeline.scoring.judged import JudgingContext, plan_judgments
from persona_pipeline.scoring.plan import (
    AgentCase,
    DimensionPlan,
    Part,
    algorithmic_row,
    evaluation,
    judged_part,
    no_evidence,
)
from persona_pipeline.scoring.results import HIGHEST, DimensionEvaluation, PropositionResult
from persona_pipeline.scoring.text.ngrams import (
    corpus_repetition,
    extract_ngrams,
    mean_share,
    ngram_score,
    shares_of_ngrams,
)
from persona_pipeline.scoring.text.tokens import tokenize
from persona_pipeline.world.models import windowed
from persona_pipeline.world.propositions.dimensions import FLUENCY
from persona_pipeline.world.propositions.models import Catchphrase, PropositionSet

NGRAM_LENGTHS = (3, 5)
MOST_MESSAGES = 10
# Messages of one stretch, in which repetition is counted, and of history that is measured beside it.
STRETCH, MOST_HISTORY = 20, 400


def plan_fluency(case: AgentCase, propositions: PropositionSet) -> DimensionPlan:
    """Plan fluency; a part that does not apply leaves and the others share its weight."""
    if not case.messages:
        return no_evidence("fluency", propositions, "the agent said nothing in the window")
    texts = [message.text for message in case.messages]
    generator = random.Random(case.seed("structure"))
    count = min(MOST_MESSAGES, len(case.messages))
    chosen = [case.messages[index] for index in sorted(generator.sample(range(len(case.messages)), count))]
    entries = [case.entry(message) for message in chosen]
    first_n, last_n = propositions.window()
    context = JudgingContext(windowed(entries, first_n, last_n), {"agent_name": case.display_name})
    # Whatever the file says: this dimension is judged without the persona.
    plan = plan_judgments(propositions, [context], agent_id=case.agent_id, samples=case.samples_of(propositions))

    history = case.earlier_texts().get(case.agent_id) or [message.text for message in case.earlier]

    def finish(verdicts: Sequence[Verdict]) -> DimensionEvaluation:
        judged = plan.collect(verdicts)
        ngram, repetition = ngram_part(texts, history)
        catchphrase, rates = catchphrase_part(texts, propositions.catchphrases)
        statistics = {"messages": len(texts), "repetition": repetition, "catchphrases": rates}
        parts = [
            Part(ngram.score, FLUENCY.parts["_ngram"]),
            Part(catchphrase.score if catchphrase else None, FLUENCY.parts["_catchphrase"]),
            judged_part(judged, FLUENCY.judged_weight),
        ]
        rows = [row for row in (ngram, catchphrase) if row]
        return evaluation("fluency", judged, rows, parts, statistics, propositions)

    return DimensionPlan(plan.requests, finish)


def ngram_part(
    texts: Sequence[str], history: Sequence[str] = ()
) -> tuple[PropositionResult, dict[str, dict[str, float | None]]]:
    """Return the ``_ngram`` row and, by n-gram length, how much messages repeat one another.

    The more messages, the more of them share something by chance. So the share is a mean over stretches of ``STRETCH``
    consecutive messages, whatever the window's length; a shorter window is one stretch. A length that no message reaches is no
    part of the score: nothing was measured.

    Args:
        history: the agent's own earlier messages, oldest first, measured the same way and shown beside it.
    """
    repetition = {
        str(n): {
            "cross_message_share": stretch_share(texts, n),
            "own_history": stretch_share(history[-MOST_HISTORY:], n, stretch=min(STRETCH, len(texts))),
            "corpus_repetition": corpus_repetition(texts, n),
        }
        for n in NGRAM_LENGTHS
    }
    claim = "No phrase of three or five words comes back in another message"
    if len(texts) < 2:
        return algorithmic_row("_ngram", claim, None, "one message has nothing to repeat"), repetition
    measured = {n: share for n, values in repetition.items() if (share := values["cross_message_share"]) is not None}
    if not measured:
        return algorithmic_row("_ngram", claim, None, "no message is three words long"), repetition
    score = fmean(map(ngram_score, measured.values()))
    before = {n: values["own_history"] for n, values in repetition.items()}
    shown = ", ".join(
        f"{share:.1%} of {n}-grams" + ("" if (usual := before[n]) is None else f" (before: {usual:.1%})")
        for n, share in measured.items()
    )
    return algorithmic_row("_ngram", claim, score, f"{shown} also stand in another message"), repetition


def stretch_share(texts: Sequence[str], n: int, stretch: int = STRETCH) -> float | None:
    """Return the mean share (0-1) of a message's n-grams that stand in another of its stretch; None when none has any.

    Stretches of ``stretch`` consecutive messages cover the texts evenly; the last ones may overlap.
    """
    if len(texts) < 2 or stretch < 2:
        return None
    count = -(-len(texts) // stretch)
    size = min(stretch, len(texts))
    starts = [round(index * (len(texts) - size) / max(count - 1, 1)) for index in range(count)]
    grams = [extract_ngrams(text, n) for text in texts]
    shares = [share for start in starts for share in shares_of_ngrams(grams[start : start + size]) if share is not None]
    return mean_share(shares) if shares else None


def catchphrase_part(
    texts: Sequence[str], catchphrases: Sequence[Catchphrase]
) -> tuple[PropositionResult | None, dict[str, dict[str, float | bool]]]:
    """Return the ``_catchphrase`` row (None without catchphrases) and each phrase's rate in uses per message."""
    if not catchphrases:
        return None, {}
    rates: dict[str, dict[str, float | bool]] = {}
    for item in catchphrases:
        rate = sum(phrase_uses(text, item.phrase) for text in texts) / len(texts)
        in_range = item.min_rate <= rate <= item.max_rate
        rates[item.phrase] = {
            "rate": rate,
            "min_rate": item.min_rate,
            "max_rate": item.max_rate,
            "in_range": in_range,
        }
    kept = sum(bool(values["in_range"]) for values in rates.values())
    score = HIGHEST * kept / len(rates)
    reasoning = f"{kept} of {len(rates)} catchphrases are used as often as they should be"
    row = algorithmic_row("_catchphrase", "Catchphrases are used neither too rarely nor too often", score, reasoning)
    return row, rates


def phrase_uses(text: str, phrase: str) -> int:
    """Return how often a phrase stands in a text, word by word, whatever the case and punctuation."""
    words, wanted = tokenize(text), tokenize(phrase)
    if not wanted:
        return 0
    uses = position = 0
    while position <= len(words) - len(wanted):
        if words[position : position + len(wanted)] == wanted:
            uses += 1
            position += len(wanted)
        else:
            position += 1
    return uses
