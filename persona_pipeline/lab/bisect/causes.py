"""The cause of a dropped score between two states, with its evidence.

Each claim is examined alone: a change that its judgment does not show cannot be the cause. Where several shown things changed, the
search needs judgments of each change without the others. Without them it concludes nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.evaluation.read import WorldReader
from persona_pipeline.evaluation.voice import voice_state
from persona_pipeline.judging.money import model_name
from persona_pipeline.judging.verdict import JudgeRequest, Verdict
from persona_pipeline.lab.results import Cause, CauseKind
from persona_pipeline.lab.states import RecordedAnswers, State
from persona_pipeline.scoring.results import PropositionResult, final_score
from persona_pipeline.world.propositions.models import Proposition
from persona_pipeline.world.world import World

# Shares of a claim's drop: up to the first a change had no part in it, from the second on it is the cause.
NO_PART, THE_CAUSE = 0.2, 0.8
_SMALLEST = 1e-9


@dataclass(frozen=True)
class ScorePart:
    """One row of a dropped dimension. ``points``: its part in the dimension's drop."""

    id: str
    points: float
    kinds: frozenset[CauseKind]
    cause: CauseKind | None = None


@dataclass
class Step:
    """Two neighbouring states and one dimension, or one claim of it, that dropped between them."""

    before: State
    after: State
    dimension: str
    answers: RecordedAnswers
    claim: str | None = None
    units: list[ScorePart] = field(default_factory=list)

    def explain(self) -> dict[CauseKind | None, float]:
        """Return the points of the drop by cause; None: unknown cause."""
        self.units = list(self._units())
        found: dict[CauseKind | None, float] = {}
        for unit in self.units:
            found[unit.cause] = found.get(unit.cause, 0.0) + unit.points
        return found

    @property
    def kinds(self) -> list[CauseKind]:
        """Possible causes of the rows without a known cause."""
        return sorted({kind for unit in self.units if unit.cause is None for kind in unit.kinds})

    def _units(self) -> Iterator[ScorePart]:
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
                # A claim that is new, removed, or no longer applies moves the mean by its distance from it.
                yield from self._composition(key, score_before, score_after, earlier, weights)
                continue
            points = (score_before - score_after) * weights.get(key, 1.0)
            if points > _SMALLEST or (points < -_SMALLEST and self.claim is None):
                kinds = frozenset(self._kinds(old.get(key, []), new.get(key, []), one, other))
                yield ScorePart(key, points, kinds, self._cause(key, old.get(key, []), new.get(key, []), kinds))

    def _composition(
        self,
        key: str,
        before: float | None,
        after: float | None,
        earlier: Mapping[str, float],
        weights: Mapping[str, float],
    ) -> Iterator[ScorePart]:
        mean = self.before.value(self.dimension) if after is not None else self.after.value(self.dimension)
        if mean is None or (before is None and after is None):
            return
        gone = ((before or 0.0) - mean) * earlier.get(key, 0.0)
        points = gone if after is None else (mean - after) * weights.get(key, 0.0)
        old, new = _claims_of(self.before, self.dimension), _claims_of(self.after, self.dimension)
        if (key in old) != (key in new):
            kinds: frozenset[CauseKind] = frozenset([CauseKind.CLAIMS])
        else:
            asked = self.before.requests(self.dimension).get(key, []), self.after.requests(self.dimension).get(key, [])
            kinds = frozenset(_shown_kinds(*asked)) or frozenset([CauseKind.MESSAGES])
        if abs(points) > _SMALLEST:
            yield ScorePart(key, points, kinds, next(iter(kinds)) if len(kinds) == 1 else None)

    def wording(self, key: str) -> CauseKind:
        """Return the cause of a claim's changed text: its file, the persona's name in it, or a label that depends on messages."""
        old, new = (_claims_of(state, self.dimension).get(key) for state in (self.before, self.after))
        if old is None or new is None or old.claim != new.claim:
            return CauseKind.CLAIMS
        names = {state.agent.persona.display_name for state in (self.before, self.after) if state.agent}
        return CauseKind.PERSONA if len(names) > 1 else CauseKind.MESSAGES

    def _rows(self, state: State) -> dict[str, PropositionResult]:
        found = state.dimensions.get(self.dimension)
        return dict(found.propositions) if found else {}

    def _kinds(
        self,
        old: Sequence[JudgeRequest],
        new: Sequence[JudgeRequest],
        before: PropositionResult | None,
        after: PropositionResult | None,
    ) -> Iterator[CauseKind]:
        """Yield the differences between the two requests, and the judge if it changed."""
        if before is not None and before.algorithmic:
            # Computed from messages, names and words alone.
            yield CauseKind.MESSAGES if _messages_differ(self.before, self.after) else CauseKind.CLAIMS
            return
        if len(old) != len(new):
            yield CauseKind.MESSAGES
        shown = set(_shown_kinds(old, new))
        yield from shown - {CauseKind.MESSAGES, CauseKind.CLAIMS}
        if CauseKind.CLAIMS in shown:
            yield self.wording(old[0].proposition_id)
        if CauseKind.MESSAGES in shown:
            yield CauseKind.MESSAGES if _messages_differ(self.before, self.after) else CauseKind.NAMES
        alike = [request.key for request in old if request.key in {item.key for item in new}]
        models = _models(old, self.before), _models(new, self.after)
        if any(_raw(self.before, key) != _raw(self.after, key) for key in alike) or (
            models[0] != models[1] and not alike
        ):
            yield CauseKind.JUDGE
        if before is not None and after is not None and before.inverted != after.inverted:
            yield CauseKind.CLAIMS
        if _is_hard(self.before, self.dimension) != _is_hard(self.after, self.dimension):
            yield CauseKind.CLAIMS

    def _cause(
        self, key: str, old: Sequence[JudgeRequest], new: Sequence[JudgeRequest], kinds: frozenset[CauseKind]
    ) -> CauseKind | None:
        """Return the cause among several changes, by judgments of some of them without the others."""
        if len(kinds) == 1:
            return next(iter(kinds))
        if not kinds or len(old) != len(new):
            return None
        mixed = Mixtures(self, key, old, new, kinds)
        whole = mixed.fall(kinds)
        if whole is None or abs(whole) < _SMALLEST:
            return None
        parts: dict[CauseKind, list[float]] = {kind: [] for kind in kinds}
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
    """A claim's judgments with some changes applied and others not."""

    step: Step
    key: str
    old: Sequence[JudgeRequest]
    new: Sequence[JudgeRequest]
    kinds: frozenset[CauseKind]
    missing: list[JudgeRequest] = field(default_factory=list)

    def fall(self, changed: Iterable[CauseKind]) -> float | None:
        """Return the points by which a claim's score drops if only these change; None: it was not judged."""
        before = self._score(frozenset())
        after = self._score(frozenset(changed))
        return None if before is None or after is None else before - after

    def _score(self, changed: frozenset[CauseKind]) -> float | None:
        if not changed or changed >= self.kinds:
            state = self.step.after if changed else self.step.before
            return state.value(self.step.dimension, self.key)
        requests = [self._mixed(one, other, changed) for one, other in zip(self.old, self.new, strict=True)]
        state = self.step.after if CauseKind.JUDGE in changed else self.step.before
        models = _models(self.new if CauseKind.JUDGE in changed else self.old, state)
        told = {request.key: state.verdicts[request.key] for request in requests if request.key in state.verdicts}
        other = self.step.before if state is self.step.after else self.step.after
        for request in requests:
            # Recordings of the other state count too, if they are of the same model.
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
        side = self.step.after if CauseKind.CLAIMS in changed else self.step.before
        item, hard = _claims_of(side, self.step.dimension).get(self.key), _is_hard(side, self.step.dimension)
        if item is None or hard is None:
            return None
        return final_score(sum(known) / len(known), inverted=item.inverted, hard=hard)

    def _mixed(self, old: JudgeRequest, new: JudgeRequest, changed: frozenset[CauseKind]) -> JudgeRequest:
        messages = bool(changed & {CauseKind.MESSAGES, CauseKind.NAMES})
        return replace(
            old,
            claim=new.claim if self.step.wording(self.key) in changed else old.claim,
            persona=new.persona if CauseKind.PERSONA in changed else old.persona,
            trajectory=new.trajectory if messages else old.trajectory,
        )


