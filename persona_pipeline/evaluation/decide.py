"""What is said of agents: their scores beside their baselines, and what fell is asked again before it is called a fall."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any, cast

from persona_pipeline.base.calls import run_async
from persona_pipeline.base.errors import Problem
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.evaluation.history import Point, SavedRun, drift_findings
from persona_pipeline.evaluation.plan import AgentPlan, Judged, evaluation_of, history_of, judge_plans
from persona_pipeline.evaluation.snapshot import Snapshot
from persona_pipeline.guard.anchors import AnchorAnswers, AnchorRound
from persona_pipeline.guard.baselines.golden import Watched, captured
from persona_pipeline.guard.baselines.models import Baseline, BaselineComparison, Compared
from persona_pipeline.guard.baselines.regression import CONFIRMATIONS, compare, settled, to_confirm
from persona_pipeline.guard.gate import GateRules, exit_code_of, facts_findings, judge_agent, label_findings
from persona_pipeline.guard.known_drift import OUT_OF_CHARACTER, Objections, objections, with_known_drifts
from persona_pipeline.guard.report import (
    AgentEvaluation,
    AgentReport,
    Expense,
    Provenance,
    RunReport,
    expenses_of,
    judge_to_ask,
)
from persona_pipeline.guard.trust import ANCHORS, answers_in, explained, judge_of, without_other_judges
from persona_pipeline.judging.open import replayed_by
from persona_pipeline.judging.verdict import Judge, Unscored, Usage
from persona_pipeline.scoring.messages.reading import MessageCall, read_messages, readings_of, worst_messages
from persona_pipeline.scoring.messages.verdicts import MessageVerdict, MessageVerdicts
from persona_pipeline.scoring.results import DimensionEvaluation, add_usage
from persona_pipeline.world.models import Window
from persona_pipeline.world.propositions.models import ADHERENCE, ALL_DIMENSIONS

# Whether a judge of recordings has answers to some questions.
HasRecorded = Callable[..., bool]
_JUDGED_BY = ("judge_model", "judge_models", "prompt_version", "prompt_versions", ANCHORS)


@dataclass(frozen=True)
class Evaluated:
    """One agent's scores so far, what they were judged from, what that cost, and what was judged ``again`` (None: nothing)."""

    judged: Judged
    evaluation: AgentEvaluation
    expenses: Sequence[Expense] = ()
    again: Judged | None = None

    @property
    def plan(self) -> AgentPlan:
        """What was asked."""
        return self.judged.plan


@dataclass(frozen=True)
class Guard:
    """What decides whether a drop is a regression: the rules, the baselines of all agents, and what is known of the judges.

    The scores of other agents are not part of it: what they did in the same week explains no drop. ``points``: earlier windows.
    """

    rules: GateRules
    watched: Watched = field(default_factory=Watched)
    label_counts: tuple[int, int] = (0, 0)
    points: Mapping[str, Sequence[Point]] = field(default_factory=dict)


@dataclass(frozen=True)
class AgentResult:
    """One agent's plan and the report of it; ``report`` speaks of the whole run, however much of it was asked for.

    ``saved`` is the run as the store keeps it, with what it cost when it was paid for.
    """

    plan: AgentPlan
    report: AgentReport
    saved: SavedRun


def rules_of(snapshot: Snapshot, request: EvaluationRequest, judge: Judge) -> GateRules:
    """Return a settled request's rules, with the judge's own minimum coverage where none is given, or that of recorded failures."""
    given = {item.name for item in fields(GateRules)} & EvaluationRequest.model_fields.keys() - {"min_coverage"}
    return GateRules(
        **{name: getattr(request, name) for name in given},
        min_coverage=snapshot.coverage[judge.live] if request.min_coverage is None else request.min_coverage,
        as_recorded=request.min_coverage is None,
        today=snapshot.read_at.date(),
    )


def guard_of(snapshot: Snapshot, rules: GateRules) -> Guard:
    """Return what decides whether a drop is a regression."""
    return Guard(rules, snapshot.watched, snapshot.label_counts, snapshot.points)


def scored(snapshot: Snapshot, judged: Judged, judge: Judge) -> Evaluated:
    """Return the scores of an agent, with those that its run held before."""
    fresh = evaluation_of(judged, judge)
    evaluation = joined(snapshot.run(fresh.run_id), fresh, judged.plan.claimed)
    return Evaluated(judged, evaluation, expenses_of(fresh.agent_id, fresh.dimensions.values()))


