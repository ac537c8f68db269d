"""A test of claims: an agent's intact window, its broken ones and others' words are judged by the same claims, all together; what
decides alone is judged a second time. Beside it stands what the product's own signals see of the same messages, without a judge.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from itertools import chain
from statistics import median
from typing import TYPE_CHECKING, Any

from persona_pipeline.base.errors import ConfigError, NothingError, did_you_mean, raise_problems
from persona_pipeline.base.options import REGRESSION_DELTA, EvaluationRequest
from persona_pipeline.base.settings import Settings
from persona_pipeline.evaluation.plan import AgentPlan, Judged, build_case, judge_plans, plan_agent, planned
from persona_pipeline.evaluation.read import ALL_TIME, WorldReader
from persona_pipeline.evaluation.snapshot import AgentScope
from persona_pipeline.guard.baselines.golden import BASELINES, find_baseline
from persona_pipeline.judging.verdict import Judge, JudgeRequest
from persona_pipeline.lab.claims.faults import FAULTS, BrokenCase, break_case, under_name_of
from persona_pipeline.lab.claims.matrix import (
    ASSUMED_SD,
    ClaimCell,
    ClaimRow,
    FaultColumn,
    KillMatrix,
    SignalReading,
    good,
    needed_fall,
    noise_quantile,
    pooled_sd,
)
from persona_pipeline.scoring.plan import AgentCase
from persona_pipeline.scoring.results import DimensionEvaluation, PropositionResult, add_usage
from persona_pipeline.scoring.text.agreement import agreement_ratio, no_lexicon, unread_language
from persona_pipeline.scoring.text.likeness import find_clones, voice_statistics
from persona_pipeline.scoring.text.repetition import FEWEST_USUAL, WINDOW, excessive_repetition, ngram_part
from persona_pipeline.world.models import CorrectionSettings, Message, Window
from persona_pipeline.world.propositions.loading import PROPOSITIONS, own_claims
from persona_pipeline.world.propositions.models import DIMENSIONS, FLUENCY
from persona_pipeline.world.world import World

if TYPE_CHECKING:
    from persona_pipeline.scoring.voice_alarm.model import VoiceModel

INTACT = "intact"
# How often a kill that stands alone is judged again.
CONFIRMATIONS = 2
# Degrees of freedom from which repeated judgments show how much the judge varies.
ENOUGH_REPEATS = 20


@dataclass(frozen=True)
class TrialRequest:
    """What to break and how often to judge it.

    Attributes:
        dimensions: None for all that the agent has claims of.
        faults: None for all.
        window, as_of: which messages are broken; None of both: those of the newest window of the baseline, where there is one, in
            which the agent was itself.
        samples: judgments of each claim on each window: from 3 on their spread is known well enough to tell noise from a kill.
        others: of how many other agents the words are held against the claims, those who spoke most first.
        seed: of the operators.
    """

    agent_id: str
    dimensions: Sequence[str] | None = None
    faults: Sequence[str] | None = None
    window: str | None = None
    as_of: datetime | None = None
    samples: int = 3
    others: int = 2
    seed: int = 0

    def chosen_faults(self) -> list[str]:
        """Return the faults asked for, in their fixed order."""
        for name in self.faults or ():
            if name not in FAULTS:
                hint = did_you_mean(name, FAULTS) or f"; known: {', '.join(FAULTS)}"
                raise ConfigError(f"unknown fault {name!r}{hint}")
        return [name for name in FAULTS if self.faults is None or name in self.faults]


@dataclass(frozen=True)
class Trial:
    """Everything a test of claims asks the judge.

    Attributes:
        windows: what is judged, by name: ``intact``, each fault that could be planted, each other agent.
        broken: all faults, those that could not be planted too.
        others: names of windows that hold another agent's words.
        own: the claims that should tell the agent from others, by dimension.
        before: what everybody said before the window.
    """

    request: TrialRequest
    windows: Mapping[str, AgentPlan]
    broken: Sequence[BrokenCase]
    others: Sequence[str]
    own: Mapping[str, frozenset[str]]
    before: Sequence[Message]

    @property
    def requests(self) -> list[JudgeRequest]:
        return [asked for plan in self.windows.values() for asked in plan.requests]

    def estimate(self, settings: Settings) -> str:
        """Return what judging all this live would take, in words."""
        from persona_pipeline.judging.estimate import estimate
        from persona_pipeline.judging.providers.base import ModelOptions

        intact = self.windows[INTACT]
        claims = sum(len(intact.claims_of(name)) for name in intact.plans)
        shown = max(len(plan.requests) / max(len(intact.claims_of(name)), 1) for name, plan in intact.plans.items())
        more = round((claims + len(self.broken)) * CONFIRMATIONS * shown / self.request.samples)
        taken = estimate(self.requests, options=ModelOptions.from_settings(settings))
        return f"{taken}\nkills that stand alone are judged twice more: up to {more} judgments, mostly far fewer"


def plan_trial(world: World, request: TrialRequest) -> Trial:
    """Return what must be judged, and ask nothing yet; ConfigError: bad input, no claims of these dimensions, or no messages."""
    faults = request.chosen_faults()
    asked = EvaluationRequest(
        agents=[request.agent_id],
        dimensions=request.dimensions,
        samples=request.samples,
        **_broken_window(world, request),
    )
    reader = WorldReader(world)
    snapshot = reader.questions(asked)
    raise_problems(snapshot.broken)
    agent = snapshot.agents[0]
    intact = plan_agent(snapshot, agent, asked)
    if not intact.plans:
        raise ConfigError(
            f"{request.agent_id} has no claims to test; write {PROPOSITIONS}/<dimension>/{request.agent_id}.yaml"
        )
    if not intact.case.messages:
        raise NothingError(f"{request.agent_id} said nothing in the window; choose another with --window or --as-of")
    broken = [break_case(intact.case, name, request.seed) for name in faults]
    windows = {INTACT: intact}
    windows |= {item.name: _again(intact, item.case) for item in broken if item.case is not None}
    theirs = [replace(agent, agent_id=name) for name in _speakers(world, agent)[: request.others]]
    snapshot = reader.scopes(replace(snapshot, agents=theirs))
    others = {}
    for scope in theirs:
        case = build_case(snapshot, intact.persona, scope, request.samples)
        others[f"as {scope.agent_id}"] = _again(intact, under_name_of(case, agent.agent_id))
    before = world.messages(Window(agent.window.start)) if agent.window.start else []
    return Trial(request, windows | others, broken, list(others), _own_claims(world, intact), before)


def _broken_window(world: World, request: TrialRequest) -> dict[str, Any]:
    if request.window is None and request.as_of is None:
        known = find_baseline(world.root / BASELINES, request.agent_id)
        dimensions = known.provenance.get("dimensions", {}).values() if known else ()
        spans = [item for own in dimensions for item in own.get("recordings", ())]
        if spans:
            newest = max(spans, key=lambda item: datetime.fromisoformat(item["end"]))
            start, end = newest["start"], datetime.fromisoformat(newest["end"])
            return {"window": ALL_TIME, "as_of": end} if start is None else {"since": start, "as_of": end}
    return {"window": request.window or world.settled(EvaluationRequest()).window, "as_of": request.as_of}


def _again(plan: AgentPlan, case: AgentCase) -> AgentPlan:
    return planned(replace(plan, case=case), plan.plans.keys())


def _speakers(world: World, scope: AgentScope) -> list[str]:
    """Return the other agents of the world that spoke in the window, those with the most messages first."""
    known = set(world.agent_ids()) - {scope.agent_id}
    counts = Counter(item.agent_id for item in world.messages(scope.window) if item.agent_id in known)
    return sorted(counts, key=lambda name: (-counts[name], name))


def _own_claims(world: World, plan: AgentPlan) -> dict[str, frozenset[str]]:
    """Return the claims that speak of this agent: those in files of its own, and all that are judged with its persona."""
    found = {}
    for dimension in plan.plans:
        stored = plan.sets[dimension].propositions
        if DIMENSIONS[dimension].by_action and stored is not None and stored.include_personas:
            found[dimension] = frozenset(plan.claims_of(dimension))
        else:
            found[dimension] = own_claims(world.root / PROPOSITIONS, dimension, plan.scope.agent_id)
    return found


# Intact windows of five fire in 1.5 % at most; this many of a window's do not by chance.
_MOST_FIRING = 0.2
_OFF = CorrectionSettings()


def read_signals(case: AgentCase, before: Sequence[Message] = ()) -> dict[str, SignalReading]:
    """Return what each signal says of an agent's messages in the window; its voice is learnt from what was said ``before``."""
    texts = [message.text for message in case.messages]
    history = case.earlier_texts().get(case.agent_id, ())
    return {
        "repetition": _repetition(texts, history),
        "ngrams": _ngrams(texts, history),
        "agreement": _agreement(texts, case),
        "another's lines": _likeness(case),
        "voice": _voice(case, before),
    }


