"""A whole run: a request in, a report out. Every interface of the product evaluates through here.

A world is read, questions are planned and asked, runs are decided and written. Between reading and writing no stage has the world.
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
    AgentRun,
    confirm,
    decide,
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
from persona_pipeline.evaluation.history import announce, rows_of, with_points
from persona_pipeline.evaluation.plan import (
    AgentPlan,
    SyntheticAgents,
    ask_facts,
    judge_plans,
    plan_run,
    synthesize,
    with_generated,
)
from persona_pipeline.evaluation.read import ALL_TIME, WorldReader
from persona_pipeline.evaluation.snapshot import Reference, ReplayedJudge, RunReplay, Signals, Snapshot
from persona_pipeline.guard.anchors import FILE as ANCHORS_FILE
from persona_pipeline.guard.anchors import save_anchors
from persona_pipeline.guard.baselines.golden import BASELINES, captured, save_baseline
from persona_pipeline.guard.baselines.models import Baseline
from persona_pipeline.guard.findings import ANCHORS
from persona_pipeline.guard.gate import (
    NOT_JUDGED,
    GateRules,
    baseline_terms,
    counted,
    exit_code_of,
    findings_of_run,
    kept_rules,
    looser_rules,
    missing_agent_findings,
    name_findings,
    name_notes,
    run_coverage,
)
from persona_pipeline.guard.known_drift import as_written, lower, moved_text, refusal
from persona_pipeline.guard.report import AgentReport, Finding, LooserRule, RunReport, Terms, about, doubt_of
from persona_pipeline.judging.verdict import Judge
from persona_pipeline.scoring.facts.known import keep_facts
from persona_pipeline.scoring.facts.reading import FactsFound
from persona_pipeline.scoring.style.monitor import write_voices
from persona_pipeline.version import __version__
from persona_pipeline.world.messages.store import write_messages_in
from persona_pipeline.world.propositions.models import select_dimensions
from persona_pipeline.world.runs import AT_ONCE, write_runs
from persona_pipeline.world.world import World


@dataclass
class Run:
    """A run of agents.

    Attributes:
        report: for all reports.
        problems: skipped lines of message files; ``notes``: further lines for the terminal.
        baselines: written golden files.
        replay: returns the run in a form that can be repeated; None: it was several runs.
        runs: current runs by agent id; ``earlier``: runs on the windows before, oldest first.
        broken: agents that could not be evaluated, with all problems.
        snapshot, rules: what the run was decided from, and by which rules.
    """

    report: RunReport = field(default_factory=RunReport)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    baselines: list[Path] = field(default_factory=list)
    replay: Callable[[], RunReplay] | None = None
    runs: dict[str, AgentRun] = field(default_factory=dict)
    earlier: Sequence[AgentRun] = ()
    broken: dict[str, tuple[Problem, ...]] = field(default_factory=dict)
    snapshot: Snapshot = field(default_factory=Snapshot)
    rules: GateRules = field(default_factory=GateRules)

    @property
    def reports(self) -> dict[str, AgentReport]:
        """Whole reports by agent, whatever dimensions were requested."""
        return {agent_id: run.shown for agent_id, run in self.runs.items()}

    @property
    def fail_on(self) -> list[str] | None:
        """Names of the findings that fail the run; None: the usual ones."""
        return counted(self.rules)


def run_evaluation(world: World, judge: Judge, request: EvaluationRequest, *, strict: bool = True) -> Run:
    """Evaluate, compare, save, and write baselines if requested; ``ConfigError``: bad input, and nothing is evaluated.

    With ``newest_window`` only the named dimensions are scored, into the run that has the others. ``strict``: a broken agent is
    bad input; else it is in ``Run.broken`` and stops no other agent.
    """
    if request.against is None:
        return _run_once(world, judge, request, strict=strict)
    asked, runs = AskedOnce(judge) if judge.live else judge, list[Run]()

    def evaluated(judged: World, wanted: EvaluationRequest) -> RunReport:
        runs.append(_run_once(judged, asked, wanted))
        return runs[-1].report

    report = judged_against(world, request, evaluated)
    report.expenses = [expense for run in runs for expense in run.report.expenses]
    return replace(runs[0], report=report, replay=None)


def _run_once(world: World, judge: Judge, request: EvaluationRequest, *, strict: bool = True) -> Run:
    request, reader = world.settled(request), WorldReader(world)
    _check_taking(request, world.horizon)
    with reader.alone(world.chosen(request.agents)):
        snapshot, generated = reader.snapshot(request, judge), SyntheticAgents()
        if strict:
            raise_problems(snapshot.inputs.broken)
        if request.synthetic:
            generated = synthesize(snapshot.inputs, judge)
            snapshot = replace(snapshot, inputs=with_generated(snapshot.inputs, generated))
        run = evaluate(snapshot, judge, request, strict=strict)
        known, told = run.snapshot.reference.baselines, dict[str, Finding]()
        if request.update_baseline:
            run, told = _with_baselines(reader, run, request)
        if (run.baselines or known) and run.snapshot.signals.anchors is not None:
            run.notes += _keep_anchors(world, run.snapshot.reference)
        write(world, run, generated)
    return _finished(run, judge, request, generated, told)


def _with_baselines(reader: WorldReader, run: Run, request: EvaluationRequest) -> tuple[Run, dict[str, Finding]]:
    """Return a run compared with the golden files that it wrote, and a finding on each written or refused file."""
    known = run.snapshot.reference.baselines
    taken, refused = new_baselines(run, request)
    paths = [save_baseline(reader.world.root / BASELINES, baseline) for baseline in taken]
    told = taken_findings(taken, known) | refused
    notes = [finding.text for finding in told.values()]
    if request.window != ALL_TIME:
        notes += fewer_windows(run, taken, request.baseline_windows)
    reference = reader.with_baselines(run.snapshot.reference, run.runs)
    snapshot, agents = replace(run.snapshot, reference=reference), {baseline.agent_id for baseline in taken}
    runs = {
        item.agent_id: replace(item, is_baseline=item.agent_id in agents)
        for item in decide(snapshot, list(run.runs.values()), run.rules)
    }
    return replace(run, snapshot=snapshot, runs=runs, baselines=paths, notes=[*run.notes, *notes]), told


def taken_findings(taken: Iterable[Baseline], known: Mapping[str, Baseline]) -> dict[str, Finding]:
    """Return by agent the numbers that a new baseline replaces."""
    moved = {item.agent_id: moved_text(item, known.get(item.agent_id)) for item in taken}
    return {
        agent_id: about(agent_id, "new_baseline", f"baseline written over: {text}")
        for agent_id, text in moved.items()
        if text
    }


def new_baselines(run: Run, request: EvaluationRequest) -> tuple[list[Baseline], dict[str, Finding]]:
    """Return golden files of dimensions that were scored in full, and by agent why a file is refused.

    Other dimensions of a file are kept. Windows before are used where requested, without those that dropped or drifted.
    """
    found, refused, snapshot = list[Baseline](), dict[str, Finding](), run.snapshot
    for item in run.runs.values():
        evaluation, old = item.evaluation, snapshot.reference.baselines.get(item.agent_id)
        if evaluation.synthetic:
            # Generated conversations do not show how the agent talks.
            continue
        if doubt := doubt_of(item.report.findings):
            said = f"no baseline was taken: {doubt.message.removeprefix(f'{item.agent_id}: ')}"
            refused[item.agent_id] = about(item.agent_id, doubt.kind, said, remedy=doubt.remedy, command=doubt.command)
            continue
        before = alike(snapshot.signals, run.earlier, item) if request.baseline_windows > 1 else []
        baseline = _captured(snapshot.reference, [*before, item])
        if not baseline.dimensions:
            continue
        against, drops = objections_to(snapshot.signals, evaluation), lower(baseline, old, run.rules)
        written = as_written(baseline, old, against, drops, request.accept, snapshot.inputs.read_at)
        if written is not None:
            found.append(written)
            continue
        said_before = has_history(snapshot.inputs, item.plan)
        refused[item.agent_id] = refusal(evaluation, against, drops, has_history=said_before)
    return found, refused


def _captured(reference: Reference, windows: Sequence[AgentRun]) -> Baseline:
    evaluation = windows[-1].evaluation
    baseline = captured(
        evaluation.agent_id,
        [item.evaluation.dimensions for item in windows],
        judged_on(evaluation),
        spans=[(item.evaluation.window_start, item.evaluation.window_end) for item in windows],
        known=reference.baselines.get(evaluation.agent_id),
    )
    answers = evaluation.provenance.get(ANCHORS)
    kept = {**baseline.provenance, **({ANCHORS: answers} if answers else {})}
    return baseline.model_copy(update={"provenance": kept})


def alike(signals: Signals, earlier: Iterable[AgentRun], newest: AgentRun) -> list[AgentRun]:
    """Return the agent's earlier windows that fit into one baseline with the newest: without a drop, and on its side of a drift."""
    drifted = _is_drifted(signals, newest)
    own = (item for item in earlier if item.agent_id == newest.agent_id)
    return [item for item in own if not item.report.comparison.regressed and _is_drifted(signals, item) == drifted]


