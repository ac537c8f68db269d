"""Pages on the basis of an evaluation: setup checks, labels, the validity of judges, and the gate."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from persona_pipeline.guard.gate import facts_findings
from persona_pipeline.judging.verdict import Usage, unscored_label
from persona_pipeline.reporting.page import Block, Facts, Item, Items, Page, Section, Table
from persona_pipeline.reporting.pages.suites import lines_page
from persona_pipeline.reporting.text import cost_line, one_line
from persona_pipeline.reporting.view import NOBODY, measured

if TYPE_CHECKING:
    from persona_pipeline.corrections.replay import GateReplay, Replay
    from persona_pipeline.corrections.statistics import CorrectionStatistics, GateStatistics
    from persona_pipeline.guard import calibration as calibrate
    from persona_pipeline.guard.labels.files import Label
    from persona_pipeline.guard.labels.messages import MessageLabel
    from persona_pipeline.judging.model.probe import ProbeFinding
    from persona_pipeline.scoring.facts.reading import FactsFound


def doctor_page(findings: "Sequence[ProbeFinding]") -> Page:
    """Return the checks of an evaluation's requirements, with their remedies."""
    lines = list[str]()
    for finding in findings:
        lines.append(f"{finding.level:<6}{finding.name:<18}{finding.said}")
        lines += [f"{'':24}-> {finding.remedy}"] if finding.remedy else []
    return lines_page("Doctor", lines)


def labels_page(labels: "Sequence[Label]") -> Page:
    """Return one line per label."""
    lines = []
    for label in labels:
        said = "n/a" if label.score is None else str(label.score)
        claim = f"{label.agent_id}/{label.dimension}/{label.proposition_id} {label.key[:12]} {said:>3}"
        note = f"  {one_line(label.note, 60)}" if label.note else ""
        lines.append(f"{claim} {label.labeller} ({label.labeller_kind}){note}")
    return lines_page("Labels", lines)


def message_labels_page(labels: "Sequence[MessageLabel]") -> Page:
    """Return a line for each label of a message."""
    lines = []
    for label in labels:
        rating = "" if label.rating is None else f" {label.rating:g}"
        note = f"  {one_line(label.note, 60)}" if label.note else ""
        said = f"{label.agent_id} {label.key[:12]} {label.verdict:<7} {label.labeller} ({label.source}{rating})"
        lines.append(f"{said} {one_line(label.text, 60)!r}{note}")
    return lines_page("Labels of messages", lines)


def facts_page(found: "Sequence[FactsFound]") -> Page:
    """Return the statements of agents about themselves, each with its message, and the contradictions among them."""
    told, sections = list[Item](), list[Section]()
    for own in found:
        told.append(Item(own.summary, kind=own.agent_id, tone="" if own.is_whole else "warn"))
        told += [Item(item.text, kind=item.kind, tone="warn") for item in facts_findings(own)]
        facts = sorted(own.facts, key=lambda fact: (fact.text, fact.id))
        rows = [[item.text, item.id, f"{item.said_at:%Y-%m-%d}", item.source, item.quote] for item in facts]
        sections.append(Section(own.agent_id, [Table.plain("Facts", ["said", "id", "day", "message", "line"], rows)]))
    return Page("What agents said of themselves", [Items(told)], sections)


def calibration_page(calibration: "calibrate.Calibration") -> Page:
    """Return how far every judge agrees with people, each figure with its 95 % interval."""
    sections = [Section("", [*_agreement(item), Item("")]) for item in calibration.messages]
    sections += [Section("", [*_dimension(item), Item("")]) for item in calibration.dimensions]
    rest = []
    if not calibration.labelled:
        rest.append(Item(NOBODY))
    if calibration.unused:
        rest.append(Item(f"{calibration.unused} labels were not used: their claims are gone or have changed"))
    return Page("Calibration", sections=[*sections, Section("", [Items(rest)])])


def _agreement(item: "calibrate.MessageCalibration") -> Iterator[Block]:
    low, high = 100 * (item.share.low or 0.0), 100 * (item.share.high or 0.0)
    alarms, misses = (
        f"{100 * part / whole:.0f} in 100 ({part} of {whole})" if whole else "none to miss"
        for part, whole in ((item.false_alarms, item.kept_in), (item.misses, item.put_out))
    )
    yield Item(f"messages, judged by {_judge(item)}: {item.compared} labelled by {_people(item.people)}")
    facts = [("agreement", f"{item.agreed} of {item.compared} ({low:.0f} to {high:.0f} %)")]
    facts += [("false alarms", alarms), ("misses", misses)]
    facts.append(("ten more labels", f"interval {high - low:.0f} points wide now, then {100 * item.with_ten_more:.0f}"))
    yield Facts(facts, 1)


def _dimension(item: "calibrate.DimensionCalibration") -> Iterator[Block]:
    yield Item(
        f"{item.dimension}, judged by {_judge(item)}: {item.labelled} judgments labelled by {_people(item.people)}"
    )
    facts = [("judge bias", measured(item.bias, signed=True))]
    if item.with_ten_more is not None:
        width = (item.bias.high or 0.0) - (item.bias.low or 0.0)
        facts.append(("ten more labels", f"interval {width:.2f} points wide now, then {item.with_ten_more:.2f}"))
    yield Facts(facts, 1)


