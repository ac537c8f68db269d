"""A whole run as a user asks for it: a request in, a report out. Every way into the product goes through here.

A world is read, questions are planned and asked, what comes of them is decided, and the run is written. Between reading and writing
nobody holds the world.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path

from persona_pipeline.base.errors import ConfigError, Problem, raise_problems
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.evaluation.against import AskedOnce, judged_against
from persona_pipeline.evaluation.decide import (
    AgentResult,
    Evaluated,
    Guard,
    confirm,
    decide,
    guard_of,
    has_history,
    judged_on,
    missing_scores,
    objections_to,
    restricted,
    rules_of,
    scored,
    with_anchors,
    with_messages,
)
from persona_pipeline.evaluation.history import SavedRun, announce, rows_of, with_points
from persona_pipeline.evaluation.plan import (
    AgentPlan,
    SyntheticAgents,
    ask_facts,
    judge_plans,
    plan_agent,
    plan_run,
    synthesize,
    with_generated,
)
from persona_pipeline.evaluation.read import ALL_TIME, WorldReader
from persona_pipeline.evaluation.snapshot import ReplayedJudge, RunReplay, Snapshot
from persona_pipeline.guard.anchors import FILE as ANCHORS_FILE
from persona_pipeline.guard.anchors import save_anchors
from persona_pipeline.guard.baselines.golden import BASELINES, captured, save_baseline
from persona_pipeline.guard.baselines.models import Baseline
from persona_pipeline.guard.baselines.regression import least_coverage
from persona_pipeline.guard.gate import (
    NOT_JUDGED,
    GateRules,
    baseline_terms,
    counted,
    exit_code_of,
    findings_of_run,
    is_believable,
    kept_rules,
    looser_rules,
    missing_agent_findings,
    name_findings,
    name_notes,
    run_coverage,
)
from persona_pipeline.guard.known_drift import as_written, lower, moved_text, refusal
from persona_pipeline.guard.report import AgentReport, Finding, LooserRule, RunReport, Terms
from persona_pipeline.guard.trust import ANCHORS
from persona_pipeline.judging.verdict import Judge
from persona_pipeline.scoring.facts.known import keep_facts
from persona_pipeline.scoring.facts.reading import FactsFound
from persona_pipeline.scoring.style.monitor import write_voices
from persona_pipeline.version import __version__
from persona_pipeline.world.messages.store import write_messages_in
from persona_pipeline.world.models import Message
from persona_pipeline.world.propositions.loading import StoredSet, write_sets
from persona_pipeline.world.propositions.models import select_dimensions
from persona_pipeline.world.runs import AT_ONCE, write_runs
from persona_pipeline.world.speakers import NameMatch
from persona_pipeline.world.world import World


@dataclass
class EvaluationRun:
    """A finished run.

    Attributes:
        problems: lines of message files left out; ``notes``: what else is said on the terminal.
        baselines: files written.
        replay: returns what makes the run again; None: it was more than one run.
    """

    report: RunReport
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    baselines: list[Path] = field(default_factory=list)
    replay: Callable[[], RunReplay] | None = None


@dataclass(frozen=True)
class Decided:
    """What came of a snapshot.

    Attributes:
        rules: by which it was decided.
        evaluated: the scores of the agents that are evaluated now; ``before``: of the windows before.
        results: what is said of them; ``earlier``: of the windows before.
        broken: what was wrong with agents that could not be evaluated.
    """

    snapshot: Snapshot
    rules: GateRules
    evaluated: Sequence[Evaluated] = ()
    before: Sequence[Evaluated] = ()
    earlier: Sequence[AgentResult] = ()
    results: Sequence[AgentResult] = ()
    broken: Mapping[str, tuple[Problem, ...]] = field(default_factory=dict)


def run_evaluation(world: World, judge: Judge, request: EvaluationRequest) -> EvaluationRun:
    """Evaluate, compare, and write baselines if asked to; on bad input ``ConfigError``, and nothing is evaluated."""
    if request.against is None:
        return _run_once(world, judge, request)
    asked, runs = AskedOnce(judge) if judge.live else judge, list[EvaluationRun]()

    def evaluate(judged: World, wanted: EvaluationRequest) -> RunReport:
        runs.append(_run_once(judged, asked, wanted))
        return runs[-1].report

    report = judged_against(world, request, evaluate)
    report.expenses = [expense for run in runs for expense in run.report.expenses]
    return replace(runs[0], report=report, replay=None)


def _run_once(world: World, judge: Judge, request: EvaluationRequest) -> EvaluationRun:
    request, reader = world.settled(request), WorldReader(world)
    _check_taking(request, world.horizon)
    with reader.alone(world.chosen(request.agents)):
        snapshot, generated = reader.snapshot(request), SyntheticAgents()
        raise_problems(snapshot.broken)
        if request.synthetic:
            generated = synthesize(snapshot, judge)
            snapshot = with_generated(snapshot, generated)
        decided = evaluate(snapshot, judge, request)
        raise_problems(decided.broken)
        known = decided.snapshot.baselines
        taken, refused = new_baselines(decided, request) if request.update_baseline else ([], {})
        paths = [save_baseline(world.root / BASELINES, baseline) for baseline in taken]
        notes = list(_keep_anchors(world, decided.snapshot)) if paths or known else []
        if request.update_baseline:
            # What has just become the baseline is what the run is compared with.
            decided = _compared_again(decided, reader.baselines(decided.snapshot), taken)
        write(world, decided, generated)
    told = _taken_findings(taken, known) | refused
    run = _run_of(decided, judge, request, generated, GoldenFiles(paths, told))
    run.notes += [*notes, *(finding.text for finding in told.values())]
    if request.window != ALL_TIME:
        run.notes += _fewer_windows(decided, taken, request.baseline_windows)
    return run


def _keep_anchors(world: World, snapshot: Snapshot) -> Iterator[str]:
    """Write the anchors that were answered, so that the same ones are asked from now on; yield why they could not be kept."""
    if snapshot.anchor_answers is None or world.root != world.rules_root:
        return
    path = world.root / BASELINES / ANCHORS_FILE
    try:
        save_anchors(path, snapshot.anchors)
    except OSError as error:
        yield f"{path} cannot be written ({error.strerror or error}): other anchors may check the judge next time"


@dataclass(frozen=True)
class GoldenFiles:
    """The golden files that a run wrote. ``told``: by agent what is said of its file, written or refused."""

    paths: Sequence[Path] = ()
    told: Mapping[str, Finding] = field(default_factory=dict)


def _check_taking(request: EvaluationRequest, now: datetime) -> None:
    if request.accept is not None and not request.update_baseline:
        raise ConfigError("accept is about a baseline that is taken; give it with update_baseline, or to `baseline`")
    if request.update_baseline and request.as_of is not None and request.as_of > now:
        said = f"as-of {request.as_of.isoformat()} is in the future; a baseline is of what was said"
        raise ConfigError(f"{said}: name a past time, or leave it out for the newest message")


def _taken_findings(taken: Iterable[Baseline], known: Mapping[str, Baseline]) -> dict[str, Finding]:
    """Return by agent which numbers were written over."""
    moved = {item.agent_id: moved_text(item, known.get(item.agent_id)) for item in taken}
    return {
        agent_id: Finding(kind="new_baseline", message=f"{agent_id}: baseline written over: {text}", agent_id=agent_id)
        for agent_id, text in moved.items()
        if text
    }


def evaluate(snapshot: Snapshot, judge: Judge, request: EvaluationRequest, rules: GateRules | None = None) -> Decided:
    """Plan, ask and decide, by ``rules`` or the request's; nothing is read or written, and one broken agent stops no other."""
    if request.facts and not snapshot.facts:
        snapshot = replace(snapshot, facts=ask_facts(snapshot, judge))
    guard = guard_of(snapshot, rules or rules_of(snapshot, request, judge))
    before, broken = plan_run(snapshot, snapshot.earlier, request, judge)
    plans, wrong = plan_run(snapshot, snapshot.agents, request, judge)
    snapshot, judged = _judged(snapshot, [*before, *plans], judge, guard if request.confirm else None)
    snapshot, judged = with_anchors(snapshot, judged, judge, twice=request.update_baseline)
    broken = {**snapshot.broken, **broken, **wrong}
    broken |= {item.plan.scope.agent_id: (problem,) for item in judged if (problem := missing_scores(item))}
    past, now = (
        [item for item in items if item.plan.scope.agent_id not in broken]
        for items in (judged[: len(before)], judged[len(before) :])
    )
    earlier = decide(snapshot, past, guard)
    # What the windows before came to is part of the history by which this one is judged.
    points = with_points(snapshot.points, [(item.saved.evaluation, item.saved.whole) for item in earlier])
    snapshot = replace(snapshot, points=points)
    return Decided(snapshot, guard.rules, now, past, earlier, decide(snapshot, now, guard), broken)


