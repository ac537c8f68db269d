"""What the HTML page says of one agent: its claims, its lines out of character, its history."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from markupsafe import Markup

from persona_pipeline.baselines.models import PropositionDrop
from persona_pipeline.reporting import facts, sections
from persona_pipeline.reporting.charts import bullet, sparkline
from persona_pipeline.reporting.history import TrendMark, trend_mark
from persona_pipeline.reporting.html.figures import Figure, timeline_figure
from persona_pipeline.reporting.view import LOW_SCORE, AgentRow, ScoreCell
from persona_pipeline.scoring.results import PropositionResult, QuotedEvidence

_MOST_BROKEN_LINES = 12


@dataclass(frozen=True)
class BrokenClaim:
    """A claim that no longer holds, and lines of the agent that show it."""

    result: PropositionResult
    lines: list[QuotedEvidence]


@dataclass(frozen=True)
class PartItem:
    """One channel or action a proposition was judged on. ``score`` 0-9, higher is better."""

    name: str
    score: float | None
    unscored: str | None
    reasoning: str

    @classmethod
    def read(cls, part: dict[str, Any], *, inverted: bool) -> "PartItem":
        raw = part.get("raw")
        score = None if raw is None else 9.0 - raw if inverted else float(raw)
        return cls(str(part.get("part") or ""), score, part.get("unscored"), str(part.get("reasoning") or ""))


@dataclass(frozen=True)
class PropositionItem:
    """One proposition with its fall, if it fell."""

    result: PropositionResult
    drop: PropositionDrop | None

    drifted: bool

    @property
    def low(self) -> bool:
        """Whether its recommendation matters: it dropped, or scores below the middle of the scale."""
        return self.drop is not None or (self.result.score is not None and self.result.score < LOW_SCORE)

    @property
    def bad(self) -> bool:
        """Whether it is part of a drift."""
        return self.drop is not None or (self.low and self.drifted)

    @property
    def chart(self) -> Markup:
        return bullet(self.result.score, self.drop.baseline if self.drop else None, bad=self.bad)

    @property
    def parts(self) -> list[PartItem]:
        """Its channels or actions, the lowest first."""
        parts = [PartItem.read(part, inverted=self.result.inverted) for part in self.result.parts]
        return sorted(parts, key=lambda part: -1.0 if part.score is None else part.score)


@dataclass(frozen=True)
class DimensionBlock:
    """One dimension of one agent: its cell, and its propositions with the worst first."""

    cell: ScoreCell

    @cached_property
    def propositions(self) -> list[PropositionItem]:
        if not self.cell.evaluation:
            return []
        drops = {drop.proposition_id: drop for drop in self.cell.drops}
        items = [
            PropositionItem(result, drops.get(result.id), self.cell.drifted)
            for result in self.cell.evaluation.propositions.values()
        ]
        return sorted(items, key=lambda item: (item.result.algorithmic, _rank(item.result), item.result.id))

    @property
    def statistics(self) -> list[tuple[str, str]]:
        return facts.scalar_facts(self.cell.evaluation.statistics) if self.cell.evaluation else []


@dataclass(frozen=True)
class AgentBlock:
    """One agent's part of the page. ``anchor`` is an id of ours, never the agent's."""

    row: AgentRow
    anchor: str
    points: list[sections.HistoryPoint]
    trends: dict[str, sections.TrendSeen]

    @cached_property
    def dimensions(self) -> list[DimensionBlock]:
        return [DimensionBlock(cell) for cell in self.row.cells if cell.evaluation or cell.comparison]

    @cached_property
    def mark(self) -> TrendMark | None:
        return trend_mark(self.points, self.trends)

    @property
    def spark(self) -> Markup | None:
        if len(self.points) < 2:
            return None
        return sparkline([point.overall for point in self.points], self.mark.index if self.mark else None)

    @cached_property
    def timeline(self) -> Figure | None:
        return timeline_figure(self.row.name, self.points, self.mark) if len(self.points) > 1 else None

    @cached_property
    def broken(self) -> list[BrokenClaim]:
        """The claims of a drift with quotes that stand in a message, worst first; each quote once, twelve at most."""
        claims: list[BrokenClaim] = []
        seen: set[tuple[str | None, str]] = set()
        for block in self.dimensions:
            for item in block.propositions:
                lines = []
                for evidence in item.result.evidence if item.bad else ():
                    key = (evidence.message_id, evidence.quote)
                    if evidence.verified and key not in seen and len(seen) < _MOST_BROKEN_LINES:
                        seen.add(key)
                        lines.append(evidence)
                if lines:
                    claims.append(BrokenClaim(item.result, lines))
        return claims

    @property
    def facts(self) -> list[tuple[str, str]]:
        evaluation = self.row.report.evaluation
        return [("Run", evaluation.run_id), *facts.agent_facts(evaluation.provenance)]


def _rank(result: PropositionResult) -> float:
    return -1.0 if result.score is None else result.score
