"""What makes a run fail, and with which exit code."""

import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

from persona_pipeline.base.documents.json import rfc3339
from persona_pipeline.base.errors import ConfigError, did_you_mean
from persona_pipeline.base.options import AcceptedDrop
from persona_pipeline.guard.baselines.models import BaselineComparison, DimensionComparison, JudgeShift, People
from persona_pipeline.guard.baselines.regression import (
    PROPOSITION_DELTA,
    REGRESSION_DELTA,
    UNDECIDED_DELTA,
    check_delta,
    drop_sentence,
    fall_sentence,
    is_covered,
)
from persona_pipeline.guard.calibration.measures import FEWEST_LABELS
from persona_pipeline.guard.report import (
    EXIT_COVERAGE,
    EXIT_OK,
    EXIT_REGRESSION,
    KINDS,
    AgentEvaluation,
    AgentReport,
    Finding,
    worst_exit_code,
)
from persona_pipeline.judging.verdict import QuoteHealth, Unscored, quote_health
from persona_pipeline.scoring.results import DimensionEvaluation
from persona_pipeline.world.speakers import NameMatch, silence

MOST_QUOTED = 80
_CHECK = "see under which name it speaks and list that under aliases in its persona file, or take the persona out"


def is_believable(report: AgentReport) -> bool:
    """Whether a baseline may be taken from a run: its judge quotes what is there, and was not found unable to judge."""
    return not any(finding.kind == "judge_health" for finding in report.findings)


def unbelieved_findings(
    evaluation: AgentEvaluation, comparison: BaselineComparison, *, required: bool
) -> list[Finding]:
    """Return what would be falls if the judge could be believed, which cannot be told.

    Args:
        required: a dimension whose judge is not shown to be better than chance is a failure.
    """
    agent_id, found = evaluation.agent_id, []
    for name, item in comparison.dimensions.items():
        chance = item.people is not None and item.people.belief == "chance"
        found += [
            Finding(
                kind="doubted",
                message=f"{text}; it cannot be told, for "
                + (_chance(item.people) if chance and item.people else "its judge cannot be believed"),
                command=f"persona-pipeline label {shlex.quote(agent_id)} --dimensions {name}"
                if chance
                else "persona-pipeline doctor",
                agent_id=agent_id,
                dimension=name,
            )
            for text in item.doubted
        ]
        scored = name in evaluation.dimensions and evaluation.dimensions[name].score is not None
        if required and scored and (item.people is None or item.people.belief != "believed"):
            found.append(_uncalibrated(agent_id, name, item.people))
    return found


def judge_findings(evaluation: AgentEvaluation, comparison: BaselineComparison) -> list[Finding]:
    """Return what is wrong with the judge itself, or with comparing it to the baseline's."""
    agent_id, found = evaluation.agent_id, []
    if comparison.unable:
        found.append(
            Finding(
                kind="judge_health",
                message=f"{agent_id}: {', '.join(comparison.unable)} cannot judge, doctor found; its scores cannot be believed",
                remedy="set PERSONA_JUDGE_MODEL to a model that can, and ask persona-pipeline doctor again",
                command="persona-pipeline doctor",
                agent_id=agent_id,
            )
        )
    items = [(item, item.judge_shift) for item in comparison.dimensions.values() if item.judge_shift]
    blocked = [(item, shift) for item, shift in items if item.status == "other_judge"]
    changed = [(item, shift) for item, shift in items if shift.points is not None]
    return [*found, *_other_judge(agent_id, blocked), *_judge_changed(agent_id, changed)]


def _other_judge(agent_id: str, blocked: list[tuple[DimensionComparison, JudgeShift]]) -> list[Finding]:
    if not blocked:
        return []
    shift = blocked[0][1]
    why = "they were never compared"
    if shift.anchors:
        why = "the two judge unlike, and too few judgments of these dimensions were made by both to tell by how much"
    more = " --anchors 200" if shift.anchors else ""
    return [
        Finding(
            kind="other_judge",
            message=f"{agent_id}: the baseline of {_named(blocked)} was judged by {shift.before} and this run by {shift.now}; "
            + why,
            remedy=f"compare the two judges with `persona-pipeline canary{more}`, or take the baseline anew",
            command=f"persona-pipeline canary{more}",
            agent_id=agent_id,
        )
    ]


