"""A run as rows (agents) and cells (dimensions with their baselines), read once for every report."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

from persona_pipeline.base.shares import Share
from persona_pipeline.base.status import ACCEPTED, NOTHING, VERDICTS, Result, Status
from persona_pipeline.base.text import some
from persona_pipeline.guard.baselines.models import DimensionComparison, Measure, PropositionDrop
from persona_pipeline.guard.findings import judge_check
from persona_pipeline.guard.known_drift import OUT_OF_CHARACTER
from persona_pipeline.guard.report import EXIT_OK, AgentReport, Conclusion, Finding, RunReport
from persona_pipeline.judging.verdict import unscored_label
from persona_pipeline.reporting.text import format_score, one_line, plural
from persona_pipeline.scoring.messages.verdicts import MessageVerdicts, WorstMessage
from persona_pipeline.scoring.results import NOT_IN_OVERALL, DimensionEvaluation, PropositionResult
from persona_pipeline.world.propositions.models import ADHERENCE, ALL_DIMENSIONS, DIMENSIONS, dimension_label

NOBODY = "No person has labelled anything. Label some messages in `persona-pipeline view`"
UNREAD = "Verdicts on messages were not recorded, so no message out of character is shown"
# The name for messages out of character that break no claim: they contradict facts.
FACTS = "facts of the persona"
# Short headings of narrow columns, by their labels.
SHORT_LABELS = {item.heading.lower(): item.short_label for item in DIMENSIONS.values() if item.short_label} | {
    "judged": "n/m"
}
# A report shows up to MANY agents in full; beyond that, only the MOST_WHOLE that most need a look.
MANY, MOST_WHOLE = 50, 20
# Claims that are named of an agent that dropped, and reasons why some were not judged.
MOST_WORST, _MOST_REASONS, _MOST_CLAIM = 2, 3, 60
# Kinds of findings, as a person reads them, where that is not their name.
_KINDS = {
    "regression": "drop",
    "proposition_drop": "claim drop",
    "undecided": "cannot be told",
    "low_power": "not enough data",
    "all_dropped": "all agents dropped",
    "doubted": "cannot be told",
    "coverage": "not judged",
    "nothing_evaluated": "not judged",
    "names": "unknown speaker",
    "voices": "clone",
}
_AGENT_OPTION = re.compile(r"(?<=--agents )[^\s`]+")


def kind_label(kind: str) -> str:
    return _KINDS.get(kind, kind.replace("_", " "))


def in_order(names: Collection[str]) -> list[str]:
    """Return dimensions in their own order, those that are not known any more last."""
    return [name for name in ALL_DIMENSIONS if name in names] + sorted(set(names) - set(ALL_DIMENSIONS))


@dataclass(frozen=True)
class ScoreCell:
    """A dimension of an agent with its baseline. Scores are 0-9, ``delta`` = score - baseline."""

    agent_id: str
    dimension: str
    evaluation: DimensionEvaluation | None
    comparison: DimensionComparison | None
    conclusion: Conclusion | None = None

    @property
    def score(self) -> float | None:
        return self.evaluation.score if self.evaluation else None

    @property
    def baseline(self) -> float | None:
        return self.comparison.baseline if self.comparison else None

    @property
    def delta(self) -> float | None:
        if self.comparison and self.comparison.delta is not None:
            return self.comparison.delta
        return None if self.score is None or self.baseline is None else self.score - self.baseline

    @property
    def status(self) -> str:
        """The comparison's status; ``scored`` or ``unscored`` without a comparison."""
        if self.comparison:
            return self.comparison.status
        return "unscored" if self.score is None else "scored"

    @property
    def drops(self) -> list[PropositionDrop]:
        return self.comparison.drops if self.comparison else []

    @property
    def interval(self) -> tuple[float, float] | None:
        """Where the score lies with 95 % as far as the baseline is right: baseline plus the interval of the change, within 0-9."""
        if self.comparison is None or self.comparison.interval is None or self.baseline is None:
            return None
        low, high = (min(max(self.baseline + change, 0.0), 9.0) for change in self.comparison.interval)
        return low, high

    @property
    def drifted(self) -> bool:
        """Whether the dimension or one of its propositions dropped further than allowed."""
        return self.status == "regressed" or bool(self.drops)

    @property
    def untold(self) -> bool:
        """Whether the dimension has a score but an inconclusive result."""
        return self.conclusion is not None and self.conclusion.verdict is Result.CANNOT_TELL and not self.drifted

    @property
    def n_scored(self) -> int:
        return self.evaluation.n_scored if self.evaluation else 0

    @property
    def n_expected(self) -> int:
        return self.evaluation.n_expected if self.evaluation else 0

    @property
    def why_unscored(self) -> str:
        return unscored_label(self.evaluation.unscored if self.evaluation else None)


