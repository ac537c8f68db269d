"""Agreement language in messages: does the opening clause of a turn praise or assent, with nothing after it that takes it back?

Agreement is said first: what stands deep in a turn is about something else ("exactly forty cartons", "the agreed price"). Which
language a turn is in is told by script and by the commonest words; what agreement sounds like in it is data, lists of terms.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import islice, product
from pathlib import Path

import regex
from pydantic import BaseModel, Field

from persona_pipeline.base.documents.yaml import Document, load_document, validate_document
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.scoring.text.tokens import tokenize

ENGLISH, UNKNOWN = "en", "unknown"
# Words that English has too are left out, of the other languages and of English those that are common in them.
_WORDS = {
    "en": "the and is are you that this it to for with have be my your its im dont what just yes good great right agree i we not "
    "they there would can will our how",
    "de": "der das und ist nicht ich du wir ihr sie ein eine auch mit für auf dem den es ja genau stimmt sehr gut klar aber wie "
    "einverstanden absolut richtig recht hast dir zu voll ganz",
    "fr": "le les des et est je tu nous vous il elle pas que qui une dans cest daccord oui mais très tout bien avec ça tes du "
    "exactement raison suis jai au vrai à",
    "es": "el los las y es que un una por con para está muy pero yo estoy acuerdo eso bien tienes razón sí exacto claro de lo la "
    "totalmente como del",
    "it": "il gli è che di un una per con sono sì si ma molto anche questo daccordo hai ragione giusto esatto della non proprio "
    "certo assolutamente questa bene",
    "pt": "os é que não um uma para com eu você sim mas muito está isso concordo certo bem exatamente da ao tem razão claro "
    "verdade também totalmente plenamente",
    "nl": "het een niet ik jij wij zij dat ook met voor op zijn maar ja heel goed klopt eens je wat helemaal inderdaad de van "
    "precies mee er",
}
_OF_WORD: dict[str, list[str]] = {}
for _language, _listed in _WORDS.items():
    for _word in _listed.split():
        _OF_WORD.setdefault(_word, []).append(_language)
# In this order: Japanese is written in Han too, and has letters of its own between.
_SCRIPTS = {
    "ja": regex.compile(r"[\p{Hiragana}\p{Katakana}]"),
    "zh": regex.compile(r"\p{Han}"),
    "ko": regex.compile(r"\p{Hangul}"),
    "ar": regex.compile(r"\p{Arabic}"),
    "he": regex.compile(r"\p{Hebrew}"),
    "hi": regex.compile(r"\p{Devanagari}"),
    "el": regex.compile(r"\p{Greek}"),
    "th": regex.compile(r"\p{Thai}"),
    "ru": regex.compile(r"\p{Cyrillic}"),
}
_LATIN, _LETTER = regex.compile(r"\p{Latin}"), regex.compile(r"\p{L}")
_LINK = regex.compile(r"\w+://\S+")
_FOREIGN_LETTER = regex.compile(r"(?=\p{Latin})[^a-zA-Z]|[¿¡]")
# Of a text in Japanese at least so much is kana, however many its characters.
_LEAST_KANA = 0.1
# English of so many words has some of the commonest; without them it is another language.
_ENOUGH_WORDS, _LEAST_SHARE = 30, 0.04
KNOWN = frozenset({*_WORDS, *_SCRIPTS})


def base_language(code: str) -> str:
    """Return a language without its region: ``pt`` of ``pt-BR``."""
    return code.replace("_", "-").partition("-")[0].lower()


def language_of(texts: Sequence[str]) -> str:
    """Return the language of texts, taken together, as its code: ``de``; ``unknown`` where it is another or cannot be told.

    Few words that fit no language better are read as English.
    """
    texts = [_LINK.sub(" ", text) for text in texts]
    said = "\n".join(texts)
    letters = len(_LETTER.findall(said))
    latin = len(_LATIN.findall(said))
    if latin * 2 < letters:
        counts = {language: len(script.findall(said)) for language, script in _SCRIPTS.items()}
        if counts["ja"] >= _LEAST_KANA * (counts["ja"] + counts["zh"]) > 0:
            return "ja"
        best = max(counts, key=lambda language: counts[language])
        return best if counts[best] * 2 > letters else UNKNOWN
    tokens = [token for text in texts for token in tokenize(text)]
    hits = Counter(language for token in tokens for language in _OF_WORD.get(token, ()))
    english = hits.pop(ENGLISH, 0)
    [(best, most), (_, next_best)] = [*hits.most_common(2), ("", 0), ("", 0)][:2]
    if most > english:
        return best if most > next_best else UNKNOWN
    foreign = len(_FOREIGN_LETTER.findall(said))
    enough = english >= _LEAST_SHARE * len(tokens) if len(tokens) >= _ENOUGH_WORDS else not foreign or english > 0
    return ENGLISH if enough else UNKNOWN


LEXICONS = "lexicons"
_DATA = Path(__file__).parent / "data"
# Stands for any one word; no token is an asterisk.
_ANY = "*"
_SLOT = regex.compile(r"(<\w+>)")

Phrase = tuple[str, ...]


class _LexiconFile(BaseModel, extra="forbid"):
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
    """Terms as tuples of tokens, each with its list; the comments of ``data/agreement.en.yaml`` say what each list does."""

    terms: frozenset[tuple[str, Phrase]]
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
        terms = frozenset(
            (name, term)
            for name in _TERM_LISTS
            for term in _forms(getattr(file, name), file.words, known, document, name)
        )
        single = frozenset(
            (f"<{name}>", words[0])
            for name, list_ in file.words.items()
            for words in map(_tokens, list_)
            if len(words) == 1
        )
        return cls(terms, words=single, languages=frozenset({base_language(file.language)}), reach=file.reach)

    def __or__(self, other: "AgreementLexicon") -> "AgreementLexicon":
        """Return both languages together; the longer reach holds, and lists of words of one name are one list."""
        return AgreementLexicon(
            self.terms | other.terms,
            self.words | other.words,
            self.languages | other.languages,
            max(self.reach, other.reach),
        )

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
        for name, term in self.terms:
            found[name].add(term)
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


_TERM_LISTS = tuple(name for name in _LexiconFile.model_fields if name not in ("language", "words", "reach"))


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
