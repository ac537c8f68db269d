"""A replay from beginning to end: stored messages, what is known of them, the corrections, and what thresholds do."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from persona_pipeline.corrections.configuration import read_config
from persona_pipeline.corrections.replay.gate import Checked, check_messages, questions_about
from persona_pipeline.corrections.replay.known import Known, labelled_messages, read_marks
from persona_pipeline.corrections.replay.measured import Measured, area, risk_threshold, thresholds, touched_by
from persona_pipeline.corrections.replay.models import Correction, CorrectionReplay, Cost, Replay
from persona_pipeline.corrections.replay.turns import measured_turns
from persona_pipeline.corrections.statistics import GateStatistics, correction_statistics
from persona_pipeline.errors import ConfigError
from persona_pipeline.judging.estimate import Estimate, estimate_questions
from persona_pipeline.judging.model.options import ModelOptions
from persona_pipeline.judging.open import RECORDINGS
from persona_pipeline.judging.recordings import RecordedBackend
from persona_pipeline.judging.verdict import Backend, Usage
from persona_pipeline.settings import get_settings
from persona_pipeline.world.models import CorrectionSettings, Message, Window
from persona_pipeline.world.world import World


@dataclass(frozen=True)
class ReplayRequest:
    """What is replayed.

    Attributes:
        window: whose messages; ``newest``: only so many of each agent, the newest.
        good_until, bad_from, marks: see ``Known``; ``marks`` is a file.
        risk: share (0-1) of good messages that may be touched; None: no threshold is looked for.
    """

    agents: Sequence[str]
    corrections: Sequence[Correction] = tuple(Correction)
    window: Window | None = None
    newest: int | None = None
    good_until: datetime | None = None
    bad_from: datetime | None = None
    marks: Path | None = None
    risk: float | None = None


def estimate_replay(world: World, request: ReplayRequest, judge: str | None, *, fresh: bool = False) -> Estimate:
    """Return what asking a live judge would take.

    Raises:
        ConfigError: bad input.
    """
    asked = [
        item for agent in request.agents for item in questions_about(world, agent, _messages(world, request, agent))
    ]
    questions = [item.question for item in asked if item.question]
    recorded = RecordedBackend(world.root / RECORDINGS)
    missing = questions if fresh else [item for item in questions if item.key not in recorded.recordings]
    options = ModelOptions.from_settings(get_settings(), judge)
    return estimate_questions(missing, options, None if fresh else world.store)


def replay(world: World, request: ReplayRequest, backend: Backend) -> Replay:
    """Replay corrections over stored messages; nothing is changed by it.

    Args:
        backend: the gate's judge; the other corrections ask nobody.

    Raises:
        ConfigError: an agent's files, the labels or the marks are not valid, or it has said nothing.
    """
    marked = read_marks(request.marks) if request.marks else {}
    results: list[CorrectionReplay] = []
    notes: list[str] = []
    usage = Usage()
    statistics = correction_statistics(world.store, request.window, agent_ids=request.agents).agents
    for agent_id in request.agents:
        settings = read_config(world.store, agent_id).settings
        messages = _messages(world, request, agent_id)
        known = Known(marked, labelled_messages(world, agent_id), request.good_until, request.bad_from)
        done = statistics.get(agent_id, GateStatistics())
        if done.rejections:
            notes.append(
                f"{agent_id}: the gate sent {done.rejections} texts back in this time, which are no messages and in no share"
            )
        for correction in request.corrections:
            if correction is Correction.ACTION_GATE:
                checked = asyncio.run(check_messages(backend, questions_about(world, agent_id, messages)))
                usage = sum((item.usage for item in checked), usage)
                results.append(_of_gate(agent_id, settings, checked, known, request.risk, done))
            else:
                turns = measured_turns(world, correction, agent_id, messages, known)
                results.append(_of_turns(correction, agent_id, settings, turns, request.risk))
    return Replay(results=results, notes=notes, usd=usage.usd, calls=usage.calls)


def _messages(world: World, request: ReplayRequest, agent_id: str) -> list[Message]:
    found = world.messages(request.window, agent_id=agent_id)
    if not found:
        raise ConfigError(f"agent {agent_id!r} has no stored message in this window; ingest some, or widen --window")
    return found if request.newest is None else found[-request.newest :]


def _of_gate(
    agent_id: str,
    settings: CorrectionSettings,
    checked: Sequence[Checked],
    known: Known,
    risk: float | None,
    done: GateStatistics,
) -> CorrectionReplay:
    items = [Measured(item.score, good=known.is_good(item.message)) for item in checked if item.score is not None]
    found = _summed(Correction.ACTION_GATE, agent_id, settings, items, risk, len(checked))
    return found.model_copy(
        update={
            "unmeasured": dict(sorted(Counter(item.reason for item in checked if item.score is None).items())),
            "judges": dict(sorted(Counter(item.model or "" for item in checked if item.score is not None).items())),
            "cost": _cost(checked, done),
        }
    )


def _of_turns(
    correction: Correction,
    agent_id: str,
    settings: CorrectionSettings,
    turns: Sequence[Measured | None],
    risk: float | None,
) -> CorrectionReplay:
    items = [item for item in turns if item is not None]
    found = _summed(correction, agent_id, settings, items, risk, len(turns))
    nothing = len(turns) - len(items)
    return found.model_copy(update={"unmeasured": {"nothing_to_look_at": nothing} if nothing else {}})


def _summed(
    correction: Correction,
    agent_id: str,
    settings: CorrectionSettings,
    items: Sequence[Measured],
    risk: float | None,
    messages: int,
) -> CorrectionReplay:
    present = getattr(settings, correction.setting)
    return CorrectionReplay(
        correction=correction,
        agent_id=agent_id,
        enabled=getattr(settings, f"{correction}_enabled"),
        threshold=present,
        messages=messages,
        measured=len(items),
        anyway=sum(item.anyway for item in items),
        good=sum(item.good is True for item in items),
        bad=sum(item.good is False for item in items),
        touched=[touched_by(correction, items, value) for value in thresholds(correction, present)] if items else [],
        area=area(correction, items),
        risk=None if risk is None else risk_threshold(correction, items, risk),
    )


def _cost(checked: Sequence[Checked], done: GateStatistics) -> Cost | None:
    """Return what a check takes: of the gate as it ran in this time, else of this replay; None: neither is known."""
    if done.checks:
        latency = done.latency_ms
        return Cost(
            source="the gate as it ran in this time",
            checks=done.checks,
            usd=done.usd_per_check,
            p50_ms=latency and latency.p50,
            p95_ms=latency and latency.p95,
        )
    asked = [item for item in checked if item.seconds is not None]
    if not asked:
        return None
    times = sorted(item.seconds * 1000 for item in asked if item.seconds is not None)
    usage = sum((item.usage for item in asked), Usage())
    p50, p95 = (times[min(len(times) - 1, int(share * len(times)))] for share in (0.5, 0.95))
    usd = None if usage.usd is None else usage.usd / len(asked)
    return Cost(source="the calls of this replay", checks=len(asked), usd=usd, p50_ms=p50, p95_ms=p95)