@dataclass(frozen=True)
class AgentRow:
    """One agent's line in a table of scores."""

    agent_id: str
    report: AgentReport
    cells: tuple[ScoreCell, ...]

    @property
    def name(self) -> str:
        return self.report.evaluation.display_name or self.agent_id

    @property
    def overall(self) -> float | None:
        return self.report.evaluation.overall

    @cached_property
    def overall_baseline(self) -> float | None:
        """Mean baseline of the dimensions behind ``overall``; None unless each of them has one."""
        scored = (cell for cell in self.cells if cell.score is not None)
        parts = [cell.baseline for cell in scored if cell.dimension not in NOT_IN_OVERALL]
        known = [value for value in parts if value is not None]
        return fmean(known) if known and len(known) == len(parts) else None

    @property
    def overall_delta(self) -> float | None:
        if self.overall is None or self.overall_baseline is None:
            return None
        return self.overall - self.overall_baseline

    @property
    def messages(self) -> MessageVerdicts | None:
        """The verdicts on single messages; None: no judge was asked."""
        return self.report.evaluation.messages

    @property
    def worst(self) -> Sequence[WorstMessage]:
        """Messages out of character, the worst first."""
        return self.messages.worst if self.messages else ()

    def broken_claims(self, item: WorstMessage) -> list[str]:
        """Return the claims that a message breaks, in words where the run has them."""
        known = self.report.evaluation.dimensions[ADHERENCE.name].propositions
        words = {name: f"{row.claim}{' (should not happen)' if row.inverted else ''}" for name, row in known.items()}
        return [words.get(name, name) for name in item.verdict.claims] or [FACTS]

    def claim_text(self, drop: PropositionDrop, limit: int | None = None) -> str:
        """Return a dropped claim in words of at most ``limit`` characters, marked if it is inverted (should not hold)."""
        judged = self.report.evaluation.dimensions.get(drop.dimension)
        row = judged.propositions.get(drop.proposition_id) if judged else None
        if row is None:
            # Without the claim's result it is unknown whether it should hold, and its words could mislead.
            return drop.proposition_id
        text = one_line((drop.claim or row.claim or row.id).rstrip("."), limit)
        return f"{text} (should not happen)" if row.inverted else text

    @property
    def in_character(self) -> tuple[str, str]:
        """The number of messages in character, as ``38/40``: of the baseline, if it has one, and now; "" for none judged."""
        now = _in_character(self.messages.share if self.messages else None)
        return _in_character(self.report.comparison.in_character) if now else "", now

    @property
    def n_scored(self) -> int:
        return sum(cell.n_scored for cell in self.cells)

    @property
    def n_expected(self) -> int:
        return sum(cell.n_expected for cell in self.cells)

    @cached_property
    def conclusion(self) -> Conclusion:
        return self.report.conclusion

    @property
    def status(self) -> Status:
        """The status of the agent's verdict, the same in all reports."""
        return self.conclusion.status

    @property
    def is_new(self) -> bool:
        """Whether nothing is wrong but that it has no baseline yet."""
        serious = {finding.kind for finding in self.report.findings if finding.exit_code != EXIT_OK}
        return serious == {"no_baseline"} and not any(cell.baseline is not None for cell in self.cells)

    @property
    def severity(self) -> int:
        """The order of rows: drifted agents first, then inconclusive, with nothing to judge, and in character."""
        return 2 * VERDICTS.index(self.status) + self.is_new

    @property
    def needs_a_look(self) -> bool:
        """Whether it dropped, or is inconclusive for another reason than a missing first baseline."""
        return bool(self.status.severity) and not self.is_new

    @property
    def n_claims(self) -> int:
        """Claims that a judge was to answer."""
        rows = (row for cell in self.cells if cell.evaluation for row in cell.evaluation.propositions.values())
        return sum(not row.algorithmic for row in rows)

    @property
    def failures(self) -> list[tuple[str, PropositionResult]]:
        """Propositions that should have a score and have none."""
        judged = [(cell.dimension, cell.evaluation) for cell in self.cells if cell.evaluation]
        return [(name, result) for name, item in judged for result in item.failures.values()]


