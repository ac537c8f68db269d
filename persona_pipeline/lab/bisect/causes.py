"""The cause of a dropped score between two states, with its evidence.

Each claim is examined alone: a change that its judgment does not show cannot be the cause. Where several shown things changed, the
search needs judgments of each change without the others. Without them it concludes nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from itertools import chain

from persona_pipeline.judging.money import model_name
from persona_pipeline.judging.verdict import JudgeRequest, Verdict
from persona_pipeline.lab.bisect.history import State
from persona_pipeline.lab.results import Cause, CauseKind
from persona_pipeline.lab.versions import KnownJudge
from persona_pipeline.scoring.results import PropositionResult, final_score
from persona_pipeline.world.models import Message
from persona_pipeline.world.propositions.models import Proposition

# Shares of a claim's drop: up to the first a change had no part in it, from the second on it is the cause.
NO_PART, THE_CAUSE = 0.2, 0.8
_SMALLEST = 1e-9
Requests = Sequence[JudgeRequest]


@dataclass(frozen=True)
class ScorePart:
    """One row of a dropped dimension. ``points``: its part in the dimension's drop; ``kinds``: what changed."""

    id: str
    points: float
    kinds: frozenset[CauseKind]
    cause: CauseKind | None = None


@dataclass
class Step:
    """Two neighbouring states and one dimension, or one claim of it, that dropped between them.

    ``missing``: judgments that would tell more.
    """

    before: State
    after: State
    dimension: str
    judge: KnownJudge
    claim: str | None = None
    units: list[ScorePart] = field(default_factory=list)
    missing: list[JudgeRequest] = field(default_factory=list)

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

    @property
    def sides(self) -> tuple[State, State]:
        return self.before, self.after

    def _units(self) -> Iterator[ScorePart]:
        rows = [state.dimensions[self.dimension].propositions for state in self.sides]
        requests = [state.requests(self.dimension) for state in self.sides]
        weights = [_weights(own.values()) for own in rows]
        for key in dict.fromkeys([*rows[0], *rows[1]]):
            if self.claim not in (None, key):
                continue
            before, after = (own.get(key) for own in rows)
            first, last = (row.score if row else None for row in (before, after))
            old, new = (own.get(key, []) for own in requests)
            if first is None or last is None:
                # A claim that is new, removed, or no longer applies moves the mean by its distance from it.
                mean = self.before.value(self.dimension) if first is None else self.after.value(self.dimension)
                if mean is None or first == last:
                    continue
                gone = ((first or 0.0) - mean) * weights[0].get(key, 0.0)
                points = gone if last is None else (mean - last) * weights[1].get(key, 0.0)
                kinds = frozenset(self._composition(key, old, new))
                cause = next(iter(kinds)) if len(kinds) == 1 else None
            else:
                points = (first - last) * weights[1].get(key, 1.0)
                kinds = frozenset(self._kinds(old, new, before, after))
                cause = self._cause(key, old, new, kinds) if abs(points) > _SMALLEST else None
            if points > _SMALLEST or (points < -_SMALLEST and self.claim is None):
                yield ScorePart(key, points, kinds, cause)

    def _composition(self, key: str, old: Requests, new: Requests) -> Iterator[CauseKind]:
        """Yield what may have brought a claim into the mean, or out of it."""
        before, after = (state.claims(self.dimension) for state in self.sides)
        if (key in before) != (key in after):
            yield CauseKind.CLAIMS
        else:
            yield from set(_shown_kinds(old, new)) or {CauseKind.MESSAGES}

    def wording(self, key: str) -> CauseKind:
        """Return the cause of a claim's changed text: its file, the persona's name in it, or a label that depends on messages."""
        old, new = (state.claims(self.dimension).get(key) for state in self.sides)
        if old is None or new is None or old.claim != new.claim:
            return CauseKind.CLAIMS
        names = {state.agent.persona.display_name for state in self.sides if state.agent}
        return CauseKind.PERSONA if len(names) > 1 else CauseKind.MESSAGES

    def _kinds(
        self, old: Requests, new: Requests, before: PropositionResult | None, after: PropositionResult | None
    ) -> Iterator[CauseKind]:
        """Yield the differences between the two requests, and the judge if it changed."""
        if before is not None and before.algorithmic:
            # Computed from messages, names and words alone.
            yield CauseKind.MESSAGES if _messages_differ(*self.sides) else CauseKind.CLAIMS
            return
        if len(old) != len(new):
            yield CauseKind.MESSAGES
        shown = set(_shown_kinds(old, new))
        yield from shown - {CauseKind.MESSAGES, CauseKind.CLAIMS}
        if CauseKind.CLAIMS in shown:
            yield self.wording(old[0].proposition_id)
        if CauseKind.MESSAGES in shown:
            yield CauseKind.MESSAGES if _messages_differ(*self.sides) else CauseKind.NAMES
        alike = {request.key for request in old} & {request.key for request in new}
        scores = [{key: said.score for key, said in state.verdicts.items() if key in alike} for state in self.sides]
        models = _models(old, self.before), _models(new, self.after)
        if scores[0] != scores[1] or (models[0] != models[1] and not alike):
            yield CauseKind.JUDGE
        if before is not None and after is not None and before.inverted != after.inverted:
            yield CauseKind.CLAIMS
        if self.before.is_hard(self.dimension) != self.after.is_hard(self.dimension):
            yield CauseKind.CLAIMS

    def _cause(self, key: str, old: Requests, new: Requests, kinds: frozenset[CauseKind]) -> CauseKind | None:
        """Return the cause among several changes, by judgments of some of them without the others."""
        if len(kinds) == 1:
            return next(iter(kinds))
        first, last = (state.value(self.dimension, key) for state in self.sides)
        if not kinds or len(old) != len(new) or first is None or last is None:
            return None
        missing, parts = list[JudgeRequest](), dict[CauseKind, list[float]]()
        for kind in kinds:
            alone = self._mixed_score(key, old, new, frozenset({kind}), missing)
            without = self._mixed_score(key, old, new, kinds - {kind}, missing)
            parts[kind] = [] if alone is None else [(first - alone) / (first - last)]
            parts[kind] += [] if without is None else [1 - (first - without) / (first - last)]
        sure = [kind for kind, shares in parts.items() if any(share >= THE_CAUSE for share in shares)]
        left = [kind for kind, shares in parts.items() if not any(share <= NO_PART for share in shares)]
        if len(sure) == 1:
            return sure[0]
        if not sure and len(left) == 1:
            return left[0]
        self.missing += missing
        return None

    def _mixed_score(
        self, key: str, old: Requests, new: Requests, changed: frozenset[CauseKind], missing: list[JudgeRequest]
    ) -> float | None:
        """Return a claim's score if only these changed; None: it was not judged, and the judgments are added to ``missing``."""
        requests = [self._mixed(key, one, other, changed) for one, other in zip(old, new, strict=True)]
        is_new = CauseKind.JUDGE in changed
        models = _models(new if is_new else old, self.sides[is_new])
        # Recordings of the other state count too, if they are of the same model.
        known = {
            key: verdict
            for state in (self.sides[not is_new], self.sides[is_new])
            for key, verdict in state.verdicts.items()
            if state is self.sides[is_new] or _model(verdict) in models
        }
        rest = [request for request in requests if request.key not in known]
        known |= self.judge.answers(rest, models)
        lacking = [request for request in requests if request.key not in known]
        missing += lacking
        scores = [known[request.key].score for request in requests if request.key in known]
        scored = [score for score in scores if score is not None]
        side = self.sides[CauseKind.CLAIMS in changed]
        item, hard = side.claims(self.dimension).get(key), side.is_hard(self.dimension)
        if lacking or not scored or item is None or hard is None:
            return None
        return final_score(sum(scored) / len(scored), inverted=item.inverted, hard=hard)

    def _mixed(self, key: str, old: JudgeRequest, new: JudgeRequest, changed: frozenset[CauseKind]) -> JudgeRequest:
        messages = bool(changed & {CauseKind.MESSAGES, CauseKind.NAMES})
        return replace(
            old,
            claim=new.claim if self.wording(key) in changed else old.claim,
            persona=new.persona if CauseKind.PERSONA in changed else old.persona,
            trajectory=new.trajectory if messages else old.trajectory,
        )


