"""What a report says, before it is written for anybody: what matters most, then sections of findings, facts, tables and charts.

A report of any kind becomes one ``Page``; ``terminal``, ``markdown`` and ``html`` write it. Foreign text stays as it is here: each
of them makes it harmless for its own place.
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
    """A piece of a line, of which ``limit`` characters are shown.

    ``own`` is our own words and numbers, never text from outside: Markdown writes them as they are; ``fixed`` keeps its spaces, for
    columns of an outline.
    """

    text: str
    style: Literal["", "own", "fixed", "code", "strong", "em"] = ""
    limit: int | None = None


# Text from outside stands in a plain string or a span that is not ``own``.
Line = str | Sequence[str | Span]


def with_code(text: str) -> list[str | Span]:
    """Return a line in which what stands between backticks is code."""
    return [Span(part, "code") if place % 2 else part for place, part in enumerate(text.split("`"))]


def spans(line: Line) -> list[Span]:
    parts = [line] if isinstance(line, str) else line
    return [Span(part) if isinstance(part, str) else part for part in parts]


@dataclass(frozen=True)
class Item:
    """A line of a list. ``depth``: how far it stands in; ``kind``: what it is, said before it."""

    line: Line
    depth: int = 0
    kind: str = ""
    tone: Tone = ""


@dataclass(frozen=True)
class Items:
    """A list; the whole of it may be cut short where there is little room."""

    items: Sequence[Item]

    @classmethod
    def of(cls, *lines: Line) -> "Items":
        """Return a list of plain lines."""
        return cls([Item(line) for line in lines])


@dataclass(frozen=True)
class Facts:
    """Names with short values. ``depth``: how far they stand in."""

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
    """A score of 0-9 beside its baseline.

    Attributes:
        change: score - baseline.
        state: ``new`` (no baseline), ``fell`` (beyond what is allowed), ``untold`` (not told from chance) or nothing to remark.
        why: why there is no score; "" where nobody asked for one.
        whole: it stands for all the others of its row.
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
    """A table. The first cell of a row is what it is about.

    Attributes:
        label: what it shows, for who cannot see it.
        note: explains the marks in it.
        style: a class of the style sheet: ``scores`` (roomy), ``lines`` (a line each, with a field to search them), ``power``.
    """

    label: str
    columns: Sequence[Column]
    rows: Sequence[PageRow]
    note: Line = ""
    style: str = ""

    @classmethod
    def plain(cls, label: str, columns: Sequence[str], rows: Sequence[Sequence[AnyCell]], note: Line = "") -> "Table":
        """Return a table of numbers by what they are about."""
        heads = [Column(name, number=bool(place)) for place, name in enumerate(columns)]
        return cls(label, heads, [PageRow(row) for row in rows], note)


@dataclass(frozen=True)
class Quote:
    """What somebody said, and where. ``found``: whether it stands in a message word for word; None: nobody looked."""

    text: str
    message_id: str | None = None
    found: bool | None = None


@dataclass(frozen=True)
class Figure:
    """A chart, a sentence that says what it shows, its numbers, and what belongs to it. ``legend``: (label, class) of the lines."""

    title: str
    chart: Markup
    caption: str = ""
    numbers: Table | None = None
    legend: Sequence[tuple[str, str]] = ()
    alarming: bool = False
    href: str = ""
    more: Sequence["Block"] = ()


@dataclass(frozen=True)
class PageCard:
    """Blocks under a heading of their own."""

    title: str
    blocks: Sequence["Block"]


@dataclass(frozen=True)
class Folded:
    """What is there for who asks: shown on a click. ``whole``: a card of its own."""

    summary: Line
    blocks: Sequence["Block"]
    whole: bool = True


@dataclass(frozen=True)
class Drawn:
    """What only a page in a browser has room for: a template of ours and what stands in it."""

    template: str
    values: Mapping[str, Any]


Block = Item | Items | Facts | Table | Quote | Figure | PageCard | Folded | Drawn


@dataclass(frozen=True)
class Section:
    """Blocks under a heading, or without one.

    Attributes:
        id: its address within the page; ``short``: its name in the list of sections.
        lead: what it shows and how to read it.
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
        before: what must be read before anything else.
        top: what matters most: a document begins with it; a terminal ends with it, the first of it last.
        label: what it is a report of, where that is not its title; ``summary``: a few numbers beside it, (value, what it counts).
        level: of its heading in Markdown.
        longest: characters it may have as Markdown; ``shortened``: what stands there for so many lines that were left out.
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