def _in_character(share: Share | None) -> str:
    return f"{share.n_in}/{share.n_in + share.n_out}" if share and share.share is not None else ""


@dataclass(frozen=True)
class ReportView:
    """The run as rows (agents, by id) and columns (dimensions in which any agent was evaluated or has a baseline)."""

    report: RunReport

    @cached_property
    def dimensions(self) -> list[str]:
        agents = self.report.agents.values()
        return in_order(
            {name for agent in agents for name in (*agent.evaluation.dimensions, *agent.comparison.dimensions)}
        )

    @cached_property
    def rows(self) -> list[AgentRow]:
        return [self._row(agent_id, agent) for agent_id, agent in sorted(self.report.agents.items())]

    def _row(self, agent_id: str, agent: AgentReport) -> AgentRow:
        judged, compared, concluded = agent.evaluation.dimensions, agent.comparison.dimensions, agent.conclusions
        found = ((name, judged.get(name), compared.get(name), concluded.get(name)) for name in self.dimensions)
        return AgentRow(agent_id, agent, tuple(ScoreCell(agent_id, *cell) for cell in found))

    @cached_property
    def names(self) -> dict[str, str]:
        """Display names of the agents, by id."""
        return {row.agent_id: row.name for row in self.rows}

    @property
    def quoted(self) -> list[AgentRow]:
        """Agents with messages out of character, those that need a look first."""
        return sorted((row for row in self.rows if row.worst), key=lambda row: row.severity)

    @property
    def is_unread(self) -> bool:
        """Whether adherence was scored, and no agent has verdicts on its messages."""
        return ADHERENCE.name in self.dimensions and all(row.messages is None for row in self.rows)

    @cached_property
    def new(self) -> list[AgentRow]:
        """Agents whose only problem is that they have no baseline yet."""
        return [row for row in self.rows if row.is_new]

    @cached_property
    def findings(self) -> list[Finding]:
        """All findings, with the names of agents; all agents without a baseline share one finding."""
        return [_called(finding, self.names.get(finding.agent_id or "", "")) for finding in self._findings]

    @property
    def _findings(self) -> list[Finding]:
        new = {row.agent_id for row in self.new}
        # The headline states looser rules, once for all agents.
        found = [finding for finding in self.report.all_findings() if finding.kind != "terms"]
        missing = [finding for finding in found if finding.kind == "no_baseline" and finding.agent_id in new]
        if not missing:
            return found
        everybody = len(new) == len(self.rows)
        names = "" if everybody else f" of {', '.join(sorted(new))}"
        option = "" if everybody else f" `--agents {','.join(sorted(new))}`"
        first = Finding(
            kind="no_baseline",
            exit_code=missing[0].exit_code,
            message=f"no baseline yet{names}: the scores stand, and nothing is compared with them",
            command="persona-pipeline baseline" if everybody else missing[0].command,
            remedy=f"take one with `persona-pipeline baseline`{option} once the scores are as they should be",
        )
        return [first, *(finding for finding in found if finding not in missing)]

    @property
    def families(self) -> str:
        """The correction of p-values, in words; "" without tests."""
        return next((row.report.comparison.families for row in self.rows if row.report.comparison.families), "")

    @property
    def judge_lines(self) -> list[str]:
        """The result of the judge's check, and how often people agree with the verdicts on messages."""
        text = judge_check(self.report).text
        return [text[:1].upper() + text[1:], *self._agreement] if self.rows else []

    @property
    def _agreement(self) -> list[str]:
        """How often people agree with the verdicts on messages, by agent."""
        agreed = [(row.name, row.messages.agreement) for row in self.rows if row.messages]
        said = [f"{agreement} ({name})" for name, agreement in agreed if agreement]
        return [f"Judge of messages: {some(said)}"] if said else []

    @property
    def headline(self) -> str:
        if not self.rows:
            return "No agent was evaluated"
        count = Counter(row.status.name for row in self.rows)
        total, judged = len(self.rows), len(self.rows) - count[NOTHING.name]
        silent = f"{count[NOTHING.name]} {'has' if count[NOTHING.name] == 1 else 'have'} nothing to judge"
        if len(self.new) == total:
            said = f"No baseline yet: {plural(total, 'agent')} scored, nothing to compare with"
        elif not judged:
            said = "Nothing to judge"
        elif count[Result.HELD] == total and (left_out := self.report.terms.left_out):
            said = f"{total} of {total + len(left_out)} agents in character"
        elif count[Result.HELD] == total:
            said = "The agent is in character" if total == 1 else f"All {total} agents are in character"
        elif count[Result.HELD] == judged:
            said = f"{judged} of {judged} judged agents in character; {silent}"
        else:
            states = [*(verdict.status for verdict in Result), ACCEPTED]
            said = ", ".join(f"{count[item.name]} {item.word}" for item in states if count[item.name])
            if self.new and len(self.new) == count[Result.CANNOT_TELL]:
                said += " (no baseline yet)"
            said += f"; {silent}" if judged < total else ""
        return "; ".join([said + self._besides, *self.terms])

    @property
    def terms(self) -> list[str]:
        """The clauses of the headline with the terms of the verdict: agents left out, looser rules, findings that can fail it."""
        terms, found = self.report.terms, list[str]()
        if terms.left_out:
            found.append(f"{some(terms.left_out)} left out")
        found += [item.text for item in terms.looser]
        if lower := [agent_id for agent_id, item in terms.baselines.items() if item.accepted]:
            found.append(f"lower baseline accepted of {', '.join(sorted(lower))}")
        if terms.only_fail_on is not None:
            only = ", ".join([*terms.only_fail_on, *terms.fail_on]) or "nothing"
            is_green = self.report.exit_code == EXIT_OK and self.report.conclusion.verdict is not Result.HELD
            found.append(f"exit code 0, because only {only} can fail it" if is_green else f"only {only} can fail it")
        return found

    @property
    def _besides(self) -> str:
        """The conclusion of the run, where the agents alone would suggest another."""
        of_run = Conclusion.of(self.report.findings)
        if of_run and not any(row.conclusion.verdict in (Result.FELL, of_run.verdict) for row in self.rows):
            return f"; the run as a whole {of_run.status.word}: {of_run.reason}"
        if self.report.exit_code != EXIT_OK and self.report.conclusion.verdict is Result.HELD:
            return "; it fails by what --fail-on names"
        # An agent in any other state may also have an accepted drop.
        accepted = sum(bool(row.report.accepted) for row in self.rows if row.status is not ACCEPTED)
        return f"; accepted drops of {plural(accepted, 'agent')}" if accepted else ""


