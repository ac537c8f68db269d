"""Findings about an agent, each with a reason in one sentence and a remedy; and trust in the judges of its comparison."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from persona_pipeline.base.documents.json import rfc3339
from persona_pipeline.base.options import REGRESSION_DELTA
from persona_pipeline.base.text import some
from persona_pipeline.guard.anchors import AnchorAnswers, JudgeCheck, check_of
from persona_pipeline.guard.baselines.models import (
    Baseline,
    BaselineComparison,
    DimensionComparison,
    JudgeShift,
    PropositionDrop,
)
from persona_pipeline.guard.baselines.regression import Rules
from persona_pipeline.guard.report import AgentEvaluation, AgentReport, Finding, RunReport, about, judge_to_ask
from persona_pipeline.judging.verdict import QuoteHealth, Unscored, quote_health
from persona_pipeline.scoring.results import DimensionEvaluation
from persona_pipeline.scoring.text.said_again import said_again_text
from persona_pipeline.world.propositions.models import dimension_label

MOST_QUOTED = 80
MOST_FLAGGED = 3
MOST_CLAIMS = 2
# An agent whose comparison finds only larger drops, in points, is not judged.
NO_POWER = 4.0
# Judgments per claim that distinguish most large drops from chance.
DECIDING_SAMPLES = 5


def fall_sentence(item: DimensionComparison, allowed: float) -> str:
    """Return the drop of a dimension, its interval and the claims behind it.

    ``item``: a regressed dimension. ``allowed``: points it may drop.
    """
    text = f"{_label(item.dimension)} {item.baseline:.1f} → {item.current:.1f} ({_drop(item.interval, allowed)})"
    worst = sorted((test.delta, claim) for claim, test in item.claims.items() if test.delta <= -allowed)[:MOST_CLAIMS]
    if not worst:
        return text
    return f"{text}. Mostly: {', '.join(claim for _, claim in worst)}"


def drop_sentence(drop: PropositionDrop, allowed: float) -> str:
    """Return the drop of a claim, and its recommendation where its file has one."""
    text = f"claim {drop.proposition_id} ({_label(drop.dimension)}) {drop.baseline:.1f} → {drop.current:.1f}"
    text += f" ({_drop(drop.interval, allowed)})"
    return f"{text}. To do: {drop.recommendation}" if drop.recommendation else text


def _label(dimension: str) -> str:
    return dimension_label(dimension).lower()


def _drop(interval: tuple[float, float] | None, allowed: float) -> str:
    if interval is None:
        return f"allowed drop {allowed:g}"
    low, high = interval
    return f"95 % CI of the drop {max(0.0, -high):.1f}–{-low:.1f}"


def doubted_findings(comparison: BaselineComparison) -> Iterator[Finding]:
    """Yield drops by a judge that failed its check, which are inconclusive."""
    for name, item in comparison.dimensions.items():
        for text in item.doubted:
            told = f"{text}; inconclusive, because its judge failed its check"
            yield about(comparison.agent_id, "doubted", told, command="persona-pipeline doctor", dimension=name)


def judge_findings(evaluation: AgentEvaluation, comparison: BaselineComparison) -> Iterator[Finding]:
    """Yield findings about the judge, and about the comparison with the baseline's judge."""
    agent_id = evaluation.agent_id
    check, command = comparison.judge or JudgeCheck(), "persona-pipeline doctor --judge"
    if check.passed is False:
        remedy = (
            "set PERSONA_JUDGE_MODEL to a stronger model; if baselines/anchors.jsonl has messages unlike the agents', delete "
            "that file before the next baseline"
        )
        text = f"{check.text}; do not trust its verdicts"
        yield about(agent_id, "judge_health", text, remedy=remedy, command=command)
    elif check.changed:
        remedy = (
            "what drops or rises may be the judge: look at the messages, and take the baselines again with this judge"
        )
        text = f"the judge changed since the baseline: {check.text}"
        yield about(agent_id, "judge_changed", text, remedy=remedy, command=command)
    if others := [item for item in comparison.dimensions.values() if item.status == "other_judge" and item.judge_shift]:
        yield _other_judge(agent_id, others)