def _shown_kinds(old: Sequence[JudgeRequest], new: Sequence[JudgeRequest]) -> Iterator[CauseKind]:
    for one, other in zip(old, new, strict=False):
        if one.persona != other.persona:
            yield CauseKind.PERSONA
        if one.claim != other.claim:
            yield CauseKind.CLAIMS
        if one.subject["trajectory"] != other.subject["trajectory"]:
            yield CauseKind.MESSAGES


def _messages_differ(before: State, after: State) -> bool:
    return before.plan is None or after.plan is None or before.plan.messages_hash != after.plan.messages_hash


def _weights(rows: Iterable[PropositionResult]) -> dict[str, float]:
    """Return the weight of each scored row in the mean."""
    scored = [row for row in rows if row.score is not None]
    total = sum(row.weight for row in scored)
    return {row.id: row.weight / total for row in scored} if total else {}


def _claims_of(state: State, dimension: str) -> dict[str, Proposition]:
    stored = state.agent.sets.get(dimension) if state.agent else None
    return {item.id: item for item in stored.propositions.propositions} if stored and stored.propositions else {}


def _is_hard(state: State, dimension: str) -> bool | None:
    stored = state.agent.sets.get(dimension) if state.agent else None
    return stored.propositions.hard if stored and stored.propositions else None