def dropped(row: AgentRow) -> tuple[str, ...]:
    """Return an agent's drops in up to two lines: messages; dimensions with the most dropped claims."""
    said = [item.message for item in row.report.findings if item.kind == OUT_OF_CHARACTER]
    return tuple(filter(None, [*(text.removeprefix(f"{row.agent_id}: ") for text in said), _dropped(row)]))


def _dropped(row: AgentRow) -> str:
    fell = [cell for cell in row.cells if cell.status == "regressed"]
    drops = sorted((drop for cell in row.cells for drop in cell.drops), key=lambda drop: drop.delta)
    compared = sum(cell.delta is not None for cell in row.cells)
    if not fell and not drops:
        return ""
    if len(fell) == 1:
        said = f"{dimension_label(fell[0].dimension).lower()} dropped, {score_change(fell[0].baseline, fell[0].score)}"
    else:
        said = f"{len(fell)} of {compared} dimensions dropped" if fell else f"{plural(len(drops), 'claim')} dropped"
    worst = ", ".join(
        f"“{row.claim_text(drop, _MOST_CLAIM)}” {score_change(drop.baseline, drop.current)}"
        for drop in drops[:MOST_WORST]
    )
    return f"{said}; worst: {worst}" if worst else said


def not_judged(row: AgentRow) -> str:
    """Return an agent's unjudged claims and the reasons, in a line; "" if all were judged."""
    why: dict[str, list[str]] = {}
    for _, result in row.failures:
        detail = f" ({result.detail})" if result.detail else ""
        why.setdefault(f"{unscored_label(result.unscored)}{detail}", []).append(result.id)
    if len(why) == 1 and len(row.failures) == row.n_claims:
        return f"nothing is judged: {next(iter(why))}"
    counted = sorted(why.items(), key=lambda item: -len(item[1]))
    said = [
        f"{', '.join(ids) if len(ids) <= MOST_WORST else plural(len(ids), 'claim')} {reason}"
        for reason, ids in counted[:_MOST_REASONS]
    ]
    left = sum(len(ids) for _, ids in counted[_MOST_REASONS:])
    return "; ".join([*said, *([f"{plural(left, 'claim')} for other reasons"] if left else [])])


