"""A run to render: four agents, one of them (michael) out of character, one (pam) not fully judged."""

from datetime import UTC, datetime, timedelta
from statistics import fmean

from persona_pipeline.guard.baselines.models import BaselineComparison, DimensionComparison, Power, PropositionDrop
from persona_pipeline.guard.report import (
    EXIT_COVERAGE,
    EXIT_OK,
    EXIT_REGRESSION,
    AgentEvaluation,
    AgentReport,
    Expense,
    Finding,
    RunReport,
)
from persona_pipeline.judging.verdict import Usage
from persona_pipeline.scoring.messages.verdicts import MessageVerdict, MessageVerdicts, Role, SaidLine, WorstMessage
from persona_pipeline.scoring.results import (
    DimensionEvaluation,
    PropositionResult,
    QuotedEvidence,
)
from persona_pipeline.world.propositions.models import dimension_label

WINDOW_END = datetime(2026, 6, 19, 17, 0, tzinfo=UTC)
NAMES = {"dwight": "Dwight Schrute", "jim": "Jim Halpert", "michael": "Michael Scott", "pam": "Pam Beesly"}
DIMENSIONS = ("adherence", "consistency", "fluency", "convergence", "ideas_quantity")
BASELINES = {
    "dwight": (8.1, 7.6, 7.9, 7.2, 4.5),
    "jim": (7.4, 7.8, 8.2, 6.9, 5.0),
    "michael": (7.9, 7.3, 7.1, 7.4, 6.5),
    "pam": (7.2, 7.5, 8.4, 6.6, 5.5),
}
CURRENT = {
    "dwight": (8.0, 7.6, 7.7, 6.8, 4.5),
    "jim": (7.5, 7.7, 8.2, 6.6, 5.0),
    "michael": (3.2, 4.1, 6.2, 5.1, 4.0),
    "pam": (None, 7.4, 8.3, 6.5, 5.5),
}
CLAIMS = {
    "adherence": [
        ("self-centred", "{} turns conversations towards themselves", 1.0, False),
        ("never-boring", "{} gives a dry, factual answer without any personality", 0.8, True),
        ("knows-the-office", "{} refers to people and places of the office", 0.6, False),
    ],
    "consistency": [
        ("same-humour", "The jokes in both parts are of the same kind", 1.0, False),
        ("same-register", "Both parts use the same register and the same length of sentence", 0.7, False),
    ],
    "fluency": [("varied-openings", "The messages open in different ways", 1.0, False)],
    "convergence": [("own-voice", "Each speaker could be told apart without a name", 1.0, False)],
    "ideas_quantity": [("brings-ideas", "The channel brings up ideas nobody had before", 1.0, False)],
}
ALGORITHMIC = {"fluency": ("_ngram", "_catchphrase"), "convergence": ("_vocabulary", "_agreement")}


VOICE = "michael has not sounded like itself since message michael-0617-02"
SEES = {"adherence": 1.8, "consistency": 1.3, "fluency": 0.9, "convergence": 2.4, "ideas_quantity": 1.1}


def sample_report(*, drifted: bool = True) -> RunReport:
    """Return the run; without ``drifted`` every agent has its baseline's scores."""
    agents = {agent_id: _agent(agent_id, drifted) for agent_id in NAMES}
    codes = {finding.exit_code for agent in agents.values() for finding in agent.findings}
    return RunReport(
        agents=agents,
        exit_code=3 if 3 in codes else 1 if 1 in codes else 0,
        provenance={
            "judge": "recorded",
            "judge_models": ["claude-haiku-5-5"],
            "prompt_version": "3",
            "window": "7d",
            "as_of": WINDOW_END.isoformat(),
            "regression_delta": 1.0,
            "proposition_delta": 3.0,
            "world": "sample",
        },
        statistics={"history": _history(drifted)},
        expenses=_expenses(drifted),
    )


def with_messages(report: RunReport, text: str = "") -> RunReport:
    """Return the run with two messages of michael out of character; ``text``: instead of all that is said."""
    start = WINDOW_END - timedelta(days=2)
    adherence = report.agents["michael"].evaluation.dimensions["adherence"]
    claims = [name for name in adherence.propositions if not name.startswith("_")]

    def line(message_id: str, speaker: str, quote: str) -> SaidLine:
        return SaidLine(message_id=text or message_id, speaker=text or speaker, quote=text or quote)

    worst = [
        WorstMessage(
            verdict=MessageVerdict(
                message=text or f"michael-0617-0{number}",
                conversation=f"#general {start.isoformat()}",
                said_at=start + timedelta(minutes=number),
                verdict=Role.OUT,
                claims=tuple(claims[:broken]),
                quote=text or quote,
                reason=text or "like minutes",
            ),
            answered=line("pam-0617-01", "pam", "Did you see the figures?"),
            example=line("michael-0612-03", "michael", "Sales are up, and so am I.") if number == 2 else None,
        )
        for number, broken, quote in ((2, 2, "Please find the quarterly figures attached."), (3, 0, "Kindly confirm."))
    ]
    adherence.messages = MessageVerdicts(agent_id="michael", verdicts=[item.verdict for item in worst], worst=worst)
    return report