def _judge_changed(agent_id: str, changed: list[tuple[DimensionComparison, JudgeShift]]) -> list[Finding]:
    if not changed:
        return []
    shift = changed[0][1]
    points = ", ".join(f"{item.dimension} {shift.points or 0.0:+.1f}" for item, shift in changed)
    return [
        Finding(
            kind="judge_changed",
            message=f"{agent_id}: the judge changed, not the agent: {shift.now} gives other scores than {shift.before} "
            f"({points}); its baseline is moved by that",
            remedy="take the baselines anew once you have seen that the agents are as they should be",
            agent_id=agent_id,
        )
    ]


def _uncalibrated(agent_id: str, name: str, people: People | None) -> Finding:
    if people is None or people.belief == "unknown":
        labels = people.labels if people else 0
        why = f"{labels} of the {FEWEST_LABELS} labels it takes to know how far its judge can be believed"
    else:
        why = _chance(people)
    return Finding(
        kind="calibration",
        message=f"{agent_id}: {name} is not calibrated: {why}",
        remedy="label judgments with `persona-pipeline label`, or leave out --require-calibration",
        command=f"persona-pipeline label {shlex.quote(agent_id)} --dimensions {name}",
        agent_id=agent_id,
        dimension=name,
    )


def _chance(people: People) -> str:
    text = "its judge is no better than chance there"
    if people.rank is None or people.rank_interval is None:
        return f"{text} ({people.labels} labels)"
    low, high = people.rank_interval
    return f"{text} (rank correlation with people {people.rank:.2f}, {low:.2f} to {high:.2f}, {people.labels} labels)"


def _named(blocked: list[tuple[DimensionComparison, JudgeShift]]) -> str:
    names = [item.dimension for item, _ in blocked]
    return ", ".join(names[:-1]) + f" and {names[-1]}" if len(names) > 1 else names[0]


def likeness_findings(evaluation: AgentEvaluation) -> list[Finding]:
    """Return a finding for each other agent this one speaks like, with a pair of lines beside each other.

    Agents that fill one template always did: what is found is to be looked at, and no drift.
    """
    convergence = evaluation.dimensions.get("convergence")
    channels: dict[str, Any] = convergence.statistics.get("channels", {}) if convergence else {}
    found = {
        (item["kind"], item["agent_id"], item["other"]): (channel, item)
        for channel, values in channels.items()
        for item in values.get("findings", ())
        if evaluation.agent_id == item["agent_id"]
        or (item["kind"] == "merged" and evaluation.agent_id == item["other"])
    }
    return [_alike(evaluation.agent_id, channel, item) for channel, item in found.values()]


def _alike(agent_id: str, channel: str, item: dict[str, Any]) -> Finding:
    other = item["other"] if item["agent_id"] == agent_id else item["agent_id"]
    is_clone = item["kind"] == "clone"
    said = {
        "clone": f"says {other}'s lines ({item['strength']:.0%} of its longer ones)",
        "style_clone": f"has gone over to {other}'s way of writing",
        "merged": f"and {other} have come to sound alike",
    }[item["kind"]]
    return Finding(
        kind="clone" if is_clone else "voices",
        message=f"{agent_id} {said} in #{channel}{_quoted(item)}",
        remedy="see whether the two share a prompt, a memory or a model" if is_clone else "read both side by side",
        agent_id=agent_id,
        dimension="convergence",
    )


def _quoted(item: dict[str, Any]) -> str:
    if not item["lines"]:
        return ""
    own, others = (text[:MOST_QUOTED] for text in item["lines"][0])
    return f": {own!r} beside {others!r}"


def name_findings(match: NameMatch) -> list[Finding]:
    """Return a finding for each agent without messages, and for each name that is an agent's but for its spelling."""
    return [*_silent(match), *_misspelt(match)]


def name_notes(match: NameMatch) -> list[str]:
    """Return a line about everybody else who speaks and has no persona; most of them belong there."""
    told = {finding.message for finding in _misspelt(match)}
    likely = [
        item.text for item in match.strangers if item.agent_id not in (None, *match.silent) and item.text not in told
    ]
    return [*likely, *filter(None, [match.note()])]


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


# What `--fail-on` can name, and the kinds of finding each stands for; each kind has a name of its own too.
FAILURES: Mapping[str, Collection[str]] = {
    name: tuple(kind.name for kind in KINDS.values() if name in (kind.name, kind.group))
    for name in dict.fromkeys(kind.group or kind.name for kind in KINDS.values()) | dict.fromkeys(KINDS)
}
MOST_FLAGGED = 3
# So many judgments a claim tell most large drops from chance.
DECIDING_SAMPLES = 5


