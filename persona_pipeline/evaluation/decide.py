"""Decide runs of agents: scores, verdicts on messages, comparison with baselines, and confirmation of drops."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, cast

from persona_pipeline.base.calls import run_async
from persona_pipeline.base.errors import Problem
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.base.shares import LEAST_OUT
from persona_pipeline.evaluation.history import drift_findings
from persona_pipeline.evaluation.plan import AgentPlan, Judged, evaluation_of, history_of, judge_plans, recorded_of
from persona_pipeline.evaluation.snapshot import Inputs, Reference, Signals, Snapshot
from persona_pipeline.guard.anchors import AnchorAnswers, AnchorRound
from persona_pipeline.guard.baselines.golden import captured
from persona_pipeline.guard.baselines.models import Baseline, BaselineComparison, Compared
from persona_pipeline.guard.baselines.regression import CONFIRMATIONS, compare, settled, to_confirm
from persona_pipeline.guard.findings import ANCHORS, answers_in, explained, judge_of, without_other_judges
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
from persona_pipeline.judging.verdict import Judge, Unscored, Usage
from persona_pipeline.scoring.messages.reading import MessageCall, read_messages, readings_of, worst_messages
from persona_pipeline.scoring.messages.verdicts import MessageVerdicts
from persona_pipeline.scoring.results import DimensionEvaluation, add_usage
from persona_pipeline.world.models import Window
from persona_pipeline.world.propositions.models import ADHERENCE, ALL_DIMENSIONS

# Whether a judge of recordings has answers to some questions.
_JUDGED_BY = ("judge_model", "judge_models", "prompt_version", "prompt_versions", ANCHORS)


@dataclass(frozen=True)
class AgentRun:
    """One agent's run on one window.

    Attributes:
        report: of the whole run, whatever part was requested; dimensions have the cost of the calls that first answered them.
        again: repeated judgments that confirm a drop; None: nothing was repeated.
        is_baseline: the agent's baseline was taken from it.
    """

    judged: Judged
    report: AgentReport
    again: Judged | None = None
    is_baseline: bool = False

    @property
    def plan(self) -> AgentPlan:
        return self.judged.plan

    @property
    def agent_id(self) -> str:
        return self.report.evaluation.agent_id

    @property
    def evaluation(self) -> AgentEvaluation:
        return self.report.evaluation

    @property
    def whole(self) -> bool:
        """Whether it has every dimension with claims."""
        return self.plan.is_whole(self.evaluation.dimensions)

    @property
    def shown(self) -> AgentReport:
        """The report with the cost of the current calls: the caller pays those."""
        paid = self.report.expenses
        now = {
            name: item.model_copy(update={"usage": add_usage(e.usage for e in paid if e.dimension == name)})
            for name, item in self.evaluation.dimensions.items()
            if name in self.plan.plans
        }
        dimensions = {**self.evaluation.dimensions, **now}
        return self.report.model_copy(
            update={"evaluation": self.evaluation.model_copy(update={"dimensions": dimensions})}
        )

    def updated(self, evaluation: AgentEvaluation, expenses: Iterable[Expense]) -> "AgentRun":
        """Return the run with another evaluation and further expenses."""
        paid = [*self.report.expenses, *expenses]
        return replace(self, report=self.report.model_copy(update={"evaluation": evaluation, "expenses": paid}))


def rules_of(snapshot: Snapshot, request: EvaluationRequest, judge: Judge) -> GateRules:
    """Return a settled request's rules; without a minimum coverage, the judge's own or that of recorded failures."""
    given = {item.name for item in fields(GateRules)} & EvaluationRequest.model_fields.keys() - {"min_coverage"}
    coverage = snapshot.reference.coverage[judge.live]
    return GateRules(
        **{name: getattr(request, name) for name in given},
        min_coverage=coverage if request.min_coverage is None else request.min_coverage,
        as_recorded=request.min_coverage is None,
        today=snapshot.inputs.read_at.date(),
    )


def scored(reference: Reference, judged: Judged, judge: Judge) -> AgentRun:
    """Return the run of a judged plan, with the scores that an earlier run on the same inputs has."""
    fresh, plan = evaluation_of(judged, judge), judged.plan
    evaluation = joined(reference.run(fresh.run_id), fresh, plan.unclaimed)
    report = AgentReport(
        evaluation=evaluation,
        comparison=BaselineComparison(agent_id=fresh.agent_id),
        expenses=expenses_of(fresh.agent_id, fresh.dimensions.values()),
        past=plan.scope.past,
    )
    return AgentRun(judged, report)


def with_read(dimension: DimensionEvaluation, read: MessageVerdicts | None) -> DimensionEvaluation:
    """Return a dimension with verdicts on messages and their cost."""
    if read is None:
        return dimension
    return dimension.model_copy(update={"messages": read, "usage": dimension.usage + read.usage})


def with_messages(snapshot: Snapshot, runs: Sequence[AgentRun], judge: Judge) -> tuple[Snapshot, list[AgentRun]]:
    """Return runs with verdicts on their messages, from one call, and the snapshot that keeps those.

    There are none from a judge that only answers claims, nor from recordings without such answers, unless the baseline has some.
    """
    known, ask = snapshot.signals.messages, getattr(judge, "ask", None)
    if ask is not None and not known:
        plans = {run.evaluation.run_id: run.plan for run in runs if run.plan.readings}
        calls = {run_id: (plan.readings, plan.messages_left_out) for run_id, plan in plans.items()}
        read = run_async(read_messages(list(calls.values()), ask)) if calls else []
        baselines = {run_id: snapshot.reference.baseline(plan.scope) for run_id, plan in plans.items()}
        # A window without verdicts cannot be compared with a baseline that has some.
        due = {run_id for run_id, baseline in baselines.items() if baseline and baseline.messages}
        pairs = zip(calls, read, strict=True)
        answered = {run_id: item for run_id, item in pairs if item.is_answered or run_id in due}
        # Fewer messages out of character date no change. The store of CI does not know the earlier windows yet.
        dates = [run_id for run_id, item in answered.items() if item.is_low or item.share.n_out >= LEAST_OUT]
        since = {run_id: [*_earlier(snapshot, plans[run_id])] for run_id in dates}
        earlier = run_async(read_messages([part for parts in since.values() for part in parts], ask))
        judged_by, each = {item.judged_by for item in read}, iter(earlier)
        read = [*read, *(item for item in earlier if item.judged_by in judged_by)]
        for run_id, parts in since.items():
            usage = add_usage((answered[run_id].usage, *(next(each).usage for _ in parts)))
            answered[run_id] = answered[run_id].model_copy(update={"usage": usage})
        known = {run_id: _dated(snapshot, plans[run_id], item, read) for run_id, item in answered.items()}
    signals = replace(snapshot.signals, messages=known)
    return replace(snapshot, signals=signals), [_with_verdicts(run, known.get(run.evaluation.run_id)) for run in runs]


def _earlier(snapshot: Snapshot, plan: AgentPlan) -> Iterator[tuple[Sequence[MessageCall], int]]:
    """Yield the questions that date a drift: about the baseline's windows, and the time between them and the window."""
    inputs, agent_id, window = snapshot.inputs, plan.agent_id, plan.scope.window
    baseline = snapshot.reference.baseline(plan.scope)
    taken = [Window(item.end, item.start) for item in baseline.messages] if baseline else []
    if window.start is None or not taken:
        return
    # Older messages are not read: a part of a window would be another question. A baseline's may reach into this one.
    first = history_of(window).start
    whole = [item for item in taken if first and item.start and item.start >= first]
    known = {item.verdict.message for item in snapshot.reference.verdicts.get(agent_id, ())}
    for earlier in (*whole, Window(window.start, taken[-1].end)):
        own = inputs.messages.within(earlier, agent_id=agent_id)
        if earlier.start and earlier.start < window.start and not known.issuperset(message.id for message in own):
            talk = inputs.messages.talk(agent_id, earlier)
            yield readings_of(plan.readings[0].character, talk, inputs.most_messages)