def _expenses(drifted: bool) -> list[Expense]:
    """Return the price of 64 judgments, and of four more of the dimension that fell."""
    judged = [
        Expense(
            mechanism="evaluation",
            agent_id=agent_id,
            dimension=name,
            usage=Usage(input_tokens=2410, output_tokens=256, cache_read_tokens=1550, calls=3, usd=0.0036),
        )
        for agent_id in NAMES
        for name in DIMENSIONS
    ]
    again = Usage(input_tokens=300, output_tokens=320, cache_read_tokens=2100, calls=4, usd=0.0021)
    confirmed = Expense(mechanism="confirmation", agent_id="michael", dimension="adherence", usage=again)
    return [*judged, confirmed] if drifted else judged


def _agent(agent_id: str, drifted: bool) -> AgentReport:
    current = CURRENT[agent_id] if drifted else BASELINES[agent_id]
    dimensions = {
        name: _dimension(agent_id, name, score, drifted) for name, score in zip(DIMENSIONS, current, strict=True)
    }
    core = [item.score for name, item in dimensions.items() if item.score is not None and name != "ideas_quantity"]
    evaluation = AgentEvaluation(
        run_id=f"run-{agent_id}",
        agent_id=agent_id,
        display_name=NAMES[agent_id],
        overall=fmean(core),
        dimensions=dimensions,
        window_start=WINDOW_END - timedelta(days=7),
        window_end=WINDOW_END,
        sample_size=42,
        provenance={"persona_hash": "9f2c" * 16, "messages_hash": "51ab" * 16, "judge": "recorded"},
        usage=Usage(input_tokens=12052, output_tokens=1280, calls=16, usd=0.0183),
    )
    comparison = _comparison(agent_id, dimensions)
    return AgentReport(evaluation=evaluation, comparison=comparison, findings=_findings(evaluation, comparison))


def _dimension(agent_id: str, name: str, score: float | None, drifted: bool) -> DimensionEvaluation:
    out_of_character = drifted and agent_id == "michael" and score is not None and score < 6
    results = []
    for index, (key, claim, weight, inverted) in enumerate(CLAIMS[name]):
        value = None if score is None and index == 0 else max(0.0, min(9.0, (score or 7.0) + (index - 1) * 0.6))
        broken = out_of_character and index < 2
        results.append(
            PropositionResult(
                id=key if key.startswith("_") else f"{agent_id}-{key}",
                claim=claim.format(NAMES[agent_id]),
                weight=weight,
                inverted=inverted,
                score=value,
                raw=None if value is None else (9 - value if inverted else value),
                unscored="unrecorded" if value is None else None,
                detail="no recording for this claim, persona and window" if value is None else "",
                reasoning=(
                    "The messages of this week read like minutes: dates, figures and thanks, and nobody's story."
                    if broken
                    else "Most messages show it, with one or two plain ones in between."
                ),
                evidence=_evidence(agent_id, broken) if value is not None else [],
                recommendation="Bring the talk back to yourself: a story, a boast or a hurt feeling."
                if broken
                else None,
                samples=[] if value is None else [round(value)],
                keys=[f"{agent_id}{name}{key}".ljust(64, "0")[:64]],
            )
        )
    for key in ALGORITHMIC.get(name, ()):
        results.append(
            PropositionResult(
                id=key, claim="", algorithmic=True, score=score, reasoning="trigram share 0.061, 5-gram share 0.012"
            )
        )
    expected = len(results)
    return DimensionEvaluation(
        dimension=name,
        score=score,
        unscored=None if score is not None else "unrecorded",
        n_scored=sum(1 for item in results if item.score is not None),
        n_expected=expected,
        propositions={item.id: item for item in results},
        proposition_set_hash="77d0" * 16,
        input_hash="c3e1" * 16,
    )


def _evidence(agent_id: str, broken: bool) -> list[QuotedEvidence]:
    if not broken:
        return [QuotedEvidence(message_id=f"{agent_id}-0612-03", quote="Sales are up, and so am I.", verified=True)]
    return [
        QuotedEvidence(
            message_id=f"{agent_id}-0617-02",
            quote="Please find the quarterly figures attached. Kindly confirm receipt by 17:00.",
            verified=True,
        ),
        QuotedEvidence(message_id=f"{agent_id}-0618-01", quote="Thank you for the update. I agree.", verified=True),
        QuotedEvidence(quote="As discussed, the meeting is moved to Thursday.", verified=False),
    ]


