"""Changes since an event: verdicts on messages and scores of each agent before and after a date, without a baseline."""

from datetime import datetime

from pydantic import BaseModel

from persona_pipeline.base.options import REGRESSION_DELTA, EvaluationRequest
from persona_pipeline.base.shares import DROP_LEVEL, Share, ShareDrop, share_drop
from persona_pipeline.base.status import Result
from persona_pipeline.evaluation.decide import AgentRun
from persona_pipeline.evaluation.read import WorldReader
from persona_pipeline.evaluation.run import evaluate
from persona_pipeline.evaluation.snapshot import Reference
from persona_pipeline.guard.baselines.regression import dropped
from persona_pipeline.judging.verdict import Judge
from persona_pipeline.scoring.messages.verdicts import (
    LEAST_DIFFERENCE,
    WorstMessage,
    counts_by_conversation,
    last_change,
    sentence,
    share_in_character,
)
from persona_pipeline.world.world import World


class AgentSince(BaseModel):
    """One agent on both sides of a date.

    Attributes:
        before, after: share of messages in character on each side, with intervals.
        text: since when the agent is out of character by its messages, whatever the date; else its share.
        drop: of the share, with its limits; None: one side has no message in or out of character.
        scores: (before, after) of each dimension, 0-9; None: no score.
        worst: at most five messages after the date that are out of character.
    """

    agent_id: str
    name: str
    before: Share
    after: Share
    text: str
    drop: ShareDrop | None = None
    scores: dict[str, tuple[float | None, float | None]] = {}
    worst: list[WorstMessage] = []

    @property
    def result(self) -> Result:
        """``fell`` where the share is surely lower, by at least 10 points.

        Inconclusive where the share is lower by 20 points, which may be chance, or where a dimension is lower by more than the
        allowed drop: one window on each side does not show how much windows differ.
        """
        if self.drop is None:
            return Result.CANNOT_TELL
        if self.drop.fell:
            return Result.FELL
        known = [(before, after) for before, after in self.scores.values() if before is not None and after is not None]
        lower = any(dropped(after, before, REGRESSION_DELTA) for before, after in known)
        return Result.CANNOT_TELL if lower or self.drop.drop >= LEAST_DIFFERENCE - 1e-9 else Result.HELD


class SinceReport(BaseModel):
    """Agents on both sides of a date, the worst first. ``until``: the end of the window after the date."""

    since: datetime
    until: datetime
    agents: list[AgentSince]

    @property
    def exit_code(self) -> int:
        """1: an agent dropped; 3: an agent is inconclusive, or there is none; 0: all held."""
        results = (agent.result for agent in self.agents)
        worst = min(results, key=lambda result: result.rank, default=Result.CANNOT_TELL)
        return worst.status.exit_code


def both_sides(request: EvaluationRequest, date: datetime) -> tuple[EvaluationRequest, EvaluationRequest]:
    """Return the requests for the window that ends at a date, and for all messages after it."""
    before, after = {"as_of": date, "since": None}, {"since": date}
    request = request.model_copy(update={"confirm": False})
    return request.model_copy(update=before), request.model_copy(update=after)


def compare_since(world: World, judge: Judge, date: datetime, request: EvaluationRequest) -> SinceReport:
    """Return agents before a date and after it. Nothing is written.

    ``request.window`` is the length of time before the date. ``ConfigError``: no messages after the date, or bad input.
    """
    reader = WorldReader(world)
    sides = [world.settled(side) for side in both_sides(request, date)]
    first, second = (evaluate(reader.snapshot(side, judge), judge, side) for side in sides)
    until = reader.window(request.window, request.as_of, date).end
    level = DROP_LEVEL / max(1, len(second.runs))
    agents = [
        _agent(item, first.runs.get(agent_id), second.snapshot.reference, date, level)
        for agent_id, item in second.runs.items()
    ]
    agents.sort(key=lambda agent: (agent.result.rank, agent.after.share or 0.0, agent.agent_id))
    return SinceReport(since=date, until=until, agents=agents)


def _agent(item: AgentRun, earlier: AgentRun | None, reference: Reference, date: datetime, level: float) -> AgentSince:
    scope = item.plan.scope
    sides = [None if side is None else side.evaluation for side in (earlier, item)]
    read = [side.messages for side in sides if side is not None and side.messages is not None]
    series = reference.series(scope.agent_id, read, scope.window.end)
    before = [verdict for verdict in series if verdict.said_at <= date]
    after = [verdict for verdict in series if verdict.said_at > date]
    share, name = share_in_character(after), item.plan.case.display_name
    scores = [{} if side is None else {key: one.score for key, one in side.dimensions.items()} for side in sides]
    return AgentSince(
        agent_id=scope.agent_id,
        name=name,
        before=share_in_character(before),
        after=share,
        text=sentence(name, share, last_change(series)),
        drop=share_drop(counts_by_conversation(before), counts_by_conversation(after), level),
        scores={key: (scores[0].get(key), score) for key, score in scores[1].items()},
        worst=item.evaluation.messages.worst if item.evaluation.messages else [],
    )
