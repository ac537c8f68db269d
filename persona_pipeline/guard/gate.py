"""Rules that make a run fail, and its exit code."""

import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from statistics import fmean, median
from typing import Any

from persona_pipeline.base.errors import ConfigError, did_you_mean
from persona_pipeline.base.options import FAIL_LISTS, RULES, AcceptedDrop, EvaluationRequest
from persona_pipeline.base.settings import LIVE_COVERAGE
from persona_pipeline.base.text import shortened, some
from persona_pipeline.guard.anchors import JudgeCheck
from persona_pipeline.guard.baselines.models import Baseline, BaselineComparison
from persona_pipeline.guard.baselines.regression import (
    TOLERANCE,
    Rule,
    Rules,
    check_option,
    dropped,
    is_enough,
)
from persona_pipeline.guard.findings import (
    MOST_FLAGGED,
    budget_findings,
    doubted_findings,
    drop_sentence,
    fall_sentence,
    injections,
    judge_findings,
    judge_health,
    likeness_findings,
    power_findings,
    record_command,
    said_again_findings,
    undecided_findings,
)
from persona_pipeline.guard.report import (
    EXIT_COVERAGE,
    EXIT_OK,
    EXIT_REGRESSION,
    KINDS,
    AgentEvaluation,
    AgentReport,
    BaselineTerms,
    Finding,
    LooserRule,
    Terms,
    about,
    doubt_of,
    worst_exit_code,
)
from persona_pipeline.judging.verdict import Unscored, unscored_label
from persona_pipeline.scoring.facts.reading import FactsFound
from persona_pipeline.scoring.results import DimensionEvaluation
from persona_pipeline.world.propositions.models import ADHERENCE, dimension_label
from persona_pipeline.world.speakers import NameMatch, first_few, silence

# The rules by which a drop is judged, and the words for each where it lets more pass than usual.
_DEFAULTS: Mapping[str, float] = {**vars(Rule()), "require_calibration": False}
_LOOSER = {
    **RULES,
    "min_coverage": "{value:.0%} of judgments are enough",
    "threshold": "threshold {value:g} instead of {usual:g}",
    "require_calibration": "no calibration required",
}
# Of these, less is looser.
_LEAST = ("min_coverage", "threshold", "require_calibration")
LOOSER, NOT_JUDGED = "judged by looser rules: ", " not judged"
_CHECK = "see under which name it speaks and list that under aliases in its persona file, or take the persona out"
_MOST_LINE = 160
# Labels of people that say how far they agree with a judge, and the page where they give them.
FEWEST_MESSAGES, FEWEST_JUDGMENTS = 20, 50
VIEW = "persona-pipeline view"
# From this number of agents on, a drop of half of them is one finding.
FEWEST_TOGETHER = 3

# Names for `--fail-on` and `--only-fail-on`, each with its kinds of finding. Each kind is a name, too; older names keep their
# meaning.
FAILURES: Mapping[str, Collection[str]] = {
    name: tuple(kind.name for kind in KINDS.values() if name in (kind.name, kind.group))
    for name in dict.fromkeys(kind.group or kind.name for kind in KINDS.values()) | dict.fromkeys(KINDS)
} | {"voices": ("clone", "voices"), "trend": ("trend", "moved"), "moved": ("moved",)}


@dataclass(frozen=True)
class GateRules(Rules):
    """When a run fails: a settled request's options of the same names.

    ``fail_on``, ``only_fail_on``: names of ``FAILURES``, see ``counted``. ``accepted_drops``: drops that a person accepted,
    as of ``today``. ``usual``: the rules in ``persona.yaml``. Raises ``ConfigError``: a value is invalid.
    """

    threshold: float | None = None
    fail_on: Sequence[str] | None = None
    only_fail_on: Sequence[str] | None = None
    require_calibration: bool = False
    accepted_drops: Sequence[AcceptedDrop] = ()
    usual: Mapping[str, Any] = field(default_factory=dict)
    today: date = field(default_factory=lambda: datetime.now(UTC).date())

    def __post_init__(self) -> None:
        super().__post_init__()
        check_option("threshold", self.threshold)
        for option in FAIL_LISTS:
            for name in getattr(self, option) or ():
                if name not in FAILURES:
                    hint = did_you_mean(name, FAILURES) or f"; the names are {', '.join(FAILURES)}"
                    raise ConfigError(f"--{option.replace('_', '-')} does not know {name!r}{hint}")

    @property
    def allowed(self) -> Sequence[AcceptedDrop]:
        """The accepted drops whose day has not passed."""
        return [item for item in self.accepted_drops if self.today <= item.until]


