from datetime import date

import pytest

from persona_pipeline.suites.asserts.field_accuracy import date_format, parse_date

DAY = date(2025, 1, 15)


@pytest.mark.parametrize(
    "text",
    [
        "2025-01-15",
        "2025-01-15T23:30:00-11:00",
        "15-JAN-2025",
        "January 15, 2025",
        "Wed, 15 Jan 2025 23:30:00 GMT",
        "1/15/2025",
        "15/1/2025",
    ],
)
def test_a_day_is_read_however_it_is_written(text: str) -> None:
    assert parse_date(text) == DAY


@pytest.mark.parametrize(
    ("formats", "expected"),
    [
        ((), date(2025, 2, 3)),
        (("MM/DD/YYYY",), date(2025, 2, 3)),
        (("DD/MM/YYYY",), date(2025, 3, 2)),
        (("DD/MM/YYYY", "MM/DD/YYYY"), date(2025, 2, 3)),
        (("YYYY-MM-DD", "DD.MM.YYYY"), date(2025, 3, 2)),
    ],
    ids=["month first by default", "American", "European", "both: by default", "of the order of one that does not fit"],
)
def test_formats_say_which_number_is_the_day(formats: tuple[str, ...], expected: date) -> None:
    assert parse_date("02/03/2025", formats) == expected


@pytest.mark.parametrize(
    "text",
    ["", "Jan 2025", "15 Jan", "1/15/25", "2025-02-30", None, 20250115],
)
def test_what_names_no_day_is_none(text: object) -> None:
    assert parse_date(text) is None


def test_a_year_first_has_the_month_next() -> None:
    assert parse_date("2025-02-03", ["DD/MM/YYYY"]) == date(2025, 2, 3)


def test_an_own_format_is_tried_first() -> None:
    assert parse_date("250115", ["YYMMDD"]) == DAY


@pytest.mark.parametrize("text", ["DD/DD/YYYY", "MM-YYYY"])
def test_a_format_must_name_day_month_and_year(text: str) -> None:
    with pytest.raises(ValueError):
        date_format(text)
