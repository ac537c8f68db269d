"""Agreement language in messages: a lexicon in data, whole words, aware of negation and questions."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from pathlib import Path

import regex
from pydantic import BaseModel, ConfigDict, Field

from persona_pipeline.documents import load_document, validate_document
from persona_pipeline.scoring.text.tokens import tokenize

LEXICONS = "lexicons"
_DATA = Path(__file__).parent / "data"
_CLAUSE = regex.compile(r"([^.,;:!?…—–\n、。，！？；：¿¡()\"“”]+)([.,;:!?…—–\n、。，！？；：()\"“”]*)")

Phrase = tuple[str, ...]


class _LexiconFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    language: str = Field(min_length=2)
    phrases: list[str]
    clauses: list[str] = []
    negations: list[str] = []
    reach: int = Field(5, ge=0)
    not_negating: list[str] = []
    not_agreeing: list[str] = []
    disagreement: list[str] = []
    clause_starts: list[str] = []


@dataclass(frozen=True)
class AgreementLexicon:
    """Terms as tuples of tokens; the comments of ``data/agreement.en.yaml`` say what each list does."""

    phrases: frozenset[Phrase]
    clauses: frozenset[Phrase] = frozenset()
    negations: frozenset[Phrase] = frozenset()
    not_negating: frozenset[Phrase] = frozenset()
    not_agreeing: frozenset[Phrase] = frozenset()
    disagreement: frozenset[Phrase] = frozenset()
    clause_starts: frozenset[Phrase] = frozenset()
    reach: int = 5

    @classmethod
    def load(cls, path: Path | str) -> "AgreementLexicon":
        """Read one language's file.

        Raises:
            ConfigError: the file is missing or not of this shape.
        """
        file = validate_document(_LexiconFile, load_document(path))
        terms = {name: _phrases(getattr(file, name)) for name in cls.__dataclass_fields__ if name != "reach"}
        return cls(**terms, reach=file.reach)

    def with_terms(self, phrases: Iterable[str]) -> "AgreementLexicon":
        """Return this lexicon with further agreement phrases."""
        return replace(self, phrases=self.phrases | _phrases(phrases))

    def __or__(self, other: "AgreementLexicon") -> "AgreementLexicon":
        """Return both languages together; the longer reach holds."""
        names = [field.name for field in fields(self) if field.name != "reach"]
        terms = {name: getattr(self, name) | getattr(other, name) for name in names}
        return AgreementLexicon(**terms, reach=max(self.reach, other.reach))

    @cached_property
    def lengths(self) -> dict[str, tuple[int, ...]]:
        """Lengths in tokens of the terms of each list, longest first."""
        names = [field.name for field in fields(self) if field.name != "reach"]
        return {name: tuple(sorted({len(term) for term in getattr(self, name)}, reverse=True)) for name in names}


@cache
def default_lexicon() -> AgreementLexicon:
    """Return the English lexicon that ships with the package."""
    return AgreementLexicon.load(_DATA / "agreement.en.yaml")


def world_lexicon(root: Path) -> AgreementLexicon:
    """Return the English lexicon together with those of a world, ``<root>/lexicons/agreement.<language>.yaml``.

    Raises:
        ConfigError: a file is not of this shape.
    """
    lexicon = default_lexicon()
    for path in sorted((root / LEXICONS).glob("agreement.*.y*ml")):
        lexicon = lexicon | AgreementLexicon.load(path)
    return lexicon


def agreement_ratio(messages: Sequence[str], lexicon: AgreementLexicon | None = None) -> float:
    """Return the share (0-1) of messages with agreement language; 0.0 for no messages.

    Which messages count, such as the last ten of a channel, is up to the caller.
    """
    if not messages:
        return 0.0
    return sum(is_agreement(message, lexicon) for message in messages) / len(messages)


def is_agreement(text: str, lexicon: AgreementLexicon | None = None) -> bool:
    """Return whether some clause of the text agrees.

    A negated clause (``not exactly``, ``I don't agree``) does not, nor does a question (``do you agree?``).
    """
    lexicon = lexicon or default_lexicon()
    return any(
        _agrees(clause, lexicon)
        for part, end in _CLAUSE.findall(text)
        if not any(mark in end for mark in "?？")
        for clause in _clauses(tokenize(part), lexicon)
    )


def _clauses(tokens: list[str], lexicon: AgreementLexicon) -> Iterable[list[str]]:
    start = 0
    for position, _ in _matches(tokens, "clause_starts", lexicon):
        yield tokens[start:position]
        start = position + 1
    yield tokens[start:]


def _agrees(tokens: list[str], lexicon: AgreementLexicon) -> bool:
    if tuple(tokens) in lexicon.clauses:
        return True
    agreeing = list(_matches(tokens, "phrases", lexicon))
    if not agreeing:
        return False
    within = {index for start, end in agreeing for index in range(start, end)}
    if any(start not in within for start, _ in _matches(tokens, "disagreement", lexicon)):
        return False
    harmless = _covered(tokens, "not_negating", lexicon)
    negations = [start for start, _ in _matches(tokens, "negations", lexicon) if start not in harmless]
    unmeant = _covered(tokens, "not_agreeing", lexicon)
    return any(
        start not in unmeant and not any(0 < start - negation <= lexicon.reach for negation in negations)
        for start, _ in agreeing
    )


def _covered(tokens: list[str], name: str, lexicon: AgreementLexicon) -> set[int]:
    return {index for start, end in _matches(tokens, name, lexicon) for index in range(start, end)}


def _matches(tokens: list[str], name: str, lexicon: AgreementLexicon) -> Iterable[tuple[int, int]]:
    """Yield ``(start, end)`` of the terms of a list, the longest at each place, without overlap."""
    terms: frozenset[Phrase] = getattr(lexicon, name)
    lengths, start = lexicon.lengths[name], 0
    while start < len(tokens):
        length = next((n for n in lengths if tuple(tokens[start : start + n]) in terms), 0)
        if length:
            yield start, start + length
        start += length or 1


def _phrases(terms: Iterable[str]) -> frozenset[Phrase]:
    return frozenset(phrase for phrase in (tuple(tokenize(term)) for term in terms) if phrase)
