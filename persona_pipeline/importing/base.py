"""The interface of importers: each recognises sources of its format and reads messages from them."""

import hashlib
import html
import re
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from persona_pipeline.base.documents.json import decoded_text, rfc3339
from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.base.files import open_regular
from persona_pipeline.base.text import split_thinking
from persona_pipeline.base.turn_forms import TurnError
from persona_pipeline.base.turns import Turn, read_message
from persona_pipeline.importing.times import moment_of_seconds
from persona_pipeline.world.messages.files import Row, parse_message
from persona_pipeline.world.models import Message
from persona_pipeline.world.names import Aliases

_DIGITS = 24


@dataclass
class TurnIds:
    """Ids for turns without ids, made from conversation, speaker and text, so that they are the same in every export.

    A text that a speaker repeats in a conversation is numbered.
    """

    _said: Counter[str] = field(default_factory=Counter)

    def next(self, conversation: str, speaker: str, text: str) -> str:
        """Return the id of the next turn."""
        said = "\x1f".join((conversation, speaker, text))
        self._said[said] += 1
        return digest(said, str(self._said[said]))


def digest(*parts: str) -> str:
    """Return a short digest of texts, the same on every machine."""
    return hashlib.sha256("\x1e".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]


# Endings of files of rows. Excel's "Unicode text" is tab-separated and ends in .txt.
TABLES = (".csv", ".tsv", ".tab", ".txt")
_BEGINNING = 65_536
_LARGEST = 500_000_000
# What ChatGPT and assistants of OpenAI write around the sources that they cite.
_MARK = (
    r"(?>\ue200[^\ue200\ue201\n]*\ue201|\ue200[^\s\ue201]*|[\ue201\ue202]|【[^【】†\n]{0,99}†[^【】\n]{0,199}】"
    r"|【oaicite:\d{1,9}】|:contentReference\[oaicite:\d{1,9}\]\{index=\d{1,9}\})"
)
_CITED = re.compile(rf"(?m:^){_MARK}+ ?|[ ]?{_MARK}+(?=[\s.,;:!?)]|$)|{_MARK}")
# Marks around words that are shown: the name of an entity, the text of a link.
_NAMED = re.compile(
    r'\ue200(?:entity\ue202\[\s*"[^"\n]*",\s*"([^"\n]*)"[^\ue200\ue201\n]*|url\ue202([^\ue200-\ue202\n]*)\ue202[^\ue200\ue201\n]*)\ue201'
)
_PLACEHOLDERS = frozenset(
    (Path(__file__).parent / "data" / "placeholders.txt").read_text(encoding="utf-8").splitlines()
)
_AROUND = " \t\r\n`\u200b\u200e\u200f\ufeff"
_HTML = re.compile(
    r"\s*<(?:!doctype|html|head|style|body|p|div|span|br|table|ul|ol|h[1-6]|blockquote|pre)\b.*>\s*|[^<]*(?:<br\s*/?>.*)+",
    re.IGNORECASE | re.DOTALL,
)
_UNSEEN = re.compile(r"<(script|style|head)\b(?:(?!<\1\b).)*?</\1>|<!--(?:(?!<!--).)*?-->", re.IGNORECASE | re.DOTALL)
_LINE_ENDS = re.compile(
    r"\s*(?:<br\b[^<>]*>|</?(?:p|div|li|h[1-6]|tr|blockquote|[uo]l|pre|table)\b[^<>]*>)\s*", re.IGNORECASE
)
# Seconds or milliseconds as a text; digits in any other number may be a date.
_SECONDS = re.compile(r"\d{10}(\.\d+)?|\d{13}")


@dataclass(frozen=True)
class Skipped:
    """A line that should not be a message, such as a system prompt; ``reason`` is one of a few."""

    line: int
    reason: str


# A line of a source: a message, a problem (a row with a ``ValueError``), or a skipped line.
Found = Row | Skipped