def _judged(
    snapshot: Snapshot, plans: Sequence[AgentPlan], judge: Judge, guard: Guard | None
) -> tuple[Snapshot, list[Evaluated]]:
    """Return the plans with their scores and the verdicts on their messages, and the snapshot that keeps those.

    What seems to have dropped is asked again; ``guard`` None: nothing is.
    """
    found = [scored(snapshot, item, judge) for item in judge_plans(plans, judge)]
    snapshot, found = with_messages(snapshot, found, judge)
    return snapshot, confirm(found, judge, guard) if guard else found


def write(world: World, decided: Decided, generated: SyntheticAgents | None = None) -> None:
    """Write what was decided, with the claims that were read anew and what was generated, and hand it over as events."""
    results, known = [*decided.earlier, *decided.results], decided.snapshot.claims
    claims = {
        (agent_id, name): item
        for agent_id, sets in ((result.plan.scope.agent_id, result.plan.sets) for result in results)
        for name, item in sets.items()
        if known.get(agent_id, {}).get(name) != item
    }
    made_up = generated.agents if generated else {}
    _write(world, [result.saved for result in results], decided.snapshot, claims, made_up)
    for result in results:
        announce(result.report, result.plan.shown, world.settings)


def _write(
    world: World,
    saved: Sequence[SavedRun],
    snapshot: Snapshot,
    claims: Mapping[tuple[str, str], StoredSet],
    generated: Mapping[str, Sequence[Message]],
) -> None:
    """Write what an evaluation came to; nobody else does.

    One transaction writes voices, generated conversations, claims, and the runs of up to 200 agents with their scores and windows;
    each 200 agents more are another one, so that other writers have their turn.
    """
    runs, voices, facts = [rows_of(item) for item in saved], snapshot.learnt, snapshot.facts
    for start in range(0, max(len(runs), 1 if voices or claims or generated or facts else 0), AT_ONCE):
        with world.store.begin() as connection:
            if start == 0:
                write_voices(connection, voices)
                for agent_id, messages in generated.items():
                    write_messages_in(connection, messages, source=f"synthetic/{agent_id}", mirror=True)
                write_sets(connection, claims)
                for found in facts.values():
                    keep_facts(connection, found.agent_id, found.facts)
            write_runs(connection, runs[start : start + AT_ONCE])


