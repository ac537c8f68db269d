"""Judgments of a world that labels in tests are made of."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import sqlalchemy as sa

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import Store
from persona_pipeline.base.errors import raise_problems
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.evaluation.plan import plan_agent
from persona_pipeline.evaluation.read import WorldReader
from persona_pipeline.judging.verdict import JudgeRequest, Verdict
from persona_pipeline.world.models import Window
from persona_pipeline.world.world import World

# Windows of an agent that are looked at, the newest first.
MOST_WINDOWS = 26


@dataclass(frozen=True)
class Judgment:
    """A judged claim, as shown, and its answers.

    ``request``: with claim, transcript and the shown persona (None: not shown); of the first sample. ``window``: the newest
    with it. ``verdicts``: all answers to it and its repeats, of any judge; never empty.
    """

    request: JudgeRequest
    window: Window
    verdicts: Sequence[Verdict]

    @property
    def key(self) -> str:
        """What labels and verdicts find each other by."""
        return self.request.key

    @property
    def dimension(self) -> str:
        return self.request.dimension


def judged_population(
    world: World,
    agents: Sequence[str] | None = None,
    dimensions: Sequence[str] | None = None,
) -> list[Judgment]:
    """Return the answered judgments of these agents (None: all agents), newest windows first, each once.

    Windows are the evaluated ones, and earlier ones of the same length back to the first message, so that a fresh copy of a
    world with recordings has the same population. Persona and claims are the current ones.

    Raises:
        ConfigError: files of these agents or recordings are not valid, or there are no messages.
    """
    reader = WorldReader(world)
    now = reader.inputs(world.settled(EvaluationRequest(agents=agents, dimensions=dimensions)))
    raise_problems(now.broken)
    past = [
        replace(scope, window=window, past=True)
        for scope in now.agents
        for window in _windows(scope.window, *past_windows(world, scope.agent_id))
    ]
    inputs = reader.gathered(replace(now, agents=past))
    asked: dict[str, tuple[JudgeRequest, Window]] = {}
    for scope in inputs.agents:
        for item in plan_agent(inputs, scope, EvaluationRequest()).requests:
            asked.setdefault(item.key, (item, scope.window))
    answers = reader.known.on([item for item, _ in asked.values()])
    return [
        Judgment(item, window, verdicts)
        for (item, window), verdicts in zip(asked.values(), answers, strict=True)
        if verdicts
    ]


def _windows(now: Window, known: Iterable[Window], first: datetime | None) -> list[Window]:
    """Return an agent's windows, newest first: evaluated ones (``known``), and earlier ones back to its first message."""
    found = dict.fromkeys([*known, now])
    before = max(found, key=lambda window: window.end).previous()
    while first is not None and before is not None and before.end >= first and len(found) < MOST_WINDOWS:
        found[before] = None
        before = before.previous()
    return sorted(found, key=lambda window: window.end, reverse=True)[:MOST_WINDOWS]


def past_windows(world: World, agent_id: str) -> tuple[list[Window], datetime | None]:
    """Return an agent's evaluated windows, newest first, and the time of its first message."""
    first = next(iter(world.messages(agent_id=agent_id)), None)
    return known_windows(world.store, agent_id, now=world.horizon), first and first.created_at


def known_windows(store: Store, agent_id: str, *, now: datetime) -> list[Window]:
    """Return the windows an agent was evaluated on that do not end in the future, the newest first."""
    windows = tables.message_windows.c
    query = (
        sa.select(windows.window_start, windows.window_end)
        .where(windows.agent_id == agent_id, windows.window_end <= now)
        .order_by(
            windows.window_end.desc(),
            windows.updated_at.desc(),
            windows.id,
        )
    )
    return [Window(end=row.window_end, start=row.window_start) for row in store.rows(query)]
