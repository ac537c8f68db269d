"""Runs as rows of the store: written, read again, and as scores over windows with the drift they show."""

import logging
import shlex
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from persona_pipeline.base.documents.json import rfc3339
from persona_pipeline.base.errors import NothingError
from persona_pipeline.base.settings import Settings
from persona_pipeline.base.status import Result
from persona_pipeline.base.telemetry import EvaluationEvent, SpanIds, emitter
from persona_pipeline.guard.anchors import AnchorAnswers
from persona_pipeline.guard.baselines.drift import FEWEST_WINDOWS, WindowScore, find_moved
from persona_pipeline.guard.baselines.models import BaselineComparison
from persona_pipeline.guard.findings import ANCHORS, answers_in, judge_of
from persona_pipeline.guard.gate import GateRules, exit_code_of, findings_of_run, kept_rules
from persona_pipeline.guard.report import (
    AgentEvaluation,
    AgentReport,
    Conclusion,
    Finding,
    LooserRule,
    Provenance,
    RunReport,
    Terms,
    expenses_of,
    uuid_from,
)
from persona_pipeline.scoring.messages.verdicts import MessageVerdict
from persona_pipeline.scoring.results import DimensionEvaluation, PropositionResult
from persona_pipeline.version import __version__
from persona_pipeline.world.models import Message
from persona_pipeline.world.runs import MOST_WINDOWS, RUN_COLUMNS, UNFINISHED, Row, RunRows


@dataclass(frozen=True)
class Point:
    """One window of an agent's history.

    Attributes:
        overall: 0-9; None: unscored.
        dimensions: by name, ``score`` (0-9 or None), ``samples`` (judgments a claim) and ``claims`` (hash of the set).
        judged_by: model and prompt version.
        whole: every dimension with claims is in it.
        window_start: None: unknown.
        anchors: the judge's answers on anchors; None: it was not asked.
    """

    window_end: datetime
    overall: float | None
    dimensions: dict[str, dict[str, Any]]
    judged_by: tuple[str | None, ...]
    whole: bool = True
    window_start: datetime | None = None
    anchors: AnchorAnswers | None = None


def summary_of(evaluation: AgentEvaluation) -> dict[str, Any]:
    """Return the summary of a run that its history keeps."""
    provenance = evaluation.provenance
    return {
        "overall": evaluation.overall,
        "window_start": evaluation.window_start.isoformat() if evaluation.window_start else None,
        "dimensions": {
            name: {"score": item.score, "samples": item.samples, "claims": item.proposition_set_hash}
            for name, item in evaluation.dimensions.items()
        },
        "judged_by": judge_of(provenance),
        ANCHORS: provenance.get(ANCHORS),
    }


def points_of(agent_ids: Iterable[str], rows: Iterable[Row]) -> dict[str, list[Point]]:
    """Return each agent's newest 60 windows, oldest first, from ``runs.summary_rows``; a whole run counts before a part."""
    found: dict[str, dict[datetime, Point]] = defaultdict(dict)
    for row in rows:
        found[row.agent_id][row.window_end] = _point(row.window_end, row.whole, row.summary or {})
    return {agent_id: list(found[agent_id].values())[-MOST_WINDOWS:] for agent_id in agent_ids}


def _point(window_end: datetime, whole: bool, known: Mapping[str, Any]) -> Point:
    judged_by = tuple(known.get("judged_by", ()))
    start = datetime.fromisoformat(known["window_start"]) if known.get("window_start") else None
    dimensions, anchors = known.get("dimensions", {}), answers_in(known)
    return Point(window_end, known.get("overall"), dimensions, judged_by, whole, start, anchors)


def with_points(
    points: Mapping[str, Sequence[Point]], made: Sequence[tuple[AgentEvaluation, bool]]
) -> dict[str, list[Point]]:
    """Return agents' windows including runs that are about to be saved, each with whether it is whole."""
    found = {agent_id: {point.window_end: point for point in own} for agent_id, own in points.items()}
    for evaluation, whole in made:
        own, end = found.setdefault(evaluation.agent_id, {}), evaluation.window_end
        finished = not evaluation.synthetic and any(item.score is not None for item in evaluation.dimensions.values())
        if finished and (whole or end not in own or not own[end].whole):
            own[end] = _point(end, whole, summary_of(evaluation))
    return {agent_id: sorted(own.values(), key=lambda item: item.window_end) for agent_id, own in found.items()}


def score_history(points: Mapping[str, Sequence[Point]]) -> dict[str, list[dict[str, Any]]]:
    """Return each agent's saved scores by window end, oldest first, as a report draws them."""
    return {
        agent_id: [
            {
                "window_end": point.window_end.isoformat(),
                "overall": point.overall,
                "dimensions": {name: item["score"] for name, item in point.dimensions.items()},
            }
            for point in own
        ]
        for agent_id, own in points.items()
    }