def with_messages(snapshot: Snapshot, evaluated: Sequence[Evaluated], judge: Judge) -> tuple[Snapshot, list[Evaluated]]:
    """Return evaluations with the verdicts on their messages, from one call, and the snapshot that keeps them.

    A judge that answers nothing but claims gives none, and so do recordings without such answers where the baseline has none.
    """
    known, ask = snapshot.read_messages, getattr(judge, "ask", None)
    if ask is not None and not known:
        plans = {item.evaluation.run_id: item.plan for item in evaluated if item.plan.readings}
        calls = {run_id: (plan.readings, plan.messages_left_out) for run_id, plan in plans.items()}
        read = run_async(read_messages(list(calls.values()), ask)) if calls else []
        # A baseline with verdicts on messages is no measure of a window without.
        due = {run_id for run_id, plan in plans.items() if plan.baseline and plan.baseline.messages}
        told = zip(calls, read, strict=True)
        answered = {run_id: item for run_id, item in told if item.is_answered or run_id in due}
        since = {run_id: [*_earlier(snapshot, plans[run_id])] for run_id, item in answered.items() if item.is_low}
        earlier = run_async(read_messages([part for parts in since.values() for part in parts], ask))
        judged_by, each = {item.judged_by for item in read}, iter(earlier)
        read = [*read, *(item for item in earlier if item.judged_by in judged_by)]
        for run_id, parts in since.items():
            usage = add_usage((answered[run_id].usage, *(next(each).usage for _ in parts)))
            answered[run_id] = answered[run_id].model_copy(update={"usage": usage})
        known = {run_id: _dated(snapshot, plans[run_id], item, read) for run_id, item in answered.items()}
    snapshot = replace(snapshot, read_messages=known)
    return snapshot, [_with_verdicts(item, known.get(item.evaluation.run_id)) for item in evaluated]


def _earlier(snapshot: Snapshot, plan: AgentPlan) -> Iterator[tuple[Sequence[MessageCall], int]]:
    """Yield what is asked to date a drift: the windows of the baseline, and the time between them and the window."""
    agent_id, window = plan.scope.agent_id, plan.scope.window
    taken = [Window(item.end, item.start) for item in plan.baseline.messages] if plan.baseline else []
    if window.start is None or not taken:
        return
    # Older messages are not read: a part of a window would be another question. A baseline's may reach into this one.
    first = history_of(window).start
    whole = [item for item in taken if first and item.start and item.start >= first]
    known = {item.verdict.message for item in snapshot.known_verdicts.get(agent_id, ())}
    for earlier in (*whole, Window(window.start, taken[-1].end)):
        own = snapshot.messages.within(earlier, agent_id=agent_id)
        if earlier.start and earlier.start < window.start and not known.issuperset(message.id for message in own):
            talk = snapshot.messages.talk(agent_id, earlier)
            yield readings_of(plan.readings[0].character, talk, snapshot.most_messages)


def with_anchors(
    snapshot: Snapshot, evaluated: Sequence[Evaluated], judge: Judge, *, twice: bool = False
) -> tuple[Snapshot, list[Evaluated]]:
    """Return evaluations of the newest windows with the judge's answers on anchors, and the snapshot that keeps those.

    Of a judge that was asked nothing else nothing is asked. ``twice``: an answer that is not given twice shows no change later.
    """
    known, ask, paid = snapshot.anchor_answers, getattr(judge, "ask", None), Usage()
    current = {(scope.agent_id, scope.window) for scope in snapshot.agents}
    newest = [at for at, item in enumerate(evaluated) if (item.plan.scope.agent_id, item.plan.scope.window) in current]
    # Of an agent without a baseline anchors are of the window that is judged, where a drift would be taken for the character.
    own = (item.evaluation.messages for item in evaluated)
    low = {item.agent_id for item in own if item and item.is_low} - snapshot.baselines.keys()
    anchors = [agent.only_out() if agent.agent_id in low else agent for agent in snapshot.anchors]
    if known is None and ask is not None and anchors and any(evaluated[at].plan.requests for at in newest):
        day = max(scope.window.end for scope in snapshot.agents).date()
        asked = AnchorRound(anchors, day, 2 if twice else 1)
        read = run_async(read_messages([([call], 0) for call in asked.calls], ask))
        known, paid = asked.answers(read), add_usage(item.usage for item in read)
    found = list(evaluated)
    for at in newest:
        found[at] = _with_answers(found[at], known, paid)
        paid = Usage()
    return replace(snapshot, anchors=anchors, anchor_answers=known), found