@dataclass(frozen=True)
class Source:
    """A file or folder that is imported; ``name``: its name in problems."""

    path: Path
    name: str

    @property
    def is_folder(self) -> bool:
        return self.path.is_dir()

    @property
    def is_table(self) -> bool:
        """Whether its name is one of CSV."""
        return self.path.suffix.lower() in TABLES

    @property
    def is_json(self) -> bool:
        """Whether it begins as JSON; a date in brackets does not."""
        return bool(re.match(r"\s*(?:\{|\[(?!\d+[./-]))", self.beginning))

    @property
    def is_longer(self) -> bool:
        """Whether there is more of it than its beginning."""
        return self.path.stat().st_size > _BEGINNING

    @cached_property
    def beginning(self) -> str:
        """The first 64 KB of a file; empty for a folder.

        Raises:
            ConfigError: it cannot be read.
        """
        if self.is_folder:
            return ""
        try:
            return decoded_text(self.first_bytes, table=self.is_table, whole=not self.is_longer)
        except UnicodeDecodeError as error:
            return self.first_bytes.decode(error.encoding, "replace").removeprefix("\ufeff")

    @cached_property
    def first_bytes(self) -> bytes:
        try:
            with open_regular(self.path) as stream:
                return stream.read(_BEGINNING)
        except OSError as error:
            raise self.unreadable(error) from error

    def text(self) -> str:
        """Return all of a file.

        Raises:
            ConfigError: it cannot be read, is larger than 500 MB, or in an encoding that is not known.
        """
        try:
            if self.path.stat().st_size > _LARGEST:
                raise ConfigError(Problem("is larger than 500 MB; export it as JSON lines, or in parts", self.name))
            return decoded_text(self.path.read_bytes(), table=self.is_table)
        except OSError as error:
            raise self.unreadable(error) from error
        except UnicodeDecodeError as error:
            encoding = error.encoding.upper().removesuffix("-LE").removesuffix("-BE")
            wrong = f"is not {encoding} (byte {error.start}); save it as UTF-8"
            raise ConfigError(Problem(wrong, self.name)) from error

    def unreadable(self, error: OSError) -> ConfigError:
        """Return the error for a file that cannot be read."""
        return ConfigError(Problem(f"cannot be read ({error.strerror}); check the path", self.name))


@dataclass(frozen=True)
class ReadOptions:
    """How a source is read.

    Attributes:
        fields: message fields by the dotted key of their value (``--map KEY=FIELD``).
        starting: when the first conversation began, for formats that say no times.
        aliases: names of agents, for formats in which several names may be theirs.
        remembered: as ``fields``, for files that have these keys. ``roles``: meanings of the words in a column of roles.
    """

    fields: Mapping[str, str] = field(default_factory=dict)
    starting: datetime | None = None
    aliases: Aliases = field(default_factory=Aliases)
    remembered: Mapping[str, str] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)

    def given(self, record: Any) -> dict[str, str]:
        """Return the fields a record has under the keys that were mapped."""
        values = {name: value_at(record, key) for key, name in self.fields.items()}
        return {name: as_text(name, value) for name, value in values.items() if value is not None}


class Importer(ABC):
    """A format. An object is made for each source; it may keep what it learns of it."""

    # Its name for ``--format``, and a line about it for users.
    name: ClassVar[str]
    about: ClassVar[str]
    # Whether it is read from a folder; a folder of files is read file by file.
    of_folders: ClassVar[bool] = False
    # Whether all files are read once before they are imported: how speakers are called depends on who else has the name.
    looks_ahead: bool = False

    @abstractmethod
    def recognises(self, source: Source) -> bool:
        """Return whether a source is surely of this format, by a look at its beginning or at the names in a folder."""

    def files(self, source: Source) -> Sequence[Source]:
        """Return the files of a source in the order they are read.

        Raises:
            ConfigError: the format is one of files and this is a folder, or the other way round.
        """
        if source.is_folder:
            raise ConfigError(Problem(f"is a folder; {self.name} is read from files, name them", source.name))
        return [source]

    def require_no_fields(self, options: ReadOptions) -> None:
        """Raise ``ConfigError`` where keys are mapped of a format that has its own."""
        if options.fields:
            raise ConfigError(f"--map KEY=FIELD is not for {self.name}, whose keys are known; --map SPEAKER=AGENT is")

    def require_clear(self, source: Source, options: ReadOptions) -> None:  # noqa: B027
        """Raise ``ConfigError`` where it is not clear how a source is to be read; called before anything is written."""

    @abstractmethod
    def rows(self, file: Source, options: ReadOptions) -> Iterator[Found]:
        """Yield what each line of a file is. No line goes unsaid.

        Raises:
            ConfigError: the file cannot be read at all.
        """