@dataclass(frozen=True)
class GateRules:
    """When a run fails.

    Attributes:
        regression_delta, proposition_delta: points (0-9) a dimension or a proposition may fall.
        undecided_delta: points from which a dimension's drop cannot be told, though it may be chance.
        min_coverage: share (0-1) of due judgments that must be scored.
        as_recorded: where all that failed is recorded, the share that was asked for then is enough.
        threshold: the overall score (0-9) an agent must reach; None: off.
        fail_on: the names of ``FAILURES`` that set the exit code; None: all but the warnings.
        accepted_drops: those that somebody answers for, as of ``today``.
        require_calibration: a dimension fails whose judge people's labels do not show to be better than chance.
    """

    regression_delta: float = REGRESSION_DELTA
    proposition_delta: float = PROPOSITION_DELTA
    undecided_delta: float = UNDECIDED_DELTA
    min_coverage: float = 1.0
    as_recorded: bool = True
    threshold: float | None = None
    fail_on: Sequence[str] | None = None
    require_calibration: bool = False
    accepted_drops: Sequence[AcceptedDrop] = ()
    today: date = field(default_factory=lambda: datetime.now(UTC).date())

    def __post_init__(self) -> None:
        check_delta(self.regression_delta)
        check_delta(self.proposition_delta, "--proposition-delta")
        check_delta(self.undecided_delta, "PERSONA_UNDECIDED_DELTA")
        if not 0 <= self.min_coverage <= 1:
            raise ConfigError(f"--min-coverage must be from 0 to 1, not {self.min_coverage!r}")
        if self.threshold is not None and not 0 <= self.threshold <= 9:
            raise ConfigError(f"--threshold must be from 0 to 9, not {self.threshold!r}")
        for name in self.fail_on or ():
            if name not in FAILURES:
                hint = did_you_mean(name, FAILURES) or f"; the names are {', '.join(FAILURES)}"
                raise ConfigError(f"--fail-on does not know {name!r}{hint}")


def judge_agent(evaluation: AgentEvaluation, comparison: BaselineComparison, rules: GateRules) -> AgentReport:
    """Return the agent's report with everything that is wrong, worst first."""
    drops = [*_regressions(evaluation, comparison, rules), *_undecided(evaluation, comparison)]
    findings = [
        *(_accepted(item, rules) for item in drops),
        *_coverage(evaluation, comparison, rules),
        *_threshold(evaluation, rules),
    ]
    return AgentReport(
        evaluation=evaluation,
        comparison=comparison,
        findings=[
            *findings,
            *unbelieved_findings(evaluation, comparison, required=rules.require_calibration),
            *judge_findings(evaluation, comparison),
            *likeness_findings(evaluation),
            *_judge_health(evaluation),
            *_injections(evaluation),
        ],
    )


def _accepted(drop: Finding, rules: GateRules) -> Finding:
    """Return a drop as what it is where somebody answers for it: said up to the day, a fall again after it."""
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
    """Return the exit code of findings, those left out that ``fail_on`` does not name."""
    return worst_exit_code({item.exit_code for item in weighed(findings, rules.fail_on)})


def weighed(findings: Collection[Finding], fail_on: Collection[str] | None) -> list[Finding]:
    """Return findings with the exit codes they have where only those of ``fail_on`` count, which then are no mere warnings."""
    if fail_on is None:
        return list(findings)
    kinds = {kind for name in fail_on for kind in FAILURES[name]}
    codes = [(item.exit_code or KINDS[item.kind].exit_code) if item.kind in kinds else EXIT_OK for item in findings]
    return [item.model_copy(update={"exit_code": code}) for item, code in zip(findings, codes, strict=True)]


def nothing_evaluated(reports: Collection[AgentReport]) -> list[Finding]:
    """Return a finding when no dimension of any agent has a score: an empty run is never a pass."""
    if any(item.score is not None for report in reports for item in report.evaluation.dimensions.values()):
        return []
    return [
        Finding(
            kind="nothing_evaluated",
            message="nothing was evaluated: no dimension has a score",
        )
    ]


def missing_agent_findings(agent_ids: Collection[str]) -> list[Finding]:
    """Return a finding for each agent that has a golden file and no persona: deleting a persona turns no run green."""
    return [
        Finding(
            kind="missing_agent",
            message=f"{agent_id} has a baseline and no persona",
            remedy=f"restore personas/{agent_id}.yaml, or remove baselines/{agent_id}.json",
            agent_id=agent_id,
        )
        for agent_id in agent_ids
    ]


