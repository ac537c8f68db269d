"""What operators break messages with: words of their language, other people's lines, names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from persona_pipeline.documents import load_document, validate_document
from persona_pipeline.scoring.text.tokens import tokenize

_DATA = Path(__file__).parent / "data"
# Share of a text's words that are common ones of a language: in running text a quarter and more.
_LEAST_COMMON = 0.08


class NotApplicableError(Exception):
    """The fault cannot be planted in these messages; the message says why."""


class Words(BaseModel):
    """Words and stock lines of one language.

    Attributes:
        common: words by which the language is told.
        boilerplate: neutral lines that any polite assistant could have sent.
        denials: sentences that take ``{line}`` back.
        fillers: words of emphasis and interjections.
        weekdays, months, numbers: lower case; one is swapped for another of its list.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    language: str
    common: tuple[str, ...] = Field(min_length=10)
    boilerplate: tuple[str, ...] = Field(min_length=10)
    denials: tuple[str, ...] = Field(min_length=3)
    fillers: tuple[str, ...]
    weekdays: tuple[str, ...]
    months: tuple[str, ...]
    numbers: tuple[str, ...]


@dataclass(frozen=True)
class Material:
    """What is there to break an agent's messages with.

    Attributes:
        words: of the language of its messages; None: of a language that no data are there for.
        others: what each other agent said, oldest first.
        names: of people around it.
    """

    words: Words | None = None
    others: Mapping[str, Sequence[str]] = field(default_factory=dict)
    names: Sequence[str] = ()

    def known_words(self) -> Words:
        """Return the words of the messages' language.

        Raises:
            NotApplicableError: there are none.
        """
        if self.words is None:
            known = ", ".join(words.language for words in all_words())
            raise NotApplicableError(
                f"there are no stock lines in the language of these messages; there are for {known}"
            )
        return self.words


@cache
def all_words() -> tuple[Words, ...]:
    """Return the languages that there are data for."""

    def read(path: Path) -> Words:
        document = load_document(path)
        # Lists of YAML are tuples here.
        document.data = {
            key: tuple(value) if isinstance(value, list) else value for key, value in document.data.items()
        }
        return validate_document(Words, document)

    return tuple(read(path) for path in sorted(_DATA.glob("*.yaml")))


def words_of(texts: Sequence[str]) -> Words | None:
    """Return the words of the language that most of the texts' common words are of; None where none is known."""
    tokens = [token for text in texts for token in tokenize(text)]
    if not tokens:
        return None

    def share(words: Words) -> float:
        known = {token for word in words.common for token in tokenize(word)}
        return sum(token in known for token in tokens) / len(tokens)

    best = max(all_words(), key=share)
    return best if share(best) >= _LEAST_COMMON else None