def _raw(state: State, key: str) -> int | None:
    verdict = state.verdicts.get(key)
    return verdict.score if verdict else None


def _model(verdict: Verdict) -> str:
    return model_name(verdict.model or "")


def _models(requests: Sequence[JudgeRequest], state: State) -> set[str]:
    told = {_model(state.verdicts[request.key]) for request in requests if request.key in state.verdicts}
    return told or {model_name(name) for name in state.fingerprint.get(CauseKind.JUDGE, "").split(", ")}


_MOST, _MOST_OF_IT = 12, 0.9


def cause_of(step: Step, kind: CauseKind, share: float) -> Cause:
    fell = sorted(
        (unit for unit in step.units if unit.cause is kind and unit.points > 0), key=lambda unit: -unit.points
    )
    whole, said, ids = sum(unit.points for unit in fell), 0.0, []
    for unit in fell:
        # Small drops next to large ones are noise.
        if said < _MOST_OF_IT * whole:
            ids.append(unit.id)
        said += unit.points
    what, evidence = {
        CauseKind.PERSONA: _persona,
        CauseKind.CLAIMS: _claims,
        CauseKind.MESSAGES: _messages,
        CauseKind.JUDGE: _judge,
        CauseKind.NAMES: _names,
    }[kind](step, ids)
    shown = (*evidence[:_MOST], *_scores(step, ids))
    return Cause(kind=kind, share=share, what=tuple(what[:_MOST]), evidence=shown)


def _persona(step: Step, ids: list[str]) -> tuple[list[str], list[str]]:
    path, before = step.before.persona_file
    after = step.after.persona_file[1]
    if not path or not after:
        return [], ["its text is no longer known; its hash changed"]
    places = changed_places(path, before, after)
    return [place for place, _ in places], [line for place, lines in places for line in (place, *lines)]


def changed_places(path: str, before: str, after: str) -> list[tuple[str, list[str]]]:
    """Return the places where two texts differ, as ``path:line`` of the new one, with the old and the new lines."""
    old, new = before.splitlines(), after.splitlines()
    return [
        (f"{path}:{k + 1}", [*(f"- {line}" for line in old[i:j]), *(f"+ {line}" for line in new[k:m])])
        for tag, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        if tag != "equal"
    ]