def _regressions(evaluation: AgentEvaluation, comparison: BaselineComparison, rules: GateRules) -> list[Finding]:
    agent = evaluation.agent_id
    fallen = [item for item in comparison.dimensions.values() if item.status == "regressed"]
    found = [
        Finding(
            kind="regression",
            message=fall_sentence(agent, item, rules.regression_delta),
            agent_id=agent,
            dimension=item.dimension,
        )
        for item in fallen
    ]
    return found + [
        Finding(
            kind="proposition_drop",
            message=drop_sentence(agent, drop, rules.proposition_delta),
            agent_id=agent,
            dimension=drop.dimension,
            proposition_id=drop.proposition_id,
        )
        for drop in comparison.drops
    ]


def _undecided(evaluation: AgentEvaluation, comparison: BaselineComparison) -> list[Finding]:
    """Return a finding for each dimension that dropped too far to be passed over and not surely enough to have fallen."""
    agent = evaluation.agent_id
    return [
        Finding(
            kind="undecided",
            message=f"{agent}: {item.dimension} dropped by {-(item.delta or 0.0):.2f} from {item.baseline:.2f} to "
            f"{item.current:.2f}, which judge and week may explain: whether it fell cannot be told",
            remedy="judge more often, or take the baseline from more windows (`persona-pipeline baseline --windows 4`)",
            command=f"{evaluate_command(evaluation, samples=DECIDING_SAMPLES)} --judge anthropic --record",
            agent_id=agent,
            dimension=item.dimension,
        )
        for item in comparison.dimensions.values()
        if item.status == "undecided" and not item.doubted
    ]


def _threshold(evaluation: AgentEvaluation, rules: GateRules) -> list[Finding]:
    if rules.threshold is None:
        return []
    agent, missing = evaluation.agent_id, [name for name, item in evaluation.dimensions.items() if item.failed]
    if evaluation.overall is None and missing:
        code = EXIT_COVERAGE
        text = f"{agent}: no overall score to compare with {rules.threshold:g}: {', '.join(missing)} could not be judged in full"
    elif evaluation.overall is not None and evaluation.overall < rules.threshold - 1e-9:
        code, text = EXIT_REGRESSION, f"{agent}: overall {evaluation.overall:.2f} is below {rules.threshold:g}"
    else:
        return []
    return [Finding(kind="threshold", exit_code=code, message=text, agent_id=agent)]


def quotes_of(evaluation: AgentEvaluation) -> QuoteHealth:
    """Return how the quotes of an agent's judge stand up."""
    rows = (row for item in evaluation.dimensions.values() for row in item.propositions.values())
    return quote_health([quote.verified for quote in row.evidence] for row in rows if row.score is not None)


def _judge_health(evaluation: AgentEvaluation) -> list[Finding]:
    health = quotes_of(evaluation)
    if not health.is_doubtful:
        return []
    return [
        Finding(
            kind="judge_health",
            message=f"{evaluation.agent_id}: {health.failing} of {health.quotes} quotes of the judge do not stand in the messages; "
            "its scores cannot be believed",
            remedy="ask a judge that can quote; `persona-pipeline doctor` looks at this one",
            command="persona-pipeline doctor",
            agent_id=evaluation.agent_id,
        )
    ]


def _injections(evaluation: AgentEvaluation) -> list[Finding]:
    flagged = [
        f"{name}/{row.id}"
        for name, item in evaluation.dimensions.items()
        for row in item.propositions.values()
        if row.injection_suspected
    ]
    if not flagged:
        return []
    more = f" and {len(flagged) - MOST_FLAGGED} more" if len(flagged) > MOST_FLAGGED else ""
    text = (
        f"{evaluation.agent_id}: the judged text seems to address the judge ({', '.join(flagged[:MOST_FLAGGED])}{more})"
    )
    remedy = "read those messages before you believe their scores"
    return [Finding(kind="injection", message=text, remedy=remedy, agent_id=evaluation.agent_id)]