# What a message's fields name, as "kind: id", by the keys of its extras.
IDENTITIES = {"agent_id": "speaker_id", "channel": "place_id", "recipient": "recipient_id"}


@dataclass
class Identities:
    """Names of speakers and places by their ids, such as ``Discord account: 12``. A name that two ids have gets the id behind it.

    ``preferred``: whether a name is to be kept where an id has several; otherwise the first is.
    """

    preferred: Callable[[str], bool] = lambda _: False
    _names: dict[str, str] = field(default_factory=dict)
    _ids: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))

    def told_apart(self, message: Message) -> Message:
        """Return a message whose names are unique for its ids."""
        ids = {name: message.extras[key] for name, key in IDENTITIES.items() if key in message.extras}
        return replace(
            message, **{name: self.shown(identity, getattr(message, name)) for name, identity in ids.items()}
        )

    def shown(self, identity: str, name: str) -> str:
        """Return the name of an id, which is noted."""
        kind, _, own = identity.partition(": ")
        known = self._names.get(identity, "")
        if not known or (name != known and self.preferred(name) and not self.preferred(known)):
            self._ids[kind, known].discard(own)
            self._ids[kind, name].add(own)
            self._names[identity] = known = name
        return f"{known} ({own})" if len(self._ids[kind, known]) > 1 else known

    @property
    def names(self) -> set[str]:
        """Names of ids."""
        return {*self._names.values()}

    def lines(self) -> list[str]:
        """Return a line for each name that several ids have."""
        return [
            f"{len(ids)} {kind}s are called {name!r}, read as {', '.join(f'{name} ({each})' for each in sorted(ids))}"
            for (kind, name), ids in sorted(self._ids.items())
            if len(ids) > 1
        ]

    def others(self, stored: Iterable[tuple[str, str]]) -> list[str]:
        """Return a line for each name that another id has in messages that are stored: pairs of a name and its id."""
        only = {key: min(ids) for key, ids in self._ids.items() if len(ids) == 1}
        found: dict[tuple[str, str], set[str]] = defaultdict(set)
        for name, identity in stored:
            kind, _, own = identity.partition(": ")
            if only.get((kind, name), own) != own:
                found[kind, name].add(own)
        return [
            f"{name!r} is the {kind} {only[kind, name]} here and {', '.join(sorted(ids))} in stored messages: they are one speaker "
            "or place until their sources are imported in one command"
            for (kind, name), ids in sorted(found.items())
        ]


def object_of(value: Any) -> Mapping[str, Any]:
    """Return a value that is a JSON object, an empty one for any other."""
    return value if isinstance(value, dict) else {}


def list_of(value: Any) -> list[Any]:
    """Return a value that is a list, an empty one for any other."""
    return value if isinstance(value, list) else []


def extras_of(turn: Turn, **beside: Any) -> dict[str, Any]:
    """Return the extras of a turn, without its name and empty values."""
    kept = {**turn.extras, **beside}
    return {key: item for key, item in kept.items() if key != "name" and item not in (None, "", [], {})}


def text_of(content: Any) -> str:
    """Return the words of a message's content or of its parts, a line each; empty where they are in no known form."""
    with suppress(TurnError):
        return read_message({"role": "user", "content": content}).text or ""
    return ""