def _claims(step: Step, ids: list[str]) -> tuple[list[str], list[str]]:
    old, new = (_claims_of(state, step.dimension) for state in (step.before, step.after))
    lines = []
    edited = [key for key in ids if old.get(key) != new.get(key)] or [key for key in new if old.get(key) != new[key]]
    for key in edited:
        one, other = old.get(key), new.get(key)
        lines += [f"- {key}: {_told(one)}"] if one else []
        lines += [f"+ {key}: {_told(other)}"] if other else []
    return [f"{step.dimension}/{key}" for key in edited], lines


def _told(item: Proposition) -> str:
    more = [f"weight {item.weight:g}"] if item.weight != 1 else []
    more += ["inverted"] if item.inverted else []
    return f"{item.claim} ({', '.join(more)})" if more else item.claim


def _messages(step: Step, ids: list[str]) -> tuple[list[str], list[str]]:
    """Return new messages, or only those that the judge quotes, and lines about them."""
    known = {message.id for message in step.before.plan.case.messages} if step.before.plan else set()
    case = step.after.plan.case if step.after.plan else None
    new = {message.id: message for message in case.messages if message.id not in known} if case else {}
    around = [message for channel in case.channels.values() for message in channel] if case else []
    new |= {message.id: message for message in around if message.id not in new and _is_new(message.id, step.before)}
    quoted = list(dict.fromkeys(name for name in _quoted(step, ids) if name in new))
    named = quoted or list(new)
    lines = [f"{name}: {new[name].text}" for name in named[:_MOST]]
    said = f"{len(new)} messages are new" + (f", {len(quoted)} of them quoted by the judge" if quoted else "")
    return named, [said, *lines]


def _is_new(message_id: str, before: State) -> bool:
    channels = before.plan.case.channels.values() if before.plan else ()
    return all(message.id != message_id for channel in channels for message in channel)


def _quoted(step: Step, ids: Iterable[str]) -> Iterator[str]:
    for key in ids:
        row = step.after.dimensions[step.dimension].propositions.get(key)
        yield from (item.message_id for item in (row.evidence if row else ()) if item.verified and item.message_id)


def _judge(step: Step, ids: list[str]) -> tuple[list[str], list[str]]:
    models = []
    for state in (step.before, step.after):
        asked = [request for key in ids for request in state.requests(step.dimension).get(key, [])]
        told = {
            state.verdicts[item.key].model or "a model without a name" for item in asked if item.key in state.verdicts
        }
        models.append(", ".join(sorted(told)))
    changed = f"{models[0]} became {models[1]}" if models[0] != models[1] else f"{models[0]} judged again"
    return [changed], [f"the same questions were answered otherwise: {changed}"]


def _names(step: Step, ids: list[str]) -> tuple[list[str], list[str]]:
    old, new = (state.agent.names if state.agent else {} for state in (step.before, step.after))
    changed = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return changed, [f"{key}: {old.get(key)} became {new.get(key)}" for key in changed]


def _scores(step: Step, ids: list[str]) -> Iterator[str]:
    for key in ids[:_MOST]:
        before, after = (state.value(step.dimension, key) for state in (step.before, step.after))
        told = [f"{score:.1f}" if score is not None else "none" for score in (before, after)]
        yield f"{step.dimension}/{key}: {told[0]} -> {told[1]}"


def voice_lines(world: World, agent_id: str) -> tuple[str, ...]:
    """Return a line with the known cause for each voice alarm of the newest week; none without a learnt voice."""
    try:
        world.sync_persona(agent_id)
        world.sync_messages()
        state = voice_state(world, agent_id, WorldReader(world).window("7d"))
    except ConfigError:
        # Without a persona, or a message, it has no voice.
        return ()
    found = []
    for alarm in state.alarms:
        changes = [change.what for change in alarm.changes]
        if not changes:
            cause = "no known change around it: it may be the answering model, which no file names"
        elif len(changes) == 1:
            cause = f"one thing changed around it: {changes[0]}"
        else:
            cause = f"cannot tell which: {len(changes)} things changed around it: {'; '.join(changes)}"
        found.append(f"{alarm.alarm.text}; {cause}")
    return tuple(found)