def overall_points(agent_ids: Iterable[str], rows: Iterable[Row]) -> dict[str, dict[datetime, float | None]]:
    """Return agents' overall scores by window end, oldest first, from ``runs.overall_rows``; the last run of a window counts."""
    wanted, found = set(agent_ids), defaultdict[str, dict[datetime, float | None]](dict)
    for agent_id, window_end, overall, _ in rows:
        if agent_id in wanted:
            found[agent_id][window_end] = overall
    return dict(found)


@dataclass(frozen=True)
class StoredVerdict:
    """A stored verdict on a message. ``judged_by``: model and prompt version."""

    verdict: MessageVerdict
    judged_by: tuple[str | None, str | None]


def saved_run(row: Row | None) -> AgentReport | None:
    """Return a stored run as it was decided, from its row; None: the row is missing."""
    return None if row is None else _saved(row, row.result or row.outline)


def _saved(row: Row, evaluation: Any) -> AgentReport:
    evaluation, agent_id = AgentEvaluation.model_validate(evaluation), row.agent_id
    findings = [Finding.model_validate(finding) for finding in row.findings or ()]
    return AgentReport(
        evaluation=evaluation,
        # A forgotten run has no comparison.
        comparison=BaselineComparison.model_validate(row.comparison or {"agent_id": agent_id}),
        findings=[unfinished_finding(agent_id)] if row.status in UNFINISHED else findings,
        expenses=expenses_of(agent_id, evaluation.dimensions.values()),
    )


def saved_verdict(row: Row) -> tuple[Conclusion, list[Finding]]:
    """Return a stored verdict and its findings, from a row with ``agent_id``, ``status``, ``verdict`` and ``findings``."""
    findings = [Finding.model_validate(finding) for finding in row.findings or ()]
    if row.status in UNFINISHED:
        findings = [unfinished_finding(row.agent_id)]
    elif row.verdict is not None:
        return Conclusion.model_validate(row.verdict), findings
    # Decided before verdicts were saved: a run with a score held where nothing serious was found.
    scored = Conclusion(verdict=Result.HELD) if row.status == "completed" else Conclusion(reason="no score")
    return Conclusion.of(findings) or scored, findings


def unfinished_finding(agent_id: str) -> Finding:
    """Return the finding of a run without a verdict: only a part was judged, or its process ended early."""
    return Finding(
        kind="coverage",
        message=f"{agent_id}: the newest run is not finished, so it has no verdict",
        remedy="materialize verdicts, or evaluate the agent again",
        command=f"persona-pipeline evaluate --agents {shlex.quote(agent_id)}",
        agent_id=agent_id,
    )


def saved_runs(rows: Iterable[Row]) -> list[AgentReport]:
    """Return stored runs from their rows."""
    return [run for row in rows if (run := saved_run(row))]


OUTLINE = ("outline", "status", "comparison", "findings")


def outlines(rows: Iterable[Row]) -> dict[str, AgentReport]:
    """Return runs without their claims, by agent, from rows with the columns ``OUTLINE``."""
    known = (row for row in rows if row.outline is not None)
    return {row.agent_id: _saved(row, row.outline).model_copy(update={"outlined": True}) for row in known}


def by_need(reports: Mapping[str, AgentReport]) -> list[str]:
    """Return agents in order of urgency: regressions, inconclusive ones, other findings, the rest; each by name."""

    def need(agent_id: str) -> tuple[int, str]:
        verdict, found = reports[agent_id].conclusion.verdict, reports[agent_id].findings
        return (0 if verdict is Result.FELL else 1 if verdict is Result.CANNOT_TELL else 2 if found else 3, agent_id)

    return sorted(reports, key=need)


def report_of(reports: Mapping[str, AgentReport], rules: GateRules) -> RunReport:
    """Return the report of stored runs; nothing is judged or compared."""
    if not reports:
        raise NothingError("the store holds no evaluation of that time that has a score; run persona-pipeline evaluate")
    newest = max((item.evaluation for item in reports.values()), key=lambda item: item.window_end)
    report = RunReport(
        agents=dict(reports),
        findings=findings_of_run(list(reports.values()), rules),
        expenses=[expense for item in reports.values() for expense in item.expenses],
        provenance={
            "version": __version__,
            "judge": newest.provenance.get("judge"),
            "window_end": newest.window_end.isoformat(),
            "min_coverage": rules.min_coverage,
            "regression_delta": rules.regression_delta,
            "proposition_delta": rules.proposition_delta,
        },
    )
    # Stored runs keep looser rules and accepted drops as findings.
    report.terms = Terms(
        looser=[LooserRule(rule="", text=text) for text in kept_rules(report.all_findings())],
        accepted=[finding.message for item in report.agents.values() for finding in item.accepted],
    )
    report.exit_code = exit_code_of(report.all_findings(), rules)
    return report


