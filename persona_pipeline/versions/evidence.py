"""What a person needs to believe a cause: the lines, claims, messages or models that changed, and how the scores moved."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from persona_pipeline.judging.verdict import JudgeRequest
from persona_pipeline.propositions.models import Proposition
from persona_pipeline.versions.causes import THE_CAUSE, Step
from persona_pipeline.versions.finding import Cause, Kind
from persona_pipeline.versions.hunks import Hunk, hunks_between, persona_with
from persona_pipeline.versions.states import State

MOST, MOST_OF_IT = 12, 0.9


def cause_of(step: Step, kind: Kind, share: float) -> Cause:
    """Return a cause with all that says so."""
    fell = sorted(
        (unit for unit in step.units if unit.cause is kind and unit.points > 0), key=lambda unit: -unit.points
    )
    whole, said, ids = sum(unit.points for unit in fell), 0.0, []
    for unit in fell:
        # What fell a little along with the others is noise.
        if said < MOST_OF_IT * whole:
            ids.append(unit.id)
        said += unit.points
    what, evidence = {
        Kind.PERSONA: _persona,
        Kind.CLAIMS: _claims,
        Kind.MESSAGES: _messages,
        Kind.JUDGE: _judge,
        Kind.NAMES: _names,
    }[kind](step, ids)
    return Cause(
        kind=kind, share=share, what=tuple(what)[:MOST], evidence=(*tuple(evidence)[:MOST], *_scores(step, ids))
    )


def _persona(step: Step, ids: list[str]) -> tuple[list[str], list[str]]:
    path, before = step.before.persona_file
    after = step.after.persona_file[1]
    if not path or not after:
        return [], ["its text is not known any more; its hash changed"]
    hunks = hunks_between(before, after)
    found = [hunk for hunk in hunks if len(hunks) == 1 or _is_the_cause(step, hunk, ids, before)]
    note = [] if len(hunks) == 1 or len(found) == 1 else [f"which of these {len(hunks)} places it is was never judged"]
    named = found if len(found) == 1 else hunks
    return [f"{path}:{hunk.line}" for hunk in named], [*note, *(line for hunk in named for line in hunk.text(path))]


def _is_the_cause(step: Step, hunk: Hunk, ids: list[str], before: str) -> bool:
    """Whether a persona with this place alone changed was judged, and fell as far."""
    old_agent, new_agent = step.before.agent, step.after.agent
    if old_agent is None or new_agent is None:
        return False
    persona = persona_with(before, [hunk], old_agent.persona.agent_id)
    if persona is None:
        return False
    fallen, whole = 0.0, 0.0
    for key in ids:
        requests = [_with_persona(item, persona.persona) for item in step.before.requests(step.dimension).get(key, [])]
        told = step.answers.of(requests)
        rows = [state.dimensions[step.dimension].propositions[key] for state in (step.before, step.after)]
        scores = [told[item.key].score for item in requests if item.key in told]
        known = [score for score in scores if score is not None]
        if len(known) < len(requests) or not known or rows[0].raw is None or rows[1].raw is None:
            step.answers.miss([item for item in requests if item.key not in told])
            return False
        fallen += abs(rows[0].raw - sum(known) / len(known))
        whole += abs(rows[0].raw - rows[1].raw)
    return whole > 0 and fallen / whole >= THE_CAUSE


def _with_persona(request: JudgeRequest, persona: str) -> JudgeRequest:
    return request if request.persona is None else replace(request, persona=persona)


def _claims(step: Step, ids: list[str]) -> tuple[list[str], list[str]]:
    old, new = (_items(state, step.dimension) for state in (step.before, step.after))
    lines = []
    edited = [key for key in ids if old.get(key) != new.get(key)] or [key for key in new if old.get(key) != new[key]]
    for key in edited:
        one, other = old.get(key), new.get(key)
        lines += [f"- {key}: {_told(one)}"] if one else []
        lines += [f"+ {key}: {_told(other)}"] if other else []
    return [f"{step.dimension}/{key}" for key in edited], lines


def _items(state: State, dimension: str) -> dict[str, Proposition]:
    stored = state.agent.sets.get(dimension) if state.agent else None
    return {item.id: item for item in stored.propositions.propositions} if stored and stored.propositions else {}


def _told(item: Proposition) -> str:
    more = [f"weight {item.weight:g}"] if item.weight != 1 else []
    more += ["inverted"] if item.inverted else []
    return f"{item.claim} ({', '.join(more)})" if more else item.claim


def _messages(step: Step, ids: list[str]) -> tuple[list[str], list[str]]:
    """Name the messages that are new, those first that the judge quotes."""
    known = {message.id for message in step.before.plan.case.messages} if step.before.plan else set()
    case = step.after.plan.case if step.after.plan else None
    new = {message.id: message for message in case.messages if message.id not in known} if case else {}
    around = [message for channel in case.channels.values() for message in channel] if case else []
    new |= {message.id: message for message in around if message.id not in new and _is_new(message.id, step.before)}
    quoted = list(dict.fromkeys(name for name in _quoted(step, ids) if name in new))
    named = quoted or list(new)
    lines = [f"{name}: {new[name].text}" for name in named[:MOST]]
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
    for key in ids[:MOST]:
        before, after = (state.value(step.dimension, key) for state in (step.before, step.after))
        told = [f"{score:.1f}" if score is not None else "none" for score in (before, after)]
        yield f"{step.dimension}/{key}: {told[0]} -> {told[1]}"
