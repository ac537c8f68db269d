"""The content of a report, independent of its format: the top, then sections of findings, facts, tables and charts.

A report of any kind becomes one ``Page``; ``terminal``, ``markdown`` and ``html`` write it. Text from outside is kept unchanged
here: each writer escapes it for its own format.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from markupsafe import Markup

from persona_pipeline.base.status import Tone


def verdict_tone(verdict: str) -> Tone:
    """Return the colour of a suite's or a test's verdict."""
    return "good" if verdict == "pass" else "bad" if verdict == "fail" else "warn"


@dataclass(frozen=True)
class Span:
    """A piece of a line. At most ``limit`` characters are shown.

    ``own`` is our own words and numbers, never text from outside: Markdown writes them unescaped. ``fixed`` keeps its spaces, for
    columns of an outline.
    """

    text: str
    style: Literal["", "own", "fixed", "code", "strong", "em"] = ""
    limit: int | None = None


# Text from outside must be a plain string or a span that is not ``own``.
Line = str | Sequence[str | Span]


def with_code(text: str) -> list[str | Span]:
    """Return a line in which the text between backticks is code; a text that was cut within code stays text."""
    if text.count("`") % 2:
        return [text]
    return [Span(part, "code") if place % 2 else part for place, part in enumerate(text.split("`"))]


def spans(line: Line) -> list[Span]:
    parts = [line] if isinstance(line, str) else line
    return [Span(part) if isinstance(part, str) else part for part in parts]


@dataclass(frozen=True)
class Item:
    """A line of a list. ``depth``: its level of indentation; ``kind``: its label, printed before it."""

    line: Line
    depth: int = 0
    kind: str = ""
    tone: Tone = ""


@dataclass(frozen=True)
class Items:
    """A list, which may be cut where space is limited."""

    items: Sequence[Item]

    @classmethod
    def of(cls, *lines: Line) -> "Items":
        """Return a list of plain lines."""
        return cls([Item(line) for line in lines])


@dataclass(frozen=True)
class Facts:
    """Names with short values. ``depth``: their level of indentation."""

    pairs: Sequence[tuple[str, str]]
    depth: int = 0


@dataclass(frozen=True)
class Cell:
    """A cell of text, with a note below it and an optional chart in SVG.

    ``own``: the program's words and numbers, as in a ``Span``; ``style``: a class of the style sheet; ``short``: the text in a
    narrow table.
    """

    text: str
    tone: Tone = ""
    note: str = ""
    chart: Markup | None = None
    own: bool = False
    style: str = ""
    short: str = ""


@dataclass(frozen=True)
class Agent:
    """The agent of a row. ``state``: ``held``, ``accepted``, ``fell``, ``cannot_tell`` or ``nothing``."""

    id: str
    name: str
    state: str
    href: str = ""


@dataclass(frozen=True)
class Score:
    """A score of 0-9 with its baseline.

    Attributes:
        change: score - baseline.
        state: ``new`` (no baseline), ``fell`` (beyond the allowed drop), ``untold`` (may be chance), or "" otherwise.
        why: the reason for a missing score; "" if none was requested.
        whole: it is the overall score of its row.
    """

    value: float | None
    change: float | None = None
    state: Literal["", "new", "fell", "untold"] = ""
    why: str = ""
    chart: Markup | None = None
    whole: bool = False


AnyCell = str | Cell | Agent | Score


@dataclass(frozen=True)
class Column:
    """A column. ``short``: its heading in a narrow table; ``name``: its name in files; ``gloss``: words that explain it."""

    title: str
    short: str = ""
    number: bool = True
    name: str = ""
    gloss: str = ""


@dataclass(frozen=True)
class PageRow:
    """A row of a table; ``tone`` colours all of it."""

    cells: Sequence[AnyCell]
    tone: Tone = ""


@dataclass(frozen=True)
class Table:
    """A table. The first cell of a row names its subject.

    Attributes:
        label: its content in words, for screen readers.
        note: explains the marks in it.
        style: a class of the style sheet: ``scores`` (roomy), ``lines`` (one line per row, with a search field), ``power``.
    """

    label: str
    columns: Sequence[Column]
    rows: Sequence[PageRow]
    note: Line = ""
    style: str = ""

    @classmethod
    def plain(cls, label: str, columns: Sequence[str], rows: Sequence[Sequence[AnyCell]], note: Line = "") -> "Table":
        """Return a table of numbers with a name for each row."""
        heads = [Column(name, number=bool(place)) for place, name in enumerate(columns)]
        return cls(label, heads, [PageRow(row) for row in rows], note)


@dataclass(frozen=True)
class Quote:
    """A quote and its message. ``found``: whether a message contains it word for word; None: not checked."""

    text: str
    message_id: str | None = None
    found: bool | None = None


@dataclass(frozen=True)
class Figure:
    """A chart and its numbers. ``legend``: (label, class) of the lines."""

    title: str
    chart: Markup
    numbers: Table | None = None
    legend: Sequence[tuple[str, str]] = ()
    href: str = ""


@dataclass(frozen=True)
class PageCard:
    """Blocks under a separate heading."""

    title: str
    blocks: Sequence["Block"]


@dataclass(frozen=True)
class Folded:
    """Details that are shown on a click."""

    summary: Line
    blocks: Sequence["Block"]


@dataclass(frozen=True)
class Drawn:
    """Content for the browser only: one of our templates and its values."""

    template: str
    values: Mapping[str, Any]


Block = Item | Items | Facts | Table | Quote | Figure | PageCard | Folded | Drawn


@dataclass(frozen=True)
class Section:
    """Blocks under a heading, or without one.

    Attributes:
        id: its address within the page; ``short``: its name in the list of sections.
        lead: its content and how to read it.
        folded: a browser shows its heading, and the rest on a click.
    """

    title: Line
    blocks: Sequence[Block]
    id: str = ""
    lead: Line = ""
    short: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Page:
    """A report.

    Attributes:
        before: items that must be read first.
        top: the most important blocks: a document begins with them; a terminal ends with them, in reverse order.
        label: the subject of the report, if the title does not name it; ``summary``: a few numbers next to it, (value, unit).
        level: of its heading in Markdown.
        longest: its maximum length as Markdown, in characters; ``shortened``: the note on the number of lines left out.
    """

    title: Line
    top: Sequence[Block] = ()
    sections: Sequence[Section] = ()
    before: Sequence[Item] = ()
    tone: Tone = ""
    label: str = ""
    summary: Sequence[tuple[str, str]] = ()
    level: int = 2
    longest: int = 1_000_000
    shortened: str = "*Shortened: {} more lines are in the full report, an artefact of this run.*"

    def as_section(self) -> Section:
        """Return it as a part of another page."""
        blocks = [*self.top, *(block for section in self.sections for block in section.blocks)]
        return Section(self.title, blocks)
