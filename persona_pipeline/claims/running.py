"""Judging a trial: all windows together, and what decides alone a second time."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from persona_pipeline.baselines.noise import ENOUGH_REPEATS
from persona_pipeline.claims.matrix import (
    ASSUMED_SD,
    Cell,
    ClaimRow,
    FaultColumn,
    KillMatrix,
    needed_fall,
    noise_quantile,
    pooled_sd,
)
from persona_pipeline.claims.signals import against, read_signals
from persona_pipeline.claims.trial import CONFIRMATIONS, INTACT, Trial
from persona_pipeline.evaluation.judged import Judged, judge_plans
from persona_pipeline.judging.verdict import Judge
from persona_pipeline.scoring import DimensionEvaluation
from persona_pipeline.scoring.results import PropositionResult, add_usage

Scores = Mapping[str, Mapping[str, DimensionEvaluation]]


@dataclass(frozen=True)
class _Rows:
    claims: list[ClaimRow]
    sd: float
    measured: bool


def run_trial(trial: Trial, judge: Judge) -> KillMatrix:
    """Judge the windows of a trial, all in one call, then once more the kills that stand alone, and return the matrix."""
    judged = dict(zip(trial.windows, judge_plans(list(trial.windows.values()), judge), strict=True))
    scores = {name: item.dimensions() for name, item in judged.items()}
    again = _confirmed(trial, judge, judged, _rows(trial, scores).claims)
    for name, item in again.items():
        scores[name] |= item.dimensions()
    rows = _rows(trial, scores)
    intact = trial.windows[INTACT]
    signals = read_signals(intact.case, trial.before)
    window = intact.scope.window
    return KillMatrix(
        agent_id=trial.request.agent_id,
        window_start=window.start.isoformat() if window.start else None,
        window_end=window.end.isoformat(),
        messages=len(intact.case.messages),
        samples=trial.request.samples,
        seed=trial.request.seed,
        judge=judge.name,
        models=sorted({v.model for item in (*judged.values(), *again.values()) for v in item.verdicts if v.model}),
        judge_sd=rows.sd,
        sd_measured=rows.measured,
        claims=rows.claims,
        faults=[
            FaultColumn(
                name=item.name,
                what=item.what,
                changed=item.changed,
                why_not=item.why_not,
                signals=against(signals, read_signals(item.case, trial.before)) if item.case else {},
            )
            for item in trial.broken
        ],
        intact_signals=signals,
        usage=add_usage(cost for item in (*judged.values(), *again.values()) for cost in item.costs.values()),
        failed=_failed(scores.values()),
        judgments=len(trial.requests) + sum(_more(trial, name, item) for name, item in again.items()),
    )


def _rows(trial: Trial, scores: Scores) -> _Rows:
    """Return every claim on every window, and how much the judge varies."""
    known = pooled_sd(list(_spreads(scores.values())))
    if known is not None and known[1] < ENOUGH_REPEATS:
        known = None
    sd, degrees = known or (ASSUMED_SD, None)
    intact = trial.windows[INTACT]
    claims = [(name, claim) for name in intact.plans for claim in intact.claims_of(name)]
    compared = len(trial.windows) - 1
    quantile = noise_quantile(len(claims) * compared, degrees)

    def row(dimension: str, claim: str) -> ClaimRow:
        results = {name: dimensions[dimension].propositions[claim] for name, dimensions in scores.items()}
        first = results[INTACT]
        whole = _cell(first)

        def cells(names: Iterable[str]) -> dict[str, Cell]:
            return {name: _fallen(whole, _cell(results[name]), sd, quantile) for name in names}

        return ClaimRow(
            dimension=dimension,
            id=claim,
            claim=first.claim,
            inverted=first.inverted,
            # An anti-pattern should hold of nobody.
            own=not first.inverted and claim in trial.own.get(dimension, ()),
            intact=whole,
            faults=cells(item.name for item in trial.broken if item.case is not None),
            others=cells(trial.others),
        )

    return _Rows([row(*claim) for claim in claims], sd, known is not None)


def _confirmed(trial: Trial, judge: Judge, judged: Mapping[str, Judged], rows: Sequence[ClaimRow]) -> dict[str, Judged]:
    """Judge again the kills on which a finding rests, the only one of their fault or their claim: bad luck may be behind them."""
    by_fault = Counter(fault for row in rows for fault in row.kills)
    alone: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        for fault in row.kills:
            if by_fault[fault] == 1 or len(row.kills) == 1:
                alone.setdefault(fault, {}).setdefault(row.dimension, []).append(row.id)
    plans = [trial.windows[fault].again(claims, CONFIRMATIONS) for fault, claims in alone.items()]
    return dict(zip(alone, judge_plans(plans, judge, [judged[fault] for fault in alone]), strict=True)) if plans else {}


def _more(trial: Trial, name: str, again: Judged) -> int:
    """Return how many judgments were added to a window."""
    first = trial.windows[name].plans
    return len(again.plan.requests) - sum(len(first[dimension].requests) for dimension in again.plan.plans)


def _cell(result: PropositionResult) -> Cell:
    score = None
    if result.raw is not None and result.unscored is None:
        score = 9 - result.raw if result.inverted else result.raw
    return Cell(score=score, unscored=result.unscored, judgments=len(result.samples), middle=_middle(result))


def _middle(result: PropositionResult) -> float | None:
    if not result.samples or result.unscored is not None:
        return None
    middle = median(result.samples)
    return 9 - middle if result.inverted else middle


def _fallen(before: Cell, now: Cell, sd: float, quantile: float) -> Cell:
    needed = needed_fall(sd, quantile, before.judgments, now.judgments or before.judgments)
    fall = before.score - now.score if before.score is not None and now.score is not None else None
    middle = before.middle - now.middle if before.middle is not None and now.middle is not None else None
    return now.model_copy(update={"fall": fall, "middle_fall": middle, "needed": needed})


def _spreads(windows: Iterable[Mapping[str, DimensionEvaluation]]) -> Iterable[tuple[float, int]]:
    """Yield the judge's deviation in each cell, with its degrees of freedom."""
    for dimensions in windows:
        for evaluation in dimensions.values():
            for result in evaluation.propositions.values():
                contexts = len({part["part"] for part in result.parts}) or 1
                if result.spread is not None and len(result.samples) > contexts:
                    yield result.spread, len(result.samples) - contexts


def _failed(windows: Iterable[Mapping[str, DimensionEvaluation]]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for dimensions in windows:
        for evaluation in dimensions.values():
            found.update(evaluation.failed)
    return dict(found)