def judge_agent(
    evaluation: AgentEvaluation, comparison: BaselineComparison, rules: GateRules, not_judged: Collection[str] = ()
) -> AgentReport:
    """Return the agent's report with all findings, worst first.

    ``not_judged``: dimensions of its baseline that were not requested.
    """
    drops = [*_regressions(evaluation, comparison, rules), *undecided_findings(evaluation, comparison)]
    drops += power_findings(evaluation, comparison, rules)
    looser = looser_rules(rules, [evaluation])
    names = ", ".join(dimension_label(name).lower() for name in not_judged)
    rules_said = [*(item.text for item in looser), *([f"{names}{NOT_JUDGED}"] if names else [])]
    health = [*judge_findings(evaluation, comparison), *judge_health(evaluation)]
    return AgentReport(
        evaluation=evaluation,
        comparison=comparison,
        findings=[
            *(_accepted(item, rules) for item in drops),
            *_allowed(evaluation.agent_id, comparison, rules),
            *health,
            *_coverage(evaluation, comparison, rules, doubted=doubt_of(health) is not None),
            *_threshold(evaluation, rules),
            *doubted_findings(comparison),
            *likeness_findings(evaluation),
            *said_again_findings(evaluation),
            *injections(evaluation),
            # Looser rules stay with the agent's run, for every reader of the run alone.
            *([about(evaluation.agent_id, "terms", f"{LOOSER}{'; '.join(rules_said)}")] if rules_said else []),
        ],
    )


def label_findings(agent_id: str, labelled: tuple[int, int]) -> Iterator[Finding]:
    """Yield a finding where people labelled too few messages and judgments to measure agreement with the judge."""
    messages, judgments = labelled
    if messages < FEWEST_MESSAGES and judgments < FEWEST_JUDGMENTS:
        yield about(
            agent_id,
            "calibration",
            f"people labelled {messages} messages of {FEWEST_MESSAGES}, or {judgments} judgments of {FEWEST_JUDGMENTS}: "
            "that is too few to say how far they agree with the judge",
            remedy=f"label messages in `{VIEW}`, or leave out --require-calibration",
            command=VIEW,
        )


def kept_rules(findings: Iterable[Finding]) -> list[str]:
    """Return the looser rules that runs keep as findings, each once, as a headline shows them."""
    kept = [finding.message.partition(LOOSER)[2] for finding in findings if finding.kind == "terms"]
    return list(dict.fromkeys(text for line in kept for text in line.split("; ")))


def _allowed(agent_id: str, comparison: BaselineComparison, rules: GateRules) -> Iterator[Finding]:
    """Yield drops that only a looser rule allows, named with that rule."""
    for item in comparison.dimensions.values():
        drop, rule = -(item.delta or 0.0), rules.of(item.dimension)
        if item.status != "ok" or drop <= Rule.undecided_delta + TOLERANCE:
            continue
        by_delta = drop <= rule.regression_delta + TOLERANCE
        name = "regression_delta" if by_delta else "undecided_delta"
        text = f"{dimension_label(item.dimension).lower()} {item.baseline:.1f} → {item.current:.1f}; accepted by {name}"
        told = f"{text} {getattr(rule, name):g} (default {_DEFAULTS[name]:g})"
        yield about(agent_id, "accepted", told, dimension=item.dimension)


def _accepted(drop: Finding, rules: GateRules) -> Finding:
    """Return a drop as accepted where a person accepted it: until the day; after it, it is a regression again."""
    for item in rules.accepted_drops:
        if (item.agent, item.dimension) != (drop.agent_id, drop.dimension) or item.claim not in (
            None,
            drop.proposition_id,
        ):
            continue
        if rules.today > item.until:
            return drop.model_copy(
                update={"message": f"{drop.message}; it was accepted until {item.until}, which has passed"}
            )
        said = f"{drop.message}; accepted until {item.until}: {item.why}"
        return drop.model_copy(
            update={"kind": "accepted", "exit_code": EXIT_OK, "message": said, "remedy": "", "command": ""}
        )
    return drop


def exit_code_of(findings: Collection[Finding], rules: GateRules) -> int:
    """Return the exit code of findings by the rules in force."""
    return worst_exit_code({item.exit_code for item in weighed(findings, counted(rules))})


def counted(asked: GateRules | EvaluationRequest | Terms) -> list[str] | None:
    """Return the names of findings that fail a run; None: the usual ones.

    ``fail_on`` adds to the usual ones, or to ``only_fail_on``, which takes their place.
    """
    added, only = asked.fail_on, asked.only_fail_on
    if only is None and not added:
        return None
    usual = [kind.name for kind in KINDS.values() if not kind.warns] if only is None else only
    return [*usual, *(added or ())]


