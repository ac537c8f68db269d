"""Agreement language in messages: does the opening clause of a turn praise or assent, with nothing after it that takes it back?

Agreement is said first: what stands deep in a turn is about something else ("exactly forty cartons", "the agreed price").
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import regex

from persona_pipeline.scoring.text.language import KNOWN, UNKNOWN, language_of
from persona_pipeline.scoring.text.lexicon import LEXICONS, AgreementLexicon, default_lexicon, world_lexicon
from persona_pipeline.scoring.text.tokens import tokenize

__all__ = [
    "LEXICONS",
    "AgreementLexicon",
    "agreement_ratio",
    "default_lexicon",
    "is_agreement",
    "no_lexicon",
    "unread_language",
    "world_lexicon",
]

# A dot inside a word or a number ends nothing; scripts without spaces put none after their marks.
_MARK = regex.compile(r"[.,;:!?…]+(?=[\s\"'”’)*_]|$)|[—–\n、。，！？；：¿¡()“”]+|\s-+\s")
_SENTENCE_END = regex.compile(r"[.!?…\n。！？]")
# A name, an "oh", a "thank you": clauses this short may stand before the one that counts.
_SHORT, _MOST_SKIPPED = 2, 3
# Whatever stands later in a long message neither agrees nor takes agreement back.
_MOST_READ = 12


@dataclass(frozen=True)
class _Clause:
    tokens: Sequence[str]
    ends_sentence: bool
    asks: bool


def unread_language(messages: Sequence[str], lexicon: AgreementLexicon | None = None) -> str | None:
    """Return the language of messages that the lexicon has no terms of; None: agreement in them can be read."""
    held = (lexicon or default_lexicon()).languages
    language = language_of(messages)
    # A lexicon of a language that is not told from others is for what is unknown.
    return None if language in held or (language == UNKNOWN and held - KNOWN) else language


def no_lexicon(language: str) -> str:
    """Return why agreement in a language is not read."""
    return "no lexicon for this language" if language == UNKNOWN else f"no lexicon for {language}"


def agreement_ratio(messages: Sequence[str], lexicon: AgreementLexicon | None = None) -> float:
    """Return the share (0-1) of messages with agreement language; 0.0 for no messages. ``unread_language`` says whether it means
    anything.

    Which messages count, such as the last ten of a channel, is up to the caller.
    """
    if not messages:
        return 0.0
    return sum(is_agreement(message, lexicon) for message in messages) / len(messages)


def is_agreement(text: str, lexicon: AgreementLexicon | None = None) -> bool:
    """Return whether a turn opens with agreement: praise of what was said, or assent.

    It does not when the sentence asks, when a contrast or a condition follows (``Good point, but ...``, ``I'd agree if
    ...``), or when it is negated. Short clauses before the opening one, such as a name, are passed over.
    """
    lexicon = lexicon or default_lexicon()
    clauses = list(islice(_clauses(text, lexicon), _MOST_READ))
    for index, clause in enumerate(clauses[: _MOST_SKIPPED + 1]):
        after = clauses[index + 1 :]
        if _agrees(clause, after, lexicon):
            return not _taken_back(clause, after, lexicon)
        if len(clause.tokens) > _SHORT:
            return False
    return False


def _agrees(clause: _Clause, after: Sequence[_Clause], lexicon: AgreementLexicon) -> bool:
    tokens = clause.tokens
    if _opens(tokens, lexicon) or _is_whole("clauses", tokens, lexicon) or _holds_phrase(tokens, lexicon):
        return True
    if not _is_whole("weak", tokens, lexicon):
        return False
    faint = _is_whole("faint", tokens, lexicon)
    goes_on = bool(after) and lexicon.term_at("continuations", after[0].tokens, 0) > 0
    return goes_on or (not faint and (clause.ends_sentence or not after))


def _opens(tokens: Sequence[str], lexicon: AgreementLexicon) -> bool:
    unmeant = _covered(tokens, "not_agreeing", lexicon)
    for start in _starts(tokens, lexicon):
        end = start + lexicon.term_at("openings", tokens, start)
        if end == start:
            end = start + lexicon.term_at("heads", tokens, start)
            if end < len(tokens) and not lexicon.term_at("tails", tokens, end):
                continue
        if end > start and not unmeant.intersection(range(start, end)):
            return True
    return False


def _is_whole(name: str, tokens: Sequence[str], lexicon: AgreementLexicon) -> bool:
    for start in _starts(tokens, lexicon):
        end = start + lexicon.term_at(name, tokens, start)
        while start < end < len(tokens) and (length := lexicon.term_at("trailing", tokens, end)):
            end += length
        if start < end == len(tokens):
            return True
    return False


def _starts(tokens: Sequence[str], lexicon: AgreementLexicon) -> Iterator[int]:
    """Yield where an opening may begin: at the clause's beginning and after each run of lead-ins from there."""
    start = 0
    while start < len(tokens):
        yield start
        length = lexicon.term_at("lead_ins", tokens, start)
        if not length:
            return
        start += length


def _holds_phrase(tokens: Sequence[str], lexicon: AgreementLexicon) -> bool:
    agreeing = list(lexicon.matches("phrases", tokens))
    if not agreeing:
        return False
    within = {index for start, end in agreeing for index in range(start, end)}
    if any(start not in within for start, _ in lexicon.matches("disagreement", tokens)):
        return False
    harmless = _covered(tokens, "not_negating", lexicon)
    negations = [start for start, _ in lexicon.matches("negations", tokens) if start not in harmless]
    unmeant = _covered(tokens, "not_agreeing", lexicon)
    return any(
        start not in unmeant and not any(0 < start - negation <= lexicon.reach for negation in negations)
        for start, _ in agreeing
    )


def _taken_back(clause: _Clause, after: Sequence[_Clause], lexicon: AgreementLexicon) -> bool:
    if clause.asks or any(True for _ in lexicon.matches("conditions", clause.tokens)):
        return True
    if after and not clause.ends_sentence and lexicon.term_at("conditions", after[0].tokens, 0):
        return True
    previous = clause
    for later in after:
        if lexicon.term_at("contrasts", later.tokens, 0) or (later.asks and not previous.ends_sentence):
            return True
        if previous.ends_sentence:
            return False
        previous = later
    return False


def _covered(tokens: Sequence[str], name: str, lexicon: AgreementLexicon) -> set[int]:
    return {index for start, end in lexicon.matches(name, tokens) for index in range(start, end)}


def _clauses(text: str, lexicon: AgreementLexicon) -> Iterator[_Clause]:
    position = 0
    marks = [*_MARK.finditer(text), None]
    for mark in marks:
        part, end = (text[position:], "") if mark is None else (text[position : mark.start()], mark.group())
        position = len(text) if mark is None else mark.end()
        pieces = [piece for piece in _split(tokenize(part), lexicon) if piece]
        for number, piece in enumerate(pieces, 1):
            last = number == len(pieces)
            ends = last and (mark is None or _SENTENCE_END.search(end) is not None)
            yield _Clause(piece, ends, last and any(sign in end for sign in "?？"))


def _split(tokens: list[str], lexicon: AgreementLexicon) -> Iterator[list[str]]:
    """Yield the parts of a clause; a word that begins a clause of its own stays at its head."""
    start = 0
    for position in range(1, len(tokens)):
        if any(lexicon.term_at(name, tokens, position) for name in ("clause_starts", "contrasts", "conditions")):
            yield tokens[start:position]
            start = position
    yield tokens[start:]
