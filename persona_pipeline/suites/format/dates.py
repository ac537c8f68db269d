"""Dates in text, read the same way in every time zone: the calendar day as it is written."""

import re
from collections.abc import Sequence
from datetime import date
from functools import lru_cache
from typing import Any

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NAMES = "|".join(f"{month}[a-z]*" for month in _MONTHS)
_ISO = re.compile(r"(?P<y>\d{4})-(?P<m>\d{1,2})-(?P<d>\d{1,2})(?:[T ].*)?\Z", re.ASCII | re.DOTALL)
_YEAR_FIRST = re.compile(r"(?P<y>\d{4})[/.](?P<m>\d{1,2})[/.](?P<d>\d{1,2})\Z", re.ASCII)
_DAY_NAME = re.compile(
    rf"(?:[a-z]+,?\s+)?(?P<d>\d{{1,2}})(?:st|nd|rd|th)?[-\s/.]+(?P<n>{_NAMES})\.?[-\s/.,]+(?P<y>\d{{4}})\b.*\Z",
    re.ASCII | re.I,
)
_NAME_DAY = re.compile(
    rf"(?:[a-z]+,?\s+)?(?P<n>{_NAMES})\.?\s+(?P<d>\d{{1,2}})(?:st|nd|rd|th)?,?\s+(?P<y>\d{{4}})\b.*\Z", re.ASCII | re.I
)
_NUMBERS = re.compile(r"(?P<a>\d{1,2})[/.\-](?P<b>\d{1,2})[/.\-](?P<y>\d{4})\b.*\Z", re.ASCII)
_TOKENS = {
    "YYYY": r"(?P<y>\d{4})",
    "YY": r"(?P<yy>\d{2})",
    "MMMM": rf"(?P<n>{_NAMES})",
    "MMM": rf"(?P<n>{_NAMES})",
    "MM": r"(?P<m>\d{1,2})",
    "M": r"(?P<m>\d{1,2})",
    "DD": r"(?P<d>\d{1,2})",
    "D": r"(?P<d>\d{1,2})",
}
_TOKEN = re.compile("|".join(_TOKENS))
# Formats such as DD/MM/YYYY: they say which of two numbers is the day.
_ORDER = re.compile(r"(?:D{1,2}.M{1,2}|M{1,2}.D{1,2}).YYYY\Z")


def check_format(text: str) -> None:
    """Raises ``ValueError`` unless a format names a day, a month and a year with YYYY, YY, MMMM, MMM, MM, M, DD, D."""
    _format_pattern(text)


@lru_cache(maxsize=256)
def _format_pattern(text: str) -> re.Pattern[str]:
    pattern, position = "", 0
    for match in _TOKEN.finditer(text):
        pattern += re.escape(text[position : match.start()]) + _TOKENS[match[0]]
        position = match.end()
    pattern += re.escape(text[position:])
    try:
        compiled = re.compile(pattern + r"\Z", re.ASCII | re.I)
    except re.error as error:
        raise ValueError(f"date format {text!r} names a part twice") from error
    groups = set(compiled.groupindex)
    if "d" not in groups or not groups & {"m", "n"} or not groups & {"y", "yy"}:
        raise ValueError(f"date format {text!r} must name a day, a month and a year, as in DD-MMM-YYYY")
    return compiled


def parse_date(value: Any, formats: Sequence[str] = ()) -> date | None:
    """Return the calendar day a text names, None when it names none.

    Args:
        formats: tried first, in order. 2/3/2025 is in February if all of them that have two numbers put the month first, and
            in March if all put the day first; otherwise a number above 12 decides, and else the month comes first.
    """
    if not isinstance(value, str):
        return None
    text = value.strip()
    own = [_format_pattern(text) for text in formats if not _ORDER.match(text)]
    for pattern in (*own, _ISO, _YEAR_FIRST, _DAY_NAME, _NAME_DAY):
        match = pattern.match(text)
        if match:
            found = _from_groups(match.groupdict())
            if found:
                return found
    match = _NUMBERS.match(text)
    if match is None:
        return None
    first, second, year = int(match["a"]), int(match["b"]), int(match["y"])
    month_first = _month_first(formats, first, second)
    return _day(year, first, second) if month_first else _day(year, second, first)


def _month_first(formats: Sequence[str], first: int, second: int) -> bool:
    orders = {text.find("M") < text.find("D") for text in formats if _ORDER.match(text)}
    if len(orders) == 1:
        return orders.pop()
    return not (first > 12 >= second)


def _from_groups(groups: dict[str, str | None]) -> date | None:
    year = int(groups.get("y") or 0) or 2000 + int(groups.get("yy") or 0)
    name, number = groups.get("n"), groups.get("m")
    month = _MONTHS.index(name[:3].lower()) + 1 if name else int(number or 0)
    return _day(year, month, int(groups.get("d") or 0))


def _day(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None
