"""Repetition suppression: when an agent's last messages repeat one another, it is told which phrases to leave out."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from persona_pipeline.corrections.anti_convergence import SettingsOf
from persona_pipeline.corrections.guidance import Intervention, Nudge, guidance_block
from persona_pipeline.propositions.models import Catchphrase
from persona_pipeline.scoring.text.ngrams import mean_share, ngrams_of, shares_of_ngrams
from persona_pipeline.scoring.text.phrases import SharedPhrase, maximal_repeated_tokens, shared_openers_tokens
from persona_pipeline.scoring.text.tokens import tokenize
from persona_pipeline.world.models import CorrectionSettings, Message

WINDOW = 5
NGRAM_LENGTH = 3
_MOST_PHRASES = 8
_MOST_CHARACTERS = 200

CatchphrasesOf = Callable[[str], Sequence[Catchphrase]]


@dataclass(frozen=True)
class Repetition:
    """What some messages share.

    Attributes:
        share: mean share (0-1) of a message's trigrams that also stand in another of the messages.
        phrases: maximal repeated phrases of three or more tokens.
        openers: first three tokens that two or more messages have in common.
        exempt: catchphrases that were left out of all this, because they are used as often as they should be.
    """

    share: float
    phrases: tuple[SharedPhrase, ...]
    openers: tuple[SharedPhrase, ...]
    exempt: tuple[str, ...] = ()


def find_repetition(messages: Sequence[str], catchphrases: Sequence[Catchphrase] = ()) -> Repetition:
    """Measure how far messages repeat one another.

    A catchphrase whose rate (uses a message) lies within its range is taken out of every message first.
    """
    corpus = [tokenize(message) for message in messages]
    exempt = [item for item in catchphrases if _in_range(item, corpus)]
    segments = [_without(tokens, [tokenize(item.phrase) for item in exempt]) for tokens in corpus]
    grams = [
        list(dict.fromkeys(gram for part in parts for gram in ngrams_of(part, NGRAM_LENGTH))) for parts in segments
    ]
    # A mark between the parts that stands nowhere else, so that no phrase spans what was taken out.
    joined = [_joined(parts, number) for number, parts in enumerate(segments)]
    openers = shared_openers_tokens([parts[0] for parts in segments if parts])
    return Repetition(
        share=mean_share(shares_of_ngrams(grams)),
        phrases=tuple(maximal_repeated_tokens(joined, NGRAM_LENGTH)),
        openers=tuple(openers),
        exempt=tuple(item.phrase for item in exempt),
    )


class RepetitionSuppression:
    """Looks for repetition in an agent's last five messages. No judge, no database, nothing remembered.

    Args:
        settings: of all agents, or a function from an agent's id, such as ``StoredSettings``.
        catchphrases: an agent's; by default none is exempt.
    """

    def __init__(
        self, settings: CorrectionSettings | SettingsOf, *, catchphrases: CatchphrasesOf | None = None
    ) -> None:
        self._settings_of: SettingsOf = settings if callable(settings) else lambda _: settings
        self._catchphrases_of = catchphrases or (lambda _: ())

    def check(self, agent_id: str, messages: Sequence[Message | str]) -> str | None:
        """Return the block to append to the agent's prompt for its next turn, or None.

        Args:
            messages: oldest first, from all channels; the agent's own last five count (texts are taken to be
                its own).
        """
        found = self.find(agent_id, messages)
        return guidance_block([found]) if found else None

    def find(self, agent_id: str, messages: Sequence[Message | str]) -> Nudge | None:
        """Return the nudge behind the block, with the share of repetition that led to it."""
        settings = self._settings_of(agent_id)
        if not settings.repetition_suppression_enabled:
            return None
        own = [m if isinstance(m, str) else m.text for m in messages if isinstance(m, str) or m.agent_id == agent_id]
        latest = own[-WINDOW:]
        repetition = find_repetition(latest, self._catchphrases_of(agent_id))
        if not repetition.share > settings.repetition_threshold:
            return None
        return Nudge(
            Intervention.REPETITION, _text(repetition, latest), repetition.share, settings.repetition_threshold
        )


def _text(repetition: Repetition, messages: Sequence[str]) -> str:
    count = len(messages)
    lines = [
        "Your last messages repeat themselves. Say what you have to say in new words, and leave these phrases out:"
    ]
    lines += [f'- "{_cut(item.phrase)}" (in {item.messages} of {count})' for item in repetition.phrases[:_MOST_PHRASES]]
    if repetition.openers:
        lines.append("Begin differently from:")
        lines += [f'- "{_cut(item.phrase)} ..." (begins {item.messages} of {count})' for item in repetition.openers]
    lines.append("What you wrote last, oldest first:")
    lines += [f"- {json.dumps(_cut(message), ensure_ascii=False)}" for message in messages]
    return "\n".join(lines)


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 3]}..."


def _in_range(catchphrase: Catchphrase, corpus: Sequence[Sequence[str]]) -> bool:
    phrase = tokenize(catchphrase.phrase)
    if not phrase or not corpus:
        return False
    uses = sum(len(_without(tokens, [phrase], keep_empty=True)) - 1 for tokens in corpus)
    return uses > 0 and catchphrase.min_rate <= uses / len(corpus) <= catchphrase.max_rate


def _without(
    tokens: Sequence[str], phrases: Sequence[Sequence[str]], *, keep_empty: bool = False
) -> list[Sequence[str]]:
    """Return the parts of a message between the phrases, the longest phrase first where several begin at one place."""
    parts: list[Sequence[str]] = []
    start = position = 0
    ordered = sorted((phrase for phrase in phrases if phrase), key=len, reverse=True)
    while position < len(tokens):
        held = next((p for p in ordered if list(tokens[position : position + len(p)]) == list(p)), None)
        if held is None:
            position += 1
            continue
        parts.append(tokens[start:position])
        position += len(held)
        start = position
    parts.append(tokens[start:])
    return parts if keep_empty else [part for part in parts if part]


def _joined(parts: Sequence[Sequence[str]], number: int) -> list[str]:
    tokens: list[str] = []
    for index, part in enumerate(parts):
        tokens += [f" {number}.{index}"] * bool(tokens) + list(part)
    return tokens
