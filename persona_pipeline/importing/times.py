"""Times of spreadsheets and helpdesks, read by the common form of all values in a column."""

import re
import tomllib
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cache
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from dateutil.parser import parser, parserinfo

DAY_FIRST, MONTH_FIRST = "day-first", "month-first"
# A number of seconds beyond this is one of milliseconds: it would be the year 5138.
_MILLISECONDS = 1e11
# Numbers of the days from 1954 to 2119 as spreadsheets count them; of seconds and milliseconds since 1970.
_SERIAL = re.compile(r"[2-7]\d{4}([.,]\d+)?")
_SECONDS = re.compile(r"\d{10}([.,]\d+)?|\d{13}")
_SPREADSHEET_EPOCH = datetime(1899, 12, 30)
# 26-03-05 may begin with the year.
_NUMERIC = re.compile(r"^([^\W\d]+\.?,?\s+)?(\d{1,2})([./-])\s?(\d{1,2})\3\s?(\d{4}|(?<!-)\d{2})(?!\d)")
_YEAR_FIRST = re.compile(r"^(\d{4})([./-])(\d{1,2})\2(\d{1,2})(?!\d)")
_MERIDIEM = re.compile(r"(?<=\d)\s?([ap])\.?\s?m\b\.?", re.IGNORECASE)
_UNSURE = re.compile(r"\d{1,2}[./-]\d{1,2}\b")
# JavaScript writes "GMT+0100 (CET)", in which dateutil would turn the sign around.
_GMT, _NAMED = re.compile(r"\b(?:GMT|UTC)(?=\s?[+-]\d)"), re.compile(r"\s?\(([^()]+)\)$")
_OFFSET = re.compile(r"(?:UTC|GMT)?\s*([+-])(\d{1,2})(?::?(\d{2}))?", re.IGNORECASE)
# Where a part of a date is missing, the two answers differ.
_DEFAULTS = (datetime(2000, 1, 1), datetime(2001, 2, 2))


def moment_of_seconds(seconds: float) -> datetime:
    """Return the moment of seconds, or of milliseconds, since 1970; OverflowError, ValueError, OSError: it is out of range."""
    return datetime.fromtimestamp(seconds / 1000 if abs(seconds) > _MILLISECONDS else seconds, UTC)


class UnclearOrderError(ValueError):
    """A column of dates that may be read day first or month first."""


@cache
def words() -> Mapping[str, Any]:
    """Return the words by which exports are read."""
    return tomllib.loads((Path(__file__).parent / "data" / "tables.toml").read_text(encoding="utf-8"))


@cache
def _parser() -> parser:
    known = words()["times"]
    names = {"MONTHS": [*map(tuple, known["months"])], "WEEKDAYS": [*map(tuple, known["weekdays"])]}
    made = type("Names", (parserinfo,), {**names, "JUMP": [*parserinfo.JUMP, *known["between"]]})
    return parser(made())


def zone_of(name: str) -> tzinfo | None:
    """Return the time zone of a name such as ``Europe/Berlin``, ``CET`` or ``UTC+2``; None: it is not one."""
    if (hours := words()["zones"].get(name.strip().lower())) is not None:
        return timezone(timedelta(hours=hours))
    if match := _OFFSET.fullmatch(name.strip()):
        offset = timedelta(hours=int(match[2]), minutes=int(match[3] or 0))
        return timezone(-offset if match[1] == "-" else offset)
    try:
        return ZoneInfo(name.strip()) if "/" in name else None
    except (ValueError, OSError):
        return None


@dataclass(frozen=True)
class Times:
    """How a column writes times.

    Attributes:
        order: ``day-first`` or ``month-first`` for dates such as 03/04/2026; "": there are none.
        zone: of times that say none. ``serial``: values are days as spreadsheets count them.
    """

    order: str = ""
    zone: tzinfo = UTC
    serial: bool = False

    @classmethod
    def of(cls, values: Iterable[str], order: str = "", zone: tzinfo = UTC) -> "Times":
        """Return how values are written.

        Args:
            order: the order of day and month, where it is known.

        Raises:
            UnclearOrderError: the values fit both orders.
            ValueError: some values fit one order alone, and some the other.
        """
        listed = [_plain(value) for value in values]
        if listed and all(_SERIAL.fullmatch(value) for value in listed):
            return cls(order, zone, serial=True)
        dates = [match for value in listed if (match := _NUMERIC.match(value))]
        day_first = next((match[0] for match in dates if int(match[2]) > 12), "")
        month_first = next((match[0] for match in dates if int(match[4]) > 12), "")
        if day_first and month_first:
            raise ValueError(f"{day_first!r} begins with the day and {month_first!r} with the month; write all one way")
        if order or day_first or month_first:
            return cls(order or (DAY_FIRST if day_first else MONTH_FIRST), zone)
        # Dates with dots begin with the day.
        unclear = next((match[0] for match in dates if match[3] != "." and match[2] != match[4]), "")
        if unclear:
            raise UnclearOrderError(f"{unclear!r} may begin with the day or with the month")
        return cls(DAY_FIRST if dates else "", zone)

    def read(self, value: str) -> datetime:
        """Return the moment of a value; ValueError: it is not a time, or its zone is not known."""
        text = _plain(value)
        try:
            if self.serial and _SERIAL.fullmatch(text):
                moment = _SPREADSHEET_EPOCH + timedelta(days=float(text.replace(",", ".")))
                moment = (moment + timedelta(milliseconds=500)).replace(microsecond=0)
            elif _SECONDS.fullmatch(text):
                moment = moment_of_seconds(float(text.replace(",", ".")))
            else:
                moment = self._written(text)
        except (ValueError, OverflowError, OSError) as error:
            why = f" ({error})" if isinstance(error, _UnknownZoneError) else ""
            raise ValueError(f"{value[:40]!r} is not a time that can be read{why}") from None
        return (moment if moment.tzinfo else moment.replace(tzinfo=self.zone)).astimezone(UTC)

    def _written(self, text: str) -> datetime:
        if match := _YEAR_FIRST.match(text):
            text = f"{match[1]}-{match[3]:0>2}-{match[4]:0>2}{text[match.end() :]}"
        elif match := _NUMERIC.match(text):
            day, month = (match[2], match[4]) if self.order != MONTH_FIRST else (match[4], match[2])
            year = match[5] if len(match[5]) == 4 else f"20{match[5]}"
            text = f"{year}-{month:0>2}-{day:0>2}{text[match.end() :].replace(',', ' ', 1)}"
        elif _UNSURE.match(text):
            raise ValueError("which number is the year is not sure")
        text = _NAMED.sub("" if _GMT.search(text) else r" \1", text)
        text = _GMT.sub("", text)
        one, other = (_parser().parse(text, default=default, tzinfos=_zone) for default in _DEFAULTS)
        if one != other:
            raise ValueError("a part of the date is missing")
        return one


class _UnknownZoneError(ValueError):
    """A time zone whose offset is not known."""


def _zone(name: str | None, offset: int | None) -> tzinfo | None:
    if offset is not None:
        return timezone(timedelta(seconds=offset))
    if name is None:
        return None
    if (found := zone_of(name)) is None:
        raise _UnknownZoneError(f"the time zone {name} may be several; write the offset")
    return found


def _plain(value: str) -> str:
    # Spreadsheets and browsers write narrow spaces between the parts.
    text = " ".join(unicodedata.normalize("NFKC", value).split())
    return _MERIDIEM.sub(r" \1m", text)