def _dated(
    snapshot: Snapshot, plan: AgentPlan, own: MessageVerdicts, read: Sequence[MessageVerdicts]
) -> MessageVerdicts:
    """Return verdicts on a window with the date of a change and the worst messages."""
    reference, messages = snapshot.reference, snapshot.inputs.messages
    series = reference.series(own.agent_id, read, plan.scope.window.end)
    dated = own.dated(series, reference.labelled.get(own.agent_id))
    if change := dated.change:
        # The change may be at any message before it that was not judged.
        judged = {item.message for item in series}
        before = max(item.said_at for item in series if item.said_at <= change.since and item.message != change.message)
        gap = messages.within(Window(change.since, before), agent_id=own.agent_id)
        off = change.give_or_take + sum(message.id not in judged for message in gap)
        dated = dated.model_copy(update={"change": replace(change, give_or_take=off)})
    if not dated.share.n_out:
        return dated
    said = messages.talk(own.agent_id, history_of(plan.scope.window))
    return dated.model_copy(update={"worst": worst_messages(dated, series, said)})


def _with_verdicts(run: AgentRun, read: MessageVerdicts | None) -> AgentRun:
    if read is None:
        return run
    adherence = with_read(run.evaluation.dimensions[ADHERENCE.name], read)
    dimensions = {**run.evaluation.dimensions, ADHERENCE.name: adherence}
    usage = add_usage(one.usage for one in dimensions.values())
    evaluation = run.evaluation.model_copy(update={"dimensions": dimensions, "usage": usage})
    return run.updated(evaluation, expenses_of(run.agent_id, [adherence.model_copy(update={"usage": read.usage})]))


