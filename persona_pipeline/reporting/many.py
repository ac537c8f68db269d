"""Reports of more agents than a person reads one by one: who is shown whole, and a line for everybody."""

from collections.abc import Sequence
from dataclasses import dataclass

from persona_pipeline.evaluation.report import EXIT_OK
from persona_pipeline.reporting.rows import AgentRow
from persona_pipeline.reporting.sections import HistoryPoint
from persona_pipeline.reporting.text import one_line

# Up to so many agents a report shows all there is to say of each.
MANY = 50
# Of more, it says as much of those that need a look most.
MOST_WHOLE = 20
# Windows of an agent that is shown in a line.
MOST_DRAWN = 24
_MOST_WORDS = 160


@dataclass(frozen=True)
class AgentLine:
    """One of many agents. ``anchor``: of the part of the page that says more; None: there is none."""

    row: AgentRow
    anchor: str | None
    overall: Sequence[float | None]

    @property
    def wrong(self) -> str:
        """The first thing that is wrong, and how many more there are."""
        said = [finding.message for finding in self.row.report.findings if finding.exit_code != EXIT_OK]
        more = f" (and {len(said) - 1} more)" if len(said) > 1 else ""
        return one_line(said[0], _MOST_WORDS) + more if said else ""


def shown_whole(rows: Sequence[AgentRow]) -> list[AgentRow]:
    """Return the rows of agents that are shown with their claims, those that need a look first."""
    ordered = sorted(rows, key=lambda row: row.severity)
    whole = [row for row in ordered if not row.report.outlined]
    return whole if len(rows) <= MANY else whole[:MOST_WHOLE]


def agent_lines(
    rows: Sequence[AgentRow], anchors: dict[str, str], histories: dict[str, list[HistoryPoint]]
) -> list[AgentLine]:
    """Return a line for everybody, those that need a look first; nothing where everybody is shown whole."""
    if len(anchors) == len(rows):
        return []
    return [
        AgentLine(row, anchors.get(row.agent_id), [p.overall for p in histories.get(row.agent_id, [])[-MOST_DRAWN:]])
        for row in sorted(rows, key=lambda row: row.severity)
    ]
