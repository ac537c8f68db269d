"""What the gate did, for a terminal: two tables of at most 80 columns."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from persona_pipeline.corrections.statistics import CorrectionStatistics, GateStatistics

_AGENT = "agent"
_GAP, _NARROW_GAP = 2, 1

Column = tuple[str, Callable[["GateStatistics"], str]]

_ENDINGS: tuple[Column, ...] = (
    ("actions", lambda item: f"{item.actions:,}"),
    ("passed", lambda item: f"{item.passed:,}"),
    ("retried", lambda item: f"{item.passed_after_retry:,}"),
    ("forced", lambda item: f"{item.forced:,}"),
    ("unchecked", lambda item: f"{item.fail_open:,}"),
    ("abandoned", lambda item: f"{item.abandoned:,}"),
    ("pass rate", lambda item: "-" if item.pass_rate is None else f"{item.pass_rate:.1%}"),
)
_COSTS: tuple[Column, ...] = (
    ("checks", lambda item: f"{item.checks:,}"),
    ("p50 ms", lambda item: "-" if item.latency_ms is None else f"{item.latency_ms.p50:,.0f}"),
    ("p99 ms", lambda item: "-" if item.latency_ms is None else f"{item.latency_ms.p99:,.0f}"),
    ("tokens in", lambda item: f"{item.input_tokens + item.cached_tokens:,}"),
    ("cached", lambda item: f"{item.cache_read_tokens:,}"),
    ("out", lambda item: f"{item.output_tokens:,}"),
    ("dollars", lambda item: f"{item.usd:,.4f}{'+' if item.unpriced_checks else ' '}"),
)


def statistics_lines(found: "CorrectionStatistics", width: int | None = None) -> Iterator[str]:
    """Yield the lines of both tables, agents first and all of them together last.

    Args:
        width: columns of the terminal; None: any. An agent whose row is wider gets a line for its id.
    """
    if not found.total.actions:
        yield "Nothing was checked."
        return
    rows = [*found.agents.items(), ("all", found.total)]
    yield from _table("How messages ended", _ENDINGS, rows, width)
    yield ""
    yield from _table("What their checks took", _COSTS, rows, width)
    reasons = found.total.fail_open_by_reason
    if reasons:
        yield ""
        yield "Sent unchecked: " + ", ".join(f"{reason} {count:,}" for reason, count in reasons.items())
    if found.total.shadowed:
        yield ""
        yield "Only watched, and would have been held: " + ", ".join(
            f"{agent_id} {item.would_hold:,} of {item.shadowed:,}"
            for agent_id, item in found.agents.items()
            if item.shadowed
        )
    if found.total.unpriced_checks:
        yield f"+ left out: checks of unknown price ({found.total.unpriced_checks:,})"


def _table(
    title: str, columns: Sequence[Column], rows: Sequence[tuple[str, "GateStatistics"]], width: int | None
) -> Iterator[str]:
    cells = [[show(item) for _, show in columns] for _, item in rows]
    widths = [max(len(name), *(len(row[place]) for row in cells)) for place, (name, _) in enumerate(columns)]
    least, longest = len(_AGENT), max(len(_AGENT), *(len(agent_id) for agent_id, _ in rows))
    gap = _GAP if width is None or least + sum(widths) + _GAP * len(widths) <= width else _NARROW_GAP
    widths = [gap + cell for cell in widths]
    first = longest if width is None else max(least, min(longest, width - sum(widths)))
    yield title
    yield _line(_AGENT, first, [name for name, _ in columns], widths)
    yield "-" * (first + sum(widths))
    for (agent_id, _), row in zip(rows, cells, strict=True):
        if len(agent_id) > first:
            yield agent_id
            agent_id = ""
        yield _line(agent_id, first, row, widths)


def _line(label: str, first: int, cells: Sequence[str], widths: Sequence[int]) -> str:
    numbers = (f"{cell:>{wide}}" for cell, wide in zip(cells, widths, strict=True))
    return (f"{label:<{first}}" + "".join(numbers)).rstrip()
