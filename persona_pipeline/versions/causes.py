"""Which of the things that changed between two states made a score fall.

Each claim is asked about for itself: what a claim's judgment does not show the judge cannot have changed it. Where several things
changed that it does show, judgments of one without the other are looked for, and nothing is concluded where there are none.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from persona_pipeline.judging.money import model_name
from persona_pipeline.judging.verdict import JudgeRequest, Verdict
from persona_pipeline.propositions.models import Proposition, PropositionSet
from persona_pipeline.scoring.results import PropositionResult, final_score
from persona_pipeline.versions.finding import Kind
from persona_pipeline.versions.states import Answers, State

# A share of a claim's fall below which a thing had no part in it, and above which it is the cause.
NO_PART, THE_CAUSE = 0.2, 0.8
_SMALLEST = 1e-9


@dataclass(frozen=True)
class Unit:
    """One row of a dimension's score that fell. ``points``: how much of the dimension's fall it makes."""

    id: str
    points: float
    kinds: frozenset[Kind]
    cause: Kind | None = None


@dataclass
class Step:
    """Two neighbouring states and one dimension (or a claim of it) that fell between them."""

    before: State
    after: State
    dimension: str
    answers: Answers
    claim: str | None = None
    units: list[Unit] = field(default_factory=list)

    def explain(self) -> dict[Kind | None, float]:
        """Return how many points of the fall each cause makes; under None what cannot be told."""
        self.units = list(self._units())
        found: dict[Kind | None, float] = {}
        for unit in self.units:
            found[unit.cause] = found.get(unit.cause, 0.0) + unit.points
        return found

    @property
    def kinds(self) -> list[Kind]:
        """What may have made those rows fall that cannot be told."""
        return sorted({kind for unit in self.units if unit.cause is None for kind in unit.kinds})

    def _units(self) -> Iterator[Unit]:
        before, after = self._rows(self.before), self._rows(self.after)
        old, new = self.before.requests(self.dimension), self.after.requests(self.dimension)
        weights = _weights(after.values())
        earlier = _weights(before.values())
        for key in dict.fromkeys([*before, *after]):
            if self.claim not in (None, key):
                continue
            one, other = before.get(key), after.get(key)
            score_before = one.score if one else None
            score_after = other.score if other else None
            if score_before is None or score_after is None:
                # A claim that came, went, or does not apply any more moves the mean by how far it lies from it.
                yield from self._composition(key, score_before, score_after, earlier, weights)
                continue
            points = (score_before - score_after) * weights.get(key, 1.0)
            if points > _SMALLEST or (points < -_SMALLEST and self.claim is None):
                kinds = frozenset(self._kinds(old.get(key, []), new.get(key, []), one, other))
                yield Unit(key, points, kinds, self._cause(key, old.get(key, []), new.get(key, []), kinds))

    def _composition(
        self,
        key: str,
        before: float | None,
        after: float | None,
        earlier: Mapping[str, float],
        weights: Mapping[str, float],
    ) -> Iterator[Unit]:
        mean = self.before.value(self.dimension) if after is not None else self.after.value(self.dimension)
        if mean is None or (before is None and after is None):
            return
        points = (
            (mean - after) * weights.get(key, 0.0)
            if after is not None
            else ((before or 0.0) - mean) * earlier.get(key, 0.0)
        )
        old, new = _claim_ids(self.before, self.dimension), _claim_ids(self.after, self.dimension)
        if (key in old) != (key in new):
            kinds: frozenset[Kind] = frozenset([Kind.CLAIMS])
        else:
            asked = self.before.requests(self.dimension).get(key, []), self.after.requests(self.dimension).get(key, [])
            kinds = frozenset(_shown_kinds(*asked)) or frozenset([Kind.MESSAGES])
        if abs(points) > _SMALLEST:
            yield Unit(key, points, kinds, next(iter(kinds)) if len(kinds) == 1 else None)

    def wording(self, key: str) -> Kind:
        """Return what changes how a claim reads: its file, the persona's name in it, or the label that messages deal."""
        old, new = (_item(_set(state, self.dimension), key) for state in (self.before, self.after))
        if old is None or new is None or old.claim != new.claim:
            return Kind.CLAIMS
        names = {state.agent.persona.display_name for state in (self.before, self.after) if state.agent}
        return Kind.PERSONA if len(names) > 1 else Kind.MESSAGES

    def _rows(self, state: State) -> dict[str, PropositionResult]:
        found = state.dimensions.get(self.dimension)
        return dict(found.propositions) if found else {}

    def _kinds(
        self,
        old: Sequence[JudgeRequest],
        new: Sequence[JudgeRequest],
        before: PropositionResult | None,
        after: PropositionResult | None,
    ) -> Iterator[Kind]:
        """Yield what differs in what the judge was shown, and the judge if it is another one."""
        if before is not None and before.algorithmic:
            # Computed from messages, names and words alone.
            yield Kind.MESSAGES if _messages_differ(self.before, self.after) else Kind.CLAIMS
            return
        if len(old) != len(new):
            yield Kind.MESSAGES
        shown = set(_shown_kinds(old, new))
        yield from shown - {Kind.MESSAGES, Kind.CLAIMS}
        if Kind.CLAIMS in shown:
            yield self.wording(old[0].proposition_id)
        if Kind.MESSAGES in shown:
            yield Kind.MESSAGES if _messages_differ(self.before, self.after) else Kind.NAMES
        alike = [request.key for request in old if request.key in {item.key for item in new}]
        models = _models(old, self.before), _models(new, self.after)
        if any(_raw(self.before.verdicts.get(key)) != _raw(self.after.verdicts.get(key)) for key in alike) or (
            models[0] != models[1] and not alike
        ):
            yield Kind.JUDGE
        if before is not None and after is not None and before.inverted != after.inverted:
            yield Kind.CLAIMS
        if _settings(self.before, self.dimension) != _settings(self.after, self.dimension):
            yield Kind.CLAIMS

    def _cause(
        self, key: str, old: Sequence[JudgeRequest], new: Sequence[JudgeRequest], kinds: frozenset[Kind]
    ) -> Kind | None:
        """Return which of the things that changed is the cause, by judgments of some of them without the others."""
        if len(kinds) == 1:
            return next(iter(kinds))
        if not kinds or len(old) != len(new):
            return None
        mixed = Mixtures(self, key, old, new, kinds)
        whole = mixed.fall(kinds)
        if whole is None or abs(whole) < _SMALLEST:
            return None
        parts: dict[Kind, list[float]] = {kind: [] for kind in kinds}
        for kind in kinds:
            alone, without = mixed.fall({kind}), mixed.fall(kinds - {kind})
            parts[kind] += [] if alone is None else [alone / whole]
            parts[kind] += [] if without is None else [1 - without / whole]
        sure = [kind for kind, shares in parts.items() if any(share >= THE_CAUSE for share in shares)]
        left = [kind for kind, shares in parts.items() if not any(share <= NO_PART for share in shares)]
        if len(sure) == 1:
            return sure[0]
        if not sure and len(left) == 1:
            return left[0]
        self.answers.miss(mixed.missing)
        return None