def _is_drifted(signals: Signals, run: AgentRun) -> bool:
    return bool(objections_to(signals, run.evaluation).reasons)


def fewer_windows(run: Run, taken: Iterable[Baseline], asked: int) -> Iterator[str]:
    """Yield the agents whose baselines have fewer windows than requested, and why."""
    for baseline in taken:
        own = [item for item in run.earlier if item.agent_id == baseline.agent_id]
        newest = run.runs[baseline.agent_id]
        dropped = sum(item.report.comparison.regressed for item in own)
        unlike = len(own) - len(alike(run.snapshot.signals, own, newest)) - dropped
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


def _keep_anchors(world: World, reference: Reference) -> Iterator[str]:
    """Write the anchors, so that later runs ask the same; yield why they could not be written."""
    if world.root != world.rules_root:
        return
    path = world.root / BASELINES / ANCHORS_FILE
    try:
        save_anchors(path, reference.anchors)
    except OSError as error:
        yield f"{path} cannot be written ({error.strerror or error}): other anchors may check the judge next time"


def _check_taking(request: EvaluationRequest, now: datetime) -> None:
    if request.accept is not None and not request.update_baseline:
        raise ConfigError("accept is about a baseline that is taken; give it with update_baseline, or to `baseline`")
    if request.update_baseline and request.as_of is not None and request.as_of > now:
        said = f"as-of {request.as_of.isoformat()} is in the future; a baseline is of what was said"
        raise ConfigError(f"{said}: name a past time, or leave it out for the newest message")