def _with_answers(item: Evaluated, known: AnchorAnswers | None, paid: Usage) -> Evaluated:
    """Return an evaluation with the answers on anchors in its provenance, and with what they cost."""
    evaluation, expenses = item.evaluation, list(item.expenses)
    if paid.calls:
        expenses.append(Expense(mechanism="judge_check", agent_id=evaluation.agent_id, usage=paid))
    if known is not None:
        provenance = cast(Provenance, {**evaluation.provenance, ANCHORS: known.model_dump(mode="json")})
        evaluation = evaluation.model_copy(update={"provenance": provenance})
    return replace(item, evaluation=evaluation, expenses=expenses)


def _dated(
    snapshot: Snapshot, plan: AgentPlan, own: MessageVerdicts, read: Sequence[MessageVerdicts]
) -> MessageVerdicts:
    """Return verdicts on a window with what earlier verdicts and the texts of messages add to them."""
    series = series_of(snapshot, own.agent_id, read, plan.scope.window.end)
    dated = own.dated(series, snapshot.labelled.get(own.agent_id))
    if change := dated.change:
        # The date may as well be that of any message before it that nobody judged.
        judged = {item.message for item in series}
        before = max(item.said_at for item in series if item.said_at <= change.since and item.message != change.message)
        gap = snapshot.messages.within(Window(change.since, before), agent_id=own.agent_id)
        off = change.give_or_take + sum(message.id not in judged for message in gap)
        dated = dated.model_copy(update={"change": replace(change, give_or_take=off)})
    if not dated.share.n_out:
        return dated
    said = snapshot.messages.talk(own.agent_id, history_of(plan.scope.window))
    return dated.model_copy(update={"worst": worst_messages(dated, series, said)})


def _with_verdicts(item: Evaluated, read: MessageVerdicts | None) -> Evaluated:
    if read is None:
        return item
    adherence = _with_read(item.evaluation.dimensions[ADHERENCE.name], read)
    dimensions = {**item.evaluation.dimensions, ADHERENCE.name: adherence}
    usage = add_usage(one.usage for one in dimensions.values())
    evaluation = item.evaluation.model_copy(update={"dimensions": dimensions, "usage": usage})
    paid = expenses_of(evaluation.agent_id, [adherence.model_copy(update={"usage": read.usage})])
    return replace(item, evaluation=evaluation, expenses=[*item.expenses, *paid])


def _with_read(dimension: DimensionEvaluation, read: MessageVerdicts | None) -> DimensionEvaluation:
    """Return a dimension with verdicts on messages, and with what they cost."""
    if read is None:
        return dimension
    return dimension.model_copy(update={"messages": read, "usage": dimension.usage + read.usage})


def series_of(
    snapshot: Snapshot, agent_id: str, read: Sequence[MessageVerdicts], end: datetime
) -> list[MessageVerdict]:
    """Return the verdicts on an agent's messages up to ``end``, those read first instead of those read later or stored.

    Stored verdicts of another judge or another question are left out: a change of the judge is none of the agent.
    """
    own = [item for item in read if item.agent_id == agent_id]
    judged_by = {item.judged_by for item in own}
    stored = (item for item in snapshot.known_verdicts.get(agent_id, ()) if item.judged_by in judged_by)
    found = {item.verdict.message: item.verdict for item in stored}
    found |= {verdict.message: verdict for item in reversed(own) for verdict in item.verdicts}
    return [item for item in found.values() if item.said_at <= end]


def decide(snapshot: Snapshot, evaluated: Sequence[Evaluated], guard: Guard) -> list[AgentResult]:
    """Return what is said of agents: their scores beside their baselines, every fall tested against chance, and what is wrong."""
    return [_result(snapshot, item.plan, _decided(item, guard)) for item in evaluated]


