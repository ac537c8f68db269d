"""What agreement sounds like, as data: lists of terms of one language, or of several together."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from itertools import product
from pathlib import Path

import regex
from pydantic import BaseModel, ConfigDict, Field

from persona_pipeline.documents import Document, load_document, validate_document
from persona_pipeline.errors import ConfigError
from persona_pipeline.scoring.text.language import ENGLISH, base_language
from persona_pipeline.scoring.text.tokens import tokenize

LEXICONS = "lexicons"
_DATA = Path(__file__).parent / "data"
# Stands for any one word; no token is an asterisk.
_ANY = "*"
_SLOT = regex.compile(r"(<\w+>)")

Phrase = tuple[str, ...]


class _LexiconFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    language: str = Field(min_length=2)
    phrases: list[str]
    words: dict[str, list[str]] = {}
    openings: list[str] = []
    heads: list[str] = []
    tails: list[str] = []
    clauses: list[str] = []
    weak: list[str] = []
    faint: list[str] = []
    continuations: list[str] = []
    lead_ins: list[str] = []
    trailing: list[str] = []
    contrasts: list[str] = []
    conditions: list[str] = []
    clause_starts: list[str] = []
    not_agreeing: list[str] = []
    disagreement: list[str] = []
    negations: list[str] = []
    reach: int = Field(5, ge=0)
    not_negating: list[str] = []


class _Tree:
    """Terms by their first token, and what may follow it as a tree again; so a term costs its length to look up."""

    def __init__(self) -> None:
        self.after: dict[str, _Tree] = {}
        self.ends = False

    def add(self, term: Phrase) -> None:
        tree = self
        for token in term:
            tree = tree.after.setdefault(token, _Tree())
        tree.ends = True

    def longest(self, tokens: Sequence[str], start: int, lists_of: Mapping[str, tuple[str, ...]]) -> int:
        """Return the length of the longest term that stands at ``start``, 0 for none."""
        found, depth, level = 0, 0, [self]
        while level:
            found = depth if any(tree.ends for tree in level) else found
            if start + depth >= len(tokens):
                break
            token = tokens[start + depth]
            wanted = (token, _ANY, *lists_of.get(token, ()))
            level = [tree.after[key] for tree in level for key in wanted if key in tree.after]
            depth += 1
        return found


@dataclass(frozen=True)
class AgreementLexicon:
    """Terms as tuples of tokens; the comments of ``data/agreement.en.yaml`` say what each list does."""

    phrases: frozenset[Phrase]
    openings: frozenset[Phrase] = frozenset()
    heads: frozenset[Phrase] = frozenset()
    tails: frozenset[Phrase] = frozenset()
    clauses: frozenset[Phrase] = frozenset()
    weak: frozenset[Phrase] = frozenset()
    faint: frozenset[Phrase] = frozenset()
    continuations: frozenset[Phrase] = frozenset()
    lead_ins: frozenset[Phrase] = frozenset()
    trailing: frozenset[Phrase] = frozenset()
    contrasts: frozenset[Phrase] = frozenset()
    conditions: frozenset[Phrase] = frozenset()
    clause_starts: frozenset[Phrase] = frozenset()
    not_agreeing: frozenset[Phrase] = frozenset()
    disagreement: frozenset[Phrase] = frozenset()
    negations: frozenset[Phrase] = frozenset()
    not_negating: frozenset[Phrase] = frozenset()
    words: frozenset[tuple[str, str]] = frozenset()
    languages: frozenset[str] = frozenset({ENGLISH})
    reach: int = 5

    @classmethod
    def load(cls, path: Path | str, *, beside: "AgreementLexicon | None" = None) -> "AgreementLexicon":
        """Read one language's file. Its terms may use the lists of ``words`` of the lexicon it is loaded ``beside``.

        Raises:
            ConfigError: the file is missing or not of this shape, or a term names a list of ``words`` that is not there.
        """
        document = load_document(path)
        file = validate_document(_LexiconFile, document)
        known = {f"<{name}>" for name in file.words} | ({name for name, _ in beside.words} if beside else set())
        lists = {name: getattr(file, name) for name in _TERM_LISTS}
        terms = {name: _forms(lists[name], file.words, known, document, name) for name in _TERM_LISTS}
        single = frozenset(
            (f"<{name}>", words[0])
            for name, list_ in file.words.items()
            for words in map(_tokens, list_)
            if len(words) == 1
        )
        return cls(**terms, words=single, languages=frozenset({base_language(file.language)}), reach=file.reach)

    def with_terms(self, phrases: Iterable[str]) -> "AgreementLexicon":
        """Return this lexicon with further agreement phrases."""
        return replace(self, phrases=self.phrases | _phrases(phrases))

    def __or__(self, other: "AgreementLexicon") -> "AgreementLexicon":
        """Return both languages together; the longer reach holds, and lists of words of one name are one list."""
        lists = {name: getattr(self, name) | getattr(other, name) for name in (*_TERM_LISTS, "words", "languages")}
        return AgreementLexicon(**lists, reach=max(self.reach, other.reach))

    @cached_property
    def lists_of(self) -> Mapping[str, tuple[str, ...]]:
        """The lists of words a token is in."""
        found: dict[str, tuple[str, ...]] = {}
        for name, token in sorted(self.words):
            found[token] = (*found.get(token, ()), name)
        return found

    @cached_property
    def trees(self) -> Mapping[str, "_Tree"]:
        """The terms of each list as a tree of tokens."""
        found = {name: _Tree() for name in _TERM_LISTS}
        for name, tree in found.items():
            for term in getattr(self, name):
                tree.add(term)
        return found

    def term_at(self, name: str, tokens: Sequence[str], start: int) -> int:
        """Return the length in tokens of the longest term of a list that stands at ``start``, 0 for none."""
        return self.trees[name].longest(tokens, start, self.lists_of)

    def matches(self, name: str, tokens: Sequence[str]) -> Iterable[tuple[int, int]]:
        """Yield ``(start, end)`` of the terms of a list, the longest at each place, without overlap."""
        start = 0
        while start < len(tokens):
            length = self.term_at(name, tokens, start)
            if length:
                yield start, start + length
            start += length or 1


_TERM_LISTS = tuple(
    field.name for field in fields(AgreementLexicon) if field.name not in ("words", "languages", "reach")
)


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
        lexicon = lexicon | AgreementLexicon.load(path, beside=lexicon)
    return lexicon


def _forms(
    terms: Sequence[str], words: Mapping[str, Sequence[str]], known: set[str], document: Document, name: str
) -> frozenset[Phrase]:
    """Return terms as tokens. A list of words stays one token in them; words of several tokens are written out."""
    found: set[Phrase] = set()
    for index, term in enumerate(terms):
        choices: list[list[Phrase]] = []
        for part in filter(None, _SLOT.split(term)):
            if not _SLOT.fullmatch(part):
                choices.append([_tokens(part)])
            elif part in known:
                several = [tokens for tokens in map(_tokens, words.get(part[1:-1], ())) if len(tokens) > 1]
                choices.append([(part,), *several])
            else:
                there = ", ".join(sorted(known)) or "none"
                raise ConfigError(document.problem((name, index), f"{part} is no list of words; there is {there}"))
        found.update(tuple(token for part in form for token in part) for form in product(*choices))
    return frozenset(phrase for phrase in found if phrase)


def _tokens(text: str) -> Phrase:
    return tuple(token for part in text.split() for token in ([_ANY] if part == _ANY else tokenize(part)))


def _phrases(terms: Iterable[str]) -> frozenset[Phrase]:
    return frozenset(phrase for phrase in map(_tokens, terms) if phrase)
