"""What sees a broken window without a judge, and for nothing: the product's own signals, on the same messages."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from persona_pipeline.baselines import REGRESSION_DELTA
from persona_pipeline.claims.matrix import SignalReading
from persona_pipeline.propositions.dimensions import FLUENCY
from persona_pipeline.scoring import AgentCase
from persona_pipeline.scoring.convergence import voice_statistics
from persona_pipeline.scoring.fluency import ngram_part
from persona_pipeline.scoring.text.agreement import agreement_ratio, no_lexicon, unread_language
from persona_pipeline.scoring.text.repetition import excessive_repetition
from persona_pipeline.world.models import CorrectionSettings, Message

if TYPE_CHECKING:
    from persona_pipeline.scoring.voice_alarm import VoiceModel

_STRETCH = 5
# Intact windows of five fire in 1.5 % at most; this many of a window's do not by chance.
_MOST_FIRING = 0.2
_OFF = CorrectionSettings()


def read_signals(case: AgentCase, before: Sequence[Message] = ()) -> dict[str, SignalReading]:
    """Return what each signal says of an agent's messages in the window.

    Args:
        before: what everybody said before the window, from which the agent's voice is learnt.
    """
    texts = [message.text for message in case.messages]
    return {
        "repetition": _repetition(texts),
        "ngrams": _ngrams(texts, case.earlier_texts().get(case.agent_id, ())),
        "agreement": _agreement(texts, case),
        "another's lines": _likeness(case),
        "voice": _voice(case, before),
    }


def against(intact: Mapping[str, SignalReading], broken: Mapping[str, SignalReading]) -> dict[str, SignalReading]:
    """Return the readings of a broken window: what fires on the intact one too has caught nothing, and n-grams must fall."""
    found = {}
    for name, reading in broken.items():
        known = intact[name]
        caught = reading.caught and not known.caught
        if name == "ngrams" and reading.value is not None and known.value is not None:
            # So that fluency falls by what the guard allows.
            caught = known.value - reading.value > REGRESSION_DELTA / FLUENCY.parts["_ngram"]
        found[name] = reading.model_copy(update={"caught": caught})
    return found


def _repetition(texts: Sequence[str]) -> SignalReading:
    starts = range(0, len(texts) - _STRETCH + 1)
    if not starts:
        return SignalReading(said=f"needs {_STRETCH} messages")
    firing = [excessive_repetition(texts[s : s + _STRETCH], _OFF.repetition_threshold) is not None for s in starts]
    share = sum(firing) / len(firing)
    return SignalReading(
        value=share, caught=share > _MOST_FIRING, said=f"fires in {share:.0%} of stretches of {_STRETCH}"
    )


def _ngrams(texts: Sequence[str], history: Sequence[str]) -> SignalReading:
    row, _ = ngram_part(texts, history)
    return SignalReading(value=row.score, said=row.reasoning if row.score is None else f"{row.score:.1f} of 9")


def _agreement(texts: Sequence[str], case: AgentCase) -> SignalReading:
    if language := unread_language(texts, case.lexicon):
        return SignalReading(said=no_lexicon(language))
    share = agreement_ratio(texts, case.lexicon)
    return SignalReading(value=share, caught=share > _OFF.convergence_threshold, said=f"{share:.0%} agree")


def _likeness(case: AgentCase) -> SignalReading:
    channels = case.group_channels()
    if not channels:
        return SignalReading(said="nobody else spoke in its channels")
    found = [
        item
        for statistics in voice_statistics(channels, case.earlier_texts()).values()
        for item in statistics["findings"]
        if item["agent_id"] == case.agent_id
    ]
    others = sorted({item["other"] for item in found})
    return SignalReading(
        value=len(found), caught=bool(found), said=f"like {', '.join(others)}" if others else "nobody's"
    )


def _voice(case: AgentCase, before: Sequence[Message]) -> SignalReading:
    from persona_pipeline.scoring.voice_alarm import FEWEST_OWN, follow_voice

    model = _learnt(case.agent_id, tuple(before))
    if model is None:
        return SignalReading(said=f"needs {FEWEST_OWN} messages of its own before the window")
    _, alarms = follow_voice(model, case.messages)
    if not alarms:
        return SignalReading(value=0, said="no alarm")
    first = next(n for n, m in enumerate(case.messages, 1) if m.id == alarms[0].raised_at.id)
    return SignalReading(value=len(alarms), caught=True, said=f"alarm at its message {first}")


@lru_cache(maxsize=4)
def _learnt(agent_id: str, before: tuple[Message, ...]) -> "VoiceModel | None":
    # The same for every fault.
    from persona_pipeline.scoring.voice_alarm import learn_voice

    return learn_voice(agent_id, before)