def against(intact: Mapping[str, SignalReading], broken: Mapping[str, SignalReading]) -> dict[str, SignalReading]:
    """Return the readings of a broken window: what fires on the intact one too has caught nothing, and n-grams must fall."""
    found = {}
    for name, reading in broken.items():
        known = intact[name]
        caught = reading.caught and not known.caught
        if name == "ngrams" and reading.value is not None and known.value is not None:
            # So that fluency falls by what the guard allows.
            caught = known.value - reading.value > REGRESSION_DELTA / FLUENCY.parts["_ngram"]
        found[name] = reading.model_copy(update={"caught": caught})
    return found


def _repetition(texts: Sequence[str], history: Sequence[str]) -> SignalReading:
    starts = range(0, len(texts) - WINDOW + 1)
    if not starts:
        return SignalReading(said=f"needs {WINDOW} messages")
    limit = _OFF.repetition_threshold
    firing = [excessive_repetition(texts[s : s + WINDOW], limit, history=history) is not None for s in starts]
    share = sum(firing) / len(firing)
    known = "" if len(history) >= FEWEST_USUAL else f" (what is usual takes {FEWEST_USUAL} earlier messages)"
    said = f"fires in {share:.0%} of stretches of {WINDOW}{known}"
    return SignalReading(value=share, caught=share > _MOST_FIRING, said=said)