def evaluate(
    snapshot: Snapshot,
    judge: Judge,
    request: EvaluationRequest,
    rules: GateRules | None = None,
    *,
    strict: bool = True,
) -> Run:
    """Plan, ask and decide; nothing is read or written.

    ``rules``: default the request's. ``strict``: a broken agent raises ``ConfigError`` before anything is asked.
    """
    before, broken = plan_run(snapshot, snapshot.inputs.earlier, request, judge)
    plans, wrong = plan_run(snapshot, snapshot.inputs.agents, request, judge)
    broken = {**snapshot.inputs.broken, **broken, **wrong}
    if strict:
        raise_problems(broken)
    if request.facts and not snapshot.signals.facts:
        signals = replace(snapshot.signals, facts=ask_facts(snapshot.inputs, judge))
        snapshot = replace(snapshot, signals=signals)
    rules = rules or rules_of(snapshot, request, judge)
    snapshot, judged = _judged(snapshot, [*before, *plans], judge, rules if request.confirm else None)
    snapshot, judged = with_anchors(snapshot, judged, judge, twice=request.update_baseline)
    broken |= {item.agent_id: (problem,) for item in judged if (problem := missing_scores(item))}
    if strict:
        raise_problems(broken)
    past, now = (
        [item for item in items if item.agent_id not in broken]
        for items in (judged[: len(before)], judged[len(before) :])
    )
    earlier = decide(snapshot, past, rules)
    # The windows before are part of the history that the current window is compared with.
    points = with_points(snapshot.reference.points, [(item.evaluation, item.whole) for item in earlier])
    snapshot = replace(snapshot, reference=replace(snapshot.reference, points=points))
    runs = {item.agent_id: item for item in decide(snapshot, now, rules)}
    return Run(runs=runs, earlier=earlier, broken=broken, snapshot=snapshot, rules=rules)


def _judged(
    snapshot: Snapshot, plans: Sequence[AgentPlan], judge: Judge, rules: GateRules | None
) -> tuple[Snapshot, list[AgentRun]]:
    """Return scored runs with verdicts on messages, and the snapshot that keeps those; ``rules`` None: nothing is confirmed."""
    found = [scored(snapshot.reference, item, judge) for item in judge_plans(plans, judge)]
    snapshot, found = with_messages(snapshot, found, judge)
    return snapshot, confirm(found, judge, snapshot.reference, rules) if rules else found