def series_beside(
    evaluation: AgentEvaluation, points: Mapping[str, Sequence[Point]]
) -> dict[tuple[str, str], list[WindowScore]]:
    """Return windows of the agent's dimensions, this evaluation last, and of all watched agents, which show usual variation.

    Empty where no series of the agent is long enough.
    """
    newest, until = _point(evaluation.window_end, True, summary_of(evaluation)), evaluation.window_end
    known = [point for point in points.get(evaluation.agent_id, ()) if point.window_end <= until][-MOST_WINDOWS:]
    series = series_of(evaluation.agent_id, [*(point for point in known if point.window_end < until), newest])
    if not any(sum(item.score is not None for item in own) > FEWEST_WINDOWS for own in series.values()):
        return {}
    for agent_id, windows in points.items():
        if agent_id != evaluation.agent_id:
            series |= series_of(agent_id, [point for point in windows if point.window_end <= until][-MOST_WINDOWS:])
    return series


def series_of(agent_id: str, points: Sequence[Point]) -> dict[tuple[str, str], list[WindowScore]]:
    """Return an agent's windows by dimension, without those of another judge and those that overlap a later one."""
    if not points:
        return {}
    newest, apart = points[-1], list[Point]()
    for point in reversed(points):
        start = apart[-1].window_start if apart else None
        if point.judged_by == newest.judged_by and (start is None or point.window_end <= start):
            apart.append(point)
    return {
        (agent_id, name): [
            WindowScore(point.window_end, point.dimensions[name]["score"], point.dimensions[name]["samples"])
            for point in reversed(apart)
            if name in point.dimensions and point.dimensions[name]["claims"] == item["claims"]
        ]
        for name, item in newest.dimensions.items()
    }


def drift_findings(evaluation: AgentEvaluation, points: Mapping[str, Sequence[Point]]) -> list[Finding]:
    """Return a warning for each dimension that has surely dropped."""
    return [
        Finding(kind="moved", message=text, agent_id=agent_id, dimension=name)
        for (agent_id, name), text in find_moved(series_beside(evaluation, points)).items()
        if agent_id == evaluation.agent_id
    ]


MOST_SNIPPET = 2000
_HIGHEST = 9
_LOGGER = logging.getLogger("persona_pipeline.telemetry")


def rows_of(
    report: AgentReport, *, whole: bool = True, read_at: datetime | None = None, is_baseline: bool = False
) -> RunRows:
    """Return a decided run as rows. ``whole``: it has every dimension with claims."""
    evaluation, run_id = report.evaluation, uuid.UUID(report.evaluation.run_id)
    scores = [
        _score_row(run_id, item, row) for item in evaluation.dimensions.values() for row in item.propositions.values()
    ]
    window = None if evaluation.synthetic else evaluation.window
    messages = [] if evaluation.synthetic else list(_verdict_rows(run_id, evaluation))
    return RunRows(_run_row(run_id, report, whole), scores, messages, window, read_at, is_baseline)


def _verdict_rows(run_id: uuid.UUID, evaluation: AgentEvaluation) -> Iterator[dict[str, Any]]:
    read = evaluation.messages
    if read is None:
        return
    for item in read.verdicts:
        row = item.model_dump(exclude={"message"})
        row |= {"evaluation_run_id": run_id, "agent_id": evaluation.agent_id, "message_id": item.message}
        yield row | {"claims": list(item.claims), "judge_model": read.model, "prompt_version": read.prompt_version}


def verdicts_of(rows: Iterable[Row]) -> dict[str, list[StoredVerdict]]:
    """Return the verdicts on messages by agent, from ``runs.message_verdict_rows``."""
    found = defaultdict[str, list[StoredVerdict]](list)
    for row in rows:
        data = {name: getattr(row, name) for name in MessageVerdict.model_fields if name != "message"}
        verdict = MessageVerdict.model_validate({**data, "message": row.message_id})
        found[row.agent_id].append(StoredVerdict(verdict, (row.judge_model, row.prompt_version)))
    return dict(found)


