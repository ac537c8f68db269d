"""Foreign text made harmless for a terminal, Markdown, XML and HTML; and how every report writes its numbers."""

import re
import shlex
from collections.abc import Mapping
from functools import lru_cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from persona_pipeline.base.text import REPLACEMENT, printable, without_controls
from persona_pipeline.base.text import plural as plural

if TYPE_CHECKING:
    from jinja2 import Environment

    from persona_pipeline.judging.verdict import Usage


_XML_ILLEGAL = re.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

# Punctuation that is markup anywhere in a line, and marks of a heading, a list, a rule or a quote at its start.
_MARKDOWN_PUNCTUATION = re.compile(r"([\\`*_{}\[\]#!|~^$])|(?<!\S)([-+=](?=[\s\-+=]|$))|((?<=\d)[.)](?=\s|$))")
# GitHub links these even when they are escaped: mentions, issues, commits, addresses, emoji names. In a code span it does not.
_AUTOLINKS = re.compile(r"[@#]\w|://|\bwww\.|\bGH-\d|:[\w+-]+:|\b[0-9a-f]{7,40}\b", re.IGNORECASE)
# A table is split at pipes before code spans are found, so a word ends at one.
_WORDS = re.compile(r"([^\s|]+)")


def asset(name: str, package: str = "persona_pipeline.reporting") -> str:
    """Return one of the files that pages hold or are made of."""
    return files(package).joinpath("static", name).read_text(encoding="utf-8")


def one_line(text: str, limit: int | None = None) -> str:
    """Return printable text on one line, runs of white space folded; beyond ``limit`` characters it ends in an ellipsis."""
    line = " ".join(printable(text).split())
    return line if limit is None or len(line) <= limit else line[: limit - 1].rstrip() + "…"


def spaced(text: str, written: str) -> str:
    """Return the written form of a piece of a line, with one space for the white space at the piece's ends."""
    after = text[-1:].isspace() if written else False
    return f"{' ' * text[:1].isspace()}{written}{' ' * after}"


def markdown_text(text: str, limit: int | None = None) -> str:
    """Return one line of Markdown that renders as this text: it never becomes markup, HTML, a link, a mention or a table cell.

    Words that GitHub would link are code spans, so that they can be copied.
    """

    def written(part: str) -> str:
        is_linked = _AUTOLINKS.search(part)
        return markdown_code(part) if is_linked else escape(_MARKDOWN_PUNCTUATION.sub(r"\\\g<0>", part), quote=False)

    return "".join(map(written, _WORDS.split(one_line(text, limit))))


def markdown_code(text: str, limit: int | None = None, *, in_table: bool = False) -> str:
    """Return this text as a Markdown code span on a single line; "" for an empty text.

    ``in_table``: the span is in a table, where Markdown splits a row at its pipes before it looks for code spans.
    """
    line = one_line(text, limit)
    if not line:
        return ""
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", line)), default=0))
    padding = " " if line.startswith("`") or line.endswith("`") else ""
    if in_table:
        line = line.replace("|", "\\|")
    return f"{fence}{padding}{line}{padding}{fence}"


def xml_text(text: str) -> str:
    """Return text with the characters XML 1.0 cannot hold replaced by U+FFFD."""
    return _XML_ILLEGAL.sub(REPLACEMENT, text)


def html_text(text: str) -> str:
    """Return text as an HTML document in UTF-8 can hold and show it: without control and bidi characters, NUL as U+FFFD."""
    return without_controls(text.replace("\x00", REPLACEMENT))


def format_score(value: float | None, digits: int = 2) -> str:
    """Return a 0-9 score with fixed digits, or a dash."""
    return "–" if value is None else f"{value:.{digits}f}"


def format_delta(value: float | None, digits: int = 2) -> str:
    """Return a signed change with a real minus sign; a change that rounds to zero is ``±0``; None is an empty string."""
    if value is None:
        return ""
    rounded = round(value, digits)
    if rounded == 0:
        return "±0"
    return f"{'+' if rounded > 0 else '−'}{abs(rounded):.{digits}f}"


def format_usd(value: float | None) -> str:
    """Return US dollars, to a hundredth of a cent below one dollar; None means that the price of a model is not known."""
    if value is None:
        return "unknown"
    return f"${value:.2f}" if value == 0 or value >= 1 else f"${value:.4f}"


def format_share(value: float | None, digits: int = 0) -> str:
    """Return a share (0-1) as a percentage, or a dash."""
    return "–" if value is None else f"{value:.{digits}%}"


def format_p(value: float) -> str:
    """Return a p-value as people write it: ``= 0.03``, ``< .001``."""
    return "< .001" if value < 0.001 else f"= {value:.2g}"


def cost_line(usage: "Usage") -> str:
    """Return the expenses, in words."""
    if not usage.calls:
        return "No judge call was made."
    calls = f"{usage.calls} judge call{'' if usage.calls == 1 else 's'}"
    return f"{calls}, {'cost unknown' if usage.usd is None else format_usd(usage.usd)}."


@lru_cache
def _texts() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("persona_pipeline.reporting")
    made = Environment(loader=loader, autoescape=False, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters.update(line=one_line, percent=format_share, plural=plural, usd=format_usd, quoted=shlex.quote)
    return made


def template_text(name: str, facts: Mapping[str, Any]) -> str:
    """Return one of our text templates, filled in, for a terminal: lines without a line break after the last."""
    return _texts().get_template(f"{name}.txt.j2").render(facts).removesuffix("\n")
