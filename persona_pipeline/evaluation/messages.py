"""Asking which messages are in character, for many agents and windows at once, and since when an agent changed."""

from collections.abc import Sequence
from dataclasses import replace

from persona_pipeline.base.calls import run_async
from persona_pipeline.evaluation.decide import Evaluated
from persona_pipeline.evaluation.plan import AgentPlan
from persona_pipeline.evaluation.snapshot import Snapshot
from persona_pipeline.guard.report import expenses_of
from persona_pipeline.judging.verdict import Judge
from persona_pipeline.scoring.messages.reading import read_messages
from persona_pipeline.scoring.messages.summary import MessageVerdicts
from persona_pipeline.scoring.messages.verdicts import MessageVerdict
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
        answered = [(item, run_id) for run_id, item in zip(calls, read, strict=True) if item.is_answered]
        known = {run_id: item.dated(_series(snapshot, plans[run_id], read)) for item, run_id in answered}
    snapshot = replace(snapshot, read_messages=known)
    return snapshot, [_with_read(item, known.get(item.evaluation.run_id)) for item in evaluated]


def _with_read(item: Evaluated, read: MessageVerdicts | None) -> Evaluated:
    if read is None:
        return item
    before = item.evaluation.dimensions[_ADHERENCE]
    adherence = before.model_copy(update={"messages": read, "usage": before.usage + read.usage})
    dimensions = {**item.evaluation.dimensions, _ADHERENCE: adherence}
    usage = add_usage(one.usage for one in dimensions.values())
    evaluation = item.evaluation.model_copy(update={"dimensions": dimensions, "usage": usage})
    paid = expenses_of(evaluation.agent_id, [adherence.model_copy(update={"usage": read.usage})])
    return replace(item, evaluation=evaluation, expenses=[*item.expenses, *paid])


def _series(snapshot: Snapshot, plan: AgentPlan, read: Sequence[MessageVerdicts]) -> list[MessageVerdict]:
    """Return the verdicts on an agent's messages up to the end of a window, those of now instead of stored ones.

    Stored verdicts of another judge or another question are left out: a change of the judge is none of the agent.
    """
    own = [item for item in read if item.agent_id == plan.scope.agent_id]
    judged_by = {(item.model, item.prompt_version) for item in own}
    stored = (item for item in snapshot.known_verdicts.get(plan.scope.agent_id, ()) if item.judged_by in judged_by)
    found = {item.verdict.message: item.verdict for item in stored}
    found |= {verdict.message: verdict for item in own for verdict in item.verdicts}
    return [item for item in found.values() if item.said_at <= plan.scope.window.end]