def write(world: World, run: Run, generated: SyntheticAgents | None = None) -> None:
    """Save a run with voices, facts and generated conversations, and send its events.

    One transaction writes all of it with the runs of up to 200 agents; each 200 agents more are another one, so that other
    writers have their turn.
    """
    runs, signals = [*run.earlier, *run.runs.values()], run.snapshot.signals
    rows = [
        rows_of(item.report, whole=item.whole, read_at=item.plan.read_at, is_baseline=item.is_baseline) for item in runs
    ]
    for start in range(0, max(len(rows), 1), AT_ONCE):
        with world.store.begin() as connection:
            if start == 0:
                write_voices(connection, signals.learnt)
                for agent_id, messages in (generated.agents if generated else {}).items():
                    write_messages_in(connection, messages, mirrored=f"synthetic/{agent_id}")
                for found in signals.facts.values():
                    keep_facts(connection, found.agent_id, found.facts)
            write_runs(connection, rows[start : start + AT_ONCE])
    for item in runs:
        announce(item.shown, item.plan.shown, world.settings)


def read_facts(world: World, judge: Judge, request: EvaluationRequest) -> list[FactsFound]:
    """Read agents' statements about themselves, compare them with earlier ones and canon, and keep them; nothing is scored."""
    reader = WorldReader(world)
    with reader.alone(world.chosen(request.agents)):
        inputs = reader.with_canon(reader.inputs(world.settled(request)))
        raise_problems(inputs.broken)
        facts = ask_facts(inputs, judge)
        write(world, Run(snapshot=Snapshot(inputs, signals=Signals(facts=facts))))
    return list(facts.values())


def _report_of(
    reports: dict[str, AgentReport], judge: Judge, request: EvaluationRequest, rules: GateRules
) -> RunReport:
    """Return the report of a run from its agents' reports."""
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
            "min_coverage": rules.least_coverage(item for one in evaluations for item in one.dimensions.values()),
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
    if notes := list[str](getattr(judge, "notes", ())):
        run.provenance["judge_notes"] = notes
    return run


def _finished(
    run: Run,
    judge: Judge,
    request: EvaluationRequest,
    generated: SyntheticAgents | None = None,
    told: Mapping[str, Finding] | None = None,
) -> Run:
    """Return a decided run with its report. ``told``: findings on golden files by agent."""
    rules, dimensions, inputs = run.rules, select_dimensions(request.dimensions), run.snapshot.inputs
    generated = generated or SyntheticAgents()
    reports = {agent_id: restricted(report, dimensions, rules) for agent_id, report in run.reports.items()}
    for agent_id, finding in (told or {}).items():
        own = reports[agent_id]
        # It says the same as a finding of the same kind.
        others = [item for item in own.findings if item.kind != finding.kind]
        reports[agent_id] = own.model_copy(update={"findings": [finding, *others]})
    report = _report_of(reports, judge, request, rules)
    report.terms.left_out = list(inputs.left_out)
    report.terms.baselines = {
        agent_id: baseline_terms(baseline)
        for agent_id, baseline in run.snapshot.reference.baselines.items()
        if agent_id in reports
    }
    if request.agents is None:
        report.findings += missing_agent_findings(inputs.missing)
    report.findings += name_findings(inputs.speakers)
    spent = [expense for item in run.earlier for expense in item.report.expenses]
    report.expenses += [expense.model_copy(update={"mechanism": "history"}) for expense in spent]
    report.expenses += generated.expenses
    report.exit_code = exit_code_of(report.all_findings(), rules)
    problems = [*inputs.problems, *(Problem(text) for text in generated.problems)]
    facts = [f"{agent_id}: {found.summary}" for agent_id, found in run.snapshot.signals.facts.items()]
    notes = [*name_notes(inputs.speakers), *facts, *run.notes]
    return replace(run, report=report, problems=problems, notes=notes, replay=partial(_replay_of, run, judge, request))


def _replay_of(run: Run, judge: Judge, request: EvaluationRequest) -> RunReplay:
    runs = [*run.earlier, *run.runs.values()]
    answers = [judged.answers for item in runs for judged in (item.judged, item.again) if judged]
    told = {key: verdict for own in answers for key, verdict in own.items()}
    notes = list(getattr(judge, "notes", ()))
    return RunReplay(run.snapshot, request, run.rules, judge.name, judge.live, notes, told)


def replayed(replay: RunReplay) -> Run:
    """Repeat a saved run: the same report, without a world and without asking a judge."""
    judge = ReplayedJudge(replay.judge, replay.live, replay.notes, replay.answers)
    run = _finished(evaluate(replay.snapshot, judge, replay.request, replay.rules), judge, replay.request)
    run.report.statistics |= replay.statistics
    return run