def missing_scores(item: Evaluated) -> Problem | None:
    """Return what is not scored of a run that should be complete."""
    plan = item.plan
    missing = [name for name in plan.claimed if name not in item.evaluation.dimensions]
    if not missing or plan.scope.dimensions:
        return None
    names = ", ".join(f"{name}_scores" for name in missing)
    return Problem(f"{plan.scope.agent_id}: not every dimension is scored on the current messages; materialize {names}")


def _decided(item: Evaluated, guard: Guard) -> AgentReport:
    plan, evaluation = item.plan, item.evaluation
    due = ALL_DIMENSIONS if plan.is_whole(evaluation.dimensions) else plan.scope.dimensions
    report = compared(evaluation, plan.baseline, guard, due)
    return report.model_copy(update={"expenses": list(item.expenses), "past": plan.scope.past})


def _result(snapshot: Snapshot, plan: AgentPlan, report: AgentReport) -> AgentResult:
    evaluation, agent_id = report.evaluation, report.evaluation.agent_id
    if not report.past and not evaluation.synthetic:
        falling = drift_findings(evaluation, snapshot.points)
        findings = [*report.findings, *falling, *snapshot.voices.get(agent_id, ())]
        expenses = list(report.expenses)
        if said := snapshot.facts.get(agent_id):
            findings += facts_findings(said, judge_to_ask(evaluation))
            expenses.append(Expense(mechanism="facts", agent_id=agent_id, usage=said.usage))
        report = report.model_copy(update={"findings": findings, "expenses": expenses})
    if not evaluation.synthetic:
        report = _with_known_drifts(snapshot, plan, report)
    whole = plan.is_whole(evaluation.dimensions)
    saved = SavedRun(evaluation, report.comparison, report.findings, whole, plan.read_at)
    # The row keeps what the run cost when it was paid for; the caller learns what it cost now.
    now = {
        name: item.model_copy(update={"usage": add_usage(e.usage for e in report.expenses if e.dimension == name)})
        for name, item in evaluation.dimensions.items()
        if name in plan.plans
    }
    evaluation = evaluation.model_copy(update={"dimensions": {**evaluation.dimensions, **now}})
    return AgentResult(plan, report.model_copy(update={"evaluation": evaluation}), saved)


def _with_known_drifts(snapshot: Snapshot, plan: AgentPlan, report: AgentReport) -> AgentReport:
    evaluation = report.evaluation
    found = with_known_drifts(
        report.findings,
        evaluation,
        plan.baseline,
        snapshot.drifts.get(evaluation.agent_id, ()),
        objections_to(snapshot, plan, evaluation),
        has_history=has_history(snapshot, plan),
        drop=report.comparison.share_drop,
    )
    return report.model_copy(update={"findings": found})


def objections_to(snapshot: Snapshot, plan: AgentPlan, evaluation: AgentEvaluation) -> Objections:
    """Return what speaks against an evaluation's window as a baseline."""
    return objections(evaluation, snapshot.drifts.get(evaluation.agent_id, ()))


def has_history(snapshot: Snapshot, plan: AgentPlan) -> bool:
    """Return whether the agent said something in the windows before."""
    start, agent_id = plan.scope.window.start, plan.scope.agent_id
    return start is not None and bool(snapshot.messages.within(Window(start), agent_id=agent_id))


def joined(known: AgentEvaluation | None, evaluation: AgentEvaluation, claimed: Collection[str]) -> AgentEvaluation:
    """Return a run's evaluation with the dimensions it held before, those left out that the agent has no propositions of."""
    if known is None:
        return evaluation
    dimensions = {name: item for name, item in known.dimensions.items() if name in claimed}
    for name, item in evaluation.dimensions.items():
        if item.usage.calls == 0 and name in dimensions:
            # Answered from the cache this time: the run did cost what it cost.
            item = item.model_copy(update={"usage": dimensions[name].usage})
        dimensions[name] = item
    ordered = {name: dimensions[name] for name in ALL_DIMENSIONS if name in dimensions}
    provenance = evaluation.provenance
    if not provenance.get("judge_models"):
        # Nobody was asked this time, so the scores are still those of whoever gave them.
        judged_by = {key: value for key, value in known.provenance.items() if key in _JUDGED_BY}
        provenance = cast(Provenance, {**provenance, **judged_by})
    return evaluation.with_dimensions(ordered).model_copy(
        update={"provenance": provenance, "usage": add_usage(item.usage for item in ordered.values())}
    )