def read_facts(world: World, judge: Judge, request: EvaluationRequest) -> list[FactsFound]:
    """Ask what agents said of themselves, compare it with what they said before and with canon, and keep it; nothing is scored."""
    reader = WorldReader(world)
    with reader.alone(world.chosen(request.agents)):
        snapshot = reader.for_facts(reader.questions(world.settled(request)))
        raise_problems(snapshot.broken)
        snapshot = replace(snapshot, facts=ask_facts(snapshot, judge))
        _write(world, [], snapshot, {}, {})
    return list(snapshot.facts.values())


@dataclass
class CohortResult:
    """Results of the agents that could be evaluated, and the problems of those that could not.

    Attributes:
        fail_on: names of the findings that fail the run; None: the usual ones.
        length: the window's length as it was asked for.
        names: how speakers and personas go together.
    """

    length: str
    fail_on: Sequence[str] | None = None
    results: dict[str, AgentResult] = field(default_factory=dict)
    broken: dict[str, tuple[Problem, ...]] = field(default_factory=dict)
    names: NameMatch = field(default_factory=NameMatch)

    @property
    def reports(self) -> dict[str, AgentReport]:
        """The reports by agent."""
        return {agent_id: item.report for agent_id, item in self.results.items()}


def evaluate_cohort(world: World, judge: Judge, request: EvaluationRequest) -> CohortResult:
    """Evaluate agents, compare them with their baselines, and save both; what is broken about one agent stops no other.

    With ``newest_window`` only the named dimensions are scored again, into the run that holds the others; an agent whose newest
    window has no whole run is evaluated whole.
    """
    request, reader = world.settled(request), WorldReader(world)
    with reader.alone(world.chosen(request.agents)):
        snapshot = reader.snapshot(request)
        decided = evaluate(snapshot, judge, request)
        write(world, decided)
    results = {item.plan.scope.agent_id: item for item in decided.results}
    return CohortResult(request.window, counted(request), results, dict(decided.broken), snapshot.speakers)