def weighed(findings: Collection[Finding], names: Collection[str] | None) -> list[Finding]:
    """Return findings with the exit codes they have if only these names count (None: as they are); a named warning fails."""
    if names is None:
        return list(findings)
    kinds = {kind for name in names for kind in FAILURES[name]}

    def code(item: Finding) -> int:
        kind = KINDS[item.kind]
        return (item.exit_code or (kind.exit_code if kind.warns else EXIT_OK)) if item.kind in kinds else EXIT_OK

    return [item.model_copy(update={"exit_code": code(item)}) for item in findings]


def looser_rules(rules: GateRules, evaluations: Collection[AgentEvaluation], *, live: bool = True) -> list[LooserRule]:
    """Return the rules that let more pass than the defaults, or than ``persona.yaml`` where that is stricter.

    ``live``: the run may leave as many judgments unscored as a live judge.
    """
    items = (item for evaluation in evaluations for item in evaluation.dimensions.values())
    least = rules.least_coverage(items)
    usual: dict[str, float | None] = {
        name: (max if name in _LEAST else min)(default, rules.usual.get(name, default))
        for name, default in _DEFAULTS.items()
    }
    usual |= {"min_coverage": LIVE_COVERAGE if live else 1.0, "threshold": rules.usual.get("threshold")}
    found = list[LooserRule]()
    for name, text in _LOOSER.items():
        value, limit = least if name == "min_coverage" else getattr(rules, name), usual[name]
        if limit is not None and (value or 0) != limit and ((value or 0) < limit) == (name in _LEAST):
            found.append(
                LooserRule(rule=name, text=text.format(value=value or 0, usual=limit), value=value, usual=limit)
            )
    for dimension in rules.by_dimension:
        for name, value in vars(rules.of(dimension)).items():
            if value > (least := min(_DEFAULTS[name], getattr(rules, name))):
                text = f"{_LOOSER[name].format(value=value)} in {dimension_label(dimension).lower()}"
                found.append(LooserRule(rule=name, text=text, value=value, usual=least))
    if named := sorted({item.agent for item in rules.allowed} & {item.agent_id for item in evaluations}):
        found.append(LooserRule(rule="accepted_drops", text=f"drops of {', '.join(named)} may be accepted"))
    return found


def baseline_terms(baseline: Baseline) -> BaselineTerms:
    """Return the terms that a golden file sets: its day, its windows, and the reason for lower scores, where it states one."""
    known = baseline.provenance.get("dimensions", {}).values()
    starts, ends = ([item[name] for item in known if item.get(name)] for name in ("window_start", "window_end"))
    return BaselineTerms(
        captured_at=baseline.captured_at,
        window_start=min(starts, default=None),
        window_end=max(ends, default=None),
        windows=max((item.get("windows", 1) for item in known), default=1),
        accepted=baseline.accepted,
    )


def nothing_evaluated(reports: Collection[AgentReport]) -> list[Finding]:
    """Return a finding where no dimension of any agent has a score: an empty run never passes."""
    items = [item for report in reports for item in report.evaluation.dimensions.values()]
    if any(item.score is not None for item in items):
        return []
    why = "no dimension has a score"
    if reports and not any(report.evaluation.sample_size for report in reports):
        why = "there is no message of these agents in the window"
    elif items and all(item.failed.keys() <= {Unscored.UNRECORDED.value} for item in items):
        why = "no judgment of this window is recorded"
    return [Finding(kind="nothing_evaluated", message=f"nothing was evaluated: {why}")]


def findings_of_run(reports: Collection[AgentReport], rules: Rules) -> list[Finding]:
    """Return the findings of the run as a whole."""
    return [*nothing_evaluated(reports), *all_dropped(reports, rules)]


def all_dropped(reports: Collection[AgentReport], rules: Rules) -> list[Finding]:
    """Return a finding where half of at least three agents with a baseline dropped by the mean of their dimensions.

    Unrelated agents do not drift on the same day: the model, a prompt or the judge changed. The size of the drops decides alone.
    Where the judge changed or failed its check, the result is inconclusive.
    """
    compared = (report.comparison.dimensions.values() for report in reports)
    changes = [fmean(own) for items in compared if (own := [item.delta for item in items if item.delta is not None])]
    down = sum(dropped(change, 0.0, rules.regression_delta) for change in changes)
    if len(changes) < FEWEST_TOGETHER or 2 * down < len(changes):
        return []
    judge = next((report.comparison.judge for report in reports if report.comparison.judge), JudgeCheck())
    command = "persona-pipeline doctor --judge"
    return [
        Finding(
            kind="all_dropped",
            exit_code=EXIT_COVERAGE if judge.changed or judge.passed is False else EXIT_REGRESSION,
            message=f"{down} of {len(changes)} agents dropped together (median change {median(changes):+.1f}); {judge.text}",
            remedy=f"see what changed for all of them: the model, a prompt or the judge (`{command}`)",
            command=command,
        )
    ]