def baseline_of(evaluation: AgentEvaluation) -> Baseline:
    """Return the baseline an evaluation would be; dimensions that were not scored in full are not in it."""
    span = (evaluation.window_start, evaluation.window_end)
    return captured(evaluation.agent_id, [evaluation.dimensions], judged_on(evaluation), spans=[span])


def set_beside(guard: Guard, before: Mapping[str, Baseline], after: RunReport) -> RunReport:
    """Return what an evaluation says beside other baselines than those of the files; nothing is judged or saved.

    Agents that have no baseline ``before`` are left out.
    """
    agents = {
        agent_id: compared(report.evaluation, before[agent_id], guard, report.evaluation.dimensions)
        for agent_id, report in after.agents.items()
        if agent_id in before
    }
    found = RunReport(agents=agents, provenance=after.provenance.copy())
    found.exit_code = exit_code_of(found.all_findings(), guard.rules)
    return found


def confirm(evaluated: Sequence[Evaluated], judge: Judge, guard: Guard) -> list[Evaluated]:
    """Return the scores with what may have fallen judged ``CONFIRMATIONS`` times more, in one call for all agents.

    A live judge is asked for the claims that could change the answer; a replay takes what was recorded then: left out, it would
    call a fall what the live run had found to be chance. What was confirmed before is not asked again.
    """
    asked = {
        index: item.plan.again(claims, CONFIRMATIONS)
        for index, item in enumerate(evaluated)
        if (claims := _to_confirm(item, judge, guard))
    }
    if not asked:
        return list(evaluated)
    judged = judge_plans(list(asked.values()), judge, [evaluated[index].judged for index in asked])
    found = list(evaluated)
    for index, again in zip(asked, judged, strict=True):
        found[index] = _with_confirmed(evaluated[index], again)
    return found


def compared(
    evaluation: AgentEvaluation, baseline: Baseline | None, guard: Guard, due: Collection[str] = ALL_DIMENSIONS
) -> AgentReport:
    """Return an agent's report: its scores beside its baseline, every fall tested against chance, and what is wrong.

    Whoever else is evaluated with it changes nothing: the tests are of this agent, beside those that are watched. ``due`` are the
    dimensions that should be there where the baseline has them.
    """
    evaluation = expecting(evaluation, baseline, due)
    kept, others = without_other_judges(evaluation, baseline)
    comparison = explained(
        evaluation,
        _tested(evaluation, kept, guard),
        baseline,
        others,
        earlier=_answers_since(evaluation, baseline, guard),
        rules=guard.rules,
    )
    left = [name for name in (baseline.dimensions if baseline else ()) if name not in evaluation.dimensions]
    report = judge_agent(evaluation, comparison, guard.rules, left)
    short = label_findings(evaluation.agent_id, guard.label_counts) if guard.rules.require_calibration else ()
    return report.model_copy(update={"findings": [*report.findings, *short]})


def _answers_since(evaluation: AgentEvaluation, baseline: Baseline | None, guard: Guard) -> list[AnchorAnswers]:
    """Return the answers on anchors in an agent's runs since its baseline, those of a judge of another name left out."""
    taken, judge = answers_in(baseline.provenance) if baseline else None, judge_of(evaluation.provenance)
    earlier = (
        point.anchors
        for point in guard.points.get(evaluation.agent_id, ())
        if point.window_end < evaluation.window_end and tuple(point.judged_by) == judge
    )
    return [item for item in earlier if item and taken and item.day > taken.day]


def _tested(evaluation: AgentEvaluation, baseline: Baseline | None, guard: Guard) -> BaselineComparison:
    return settled(_compared(evaluation, baseline, guard.rules), guard.watched, guard.rules)


def judged_on(evaluation: AgentEvaluation) -> dict[str, Any]:
    """Return what an evaluation's scores came from, as a golden file keeps it."""
    names = ("judge_model", "prompt_version", "persona_hash", "messages_hash")
    return {
        **{name: evaluation.provenance.get(name) for name in names},
        "window_start": evaluation.window_start.isoformat() if evaluation.window_start else None,
        "window_end": evaluation.window_end.isoformat(),
        "messages": evaluation.sample_size,
    }


def _compared(evaluation: AgentEvaluation, baseline: Baseline | None, rules: GateRules) -> Compared:
    return Compared(deltas(evaluation, baseline, rules), evaluation.dimensions, baseline, judged_on(evaluation))


