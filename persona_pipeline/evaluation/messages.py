"""Asking which messages are in character, for many agents and windows at once, and since when an agent changed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from persona_pipeline.base.calls import run_async
from persona_pipeline.evaluation.decide import Evaluated
from persona_pipeline.evaluation.history import StoredVerdict
from persona_pipeline.evaluation.snapshot import Snapshot
from persona_pipeline.guard.report import AgentEvaluation, expenses_of
from persona_pipeline.judging.verdict import Judge, Unscored
from persona_pipeline.scoring.messages.reading import read_messages
from persona_pipeline.scoring.messages.verdicts import MessageVerdict, MessageVerdicts, in_order
from persona_pipeline.scoring.results import add_usage
from persona_pipeline.world.propositions.models import ADHERENCE

_ADHERENCE = ADHERENCE.name


def with_messages(snapshot: Snapshot, evaluated: Sequence[Evaluated], judge: Judge) -> tuple[Snapshot, list[Evaluated]]:
    """Return evaluations with the verdicts on their messages, from one call, and the snapshot that keeps them.

    A judge that answers nothing but claims, and recordings without such answers, give none.
    """
    known, ask = snapshot.read_messages, getattr(judge, "ask", None)
    if ask is not None and not known:
        plans = {item.evaluation.run_id: item.plan for item in evaluated if item.plan.readings}
        calls = {run_id: (plan.readings, plan.messages_left_out) for run_id, plan in plans.items()}
        read = run_async(read_messages(list(calls.values()), ask)) if calls else []
        known = {run_id: item for run_id, item in zip(calls, read, strict=True) if _is_answered(item)}
    snapshot = replace(snapshot, read_messages=known)
    return snapshot, [_with_read(item, known.get(item.evaluation.run_id)) for item in evaluated]


def _is_answered(read: MessageVerdicts) -> bool:
    """Return whether somebody was asked: recordings of earlier releases have no answers, and are valid."""
    return bool(read.verdicts) or set(read.unscored) != {Unscored.UNRECORDED.value}


def _with_read(item: Evaluated, read: MessageVerdicts | None) -> Evaluated:
    if read is None:
        return item
    before = item.evaluation.dimensions[_ADHERENCE]
    adherence = before.model_copy(update={"messages": read, "usage": before.usage + read.usage})
    evaluation = with_adherence(item.evaluation, {"messages": read, "usage": adherence.usage})
    evaluation = evaluation.model_copy(update={"usage": add_usage(one.usage for one in evaluation.dimensions.values())})
    paid = expenses_of(evaluation.agent_id, [adherence.model_copy(update={"usage": read.usage})])
    return replace(item, evaluation=evaluation, expenses=[*item.expenses, *paid])


def with_adherence(evaluation: AgentEvaluation, update: Mapping[str, object]) -> AgentEvaluation:
    """Return an evaluation with some fields of adherence changed."""
    adherence = evaluation.dimensions[_ADHERENCE].model_copy(update=dict(update))
    return evaluation.model_copy(update={"dimensions": {**evaluation.dimensions, _ADHERENCE: adherence}})


def series_of_verdicts(
    stored: Sequence[StoredVerdict], now: Iterable[MessageVerdicts], until: datetime
) -> list[MessageVerdict]:
    """Return the verdicts on an agent's messages up to a moment, those of ``now`` instead of stored ones on the same message.

    Stored verdicts of another judge or another question are left out: a change of the judge is none of the agent.
    """
    read = list(now)
    judged_by = {(item.model, item.prompt_version) for item in read}
    found = {item.verdict.message: item.verdict for item in stored if item.judged_by in judged_by}
    found |= {verdict.message: verdict for item in read for verdict in item.verdicts}
    return in_order([item for item in found.values() if item.said_at <= until])