def _comparison(agent_id: str, dimensions: dict[str, DimensionEvaluation]) -> BaselineComparison:
    rows = {}
    for name, baseline in zip(DIMENSIONS, BASELINES[agent_id], strict=True):
        score = dimensions[name].score
        delta = None if score is None else score - baseline
        drops = [
            PropositionDrop(
                dimension=name,
                proposition_id=item.id,
                baseline=min(9.0, item.score + 4.4),
                current=item.score,
                delta=item.score - min(9.0, item.score + 4.4),
                claim=item.claim,
                recommendation=item.recommendation,
            )
            for item in dimensions[name].propositions.values()
            if item.recommendation and item.score is not None and name == "adherence"
        ]
        status = "unscored" if delta is None else "regressed" if delta < -1 else "ok"
        rows[name] = DimensionComparison(
            dimension=name, status=status, current=score, baseline=baseline, delta=delta, drops=drops
        )
        if delta is not None:
            rows[name].power = Power(
                detectable=SEES[name],
                windows=6,
                windows_needed=9,
            )
        if status == "regressed":
            rows[name].interval = (delta - 0.8, delta + 0.8)
            rows[name].p_value = 0.004
    families = "Holm over an agent's dimensions and over its claims; Bonferroni over 4 agents"
    return BaselineComparison(agent_id=agent_id, dimensions=rows, families=families)


def _findings(evaluation: AgentEvaluation, comparison: BaselineComparison) -> list[Finding]:
    agent_id = evaluation.agent_id
    findings = [
        Finding(
            kind="regression",
            exit_code=EXIT_REGRESSION,
            message=f"{agent_id}: {dimension_label(item.dimension).lower()} {item.baseline:.1f} → {item.current:.1f}",
            agent_id=agent_id,
            dimension=item.dimension,
        )
        for item in comparison.regressions
    ]
    findings += [
        Finding(
            kind="proposition_drop",
            exit_code=EXIT_REGRESSION,
            message=f"{agent_id}: claim {item.proposition_id} {item.baseline:.1f} → {item.current:.1f}",
            agent_id=agent_id,
            dimension=item.dimension,
            proposition_id=item.proposition_id,
        )
        for item in comparison.drops
    ]
    findings += [
        Finding(
            kind="coverage",
            exit_code=EXIT_COVERAGE,
            message=f"{agent_id}: {name} has {dimension.n_scored} of {dimension.n_expected} judgments "
            f"(1 not recorded: {', '.join(dimension.failures)}); no recording for this claim, persona and window",
            remedy=f"record with `persona-pipeline evaluate --agents {agent_id} --judge anthropic --record`",
            agent_id=agent_id,
            dimension=name,
        )
        for name, dimension in evaluation.dimensions.items()
        if dimension.failures
    ]
    if agent_id == "michael" and comparison.regressions:
        findings.append(
            Finding(
                kind="voice_alarm",
                exit_code=EXIT_OK,
                message=VOICE,
                remedy="ask the judge about it: `persona-pipeline evaluate --agents michael`",
                agent_id=agent_id,
            )
        )
    return findings


def _history(drifted: bool) -> dict:
    series = {}
    for agent_id in NAMES:
        points = []
        for step in range(13):
            end = WINDOW_END - timedelta(days=12 - step)
            wobble = ((step * 7 + len(agent_id) * 3) % 5 - 2) * 0.08
            share = max(0.0, (step - 8) / 4) if drifted and agent_id == "michael" else 0.0
            scores = {
                name: None
                if now is None and step > 10
                else round(before + wobble + (now - before if now is not None else 0) * share, 3)
                for name, before, now in zip(DIMENSIONS, BASELINES[agent_id], CURRENT[agent_id], strict=True)
            }
            core = [value for name, value in scores.items() if value is not None and name != "ideas_quantity"]
            overall = sum(core) / len(core)
            points.append({"window_end": end.isoformat(), "overall": overall, "dimensions": scores})
        series[agent_id] = points
    return series


def many_agents(count: int) -> RunReport:
    """Return a run of so many agents: jim over and over, but michael as every 28th from the 12th on."""
    report = sample_report()
    known = {name: report.agents[name] for name in ("jim", "michael")}
    history = report.statistics["history"]["jim"]
    points = [{**history[0], "window_end": (WINDOW_END - timedelta(weeks=week)).isoformat()} for week in range(30)]
    chosen = {f"agent-{number:03}": "michael" if number % 28 == 12 else "jim" for number in range(count)}
    report.agents = {
        agent_id: item.model_copy(
            update={"evaluation": item.evaluation.model_copy(update={"agent_id": agent_id, "display_name": agent_id})}
        )
        for agent_id, name in chosen.items()
        if (item := known[name])
    }
    report.statistics = {"history": dict.fromkeys(report.agents, points)}
    return report