@dataclass
class Mixtures:
    """A claim's judgments with some of the things that changed as they were, and the others as they are."""

    step: Step
    key: str
    old: Sequence[JudgeRequest]
    new: Sequence[JudgeRequest]
    kinds: frozenset[Kind]
    missing: list[JudgeRequest] = field(default_factory=list)

    def fall(self, changed: Iterable[Kind]) -> float | None:
        """Return by how many points a claim's score falls if only these change; None where nobody judged it so."""
        before = self._score(frozenset())
        after = self._score(frozenset(changed))
        return None if before is None or after is None else before - after

    def _score(self, changed: frozenset[Kind]) -> float | None:
        if not changed or changed >= self.kinds:
            state = self.step.after if changed else self.step.before
            return state.value(self.step.dimension, self.key)
        requests = [self._mixed(one, other, changed) for one, other in zip(self.old, self.new, strict=True)]
        state = self.step.after if Kind.JUDGE in changed else self.step.before
        models = _models(self.new if Kind.JUDGE in changed else self.old, state)
        told = {request.key: state.verdicts[request.key] for request in requests if request.key in state.verdicts}
        other = self.step.before if state is self.step.after else self.step.after
        for request in requests:
            # What the other state has recorded is as good, if the same model said it.
            found = other.verdicts.get(request.key)
            if request.key not in told and found is not None and _model(found) in models:
                told[request.key] = found
        rest = [request for request in requests if request.key not in told]
        told |= self.step.answers.of(rest, models=models) if rest else {}
        self.missing += [request for request in requests if request.key not in told]
        if any(request.key not in told for request in requests):
            return None
        scores = [told[request.key].score for request in requests]
        known = [score for score in scores if score is not None]
        if not known:
            return None
        side = self.step.after if Kind.CLAIMS in changed else self.step.before
        claims = _set(side, self.step.dimension)
        item = _item(claims, self.key)
        if claims is None or item is None:
            return None
        return final_score(sum(known) / len(known), inverted=item.inverted, hard=claims.hard)

    def _mixed(self, old: JudgeRequest, new: JudgeRequest, changed: frozenset[Kind]) -> JudgeRequest:
        messages = bool(changed & {Kind.MESSAGES, Kind.NAMES})
        return replace(
            old,
            claim=new.claim if self.step.wording(self.key) in changed else old.claim,
            persona=new.persona if Kind.PERSONA in changed else old.persona,
            trajectory=new.trajectory if messages else old.trajectory,
        )


def _shown_kinds(old: Sequence[JudgeRequest], new: Sequence[JudgeRequest]) -> Iterator[Kind]:
    for one, other in zip(old, new, strict=False):
        if one.persona != other.persona:
            yield Kind.PERSONA
        if one.claim != other.claim:
            yield Kind.CLAIMS
        if one.subject["trajectory"] != other.subject["trajectory"]:
            yield Kind.MESSAGES


def _messages_differ(before: State, after: State) -> bool:
    return before.plan is None or after.plan is None or before.plan.messages_hash != after.plan.messages_hash


def _weights(rows: Iterable[PropositionResult]) -> dict[str, float]:
    """Return each row's share of the mean of those that are scored."""
    scored = [row for row in rows if row.score is not None]
    total = sum(row.weight for row in scored)
    return {row.id: row.weight / total for row in scored} if total else {}


def _claim_ids(state: State, dimension: str) -> set[str]:
    claims = _set(state, dimension)
    return {item.id for item in claims.propositions} if claims else set()


def _set(state: State, dimension: str) -> PropositionSet | None:
    stored = state.agent.sets.get(dimension) if state.agent else None
    return stored.propositions if stored else None


def _item(claims: PropositionSet | None, key: str) -> Proposition | None:
    return next((item for item in claims.propositions if item.id == key), None) if claims else None


def _settings(state: State, dimension: str) -> bool | None:
    claims = _set(state, dimension)
    return claims.hard if claims else None


def _raw(verdict: Verdict | None) -> int | None:
    return verdict.score if verdict else None


def _model(verdict: Verdict) -> str:
    return model_name(verdict.model or "")


def _models(requests: Sequence[JudgeRequest], state: State) -> set[str]:
    told = {_model(state.verdicts[request.key]) for request in requests if request.key in state.verdicts}
    return told or {model_name(name) for name in state.fingerprint.get(Kind.JUDGE, "").split(", ")}