def _judge(item: "calibrate.DimensionCalibration | calibrate.MessageCalibration") -> str:
    return f"{one_line(item.judge_model, 60)} (prompt {one_line(item.prompt_version, 40)})"


def _people(names: Sequence[str]) -> str:
    """Return the labellers as text. One person's labels show that person's view, without a correction."""
    told = ", ".join(one_line(name, 40) for name in names)
    return f"this person: {told}" if len(names) == 1 else told


_NOTE = (
    "Held messages are below the threshold or out of character. Out: by the judge's verdict, else by labels of people. > marks the "
    "current threshold. A threshold that is not listed holds the same messages as the one above it."
)
GateColumn = tuple[str, Callable[["GateStatistics"], str]]
_ENDINGS: tuple[GateColumn, ...] = (
    ("actions", lambda item: f"{item.actions:,}"),
    ("passed", lambda item: f"{item.passed:,}"),
    ("retried", lambda item: f"{item.passed_after_retry:,}"),
    ("forced", lambda item: f"{item.forced:,}"),
    ("unchecked", lambda item: f"{item.fail_open:,}"),
    ("abandoned", lambda item: f"{item.abandoned:,}"),
    ("pass rate", lambda item: "-" if item.pass_rate is None else f"{item.pass_rate:.1%}"),
)
_COSTS: tuple[GateColumn, ...] = (
    ("checks", lambda item: f"{item.checks:,}"),
    ("p50 ms", lambda item: "-" if item.latency_ms is None else f"{item.latency_ms.p50:,.0f}"),
    ("p99 ms", lambda item: "-" if item.latency_ms is None else f"{item.latency_ms.p99:,.0f}"),
    ("tokens in", lambda item: f"{item.input_tokens + item.cached_tokens:,}"),
    ("cached", lambda item: f"{item.cache_read_tokens:,}"),
    ("out", lambda item: f"{item.output_tokens:,}"),
    ("dollars", lambda item: f"{item.usd:,.4f}{'+' if item.unpriced_checks else ' '}"),
)


def replay_page(found: "Replay") -> Page:
    """Return a table for each agent: threshold, held, and how many of them are out of character."""
    first = "Stored messages, looked at again as if each were on its way out, by today's personas and claims."
    facts = [first, *([cost_line(Usage(calls=found.calls, usd=found.usd))] if found.calls else [])]
    findings = [Item(said, kind=item.agent_id) for item in found.results for said in _findings(item)]
    sections = [Section(item.agent_id, [_held(item)]) for item in found.results if item.held]
    return Page("The gate, replayed", [Items.of(*facts), Items(findings)], sections)


def _findings(item: "GateReplay") -> Iterator[str]:
    now = next((held for held in item.held if held.threshold == item.threshold), None)
    why = "".join(f", {count} {reason.replace('_', ' ')}" for reason, count in item.unmeasured.items())
    seen = f"{item.measured} of {item.messages} messages measured{why}; {item.known} known to be in or out, {item.out} of them out"
    state = "" if item.enabled else " (off)"
    holds = f"would hold {now.held}, {now.out} of them out of character" if now else "would hold nothing that is known"
    yield f"{seen}; threshold {item.threshold:g}{state} {holds}"
    if "unrecorded" in item.unmeasured:
        yield "what is not recorded a live judge can say: --judge anthropic --record; --estimate tells what it takes"


def _held(item: "GateReplay") -> Table:
    rows, before = list[list[str]](), None
    for held in item.held:
        is_set, counts = held.threshold == item.threshold, (held.held, held.out)
        if is_set or counts != before:
            rows.append([f"{'> ' if is_set else ''}{held.threshold:g}", *map(str, counts)])
        before = counts
    return Table.plain(item.agent_id, ["threshold", "held", "of them out"], rows, _NOTE)


def settings_page(agent_id: str, settings: Mapping[str, Any]) -> Page:
    """Return the settings of an agent's corrections."""
    written = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings.items()}
    return Page(f"Corrections of {agent_id}", [Facts([*written.items()])])


def statistics_page(found: "CorrectionStatistics") -> Page:
    """Return the outcomes of messages and the cost of their checks, agents first and the total last."""
    if not found.total.actions:
        return Page("Corrections", sections=[Section("", [Item("Nothing was checked.")])])
    rows = [*found.agents.items(), ("all", found.total)]
    sections = []
    for title, columns in {"How messages ended": _ENDINGS, "What their checks took": _COSTS}.items():
        cells = [[agent_id, *(show(item) for _, show in columns)] for agent_id, item in rows]
        sections.append(Section(title, [Table.plain(title, ["agent", *(name for name, _ in columns)], cells)]))
    return Page("Corrections", sections=[*sections, Section("", [Items.of(*_statistics_notes(found))])])


def _statistics_notes(found: "CorrectionStatistics") -> Iterator[str]:
    if reasons := found.total.fail_open_by_reason:
        yield "Sent unchecked: " + ", ".join(f"{count:,} {unscored_label(reason)}" for reason, count in reasons.items())
    if found.total.shadowed:
        watched = [(agent_id, item) for agent_id, item in found.agents.items() if item.shadowed]
        held = ", ".join(f"{agent_id} {item.would_hold:,} of {item.shadowed:,}" for agent_id, item in watched)
        yield f"Only watched, and would have been held: {held}"
    if found.total.unpriced_checks:
        yield f"+ left out: checks of unknown price ({found.total.unpriced_checks:,})"