def _other_judge(agent_id: str, others: Sequence[DimensionComparison]) -> Finding:
    names, shift = [_label(item.dimension) for item in others], others[0].judge_shift
    named = ", ".join(names[:-1]) + f" and {names[-1]}" if len(names) > 1 else names[0]
    before, now = (shift.before, shift.now) if shift else ("", "")
    # The same windows again: a baseline of the newest one would make a drop since then the norm.
    since = f" --as-of {shift.until} --windows {shift.windows}" if shift and shift.until else ""
    command = f"persona-pipeline baseline --agents {shlex.quote(agent_id)}{since}"
    text = f"the baseline of {named} was judged by {before} and this run by {now}"
    return about(agent_id, "other_judge", text, remedy=f"take it again with this judge: `{command}`", command=command)


def likeness_findings(evaluation: AgentEvaluation) -> list[Finding]:
    """Return a finding for each other agent that this one speaks like, with a pair of lines.

    Agents that fill one template always sound alike, so this is a warning and not a drift.
    """
    convergence = evaluation.dimensions.get("convergence")
    statistics = convergence.statistics if convergence else {}
    channels: dict[str, Any] = {"": statistics, **statistics.get("channels", {})}
    found = {
        (item["kind"], item["agent_id"], item["other"]): (channel, item)
        for channel, values in channels.items()
        for item in values.get("findings", ())
        if evaluation.agent_id == item["agent_id"]
        or (item["kind"] == "merged" and evaluation.agent_id == item["other"])
    }
    return [_alike(evaluation.agent_id, channel, item) for channel, item in found.values()]


def said_again_findings(evaluation: AgentEvaluation) -> Iterator[Finding]:
    """Yield a finding where the agent repeats itself more than usual, with repeated lines and their originals."""
    fluency = evaluation.dimensions.get("fluency")
    found: dict[str, Any] = fluency.statistics.get("said_again", {}) if fluency else {}
    if found.get("often"):
        text = f"says more again than usual{said_again_text(found)}"
        remedy = "see what it remembers of a conversation, or turn repetition suppression on"
        yield about(evaluation.agent_id, "said_again", text, remedy=remedy, dimension="fluency")


def _alike(agent_id: str, channel: str, item: dict[str, Any]) -> Finding:
    names = item.get("names", {})
    agent, other = (names.get(name, name) for name in sorted((item["agent_id"], item["other"]), key=agent_id.__ne__))
    is_clone = item["kind"] == "clone"
    said = {
        "clone": f"says {other}'s lines ({item['strength']:.0%} of its longer ones)",
        "style_clone": f"has gone over to {other}'s way of writing",
        "merged": f"and {other} have come to sound alike",
    }[item["kind"]]
    return Finding(
        kind="clone" if is_clone else "voices",
        message=f"{agent} {said}{f' in #{channel}' if channel else ''}{_quoted(item)}",
        remedy="see whether the two share a prompt, a memory or a model" if is_clone else "read both side by side",
        agent_id=agent_id,
        dimension="convergence",
    )


def _quoted(item: dict[str, Any]) -> str:
    if not item["lines"]:
        return ""
    own, others = (text[:MOST_QUOTED] for text in item["lines"][0])
    return f": {own!r} beside {others!r}"


def undecided_findings(evaluation: AgentEvaluation, comparison: BaselineComparison) -> list[Finding]:
    """Return a finding for each dimension and claim whose drop is too large to ignore and not shown to be more than chance."""

    def finding(item: DimensionComparison, what: str, drop: DimensionComparison | PropositionDrop, claim: str | None):
        return about(
            evaluation.agent_id,
            "undecided",
            f"{what} dropped by {-(drop.delta or 0.0):.2f} from {drop.baseline:.2f} to {drop.current:.2f}, which judge noise "
            "and weekly variation may explain: whether it dropped cannot be told",
            remedy="judge more often, or take the baseline from more windows (`persona-pipeline baseline --windows 4`)",
            command=record_command(evaluation, samples=DECIDING_SAMPLES),
            dimension=item.dimension,
            proposition_id=claim,
        )

    found = []
    for item in comparison.dimensions.values():
        label = _label(item.dimension)
        if item.status == "undecided" and not item.doubted:
            found.append(finding(item, label, item, None))
        claims = ((f"claim {drop.proposition_id} ({label})", drop) for drop in item.undecided_claims)
        found += [finding(item, what, drop, drop.proposition_id) for what, drop in claims]
    return found