def untold(row: AgentRow) -> str:
    """Return why an agent is inconclusive, in a line."""
    evaluation = row.report.evaluation
    if not evaluation.sample_size:
        return f"no message in the window that ends {evaluation.window_end:%Y-%m-%d %H:%M} UTC"
    lacks = any(finding.kind == "coverage" for finding in row.report.findings)
    return (not_judged(row) if lacks else "") or row.conclusion.reason.removeprefix(f"{row.agent_id}: ")


def remedies(findings: Iterable[Finding]) -> list[str]:
    """Return the remedies, each once: commands that differ only in their agent are merged."""
    found: dict[str, list[str]] = {}
    for finding in findings:
        if finding.remedy:
            agents = found.setdefault(_AGENT_OPTION.sub("*", finding.remedy), [])
            agents += [name for name in dict.fromkeys(_AGENT_OPTION.findall(finding.remedy)) if name not in agents]
    return [text.replace("--agents *", f"--agents {','.join(agents)}") for text, agents in found.items()]


def warnings_of(rows: Iterable[AgentRow]) -> list[tuple[str, str]]:
    """Return the warnings of each agent's comparison, with the agent's name and the labels of dimensions."""
    # A warning begins with a dimension, or with a dimension, a slash and a claim.
    found = (
        (row.name, re.split(r"(?=[:/])", warning, maxsplit=1))
        for row in rows
        for warning in row.report.comparison.warnings
    )
    return [
        (name, f"{dimension_label(first).lower() if first in DIMENSIONS else first}{''.join(rest)}")
        for name, (first, *rest) in found
    ]


def score_change(before: float | None, now: float | None) -> str:
    """Return two scores as ``8.7 → 0.3``."""
    return f"{format_score(before, 1)} → {format_score(now, 1)}"


def _called(finding: Finding, name: str) -> Finding:
    """Return a finding with the agent's id at its beginning replaced by the name."""
    message = finding.message.removeprefix(f"{finding.agent_id}: ")
    if not name or message == finding.message:
        return finding
    return finding.model_copy(update={"message": message if is_named(message, name) else f"{name}: {message}"})


def is_named(text: str, name: str) -> bool:
    """Return whether a text about an agent begins with its name, as the sentence about its messages does."""
    return text.startswith((f"{name}: ", f"{name} has been "))


def shown_whole(rows: Sequence[AgentRow]) -> list[AgentRow]:
    """Return the rows of agents that are shown with their claims, those that need a look first."""
    ordered = sorted(rows, key=lambda row: row.severity)
    whole = [row for row in ordered if not row.report.outlined]
    return whole if len(rows) <= MANY else whole[:MOST_WHOLE]


def measured(measure: Measure, *, signed: bool = False) -> str:
    """Return a number with its interval, such as ``0.53 (0.31 to 0.70)``."""
    if measure.value is None:
        return f"none (from {measure.n})"
    form = "+.2f" if signed else ".2f"
    if measure.low is None or measure.high is None:
        return format(measure.value, form)
    return f"{measure.value:{form}} ({measure.low:{form}} to {measure.high:{form}})"