def missing_agent_findings(agent_ids: Collection[str]) -> list[Finding]:
    """Return a finding for each agent with a golden file and no persona: deleting a persona never turns a run green."""
    return [
        Finding(
            kind="missing_agent",
            message=f"{agent_id} has a baseline and no persona",
            remedy=f"restore personas/{agent_id}.yaml, or remove baselines/{agent_id}.json",
            agent_id=agent_id,
        )
        for agent_id in agent_ids
    ]


def _regressions(evaluation: AgentEvaluation, comparison: BaselineComparison, rules: GateRules) -> Iterator[Finding]:
    agent = evaluation.agent_id
    for item in comparison.dimensions.values():
        if item.status == "regressed":
            text = fall_sentence(item, rules.of(item.dimension).regression_delta)
            yield about(agent, "regression", text, dimension=item.dimension)
    for drop in comparison.drops:
        text = drop_sentence(drop, rules.of(drop.dimension).proposition_delta)
        yield about(agent, "proposition_drop", text, dimension=drop.dimension, proposition_id=drop.proposition_id)


def _threshold(evaluation: AgentEvaluation, rules: GateRules) -> Iterator[Finding]:
    if rules.threshold is None:
        return
    agent, missing = evaluation.agent_id, [name for name, item in evaluation.dimensions.items() if item.failed]
    if evaluation.overall is None and missing:
        names = ", ".join(dimension_label(name).lower() for name in missing)
        text = f"no overall score to compare with {rules.threshold:g}: {names} could not be judged in full"
        yield about(agent, "threshold", text, exit_code=EXIT_COVERAGE)
    elif evaluation.overall is not None and evaluation.overall < rules.threshold - TOLERANCE:
        yield about(agent, "threshold", f"overall {evaluation.overall:.2f} is below {rules.threshold:g}")


def _coverage(
    evaluation: AgentEvaluation, comparison: BaselineComparison, rules: GateRules, *, doubted: bool = False
) -> list[Finding]:
    agent, findings = evaluation.agent_id, list[Finding]()
    for name, item in evaluation.dimensions.items():
        label = dimension_label(name).lower()
        findings += budget_findings(agent, name, item)
        compared = comparison.dimensions.get(name)
        kind, remedy, command = "coverage", "", ""
        if compared and compared.baseline is not None and not item.propositions:
            text = f"{label} has a baseline and no claims any more"
            remedy = f"restore them, or take {name} out of baselines/{agent}.json"
        elif compared and compared.baseline is not None and item.score is None and not item.failed:
            text = f"{label} has a baseline and no score now: {_why_none(evaluation, item)}"
            remedy = "widen the window (--window 30d), or move its end (--as-of)"
            command = f"persona-pipeline evaluate --agents {shlex.quote(agent)} --window 30d"
        elif item.failed and (item.score is None or not rules.are_covered([item]) or (compared and compared.lost)):
            rows = [row for row in item.propositions.values() if row.failed]
            text = (
                f"{label} has {item.n_scored} of {item.n_expected} judgments ({_counted(item.failed)}: "
                f"{some([row.id for row in rows], MOST_FLAGGED)}); {rows[0].detail}"
            )
            command = record_command(evaluation)
            remedy = f"{'record' if Unscored.UNRECORDED.value in item.failed else 'ask again'} with `{command}`"
        elif compared and compared.status == "no_baseline":
            # A judge that cannot be believed takes none.
            command = "" if doubted else f"persona-pipeline baseline --agents {shlex.quote(agent)}"
            kind, text, remedy = "no_baseline", f"{label} has no baseline", command and f"take one with `{command}`"
        else:
            continue
        findings.append(about(agent, kind, text, remedy=remedy, command=command, dimension=name))
    if not any(finding.kind == "coverage" for finding in findings):
        findings += _covered_in_all([evaluation], rules, agent)
    return [*findings, *_unread(evaluation, rules)]