def _shown_kinds(old: Requests, new: Requests) -> Iterator[CauseKind]:
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


def _model(verdict: Verdict) -> str:
    return model_name(verdict.model or "")


def _models(requests: Requests, state: State) -> set[str]:
    known = (state.verdicts[request.key] for request in requests if request.key in state.verdicts)
    told = {_model(verdict) for verdict in known if verdict.model}
    return told or {model_name(name) for name in state.inputs.get(CauseKind.JUDGE, "").split(", ")}


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
    if step.before.agent is None or step.after.agent is None:
        return [], ["its text is no longer known; its hash changed"]
    (path, before), (_, after) = step.before.agent.file, step.after.agent.file
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
    old, new = (state.claims(step.dimension) for state in step.sides)
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
    known, now = (_seen(state) for state in step.sides)
    new = {name: message for name, message in now.items() if name not in known}
    rows = step.after.dimensions[step.dimension].propositions
    evidence = [item for key in ids if key in rows for item in rows[key].evidence if item.verified]
    quoted = list(dict.fromkeys(item.message_id for item in evidence if item.message_id in new))
    named = quoted or list(new)
    lines = [f"{name}: {new[name].text}" for name in named[:_MOST]]
    said = f"{len(new)} messages are new" + (f", {len(quoted)} of them quoted by the judge" if quoted else "")
    return named, [said, *lines]


def _seen(state: State) -> dict[str, Message]:
    """Return the agent's messages, then those around them, by id."""
    case = state.plan.case if state.plan else None
    return {item.id: item for item in (*case.messages, *chain(*case.channels.values()))} if case else {}


def _judge(step: Step, ids: list[str]) -> tuple[list[str], list[str]]:
    models = []
    for state in step.sides:
        asked = [request for key in ids for request in state.requests(step.dimension).get(key, [])]
        told = {
            state.verdicts[item.key].model or "a model without a name" for item in asked if item.key in state.verdicts
        }
        models.append(", ".join(sorted(told)))
    changed = f"{models[0]} became {models[1]}" if models[0] != models[1] else f"{models[0]} judged again"
    return [changed], [f"the same questions were answered otherwise: {changed}"]


def _names(step: Step, ids: list[str]) -> tuple[list[str], list[str]]:
    old, new = (state.agent.names if state.agent else {} for state in step.sides)
    changed = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return changed, [f"{key}: {old.get(key)} became {new.get(key)}" for key in changed]


def _scores(step: Step, ids: list[str]) -> Iterator[str]:
    for key in ids[:_MOST]:
        before, after = (state.value(step.dimension, key) for state in step.sides)
        told = [f"{score:.1f}" if score is not None else "none" for score in (before, after)]
        yield f"{step.dimension}/{key}: {told[0]} -> {told[1]}"