def _coverage(evaluation: AgentEvaluation, comparison: BaselineComparison, rules: GateRules) -> list[Finding]:
    findings = []
    for name, item in evaluation.dimensions.items():
        findings += _budget(evaluation.agent_id, name, item)
        compared = comparison.dimensions.get(name)
        remedy = command = ""
        if compared and compared.baseline is not None and not item.propositions:
            message = f"{evaluation.agent_id}: {name} has a baseline and no propositions any more"
            remedy = f"restore them, or take {name} out of baselines/{evaluation.agent_id}.json"
        elif compared and compared.baseline is not None and item.score is None and not item.failed:
            message = f"{evaluation.agent_id}: {name} has a baseline and no score now ({item.unscored})"
            command = f"persona-pipeline evaluate --agents {shlex.quote(evaluation.agent_id)} --window 30d"
        elif item.failed and (item.score is None or not _is_covered([item], rules)):
            reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(item.failed.items()))
            rows = [row for row in item.propositions.values() if row.failed]
            message = (
                f"{evaluation.agent_id}: {name} is scored for {item.n_scored} of {item.n_expected} ({reasons}: "
                f"{', '.join(row.id for row in rows)}); {rows[0].detail}"
            )
            command = _record_command(evaluation)
            remedy = f"{'record' if Unscored.UNRECORDED.value in item.failed else 'ask again'} with `{command}`"
        else:
            if compared and compared.status == "no_baseline":
                findings.append(
                    Finding(
                        kind="no_baseline",
                        message=f"{evaluation.agent_id}: {name} has no baseline",
                        remedy=f"take one with `persona-pipeline baseline --agents {shlex.quote(evaluation.agent_id)}`",
                        command=f"persona-pipeline baseline --agents {shlex.quote(evaluation.agent_id)}",
                        agent_id=evaluation.agent_id,
                        dimension=name,
                    )
                )
            continue
        findings.append(
            Finding(
                kind="coverage",
                message=message,
                remedy=remedy,
                command=command,
                agent_id=evaluation.agent_id,
                dimension=name,
            )
        )
    if not any(finding.kind == "coverage" for finding in findings):
        findings += _covered_in_all([evaluation], rules, evaluation.agent_id)
    return findings


def run_coverage(reports: Collection[AgentReport], rules: GateRules) -> list[Finding]:
    """Return a finding when so few judgments of the whole run are scored as would fail no agent alone."""
    if any(finding.kind == "coverage" for report in reports for finding in report.findings):
        return []
    return _covered_in_all([report.evaluation for report in reports], rules, None)


def _covered_in_all(evaluations: Collection[AgentEvaluation], rules: GateRules, agent_id: str | None) -> list[Finding]:
    items = [item for evaluation in evaluations for item in evaluation.dimensions.values()]
    scored, expected = (sum(getattr(item, name) for item in items) for name in ("n_scored", "n_expected"))
    if _is_covered(items, rules):
        return []
    failed: Counter[str] = Counter()
    for item in items:
        failed.update(item.failed)
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(failed.items()))
    text = f"{agent_id or 'the run'}: {scored} of {expected} judgments are scored ({reasons})"
    return [Finding(kind="coverage", message=text, agent_id=agent_id)]


def _is_covered(items: Collection[DimensionEvaluation], rules: GateRules) -> bool:
    return is_covered(items, rules.min_coverage, as_recorded=rules.as_recorded)


def _record_command(evaluation: AgentEvaluation) -> str:
    """Return the command that records what these very judgments are about."""
    return f"{evaluate_command(evaluation)} --judge anthropic --record"


def evaluate_command(evaluation: AgentEvaluation, samples: int = 1) -> str:
    """Return the command that evaluates the same window again, each claim judged ``samples`` times at least."""
    options = {"--agents": shlex.quote(evaluation.agent_id), "--as-of": rfc3339(evaluation.window_end, exact=True)}
    if evaluation.window_start is None:
        options["--window"] = "all"
    elif (evaluation.window_end - evaluation.window_start) % timedelta(hours=1):
        options["--since"] = rfc3339(evaluation.window_start, exact=True)
    elif evaluation.window_end - evaluation.window_start != timedelta(days=7):
        options["--window"] = f"{(evaluation.window_end - evaluation.window_start) / timedelta(hours=1):g}h"
    if (times := max(samples, evaluation.provenance.get("samples", 1))) > 1:
        options["--samples"] = str(times)
    return "persona-pipeline evaluate " + " ".join(f"{name} {value}" for name, value in options.items())


def _budget(agent_id: str, dimension: str, item: DimensionEvaluation) -> list[Finding]:
    stopped = item.failed.get(Unscored.BUDGET.value, 0)
    if not stopped:
        return []
    message = f"{agent_id}: {stopped} judgments of {dimension} were not made: the budget was used up"
    return [Finding(kind="budget", message=message, agent_id=agent_id, dimension=dimension)]