def _unread(evaluation: AgentEvaluation, rules: GateRules) -> Iterator[Finding]:
    """Yield a finding where too few messages have a verdict, or most are unclear."""
    read, agent = evaluation.messages, evaluation.agent_id
    if read is None:
        return
    least = min(rules.min_coverage, LIVE_COVERAGE) if rules.as_recorded else rules.min_coverage
    judged, unclear = len(read.verdicts), read.share.n_unclear
    asked, command = judged + sum(read.unscored.values()), record_command(evaluation)
    if not is_enough(judged, asked, least):
        why = "; ".join(filter(None, (_counted(read.unscored), read.detail)))
        text = f"{judged} of {asked} messages have a verdict ({why})"
    elif 2 * unclear > judged:
        text = f"{unclear} of {judged} messages are unclear to the judge"
    else:
        return
    remedy = f"ask again with `{command}`"
    yield about(agent, "coverage", text, remedy=remedy, command=command, dimension=ADHERENCE.name)


def run_coverage(reports: Collection[AgentReport], rules: GateRules) -> list[Finding]:
    """Return a finding where the whole run has too few scored judgments and no single agent has."""
    if any(finding.kind == "coverage" for report in reports for finding in report.findings):
        return []
    return _covered_in_all([report.evaluation for report in reports], rules, None)


def _covered_in_all(evaluations: Collection[AgentEvaluation], rules: GateRules, agent_id: str | None) -> list[Finding]:
    items = [item for evaluation in evaluations for item in evaluation.dimensions.values()]
    scored, expected = (sum(getattr(item, name) for item in items) for name in ("n_scored", "n_expected"))
    if rules.are_covered(items):
        return []
    failed = sum((Counter(item.failed) for item in items), Counter())
    text = f"{agent_id or 'the run'}: {scored} of {expected} judgments are scored ({_counted(failed)})"
    return [Finding(kind="coverage", message=text, agent_id=agent_id)]


def _why_none(evaluation: AgentEvaluation, item: DimensionEvaluation) -> str:
    if not evaluation.sample_size:
        return f"no message of it in the window that ends {evaluation.window_end:%Y-%m-%d %H:%M} UTC"
    return next((row.detail for row in item.propositions.values() if row.detail), unscored_label(item.unscored))


def _counted(failed: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {unscored_label(reason)}" for reason, count in sorted(failed.items()))


def facts_findings(found: FactsFound, judge: str = "anthropic") -> Iterator[Finding]:
    """Yield contradictions in an agent's statements about itself, with both lines, and statements that were not compared.

    ``judge``: the provider in the advice.
    """
    agent, again = found.agent_id, f"persona-pipeline facts {shlex.quote(found.agent_id)}"
    for item in found.contradictions:
        pair = (item.first, item.second)
        days = [f"{fact.said_at:%Y-%m-%d}, " if fact.said_at else "" for fact in pair]
        said = [
            f"“{shortened(fact.quote, _MOST_LINE)}” ({day}{fact.source})" for fact, day in zip(pair, days, strict=True)
        ]
        what = "contradicts what is canon" if item.first.is_canon else "contradicts itself"
        remedy = f"see what it remembers, or lay down what is right: {again} --canon ID"
        ids = [fact.source for fact in pair if not fact.is_canon]
        yield about(
            agent, "contradiction", f"{what}: {', then '.join(said)}: {item.reason}", remedy=remedy, messages=ids
        )
    if not found.is_whole:
        why = found.detail or "too many facts, or quotes that stand nowhere"
        text = f"{found.summary}; whether the rest contradicts cannot be told ({why})"
        yield about(agent, "facts", text, command=f"{again} --judge {judge} --record")


def name_findings(match: NameMatch) -> list[Finding]:
    """Return findings on agents without messages, and on names that are an agent's in another spelling."""
    return [*_silent(match), *_misspelt(match)]


def name_notes(match: NameMatch) -> list[str]:
    """Return a line about other speakers without a persona; most of them belong there."""
    told = {finding.message for finding in _misspelt(match)}
    likely = [
        item.text for item in match.strangers if item.agent_id not in (None, *match.silent) and item.text not in told
    ]
    return [*first_few(likely), *filter(None, [match.note()])]


def _silent(match: NameMatch) -> Iterator[Finding]:
    for agent_id in match.silent:
        meant = [item for item in match.strangers if item.agent_id == agent_id]
        said = "".join(f"; {item.name!r} has {item.said} and no persona: is it {agent_id!r}?" for item in meant)
        remedy = meant[0].remedy if meant else _CHECK
        yield Finding(kind="names", message=silence(agent_id) + said, remedy=remedy, agent_id=agent_id)


def _misspelt(match: NameMatch) -> Iterator[Finding]:
    for item in match.strangers:
        if item.spelling and item.agent_id not in match.silent:
            yield Finding(kind="names", message=item.text, agent_id=item.agent_id)