def with_anchors(
    snapshot: Snapshot, runs: Sequence[AgentRun], judge: Judge, *, twice: bool = False
) -> tuple[Snapshot, list[AgentRun]]:
    """Return runs on the newest windows with the judge's answers on anchors, and the snapshot that keeps those.

    Without other questions the anchors are not asked. ``twice``: an unsteady answer will not count as a change later.
    """
    known, ask, paid = snapshot.signals.anchors, getattr(judge, "ask", None), Usage()
    current = {(scope.agent_id, scope.window) for scope in snapshot.inputs.agents}
    newest = [at for at, run in enumerate(runs) if (run.agent_id, run.plan.scope.window) in current]
    # Without a baseline anchors come from the judged window, where a drift would count as the character.
    own = (run.evaluation.messages for run in runs)
    low = {item.agent_id for item in own if item and item.is_low} - snapshot.reference.baselines.keys()
    anchors = [agent.only_out() if agent.agent_id in low else agent for agent in snapshot.reference.anchors]
    if known is None and ask is not None and anchors and any(runs[at].plan.requests for at in newest):
        day = max(scope.window.end for scope in snapshot.inputs.agents).date()
        asked = AnchorRound(anchors, day, 2 if twice else 1)
        read = run_async(read_messages([([call], 0) for call in asked.calls], ask))
        known, paid = asked.answers(read), add_usage(item.usage for item in read)
    found = list(runs)
    for at in newest:
        found[at] = _with_answers(found[at], known, paid)
        paid = Usage()
    reference, signals = replace(snapshot.reference, anchors=anchors), replace(snapshot.signals, anchors=known)
    return replace(snapshot, reference=reference, signals=signals), found


def _with_answers(run: AgentRun, known: AnchorAnswers | None, paid: Usage) -> AgentRun:
    """Return a run with the answers on anchors in its provenance, and their cost."""
    evaluation = run.evaluation
    expenses = [Expense(mechanism="judge_check", agent_id=run.agent_id, usage=paid)] if paid.calls else []
    if known is not None:
        provenance = cast(Provenance, {**evaluation.provenance, ANCHORS: known.model_dump(mode="json")})
        evaluation = evaluation.model_copy(update={"provenance": provenance})
    return run.updated(evaluation, expenses)


def missing_scores(run: AgentRun) -> Problem | None:
    """Return the problem of a run that lacks dimensions and should be complete."""
    missing = [name for name in run.plan.claimed if name not in run.evaluation.dimensions]
    if not missing or run.plan.scope.dimensions:
        return None
    names = ", ".join(f"{name}_scores" for name in missing)
    return Problem(f"{run.agent_id}: not every dimension is scored on the current messages; materialize {names}")


def decide(snapshot: Snapshot, runs: Sequence[AgentRun], rules: GateRules) -> list[AgentRun]:
    """Return runs with their comparison and findings: every drop is tested against chance."""
    return [replace(run, report=_decided(snapshot, run, rules)) for run in runs]


def _decided(snapshot: Snapshot, run: AgentRun, rules: GateRules) -> AgentReport:
    reference, signals, plan, known = snapshot.reference, snapshot.signals, run.plan, run.report
    due = ALL_DIMENSIONS if run.whole else plan.scope.dimensions
    baseline = reference.baseline(plan.scope)
    report = compared(run.evaluation, baseline, rules, reference, due)
    report = report.model_copy(update={"expenses": list(known.expenses), "past": known.past})
    evaluation = report.evaluation
    if evaluation.synthetic:
        return report
    if not known.past:
        report.findings += [*drift_findings(evaluation, reference.points), *signals.voices.get(run.agent_id, ())]
        if said := signals.facts.get(run.agent_id):
            report.findings += facts_findings(said, judge_to_ask(evaluation))
            report.expenses.append(Expense(mechanism="facts", agent_id=run.agent_id, usage=said.usage))
    drifts, said_before = signals.drifts.get(run.agent_id, ()), has_history(snapshot.inputs, plan)
    findings = with_known_drifts(report, baseline, drifts, has_history=said_before)
    return report.model_copy(update={"findings": findings})