def assemble(reports: dict[str, AgentReport], judge: Judge, request: EvaluationRequest, rules: GateRules) -> RunReport:
    """Return the run's report from its agents' reports."""
    evaluations = [report.evaluation for report in reports.values()]
    run = RunReport(
        agents=reports,
        findings=[*findings_of_run(reports.values(), rules), *run_coverage(reports.values(), rules)],
        expenses=[expense for report in reports.values() for expense in report.expenses],
        provenance={
            "version": __version__,
            "judge": judge.name,
            "judge_models": sorted({m for item in evaluations for m in item.provenance.get("judge_models", ())}),
            "prompt_versions": sorted({p for item in evaluations for p in item.provenance.get("prompt_versions", ())}),
            "window": request.window,
            "window_end": max(item.window_end for item in evaluations).isoformat() if evaluations else None,
            "dimensions": select_dimensions(request.dimensions),
            "samples": request.samples,
            "min_coverage": least_coverage(
                (item for one in evaluations for item in one.dimensions.values()),
                rules.min_coverage,
                as_recorded=rules.as_recorded,
            ),
            "regression_delta": rules.regression_delta,
            "proposition_delta": rules.proposition_delta,
        },
    )
    kept = [text for text in kept_rules(run.all_findings()) if text.endswith(NOT_JUDGED)]
    looser = looser_rules(rules, evaluations, live=judge.live or rules.as_recorded)
    run.terms = Terms(
        looser=[*looser, *(LooserRule(rule="dimensions", text=text) for text in kept)],
        accepted=[item.message for report in reports.values() for item in report.accepted],
        fail_on=list(rules.fail_on or ()),
        only_fail_on=None if rules.only_fail_on is None else list(rules.only_fail_on),
    )
    run.exit_code = exit_code_of(run.all_findings(), rules)
    if notes := _notes_of(judge):
        run.provenance["judge_notes"] = notes
    return run


def _notes_of(judge: Judge) -> list[str]:
    """Return what was taken from recordings, or was different about this endpoint, such as asking for JSON in words."""
    return list(getattr(judge, "notes", ()))


def _run_of(
    decided: Decided,
    judge: Judge,
    request: EvaluationRequest,
    generated: SyntheticAgents,
    golden: GoldenFiles | None = None,
) -> EvaluationRun:
    """Return what a run came to."""
    golden = golden or GoldenFiles()
    rules, dimensions, snapshot = decided.rules, select_dimensions(request.dimensions), decided.snapshot
    reports = {item.plan.scope.agent_id: restricted(item.report, dimensions, rules) for item in decided.results}
    for agent_id, finding in golden.told.items():
        own = reports[agent_id]
        # What is said of taking the file says what a finding of the same kind would repeat.
        others = [item for item in own.findings if item.kind != finding.kind]
        reports[agent_id] = own.model_copy(update={"findings": [finding, *others]})
    report = assemble(reports, judge, request, rules)
    report.terms.left_out = list(snapshot.left_out)
    report.terms.baselines = {
        agent_id: baseline_terms(baseline) for agent_id, baseline in snapshot.baselines.items() if agent_id in reports
    }
    if request.agents is None:
        report.findings += missing_agent_findings(snapshot.missing)
    report.findings += name_findings(snapshot.speakers)
    spent = [expense for result in decided.earlier for expense in result.report.expenses]
    report.expenses += [expense.model_copy(update={"mechanism": "history"}) for expense in spent]
    report.expenses += generated.expenses
    report.exit_code = exit_code_of(report.all_findings(), rules)
    problems = [*snapshot.problems, *(Problem(text) for text in generated.problems)]
    replay = partial(_replay_of, decided, judge, request)
    notes = [f"{agent_id}: {found.summary}" for agent_id, found in snapshot.facts.items()]
    return EvaluationRun(report, problems, [*name_notes(snapshot.speakers), *notes], list(golden.paths), replay)


def _replay_of(decided: Decided, judge: Judge, request: EvaluationRequest) -> RunReplay:
    told = [judged for item in (*decided.before, *decided.evaluated) for judged in (item.judged, item.again) if judged]
    answers = {
        request.key: verdict
        for judged in told
        for request, verdict in zip(judged.plan.requests, judged.verdicts, strict=True)
    }
    return RunReplay(decided.snapshot, request, decided.rules, judge.name, judge.live, _notes_of(judge), answers)


def replayed(replay: RunReplay) -> EvaluationRun:
    """Make a saved run again: the same report, without a world, and nobody is asked."""
    judge = ReplayedJudge(replay.judge, replay.live, replay.notes, replay.answers)
    decided = evaluate(replay.snapshot, judge, replay.request, replay.rules)
    raise_problems(decided.broken)
    run = _run_of(decided, judge, replay.request, SyntheticAgents())
    run.report.statistics |= replay.statistics
    return run