def _run_row(run_id: uuid.UUID, report: AgentReport, whole: bool) -> dict[str, Any]:
    evaluation, comparison = report.evaluation, report.comparison
    same = ("agent_id", "window_start", "window_end", "sample_size", "synthetic")
    made = RUN_COLUMNS & Provenance.__annotations__.keys()
    scored = any(item.score is not None for item in evaluation.dimensions.values())
    return {
        "id": run_id,
        **{name: getattr(evaluation, name) for name in same},
        **{name: evaluation.provenance.get(name) for name in made},
        "status": "completed" if scored else "failed",
        "dimensions": list(evaluation.dimensions),
        "overall_score": evaluation.overall,
        "token_usage": vars(evaluation.usage),
        # SQLite's clock counts whole seconds, which would not order two runs.
        "completed_at": datetime.now(UTC),
        "result": evaluation.model_dump(mode="json"),
        # Without claims and statistics.
        "outline": evaluation.model_dump(
            mode="json",
            exclude={
                "dimensions": {"__all__": {"propositions": True, "statistics": True, "messages": {"verdicts", "worst"}}}
            },
        ),
        "summary": summary_of(evaluation),
        "whole": whole,
        "regressed": comparison.regressed,
        "comparison": comparison.model_dump(mode="json"),
        "findings": [finding.model_dump(mode="json") for finding in report.findings],
        "verdict": report.conclusion.model_dump(mode="json"),
    }


def _score_row(run_id: uuid.UUID, item: DimensionEvaluation, row: PropositionResult) -> dict[str, object]:
    quotes = [quote.quote for quote in row.evidence if quote.verified]
    return {
        "id": uuid_from(f"{run_id}/{item.dimension}/{row.id}"),
        "evaluation_run_id": run_id,
        "dimension": item.dimension,
        "proposition_id": row.id,
        "score": row.score,
        "raw": row.raw,
        "unscored_reason": row.unscored,
        "reasoning": row.reasoning or row.detail,
        # Only quotes that the transcript contains.
        "context_snippet": "\n".join(quotes)[:MOST_SNIPPET] or None,
        "proposition_set_hash": item.proposition_set_hash,
        "input_hash": item.input_hash,
    }


def announce(report: AgentReport, messages: Iterable[Message], settings: Settings) -> None:
    """Send an agent's scores and their messages as events, where that is set up; an error is logged and stops nothing."""
    sender = emitter(settings)
    if sender is None or report.past or report.evaluation.synthetic:
        return
    try:
        sender.emit(evaluation_events(report, {message.id: message for message in messages}))
    except Exception:
        _LOGGER.exception("scores were not handed to OpenTelemetry")


def evaluation_events(report: AgentReport, messages: Mapping[str, Message]) -> Iterator[EvaluationEvent]:
    """Yield the events of a report, in points 0-9; ``messages``: the judged messages by id, as far as known."""
    evaluation = report.evaluation
    given = {
        "gen_ai.agent.id": evaluation.agent_id,
        "gen_ai.agent.name": evaluation.display_name,
        "persona.run.id": evaluation.run_id,
        "persona.window.start": rfc3339(evaluation.window_start) if evaluation.window_start else None,
        "persona.window.end": rfc3339(evaluation.window_end),
        "persona.judge": str(evaluation.provenance.get("judge", "")) or None,
    }
    compared = report.comparison.dimensions
    fell = {(item.dimension, item.proposition_id) for item in report.comparison.drops}
    reason = None if evaluation.overall is not None else "no_score"
    yield EvaluationEvent("overall", evaluation.overall, error=reason, attributes=given)
    for name, dimension in evaluation.dimensions.items():
        of = {**given, "persona.dimension": name}
        counts = {"persona.scored": dimension.n_scored, "persona.expected": dimension.n_expected}
        label = compared[name].status if name in compared else None
        yield EvaluationEvent(name, dimension.score, label, dimension.unscored, attributes={**of, **counts})
        for key, claim in dimension.propositions.items():
            about = {**of, "persona.claim.id": key, "persona.claim.inverted": claim.inverted or None}
            label = None if claim.score is None else "regressed" if (name, key) in fell else "ok"
            reason = claim.reasoning or claim.detail
            whole = EvaluationEvent(f"{name}/{key}", claim.score, label, claim.unscored, reason, attributes=about)
            yield whole
            judged = [part for part in claim.parts if str(part["part"]) in messages]
            for part in judged:
                raw = part.get("raw")
                score = None if raw is None else _HIGHEST - float(raw) if claim.inverted else float(raw)
                own = replace(
                    whole, score=score, label=None, error=part.get("unscored"), explanation=part.get("reasoning")
                )
                yield _of_message(own, messages[str(part["part"])])
            quoted = {quote.message_id for quote in claim.evidence if quote.verified and not judged}
            for message in (messages[each] for each in sorted(filter(None, quoted)) if each in messages):
                yield _of_message(replace(whole, attributes={**about, "persona.quoted": True}), message)


def _of_message(event: EvaluationEvent, message: Message) -> EvaluationEvent:
    extras = message.extras
    return replace(
        event,
        span=SpanIds.among(extras),
        response_id=str(extras["response_id"]) if "response_id" in extras else None,
        attributes={**event.attributes, "persona.message.id": message.id, "gen_ai.conversation.id": message.channel},
    )