def objections_to(signals: Signals, evaluation: AgentEvaluation) -> Objections:
    """Return the objections to an evaluation's window as a baseline."""
    return objections(evaluation, signals.drifts.get(evaluation.agent_id, ()))


def has_history(inputs: Inputs, plan: AgentPlan) -> bool:
    """Return whether the agent said something before the window."""
    start = plan.scope.window.start
    return start is not None and bool(inputs.messages.within(Window(start), agent_id=plan.agent_id))


def joined(known: AgentEvaluation | None, evaluation: AgentEvaluation, unclaimed: Collection[str]) -> AgentEvaluation:
    """Return an evaluation with the dimensions of the earlier run, without those that have no claims any more."""
    if known is None:
        return evaluation
    dimensions = {name: item for name, item in known.dimensions.items() if name not in unclaimed}
    for name, item in evaluation.dimensions.items():
        if item.usage.calls == 0 and name in dimensions:
            # Answered from the cache this time: keep the cost of the first answer.
            item = item.model_copy(update={"usage": dimensions[name].usage})
        dimensions[name] = item
    ordered = {name: dimensions[name] for name in ALL_DIMENSIONS if name in dimensions}
    provenance = evaluation.provenance
    if not provenance.get("judge_models"):
        # No call this time: the scores are still those of the earlier judge.
        judged_by = {key: value for key, value in known.provenance.items() if key in _JUDGED_BY}
        provenance = cast(Provenance, {**provenance, **judged_by})
    return evaluation.with_dimensions(ordered).model_copy(
        update={"provenance": provenance, "usage": add_usage(item.usage for item in ordered.values())}
    )


def baseline_of(evaluation: AgentEvaluation) -> Baseline:
    """Return an evaluation as a baseline, without dimensions that were not scored in full."""
    span = (evaluation.window_start, evaluation.window_end)
    return captured(evaluation.agent_id, [evaluation.dimensions], judged_on(evaluation), spans=[span])


def set_beside(rules: GateRules, reference: Reference, before: Mapping[str, Baseline], after: RunReport) -> RunReport:
    """Return an evaluation compared with other baselines; nothing is judged or saved.

    Agents without a baseline in ``before`` are left out.
    """
    agents = {
        agent_id: compared(report.evaluation, before[agent_id], rules, reference, report.evaluation.dimensions)
        for agent_id, report in after.agents.items()
        if agent_id in before
    }
    found = RunReport(agents=agents, provenance=after.provenance.copy())
    found.exit_code = exit_code_of(found.all_findings(), rules)
    return found


def confirm(runs: Sequence[AgentRun], judge: Judge, reference: Reference, rules: GateRules) -> list[AgentRun]:
    """Return runs in which possible drops are judged ``CONFIRMATIONS`` times more, in one call for all agents.

    A replay uses the recorded confirmations: without them it would report a drop that the live run found to be chance.
    """
    asked = {
        index: run.plan.again(claims, CONFIRMATIONS)
        for index, run in enumerate(runs)
        if (claims := _to_confirm(run, judge, reference, rules))
    }
    if not asked:
        return list(runs)
    judged = judge_plans(list(asked.values()), judge, [runs[index].judged for index in asked])
    found = list(runs)
    for index, again in zip(asked, judged, strict=True):
        found[index] = _with_confirmed(runs[index], again)
    return found


def compared(
    evaluation: AgentEvaluation,
    baseline: Baseline | None,
    rules: GateRules,
    reference: Reference | None = None,
    due: Collection[str] = ALL_DIMENSIONS,
) -> AgentReport:
    """Return an agent's report: scores, their comparison with its baseline, and findings.

    Other agents' scores of the same run change nothing. ``due``: dimensions that must be scored where the baseline has them.
    """
    reference = reference or Reference()
    evaluation = expecting(evaluation, baseline, due)
    kept, others = without_other_judges(evaluation, baseline)
    comparison = explained(
        evaluation,
        settled(_compared(evaluation, kept, rules), reference.watched, rules),
        baseline,
        others,
        earlier=_answers_since(evaluation, baseline, reference),
        rules=rules,
    )
    left = [name for name in (baseline.dimensions if baseline else ()) if name not in evaluation.dimensions]
    report = judge_agent(evaluation, comparison, rules, left)
    short = label_findings(evaluation.agent_id, reference.label_counts) if rules.require_calibration else ()
    return report.model_copy(update={"findings": [*report.findings, *short]})


