"""What an event changed: verdicts on messages and scores of each agent before a date and after it, without a baseline."""

from datetime import datetime

from pydantic import BaseModel

from persona_pipeline.base.errors import raise_problems
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.base.shares import Share
from persona_pipeline.base.status import Result
from persona_pipeline.evaluation.decide import Evaluated, series_of
from persona_pipeline.evaluation.read import WorldReader
from persona_pipeline.evaluation.run import Decided, evaluate
from persona_pipeline.evaluation.snapshot import Snapshot
from persona_pipeline.judging.verdict import Judge
from persona_pipeline.scoring.messages.verdicts import (
    LEAST_DIFFERENCE,
    WorstMessage,
    last_change,
    sentence,
    share_in_character,
)
from persona_pipeline.world.world import World

# The worst first.
_ORDER = (Result.FELL, Result.CANNOT_TELL, Result.HELD)


class AgentSince(BaseModel):
    """One agent on both sides of a date.

    Attributes:
        before, after: share of messages in character on each side, with intervals.
        text: since when the agent is out of character by its messages, whatever the date; else its share.
        scores: (before, after) of each dimension, 0-9; None: no score.
        worst: at most five messages after the date that are out of character.
    """

    agent_id: str
    name: str
    before: Share
    after: Share
    text: str
    scores: dict[str, tuple[float | None, float | None]] = {}
    worst: list[WorstMessage] = []

    @property
    def result(self) -> Result:
        """``fell`` where the intervals of both shares do not meet; a drop of 20 points that is not that clear cannot be told."""
        if self.before.share is None or self.after.share is None:
            return Result.CANNOT_TELL
        if self.after.high < self.before.low:
            return Result.FELL
        return Result.CANNOT_TELL if self.after.share <= self.before.share - LEAST_DIFFERENCE else Result.HELD


class SinceReport(BaseModel):
    """Agents on both sides of a date, the worst first. ``until``: the end of the window after the date."""

    since: datetime
    until: datetime
    agents: list[AgentSince]

    @property
    def exit_code(self) -> int:
        """1: an agent fell; 3: none did, and one cannot be told or there is none; 0: all held."""
        results = (agent.result for agent in self.agents)
        worst = min(results, key=_ORDER.index, default=Result.CANNOT_TELL)
        return worst.status.exit_code


def both_sides(request: EvaluationRequest, date: datetime) -> tuple[EvaluationRequest, EvaluationRequest]:
    """Return the requests for the window that ends at a date, and for all that was said after it."""
    before, after = {"as_of": date, "since": None}, {"since": date}
    request = request.model_copy(update={"confirm": False})
    return request.model_copy(update=before), request.model_copy(update=after)


def compare_since(world: World, judge: Judge, date: datetime, request: EvaluationRequest) -> SinceReport:
    """Return what agents were like before a date and after it. Nothing is written.

    ``request.window`` is the length of time before the date. ``ConfigError``: there is no message after the date, or bad input.
    """
    reader = WorldReader(world)
    first, second = (_decided(reader, judge, world.settled(side)) for side in both_sides(request, date))
    before = {item.plan.scope.agent_id: item for item in first.evaluated}
    until = reader.window(request.window, request.as_of, date).end
    agents = [_agent(item, before.get(item.plan.scope.agent_id), second.snapshot, date) for item in second.evaluated]
    agents.sort(key=lambda agent: (_ORDER.index(agent.result), agent.after.share or 0.0, agent.agent_id))
    return SinceReport(since=date, until=until, agents=agents)


def _decided(reader: WorldReader, judge: Judge, request: EvaluationRequest) -> Decided:
    snapshot = reader.snapshot(request)
    raise_problems(snapshot.broken)
    decided = evaluate(snapshot, judge, request)
    raise_problems(decided.broken)
    return decided


def _agent(item: Evaluated, earlier: Evaluated | None, snapshot: Snapshot, date: datetime) -> AgentSince:
    scope = item.plan.scope
    sides = [None if side is None else side.evaluation for side in (earlier, item)]
    read = [side.messages for side in sides if side is not None and side.messages is not None]
    series = series_of(snapshot, scope.agent_id, read, scope.window.end)
    after = [verdict for verdict in series if verdict.said_at > date]
    share, name = share_in_character(after), item.plan.case.display_name
    scores = [{} if side is None else {key: one.score for key, one in side.dimensions.items()} for side in sides]
    return AgentSince(
        agent_id=scope.agent_id,
        name=name,
        before=share_in_character([verdict for verdict in series if verdict.said_at <= date]),
        after=share,
        text=sentence(name, share, last_change(series)),
        scores={key: (scores[0].get(key), score) for key, score in scores[1].items()},
        worst=item.evaluation.messages.worst if item.evaluation.messages else [],
    )