def card_words(card: Mapping[str, Any], texts: Sequence[str], name: str) -> list[str]:
    """Return the words of an embed or attachment: the texts under some keys, and its fields, each with its name."""
    pairs = [(item.get(name), item.get("value")) for item in map(object_of, list_of(card.get("fields")))]
    said = [str(card.get(key) or "") for key in texts] + [
        ": ".join(str(part) for part in pair if part) for pair in pairs
    ]
    return [text for text in said if text.strip()]


def words_of(text: str) -> str:
    """Return the words of a text, without citation marks and without thinking in front of them."""
    return split_thinking(uncited(text))[1]


def uncited(text: str) -> str:
    """Return a text without citation marks, with the words that a mark only goes around."""
    return _CITED.sub("", _NAMED.sub(r"\1\2", text))


def spoken(line: int, values: Mapping[str, Any], why: str = "turn without text") -> Found:
    """Return the row of a message as people read it: without citation marks, and no message where it has no words."""
    text = uncited(str(values["text"]))
    row = message_row(line, {**values, "text": text}) if not is_placeholder(text) else None
    return row if row and (isinstance(row.found, ValueError) or row.found.text.strip()) else Skipped(line, why)


def is_placeholder(text: str) -> bool:
    """Return whether a text is empty, or a program's placeholder for content that it cannot show."""
    plain = text.strip(_AROUND).removesuffix(".").strip(_AROUND)
    return not text.strip(_AROUND) or plain.casefold().replace("\u2019", "'") in _PLACEHOLDERS


def text_of_html(text: str) -> str:
    """Return the words of a text that is HTML, as helpdesks write messages; any other text as it is."""
    if not _HTML.fullmatch(text):
        return text
    text = re.sub(r"\s+", " ", _UNSEEN.sub("", text))
    lines = re.sub(r"<[^<>]+>", "", _LINE_ENDS.sub("\n", text)).split("\n")
    return re.sub(
        r"\n{3,}", "\n\n", "\n".join(html.unescape(line).replace("\xa0", " ").strip() for line in lines)
    ).strip()


def message_row(line: int, values: Mapping[str, Any]) -> Row:
    """Return the row of a message line's keys, or of the problem with them; other keys are extras."""
    try:
        return Row(line, parse_message({key: value for key, value in values.items() if value is not None}))
    except ValueError as error:
        return Row(line, error)


def value_at(record: Any, key: str) -> Any:
    """Return the value under a dotted key such as ``body.parts.0.text``, None where there is none.

    A key that has dots itself comes first.
    """
    if isinstance(record, Mapping) and key in record:
        return record[key]
    first, _, rest = key.partition(".")
    if isinstance(record, Mapping):
        inner = record.get(first)
    else:
        inner = next(iter(list_of(record)[int(first) :]), None) if first.isdecimal() else None
    return value_at(inner, rest) if rest else inner


def as_text(name: str, value: Any) -> Any:
    """Return a mapped value as the message field wants it: a number as text or as a time, the texts of content parts.

    A time without an offset is taken for UTC.
    """
    if name == "text" and isinstance(value, str | list):
        return text_of_html(value if isinstance(value, str) else text_of(value))
    if name == "created_at" and isinstance(value, str):
        if _SECONDS.fullmatch(value):
            return timestamp(float(value))
        with suppress(ValueError):
            moment = datetime.fromisoformat(value.upper().removesuffix("UTC").strip())
            return value if moment.tzinfo else rfc3339(moment.replace(tzinfo=UTC), exact=True)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return timestamp(value) if name == "created_at" else str(value)
    return value


def timestamp(seconds: float) -> str:
    """Return the RFC 3339 time of seconds, or of milliseconds, since 1970; numbers out of range stay numbers."""
    try:
        return rfc3339(moment_of_seconds(seconds), exact=True)
    except (OverflowError, ValueError, OSError):
        return str(seconds)