def power_findings(
    evaluation: AgentEvaluation, comparison: BaselineComparison, rules: Rules | None = None
) -> Iterator[Finding]:
    """Yield a finding where only drops of more than 4 points would be found, and messages are not compared either.

    Where a looser rule of a dimension is what lets them pass, that rule is named instead.
    """
    rules, rows = rules or Rules(), comparison.dimensions.values()
    tested = [item.power for item in rows if item.power is not None]
    is_looser = any(rules.of(item.dimension).regression_delta > REGRESSION_DELTA for item in rows)
    if not tested or is_looser or comparison.share_drop is not None:
        return
    best = min(tested, key=lambda power: power.detectable)
    if best.detectable > NO_POWER:
        text = f"not enough data to judge: {best.missed} would be missed in every dimension"
        remedy = "take the baseline from more windows (`persona-pipeline baseline --windows 4`), or judge messages"
        command = f"persona-pipeline baseline --agents {shlex.quote(evaluation.agent_id)}"
        yield about(evaluation.agent_id, "low_power", text, remedy=remedy, command=command)


def quotes_of(evaluation: AgentEvaluation) -> QuoteHealth:
    """Return how many quotes of an agent's judge are verified."""
    rows = (row for item in evaluation.dimensions.values() for row in item.propositions.values())
    return quote_health([quote.verified for quote in row.evidence] for row in rows if row.score is not None)


def judge_health(evaluation: AgentEvaluation) -> Iterator[Finding]:
    health = quotes_of(evaluation)
    if health.is_doubtful:
        text = f"{health.failing} of {health.quotes} quotes of the judge are not found in the messages; do not trust its scores"
        command = "persona-pipeline doctor"
        remedy = f"ask a judge that can quote; `{command}` checks this one"
        yield about(evaluation.agent_id, "judge_health", text, remedy=remedy, command=command)


def injections(evaluation: AgentEvaluation) -> Iterator[Finding]:
    flagged = [
        f"{name}/{row.id}"
        for name, item in evaluation.dimensions.items()
        for row in item.propositions.values()
        if row.injection_suspected
    ]
    if flagged:
        text = f"the judged text seems to address the judge ({some(flagged, MOST_FLAGGED)})"
        yield about(
            evaluation.agent_id, "injection", text, remedy="read those messages before you believe their scores"
        )


def budget_findings(agent_id: str, dimension: str, item: DimensionEvaluation) -> Iterator[Finding]:
    if stopped := item.failed.get(Unscored.BUDGET.value, 0):
        text = f"{stopped} judgments of {_label(dimension)} were not made: the limit of dollars was reached"
        remedy = "raise --max-usd (PERSONA_JUDGE_MAX_USD); what was judged is kept and costs nothing again"
        yield about(agent_id, "budget", text, remedy=remedy, dimension=dimension)


def window_options(evaluation: AgentEvaluation, samples: int = 1) -> list[str]:
    """Return the options that name an evaluation's window, and how often each claim is judged, ``samples`` at least."""
    options = [f"--as-of {rfc3339(evaluation.window_end, exact=True)}"]
    if evaluation.window_start is None:
        options.append("--window all")
    elif (evaluation.window_end - evaluation.window_start) % timedelta(hours=1):
        options.append(f"--since {rfc3339(evaluation.window_start, exact=True)}")
    elif evaluation.window_end - evaluation.window_start != timedelta(days=7):
        options.append(f"--window {(evaluation.window_end - evaluation.window_start) / timedelta(hours=1):g}h")
    if (times := max(samples, evaluation.provenance.get("samples", 1))) > 1:
        options.append(f"--samples {times}")
    return options