def deltas(evaluation: AgentEvaluation, baseline: Baseline | None, rules: GateRules) -> BaselineComparison:
    """Return the comparison by the deltas alone."""
    return compare(
        evaluation.agent_id,
        evaluation.dimensions,
        baseline,
        rules,
        min_coverage=rules.min_coverage,
        as_recorded=rules.as_recorded,
    )


def restricted(report: AgentReport, dimensions: Sequence[str], rules: GateRules) -> AgentReport:
    """Return what a report says of these dimensions, with the very numbers it has."""
    evaluation, comparison = report.evaluation, report.comparison
    own = {name: item for name, item in evaluation.dimensions.items() if name in dimensions}
    if own.keys() == evaluation.dimensions.keys():
        return report
    said = {name: item for name, item in comparison.dimensions.items() if name in own}
    warnings = [text for text in comparison.warnings if text.partition(":")[0].partition("/")[0] in own]
    narrowed = comparison.model_copy(update={"dimensions": said, "warnings": warnings})
    left = [name for name, item in comparison.dimensions.items() if name not in own and item.baseline is not None]
    found = judge_agent(evaluation.with_dimensions(own), narrowed, rules, left)
    kept = [
        finding
        for finding in report.findings
        if (finding.kind in ("trend", "moved", OUT_OF_CHARACTER) and finding.dimension in own)
        or finding.kind in ("voice_alarm", "voice_check", "contradiction", "facts", "known_drift", "calibration")
        or (finding.kind == "accepted" and finding.dimension is None)
    ]
    return found.model_copy(
        update={"expenses": report.expenses, "past": report.past, "findings": [*found.findings, *kept]}
    )


def expecting(evaluation: AgentEvaluation, baseline: Baseline | None, due: Collection[str]) -> AgentEvaluation:
    """Return the evaluation with every due dimension of the baseline in it: one that is gone is unscored, not passed."""
    gone = {
        name: DimensionEvaluation(dimension=name, unscored=Unscored.NO_EVIDENCE.value)
        for name in (baseline.dimensions if baseline else ())
        if name in due and name not in evaluation.dimensions
    }
    if not gone:
        return evaluation
    found = {**evaluation.dimensions, **gone}
    return evaluation.model_copy(update={"dimensions": {name: found[name] for name in ALL_DIMENSIONS if name in found}})


def _to_confirm(item: Evaluated, judge: Judge, guard: Guard) -> dict[str, list[str]]:
    """Return the claims worth asking again, by dimension; a dimension that was asked again before is not."""
    plan, evaluation = item.plan, item.evaluation
    # A judge that is neither live nor keeps recordings has one answer to everything.
    has_recorded: HasRecorded | None = getattr(replayed_by(judge) or judge, "has_recorded", None)
    if plan.baseline is None or not (judge.live or has_recorded):
        return {}
    baseline, _ = without_other_judges(evaluation, plan.baseline)
    worth = to_confirm(_compared(evaluation, baseline, guard.rules))
    claims = {
        # A claim file may have gone since: then there is nothing to ask.
        name: [claim for claim in ids if claim in plan.claims_of(name)]
        for name, ids in worth.items()
        if evaluation.dimensions[name].samples <= plan.case.samples
    }
    if has_recorded and not judge.live:
        claims = {name: [c for c in ids if _is_recorded(plan, name, c, has_recorded)] for name, ids in claims.items()}
    return {name: ids for name, ids in claims.items() if ids}


def _is_recorded(plan: AgentPlan, dimension: str, claim: str, has_recorded: HasRecorded) -> bool:
    requests = plan.again({dimension: [claim]}, CONFIRMATIONS).requests
    return has_recorded((item for item in requests if item.proposition_id == claim), failures=True)


def _with_confirmed(item: Evaluated, judged: Judged) -> Evaluated:
    known = item.evaluation.dimensions
    again = {name: _with_read(one, known[name].messages) for name, one in judged.dimensions().items()}
    evaluation = item.evaluation.with_dimensions({**item.evaluation.dimensions, **again})
    paid = [one.model_copy(update={"usage": judged.costs[name]}) for name, one in again.items()]
    return replace(
        item,
        evaluation=evaluation,
        expenses=[*item.expenses, *expenses_of(evaluation.agent_id, paid, "confirmation")],
        again=judged,
    )