def new_baselines(decided: Decided, request: EvaluationRequest) -> tuple[list[Baseline], dict[str, Finding]]:
    """Return golden files of what was scored in full, and by agent why none is written; other dimensions in them are kept.

    Windows before are in them if several are asked for; those in which something had dropped or a drift is known are left out.
    """
    found, refused, snapshot, rules = list[Baseline](), dict[str, Finding](), decided.snapshot, decided.rules
    for result in decided.results:
        evaluation, old = result.saved.evaluation, snapshot.baselines.get(result.plan.scope.agent_id)
        if evaluation.synthetic or not is_believable(result.report):
            # What was generated is no evidence of how the agent really talks, and a judge that cannot judge gives none at all.
            continue
        if not (baseline := _captured(decided, result, request)).dimensions:
            continue
        against = objections_to(snapshot, result.plan, evaluation)
        drops = lower(baseline, old, rules)
        written = as_written(baseline, old, against, drops, request.accept, snapshot.read_at)
        if written is not None:
            found.append(written)
            continue
        said_before = has_history(snapshot, result.plan)
        refused[evaluation.agent_id] = refusal(evaluation, against, drops, has_history=said_before)
    return found, refused


def _captured(decided: Decided, result: AgentResult, request: EvaluationRequest) -> Baseline:
    evaluation, snapshot = result.saved.evaluation, decided.snapshot
    earlier = [
        item
        for item in (decided.earlier if request.baseline_windows > 1 else ())
        if item.plan.scope.agent_id == evaluation.agent_id and _is_alike(snapshot, item, result)
    ]
    windows = [*(item.report.evaluation for item in earlier), evaluation]
    baseline = captured(
        evaluation.agent_id,
        [item.dimensions for item in windows],
        judged_on(evaluation),
        spans=[(item.window_start, item.window_end) for item in windows],
        known=snapshot.baselines.get(evaluation.agent_id),
    )
    answers = evaluation.provenance.get(ANCHORS)
    kept = {**baseline.provenance, **({ANCHORS: answers} if answers else {})}
    return baseline.model_copy(update={"provenance": kept})


def _is_alike(snapshot: Snapshot, before: AgentResult, newest: AgentResult) -> bool:
    """Return whether a window before goes into a baseline with the newest: it did not drop, and both are in a drift or neither."""
    drifted = [bool(objections_to(snapshot, item.plan, item.report.evaluation).reasons) for item in (before, newest)]
    return not before.report.comparison.regressed and drifted[0] == drifted[1]


def _fewer_windows(decided: Decided, taken: Sequence[Baseline], asked: int) -> Iterator[str]:
    """Yield whose baselines are of fewer windows than were asked for, and why."""
    for baseline in taken:
        own = [item for item in decided.earlier if item.plan.scope.agent_id == baseline.agent_id]
        newest = next(item for item in decided.results if item.plan.scope.agent_id == baseline.agent_id)
        dropped = sum(item.report.comparison.regressed for item in own)
        unlike = sum(not _is_alike(decided.snapshot, item, newest) for item in own) - dropped
        used = max(item.get("windows", 1) for item in baseline.provenance["dimensions"].values())
        counts = {
            "without a message": asked - 1 - len(own),
            "in which something had dropped": dropped,
            "on the other side of a known drift": unlike,
            "silent or not judged in full with the current claims": len(own) - dropped - unlike + 1 - used,
        }
        if used < asked:
            why = ", ".join(f"{count} {reason}" for reason, count in counts.items() if count > 0)
            yield (
                f"{baseline.agent_id}: the baseline is of {used} of {asked} windows, so it tells a usual week from a drop "
                f"less well; left out: {why}"
            )


def _compared_again(decided: Decided, snapshot: Snapshot, taken: Sequence[Baseline]) -> Decided:
    """Return what is said by the golden files as they are now."""
    agents = {baseline.agent_id for baseline in taken}
    evaluated = []
    for item in decided.evaluated:
        scope = item.plan.scope
        baseline = None if scope.synthetic else snapshot.baselines.get(scope.agent_id)
        evaluated.append(replace(item, judged=replace(item.judged, plan=replace(item.plan, baseline=baseline))))
    results = [
        replace(result, saved=replace(result.saved, is_baseline=result.plan.scope.agent_id in agents))
        for result in decide(snapshot, evaluated, guard_of(snapshot, decided.rules))
    ]
    return replace(decided, snapshot=snapshot, evaluated=evaluated, results=results)


def plans_of(snapshot: Snapshot, request: EvaluationRequest) -> Iterator[AgentPlan]:
    """Yield what a run of a snapshot would ask for first, agent by agent and window by window, without asking."""
    raise_problems(snapshot.broken)
    return (plan_agent(snapshot, item, request) for item in (*snapshot.earlier, *snapshot.agents))
