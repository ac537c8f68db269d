"""Agreement language in messages: does the opening clause of a turn praise or assent, without a retraction after it?

Agreement comes first: a term deep in a turn is about something else ("exactly forty cartons", "the agreed price"). The terms of a
language are data, lists that are loaded with the first text in that language.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import regex
from pydantic import ConfigDict, Field, create_model

from persona_pipeline.base.documents.yaml import load_document, validate_document
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.scoring.text.tokens import (
    ENGLISH,
    UNKNOWN,
    base_language,
    is_unspaced,
    languages_of,
    read_sections,
    tokenize,
    told_languages,
)
from persona_pipeline.scoring.text.tokens import language_of as language_of

LEXICONS = "lexicons"
_DATA = Path(__file__).parent / "data"
# Matches any single word; a token is never an asterisk.
_ANY = "*"
_SLOT, _CHOICE = regex.compile(r"(<\w+>)"), regex.compile(r"\(([^()]*/[^()]*)\)")

Phrase = tuple[str, ...]


_TERM_LISTS = (
    *("phrases", "openings", "heads", "tails", "clauses", "weak", "faint", "continuations", "lead_ins", "trailing"),
    *("contrasts", "conditions", "clause_starts", "not_agreeing", "disagreement", "negations", "not_negating"),
)
_PACKAGED_LISTS = ("language", "recall", "reach", *_TERM_LISTS)
_OF_LISTS: dict[str, Any] = {name: (list[str], ... if name == "phrases" else []) for name in _TERM_LISTS}
_LexiconFile = create_model(
    "_LexiconFile",
    __config__=ConfigDict(extra="forbid"),
    language=(str, Field(min_length=2)),
    recall=(float | None, Field(None, ge=0, le=1)),
    words=(dict[str, list[str]], {}),
    reach=(int, Field(5, ge=0)),
    **_OF_LISTS,
)


class _Tree:
    """Tree of terms by token; looking up a term takes time proportional to its length."""

    def __init__(self) -> None:
        self.after: dict[str, _Tree] = {}
        self.ends = False

    def add(self, term: Phrase) -> None:
        tree = self
        for token in term:
            tree = tree.after.setdefault(token, _Tree())
        tree.ends = True

    def lengths(self, tokens: Sequence[str], start: int, lists: "_Lists") -> Iterator[int]:
        """Yield the lengths of the terms at ``start``; the name of a list of words matches each of its words."""
        waiting = [(start, self)]
        while waiting:
            place, tree = waiting.pop()
            if tree.ends:
                yield place - start
            if place < len(tokens):
                token = tokens[place]
                waiting += [(place + 1, tree.after[key]) for key in (token, _ANY) if key in tree.after]
                for name, words in lists.get(token, {}).items():
                    if following := tree.after.get(name):
                        waiting += [(place + length, following) for length in words.lengths(tokens, place, {})]


# Lists of words by first token and name.
_Lists = Mapping[str, Mapping[str, _Tree]]


@dataclass(frozen=True)
class AgreementLexicon:
    """Terms as tuples of tokens, each with its list; comments in ``data/agreement.en.txt`` explain each list.

    Attributes:
        recall: share (0-1) of agreeing lines found, measured on lines of other authors, not used for tuning; None: not measured.
    """

    terms: frozenset[tuple[str, Phrase]]
    words: frozenset[tuple[str, Phrase]] = frozenset()
    languages: frozenset[str] = frozenset({ENGLISH})
    reach: int = 5
    recall: float | None = None

    @classmethod
    def load(cls, path: Path | str, *, beside: "AgreementLexicon | None" = None) -> "AgreementLexicon":
        """Read a world's file of one language. Its terms may also use the lists of ``words`` of the other lexicon.

        Raises:
            ConfigError: the file is missing or invalid, or a term names an unknown list of ``words``.
        """
        document = load_document(path)
        file: Any = validate_document(_LexiconFile, document)
        words = {f"<{name}>": list_ for name, list_ in file.words.items()}
        known = words.keys() | ({name for name, _ in beside.words} if beside else set())
        lists: dict[str, list[str]] = {name: getattr(file, name) for name in _TERM_LISTS}
        named = [
            (name, at, slot) for name in lists for at, term in enumerate(lists[name]) for slot in _SLOT.findall(term)
        ]
        for name, at, slot in named:
            if slot not in known:
                there = ", ".join(sorted(known)) or "none"
                raise ConfigError(document.problem((name, at), f"{slot} is no list of words; there is {there}"))
        return cls.of(base_language(file.language), lists | words, file.reach, file.recall)

    @classmethod
    def packaged(cls, path: Path) -> "AgreementLexicon":
        """Read a file of the package: one term per line, or words separated by commas, in sections named after lists."""
        lists: dict[str, list[str]] = {}
        for name, line in read_sections(path, _PACKAGED_LISTS):
            lists.setdefault(name, []).extend(line.split(", "))
        (language,), (recall,), (reach,) = (lists.pop(name) for name in _PACKAGED_LISTS[:3])
        return cls.of(language, lists, int(reach), float(recall))

    @classmethod
    def of(
        cls, language: str, lists: Mapping[str, Iterable[str]], reach: int, recall: float | None
    ) -> "AgreementLexicon":
        """Return the lexicon of terms, given as text by list; names of lists of words are in angle brackets."""
        terms = [(name, _form(text)) for name, list_ in lists.items() for term in list_ for text in _choices(term)]
        filled = [(name, form) for name, form in terms if form]
        words = frozenset(item for item in filled if item[0][0] == "<")
        return cls(frozenset(filled) - words, words, frozenset({language}), reach, recall)

    def __or__(self, other: "AgreementLexicon") -> "AgreementLexicon":
        """Return the union of both languages, with the longer reach; lists of words with the same name are merged."""
        return AgreementLexicon(
            self.terms | other.terms,
            self.words | other.words,
            self.languages | other.languages,
            max(self.reach, other.reach),
        )

    @cached_property
    def lists(self) -> _Lists:
        """The lists of words as trees, by the tokens that begin their words."""
        trees: dict[str, _Tree] = {}
        found: dict[str, dict[str, _Tree]] = {}
        for name, phrase in self.words:
            trees.setdefault(name, _Tree()).add(phrase)
            found.setdefault(phrase[0], {})[name] = trees[name]
        return found

    @cached_property
    def trees(self) -> Mapping[str, _Tree]:
        """The terms of each list as a tree of tokens."""
        found = {name: _Tree() for name in _TERM_LISTS}
        for name, term in self.terms:
            found[name].add(term)
        return found

    def term_at(self, name: str, tokens: Sequence[str], start: int) -> int:
        """Return the length in tokens of the longest term of a list at ``start``, 0 for none."""
        if self.trees[name].after.keys().isdisjoint((tokens[start], _ANY, *self.lists.get(tokens[start], ()))):
            return 0
        return max(self.trees[name].lengths(tokens, start, self.lists), default=0)

    def matches(self, name: str, tokens: Sequence[str]) -> Iterable[tuple[int, int]]:
        """Yield ``(start, end)`` of the terms of a list, the longest at each place, without overlap."""
        start = 0
        while start < len(tokens):
            length = self.term_at(name, tokens, start)
            if length:
                yield start, start + length
            start += length or 1


@cache
def packaged_languages() -> frozenset[str]:
    """Return the codes of the languages with a packaged lexicon."""
    return frozenset(path.name.split(".")[1] for path in _DATA.glob("agreement.*.txt"))


@cache
def packaged_lexicon(language: str) -> AgreementLexicon:
    """Return the lexicon of a language in ``packaged_languages``."""
    return AgreementLexicon.packaged(_DATA / f"agreement.{language}.txt")


def world_lexicon(root: Path) -> AgreementLexicon:
    """Return the union of the English lexicon and those of a world, ``<root>/lexicons/agreement.<language>.yaml``.

    Raises:
        ConfigError: a file is invalid.
    """
    lexicon = packaged_lexicon(ENGLISH)
    for path in sorted((root / LEXICONS).glob("agreement.*.y*ml")):
        language = base_language(path.name.split(".")[1])
        beside = _with(lexicon, language) if language in packaged_languages() else lexicon
        lexicon = lexicon | AgreementLexicon.load(path, beside=beside)
    return lexicon


@lru_cache(maxsize=64)
def _with(lexicon: AgreementLexicon, *languages: str) -> AgreementLexicon:
    """Return the union of a lexicon and the packaged ones of other languages."""
    for language in languages:
        lexicon = lexicon | packaged_lexicon(language)
    return lexicon


def _choices(term: str) -> list[str]:
    """Return the expansions of a term: ``(good/great) idea`` gives two, ``(very/) good`` one with the word and one without."""
    found = _CHOICE.search(term)
    if found is None:
        return [term]
    return [
        whole for part in found[1].split("/") for whole in _choices(term[: found.start()] + part + term[found.end() :])
    ]


def _form(term: str) -> Phrase:
    """Return a term as tokens; a list of words is one token in it."""
    return tuple(token for part in _SLOT.split(term) for token in ([part] if _SLOT.fullmatch(part) else _tokens(part)))


# Spelt in several ways: Arabic with and without vowel signs, with hamza or without.
_SPELT_ALIKE = str.maketrans("أإآٱىة", "اااايه", "\u064b\u064c\u064d\u064e\u064f\u0650\u0651\u0652\u0670\u0640")


def _words(text: str) -> list[str]:
    return tokenize(text if text.isascii() else text.translate(_SPELT_ALIKE))


def _tokens(text: str) -> Phrase:
    return tuple(token for part in text.split() for token in ([_ANY] if part == _ANY else _words(part)))


# A dot inside a word or a number does not end a clause; scripts without spaces have no space after marks.
_MARK = regex.compile(
    r"""[.,;:!?…]+(?=[\s"'”’)*_\p{Han}\p{Hiragana}\p{Katakana}]|$)|[—–\n、。，！？；：｡～¿¡()“”«»「」『』（）،؛؟۔।॥]+|\s-+\s"""
)
_SENTENCE_END = regex.compile(r"[\p{Sentence_Terminal}…\n]")
# Short clauses such as a name, "oh" or "thank you" may come before the one that counts. A word has two characters or more.
_SHORT, _SHORT_UNSPACED, _MOST_SKIPPED = 2, 6, 3
_AIM = 0.8
# Later clauses of a long message neither agree nor retract agreement.
_MOST_READ = 12


@dataclass(frozen=True)
class _Clause:
    tokens: Sequence[str]
    ends_sentence: bool
    asks: bool


def unread_language(messages: Sequence[str], lexicon: AgreementLexicon | None = None) -> str | None:
    """Return a language of messages for which neither the lexicon nor the package has terms; None: agreement can be read."""
    held = (lexicon or packaged_lexicon(ENGLISH)).languages | packaged_languages()
    # A lexicon of a language that ``language_of`` does not recognize serves unknown languages.
    held |= {UNKNOWN} if held - told_languages() else set()
    return next((language for language in languages_of(messages) if language not in held), None)


def no_lexicon(language: str) -> str:
    """Return the reason why agreement in a language is not read."""
    return "no lexicon for this language" if language == UNKNOWN else f"no lexicon for {language}"


def often_missed(languages: Iterable[str]) -> list[str]:
    """Return a sentence for each language whose packaged lexicon has a recall below the target."""
    lexicons = ((language, packaged_lexicon(language)) for language in languages if language in packaged_languages())
    recalls = ((language, lexicon.recall) for language, lexicon in lexicons if lexicon.recall is not None)
    return [
        f"the lexicon for {name} finds about {share:.0%} of agreeing lines" for name, share in recalls if share < _AIM
    ]


def agreement_ratio(messages: Sequence[str], lexicon: AgreementLexicon | None = None) -> float:
    """Return the share (0-1) of messages with agreement language; 0.0 for no messages. ``unread_language`` shows whether it is
    meaningful. The packaged lexicons of the messages' languages are added to ``lexicon``.

    The caller selects the messages, such as the last ten of a channel.
    """
    if not messages:
        return 0.0
    lexicon = lexicon or packaged_lexicon(ENGLISH)
    lexicon = _with(lexicon, *sorted(packaged_languages().intersection(languages_of(messages)) - {ENGLISH}))
    return sum(is_agreement(message, lexicon) for message in messages) / len(messages)


# Each new message of a channel causes a new reading of the others.
@lru_cache(maxsize=1024)
def is_agreement(text: str, lexicon: AgreementLexicon | None = None) -> bool:
    """Return whether a turn opens with agreement: praise of the previous messages, or assent.

    A question, a following contrast or condition (``Good point, but ...``, ``I'd agree if ...``) and a negation do not
    count. Short clauses before the opening one, such as a name, are skipped.
    """
    lexicon = lexicon or packaged_lexicon(ENGLISH)
    clauses = list(islice(_clauses(text, lexicon), _MOST_READ))
    for index, clause in enumerate(clauses[: _MOST_SKIPPED + 1]):
        after = clauses[index + 1 :]
        if _agrees(clause, after, lexicon):
            return not _taken_back(clause, after, lexicon)
        if len(clause.tokens) > (_SHORT_UNSPACED if is_unspaced(clause.tokens[0]) else _SHORT):
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
    """Yield the places where an opening may begin: the start of the clause, and after each lead-in from there."""
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
        pieces = [piece for piece in _split(_words(part), lexicon) if piece]
        for number, piece in enumerate(pieces, 1):
            last = number == len(pieces)
            ends = last and (mark is None or _SENTENCE_END.search(end) is not None)
            yield _Clause(piece, ends, last and any(sign in end for sign in "?？؟"))


def _split(tokens: list[str], lexicon: AgreementLexicon) -> Iterator[list[str]]:
    """Yield the parts of a clause; a word that begins a new clause becomes its first word."""
    cuts = [
        position
        for position in range(1, len(tokens))
        if any(lexicon.term_at(name, tokens, position) for name in _CUTTING)
    ]
    if cuts and any(map(is_unspaced, tokens)):
        # In scripts without spaces a "but" may be part of another word.
        whole = [term for name in _UNCUT for term in lexicon.matches(name, tokens)]
        cuts = [position for position in cuts if not any(begin < position < end for begin, end in whole)]
    for start, end in pairwise([0, *cuts, len(tokens)]):
        yield tokens[start:end]


_CUTTING = ("clause_starts", "contrasts", "conditions")
_UNCUT = ("openings", "clauses", "phrases", "not_negating")