def _ngrams(texts: Sequence[str], history: Sequence[str]) -> SignalReading:
    row, _ = ngram_part(texts, history)
    return SignalReading(value=row.score, said=row.reasoning if row.score is None else f"{row.score:.1f} of 9")


def _agreement(texts: Sequence[str], case: AgentCase) -> SignalReading:
    if language := unread_language(texts, case.lexicon):
        return SignalReading(said=no_lexicon(language))
    share = agreement_ratio(texts, case.lexicon)
    return SignalReading(value=share, caught=share > _OFF.convergence_threshold, said=f"{share:.0%} agree")


def _likeness(case: AgentCase) -> SignalReading:
    channels = case.group_channels()
    if not channels:
        return SignalReading(said="nobody else spoke in its channels")
    earlier = case.earlier_texts()
    said = sorted(chain.from_iterable(channels.values()), key=lambda item: (item.created_at, item.id))
    before = [(agent_id, text) for agent_id, texts in earlier.items() for text in texts]
    cloned = find_clones([(item.agent_id, item.text) for item in said], before, of=[case.agent_id])
    styled = chain.from_iterable(item["findings"] for item in voice_statistics(channels, earlier).values())
    found = [item.other for item in cloned] + [item["other"] for item in styled if item["agent_id"] == case.agent_id]
    said = f"like {', '.join(sorted(set(found)))}" if found else "nobody's"
    return SignalReading(value=len(found), caught=bool(found), said=said)


def _voice(case: AgentCase, before: Sequence[Message]) -> SignalReading:
    from persona_pipeline.scoring.voice_alarm.learning import FEWEST_OWN
    from persona_pipeline.scoring.voice_alarm.model import follow_voice

    model = _learnt(case.agent_id, tuple(before))
    if model is None:
        return SignalReading(said=f"needs {FEWEST_OWN} messages of its own before the window")
    _, alarms = follow_voice(model, case.messages)
    if not alarms:
        return SignalReading(value=0, said="no alarm")
    first = next(n for n, m in enumerate(case.messages, 1) if m.id == alarms[0].raised_at.id)
    return SignalReading(value=len(alarms), caught=True, said=f"alarm at its message {first}")


@lru_cache(maxsize=4)
def _learnt(agent_id: str, before: tuple[Message, ...]) -> "VoiceModel | None":
    # The same for every fault.
    from persona_pipeline.scoring.voice_alarm.learning import learn_voice

    return learn_voice(agent_id, before)


Scores = Mapping[str, Mapping[str, DimensionEvaluation]]


def run_trial(trial: Trial, judge: Judge) -> KillMatrix:
    """Judge the windows of a trial, all in one call, then once more the kills that stand alone, and return the matrix."""
    judged = dict(zip(trial.windows, judge_plans(list(trial.windows.values()), judge), strict=True))
    scores = {name: item.dimensions() for name, item in judged.items()}
    again = _confirmed(trial, judge, judged, _rows(trial, scores)[0])
    for name, item in again.items():
        scores[name] |= item.dimensions()
    rows, sd, measured = _rows(trial, scores)
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
        judge_sd=sd,
        sd_measured=measured,
        claims=rows,
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
        failed=sum((Counter(item.failed) for own in scores.values() for item in own.values()), Counter()),
        judgments=len(trial.requests) + sum(_more(trial, name, item) for name, item in again.items()),
    )


def _rows(trial: Trial, scores: Scores) -> tuple[list[ClaimRow], float, bool]:
    """Return every claim on every window, how much the judge varies, and whether that was measured."""
    judged = (item for dimensions in scores.values() for item in dimensions.values())
    known = pooled_sd(row for item in judged for row in item.propositions.values())
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

        def cells(names: Iterable[str]) -> dict[str, ClaimCell]:
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

    return [row(*claim) for claim in claims], sd, known is not None


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
    first = trial.windows[name].plans
    return len(again.plan.requests) - sum(len(first[dimension].requests) for dimension in again.plan.plans)


def _cell(result: PropositionResult) -> ClaimCell:
    score = middle = None
    if result.unscored is None:
        score = None if result.raw is None else good(result, result.raw)
        middle = good(result, median(result.samples)) if result.samples else None
    return ClaimCell(score=score, unscored=result.unscored, judgments=len(result.samples), middle=middle)


def _fallen(before: ClaimCell, now: ClaimCell, sd: float, quantile: float) -> ClaimCell:
    needed = needed_fall(sd, quantile, before.judgments, now.judgments or before.judgments)
    fall = before.score - now.score if before.score is not None and now.score is not None else None
    middle = before.middle - now.middle if before.middle is not None and now.middle is not None else None
    return now.model_copy(update={"fall": fall, "middle_fall": middle, "needed": needed})