def record_command(evaluation: AgentEvaluation, samples: int = 1) -> str:
    """Return the command that judges the same window again and records it, each claim ``samples`` times at least."""
    options = [*window_options(evaluation, samples), f"--judge {judge_to_ask(evaluation)} --record"]
    return " ".join(["persona-pipeline evaluate --agents", shlex.quote(evaluation.agent_id), *options])


# Key of the answers on anchors in the provenance of a run and of a golden file.
ANCHORS = "anchors"


def judge_check(report: RunReport | AgentReport) -> JudgeCheck:
    """Return the check of a run's judge: the worst of its agents', which all have the same judge."""
    agents = [report] if isinstance(report, AgentReport) else list(report.agents.values())
    found = [agent.comparison.judge for agent in agents if agent.comparison.judge]
    return min(found, key=lambda item: (item.passed is not False, not item.changed), default=JudgeCheck())


def answers_in(provenance: Mapping[str, Any]) -> AnchorAnswers | None:
    """Return the answers on anchors that a run or a golden file keeps; None: it has none."""
    kept = provenance.get(ANCHORS)
    return AnchorAnswers.model_validate(kept) if kept else None


def without_other_judges(
    evaluation: AgentEvaluation, baseline: Baseline | None
) -> tuple[Baseline | None, dict[str, JudgeShift]]:
    """Return a baseline without the dimensions of another judge, and those judges."""
    now, others = judge_of(evaluation.provenance), dict[str, JudgeShift]()
    if baseline is None or None in now:
        return baseline, others
    for name, known in baseline.provenance.get("dimensions", {}).items():
        before = judge_of(known)
        if name in evaluation.dimensions and all(before) and before != now:
            named = (f"{model} (prompt {prompt})" for model, prompt in (before, now))
            spans = {"until": known.get("window_end"), "windows": known.get("windows", 1)}
            others[name] = JudgeShift(**dict(zip(("before", "now"), named, strict=True)), **spans)
    if not others:
        return baseline, others

    def kept(values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if name not in others}

    provenance = {**baseline.provenance, "dimensions": kept(baseline.provenance["dimensions"])}
    rest = {"dimensions": kept(baseline.dimensions), "proposition_scores": kept(baseline.proposition_scores)}
    return baseline.model_copy(update={**rest, "provenance": provenance}), others


def explained(
    evaluation: AgentEvaluation,
    comparison: BaselineComparison,
    baseline: Baseline | None,
    others: Mapping[str, JudgeShift],
    *,
    earlier: Sequence[AnchorAnswers],
    rules: Rules,
) -> BaselineComparison:
    """Return the comparison with the state of its judges; a drop by a judge that failed its check is doubted.

    ``others``: see ``without_other_judges``. ``earlier``: answers on anchors in the runs before, oldest first.
    """
    for name, shift in others.items():
        item = comparison.dimensions[name]
        item.judge_shift, item.baseline = shift, baseline.dimensions[name] if baseline else None
        item.status = "other_judge" if item.status == "no_baseline" else item.status
    now, before = answers_in(evaluation.provenance), answers_in(baseline.provenance) if baseline else None
    comparison.judge = check_of(now, before, earlier) if now else None
    failed = comparison.judge is not None and comparison.judge.passed is False
    if failed or quotes_of(evaluation).is_doubtful:
        for name, item in comparison.dimensions.items():
            if name in evaluation.dimensions:
                _doubt(item, rules)
    return comparison


def judge_of(provenance: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return model and prompt version of the judge of a run or of a dimension of a golden file; None: no one judged."""
    return provenance.get("judge_model") or None, provenance.get("prompt_version") or None


def _doubt(item: DimensionComparison, rules: Rules) -> None:
    rule = rules.of(item.dimension)
    if item.status == "regressed":
        item.doubted.append(fall_sentence(item, rule.regression_delta))
    item.doubted += [drop_sentence(drop, rule.proposition_delta) for drop in item.drops]
    if item.doubted:
        item.status = "undecided"
    item.drops = []