def _answers_since(evaluation: AgentEvaluation, baseline: Baseline | None, reference: Reference) -> list[AnchorAnswers]:
    """Return the answers on anchors in an agent's runs since its baseline, of a judge of the same name."""
    taken, judge = answers_in(baseline.provenance) if baseline else None, judge_of(evaluation.provenance)
    earlier = (
        point.anchors
        for point in reference.points.get(evaluation.agent_id, ())
        if point.window_end < evaluation.window_end and tuple(point.judged_by) == judge
    )
    return [item for item in earlier if item and taken and item.day > taken.day]


def judged_on(evaluation: AgentEvaluation) -> dict[str, Any]:
    """Return the origin of an evaluation's scores, as a golden file keeps it."""
    names = ("judge_model", "prompt_version", "persona_hash", "messages_hash")
    return {
        **{name: evaluation.provenance.get(name) for name in names},
        "window_start": evaluation.window_start.isoformat() if evaluation.window_start else None,
        "window_end": evaluation.window_end.isoformat(),
        "messages": evaluation.sample_size,
    }


def _compared(evaluation: AgentEvaluation, baseline: Baseline | None, rules: GateRules) -> Compared:
    """Return the comparison by the size of drops alone."""
    found = compare(evaluation.agent_id, evaluation.dimensions, baseline, rules)
    return Compared(found, evaluation.dimensions, baseline, judged_on(evaluation))


def restricted(report: AgentReport, dimensions: Sequence[str], rules: GateRules) -> AgentReport:
    """Return a report limited to some dimensions, with unchanged numbers."""
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
    """Return the evaluation with every due dimension of the baseline: a missing one is unscored, not passed."""
    gone = {
        name: DimensionEvaluation(dimension=name, unscored=Unscored.NO_EVIDENCE.value)
        for name in (baseline.dimensions if baseline else ())
        if name in due and name not in evaluation.dimensions
    }
    if not gone:
        return evaluation
    found = {**evaluation.dimensions, **gone}
    return evaluation.model_copy(update={"dimensions": {name: found[name] for name in ALL_DIMENSIONS if name in found}})


def _to_confirm(run: AgentRun, judge: Judge, reference: Reference, rules: GateRules) -> dict[str, list[str]]:
    """Return the claims to judge again by dimension, without dimensions that were repeated before."""
    plan, evaluation = run.plan, run.evaluation
    known = reference.baseline(plan.scope)
    # A judge that is neither live nor keeps recordings has one answer to everything.
    has_recorded = recorded_of(judge)
    if known is None or not (judge.live or has_recorded):
        return {}
    baseline, _ = without_other_judges(evaluation, known)
    worth = to_confirm(_compared(evaluation, baseline, rules))
    claims = {
        # A claim may have been deleted since.
        name: [claim for claim in ids if claim in plan.claims_of(name)]
        for name, ids in worth.items()
        if evaluation.dimensions[name].samples <= plan.case.samples
    }
    if has_recorded and not judge.live:
        claims = {name: [c for c in ids if _is_recorded(plan, name, c, has_recorded)] for name, ids in claims.items()}
    return {name: ids for name, ids in claims.items() if ids}


def _is_recorded(plan: AgentPlan, dimension: str, claim: str, has_recorded: Callable[..., bool]) -> bool:
    requests = plan.again({dimension: [claim]}, CONFIRMATIONS).requests
    return has_recorded((item for item in requests if item.proposition_id == claim), failures=True)


def _with_confirmed(run: AgentRun, judged: Judged) -> AgentRun:
    known = run.evaluation.dimensions
    again = {name: with_read(one, known[name].messages) for name, one in judged.dimensions().items()}
    paid = [one.model_copy(update={"usage": judged.costs[name]}) for name, one in again.items()]
    evaluation = run.evaluation.with_dimensions({**known, **again})
    return replace(run.updated(evaluation, expenses_of(run.agent_id, paid, "confirmation")), again=judged)
