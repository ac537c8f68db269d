"""Claims as questions and answers as verdicts: the prompt, versioned by hash, and strict reading of answers."""

import json
import random
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any

from persona_pipeline.base.documents.json import (
    JsonError,
    content_hash,
    decode_at,
    list_schema,
    object_schema,
    strict_json,
)
from persona_pipeline.base.text import clean, shortened, split_thinking, storable_json
from persona_pipeline.judging.injection import reads_as_injection as reads_as_injection
from persona_pipeline.judging.injection import suspicious_entries as suspicious_entries
from persona_pipeline.judging.verdict import SCALE, Answer, Evidence, JudgeRequest, Question, Unscored, Usage, Verdict
from persona_pipeline.world.models import Trajectory, grouped, seed_from
from persona_pipeline.world.propositions.models import CONVERGENCE

TEXTS = tomllib.loads((Path(__file__).parent / "data" / "rules.toml").read_text(encoding="utf-8"))
RULES: str = TEXTS["claims"]

# One schema for every proposition: another schema would lose the cached prefix and be compiled again.
TEXT_SCHEMA: dict[str, Any] = {"type": "string"}
SCORE_SCHEMA: dict[str, Any] = {"anyOf": [{"type": "integer", "enum": list(SCALE)}, {"type": "null"}]}
EVIDENCE_SCHEMA = list_schema(object_schema({"message": TEXT_SCHEMA, "quote": TEXT_SCHEMA}))
# The model writes the fields in this order: evidence and reasons come before the score.
_VERDICT = {
    "proposition_id": TEXT_SCHEMA,
    "evidence": EVIDENCE_SCHEMA,
    "reasoning": TEXT_SCHEMA,
    "ideas": list_schema(TEXT_SCHEMA),
    "verdict": {**TEXT_SCHEMA, "enum": ["scored", "not_applicable", "no_evidence"]},
    "score": SCORE_SCHEMA,
}
SCHEMA = object_schema({"verdicts": list_schema(object_schema(_VERDICT))})

PROMPT_VERSION = f"2-{content_hash({'rules': RULES, 'schema': SCHEMA})[:8]}"
_SHUFFLED = ", whose entries are in no order"
_TOKENS_PER_FURTHER_CLAIM = 600
_AGAIN = (
    "\nAn earlier answer quoted words that do not stand in the transcript. Copy every quote letter for letter from the entry"
    " whose id you give; where nothing can be quoted, give no evidence."
)

# Escaped although JSON does not require it: characters that are invisible, reorder text, end a line or are not assigned.
_UNSEEN = re.compile(
    "[\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e0fff]"
)


def plain_json(value: Any) -> str:
    """Return compact JSON with letters of any script as they are and invisible characters as escapes."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return _UNSEEN.sub(lambda match: json.dumps(match[0])[1:-1], text)


def proposition_question(requests: Sequence[JudgeRequest], *, max_tokens: int = 0, again: bool = False) -> Question:
    """Return the question for requests that share trajectory, persona and sample.

    ``max_tokens``: for the first claim; further ones add to it. 0: the caller sets it later. ``again``: the first answer had quotes
    that are not in the transcript.
    """
    first = requests[0]
    ids = neutral_ids(len(requests))
    asked = [
        {"proposition_id": name, "claim": request.claim} | ({"list_ideas": True} if request.lists_ideas else {})
        for name, request in zip(ids, requests, strict=True)
    ]
    persona = f"Persona of the agent, as JSON:\n{plain_json({'persona': first.persona})}"
    subject = first.subject
    order = _SHUFFLED if first.dimension == CONVERGENCE.name else ""
    if len(requests) > 1:
        subject = {"kind": "propositions", "requests": [dict(request.subject) for request in requests]}
    return Question(
        kind="proposition",
        subject=subject,
        label=f"{first.dimension}/{','.join(request.proposition_id for request in requests)}"
        + (f" of {first.agent_id}" if first.agent_id else ""),
        system=RULES,
        context=() if first.persona is None else (persona,),
        evidence=_transcript(first.trajectory),
        ask=f"Judge against the transcript{order}:\n{plain_json({'propositions': asked})}{_AGAIN if again else ''}",
        schema=SCHEMA,
        max_tokens=max_tokens + _TOKENS_PER_FURTHER_CLAIM * (len(requests) - 1),
        sample=first.sample,
        agent_id=first.agent_id,
        dimension=first.dimension,
        prompt_version=PROMPT_VERSION,
        check=lambda data: proposition_problem(data, ids),
    )


@lru_cache(maxsize=128)
def _transcript(trajectory: Trajectory) -> str:
    """The entries as JSON; a speaker or a channel that is the same as in the entry before is left out."""
    shown: list[dict[str, Any]] = []
    before: dict[str, Any] = {}
    for entry in trajectory.content():
        same = [name for name in ("speaker", "channel") if name in entry and before.get(name) == entry[name]]
        # An entry that lost its channel would have the one of the entry before.
        named = {"channel": None} if "channel" in before and "text" in entry and "channel" not in entry else {}
        shown.append({name: value for name, value in (entry | named).items() if name not in same})
        before = entry if "text" in entry else {}
    return plain_json(shown)


def neutral_ids(count: int) -> tuple[str, ...]:
    """Return names for claims in a question. Ids of propositions could reveal the expected answer; none begins with ``_``."""
    return tuple(f"_c{place}" for place in range(1, count + 1))


_OBJECT = re.compile(r'\{(?=\s*")')
_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?")


class InvalidAnswerError(ValueError):
    """The text does not answer the question; the message says why in one line."""


def parse_object(text: str, schema: Mapping[str, Any] | None = None, evidence: str = "") -> dict[str, Any]:
    """Return the JSON object that an answer holds.

    The object may follow thinking, be in a Markdown code fence, or have prose around it. It must be the only one.

    Args:
        schema: of the object. ``8.0`` and ``"8"`` are 8 where it asks for a number.
        evidence: the judged text. An object that the judge only repeats from it is not an answer.

    Raises:
        InvalidAnswerError: the object is missing, or has a duplicate key, NaN or infinity.
    """
    # A byte order mark is not white space to ``strip``.
    text = storable_json(text).strip().strip("\ufeff").strip()
    if not text:
        raise InvalidAnswerError("the answer has no text")
    try:
        data = strict_json(text)
    except JsonError as error:
        data = _object_in(text, error, evidence)
    if not isinstance(data, dict):
        raise InvalidAnswerError(f"the answer is a JSON {type(data).__name__}, not an object: {shown(data)}")
    return data if schema is None else _fitted(schema, data)


def _object_in(text: str, why: JsonError, evidence: str) -> Any:
    """Return the only object in a text that is not JSON as a whole; ``why``: the error in it."""
    said = split_thinking(text)[1]
    if not said.strip():
        raise InvalidAnswerError(f"the answer has no text after its thinking: {shown(text)}")
    reason = why.msg
    try:
        found = list(_objects(text, len(text) - len(said)))
        reason = f"{len(found)} objects, not one" if found else reason
    except JsonError as error:
        found, reason = [], error.msg
    if len(found) != 1:
        where = "in a code fence: " if "```" in said or "~~~" in said else ""
        raise InvalidAnswerError(f"the answer is not JSON ({where}{reason}): {shown(said)}")
    value, written = found[0]
    if _bare(written) in _bare(evidence):
        raise InvalidAnswerError(f"the answer only repeats an object that was judged: {shown(written)}")
    return value


def _objects(text: str, said_from: int) -> Iterator[tuple[Any, str]]:
    """Yield the outermost objects in a text, each with how it is written.

    ``said_from``: where thinking ends. Objects before it are drafts, except that a reason of the answer may contain the end tag.
    ``JsonError``: an object behind it is broken.
    """
    end = 0
    while begun := _OBJECT.search(text, end):
        try:
            value, end = decode_at(text, begun.start())
        except JsonError:
            if begun.start() >= said_from:
                raise
            end = begun.end()
        else:
            if end > said_from:
                yield value, text[begun.start() : end]


def _bare(text: str) -> str:
    """Return a text without white space and escapes, to compare it with evidence that is JSON."""
    return re.sub(r"[\s\\]+", "", text)


def _fitted(schema: Mapping[str, Any], value: Any) -> Any:
    """Return a value as the schema spells it: whole numbers as integers, digits in quotes as numbers, enums in their case."""
    choices = schema.get("anyOf")
    if isinstance(choices, list):
        fitted = (_fitted(choice, value) for choice in choices)
        return next((item for item in fitted if repr(item) != repr(value)), value)
    kind = schema.get("type")
    if kind == "object" and isinstance(value, dict):
        fields = schema.get("properties", {})
        return {key: _fitted(fields.get(key, {}), item) for key, item in value.items()}
    if kind == "array" and isinstance(value, list):
        return [_fitted(schema.get("items", {}), item) for item in value]
    if isinstance(value, str) and kind == "string":
        # Structured output does not promise the case of an enum.
        return next((item for item in schema.get("enum", ()) if item.lower() == value.strip().lower()), value)
    if isinstance(value, str) and kind in ("integer", "number") and _NUMBER.fullmatch(value.strip()):
        value = float(value)
    is_whole = kind == "integer" and isinstance(value, float) and value.is_integer()
    return int(value) if is_whole else value


def shown(value: Any) -> str:
    """Return what a judge wrote, short and on one line."""
    return shortened(json.dumps(value), 60)


_FIELDS = {"proposition_id", "evidence", "reasoning", "ideas", "verdict", "score"}
_VERDICTS = {"scored": None, "not_applicable": Unscored.NOT_APPLICABLE, "no_evidence": Unscored.NO_EVIDENCE}


def proposition_problem(data: Any, ids: Sequence[str]) -> str | None:
    """Return why an answer about these propositions is invalid, or None."""
    if not isinstance(data, dict) or set(data) != {"verdicts"} or not isinstance(data["verdicts"], list):
        return f"the answer is not an object with the one key 'verdicts', a list: {shown(data)}"
    seen: set[str] = set()
    for item in data["verdicts"]:
        problem = _item_problem(item)
        if problem:
            return problem
        if item["proposition_id"] in seen:
            return f"proposition {item['proposition_id']!r} is judged twice"
        seen.add(item["proposition_id"])
    if extra := seen - set(ids):
        return f"verdict on a proposition nobody asked about: {_listed(extra)}"
    if missing := set(ids) - seen:
        return f"no verdict on {_listed(missing)}"
    return None


def verdicts_of(requests: Sequence[JudgeRequest], answer: Answer) -> list[Verdict]:
    """Return the verdicts in an answer on claims, in the order of the requests; the first carries the usage.

    Stored answers of earlier releases name each claim by the id of its proposition.
    """
    items = {item["proposition_id"]: item for item in answer.data["verdicts"]} if answer.data else {}
    verdicts = []
    for name, request in zip(neutral_ids(len(requests)), requests, strict=True):
        item = items.get(name, items.get(request.proposition_id))
        said: dict[str, Any] = {"unscored": answer.unscored, "detail": answer.detail}
        if item is not None:
            unscored = _VERDICTS[item["verdict"].lower()]
            quotes = (
                checked_quote(request.trajectory, quoted["message"], quoted["quote"]) for quoted in item["evidence"]
            )
            said = {
                "score": item["score"] if unscored is None else None,
                "unscored": unscored,
                "reasoning": item["reasoning"],
                "evidence": tuple(quotes),
                "ideas": tuple(item["ideas"]) if request.lists_ideas else (),
            }
        verdicts.append(
            Verdict(
                request.proposition_id,
                **said,
                model=answer.model,
                prompt_version=answer.prompt_version,
                usage=Usage() if verdicts else answer.usage,
                # Of the transcript, whatever came of asking.
                injection_suspected=bool(suspicious_entries(request.trajectory)),
            )
        )
    return verdicts


def no_entries(request: JudgeRequest) -> Verdict:
    """Return the verdict on a trajectory without entries. It needs no call."""
    detail = "there are no messages to judge"
    return Verdict(request.proposition_id, unscored=Unscored.NO_EVIDENCE, detail=detail)


def checked_quote(trajectory: Trajectory, local_id: str, quote: str) -> Evidence:
    """Return a quote under its message's outside id; ``verified``: it is there, up to white space and composed letters."""
    entry = trajectory.entry(local_id)
    folded = " ".join(clean(quote).split())
    verified = entry is not None and bool(folded) and folded in " ".join(clean(entry.text).split())
    return Evidence(entry.message_id if entry else None, quote, verified)


def _item_problem(item: Any) -> str | None:
    if not isinstance(item, dict) or set(item) != _FIELDS:
        held = ", ".join(sorted(map(str, item))) if isinstance(item, dict) else shown(item)
        return f"a verdict does not have exactly the fields {', '.join(sorted(_FIELDS))}, but {held}"
    name, verdict, score = item["proposition_id"], item["verdict"], item["score"]
    is_right = {
        "proposition_id": isinstance(name, str),
        "reasoning": isinstance(item["reasoning"], str),
        "ideas": isinstance(item["ideas"], list) and all(isinstance(idea, str) for idea in item["ideas"]),
        "evidence": isinstance(item["evidence"], list) and all(map(is_quote, item["evidence"])),
        # Structured output does not promise the case of a string enum.
        "verdict": isinstance(verdict, str) and verdict.lower() in _VERDICTS,
    }
    if wrong := [key for key, right in is_right.items() if not right]:
        return f"the {wrong[0]} of {name!r} cannot be {shown(item[wrong[0]])}"
    if _VERDICTS[verdict.lower()] is not None:
        return None if score is None else f"{name!r} is {verdict} and yet has a score"
    is_score = type(score) is int and score in SCALE
    return None if is_score else f"score {shown(score)} of {name!r} is not a whole number from 0 to 9"


def is_quote(value: Any) -> bool:
    """Whether it is an object of a message's id and a quote from it."""
    is_pair = isinstance(value, dict) and set(value) == {"message", "quote"}
    return is_pair and all(isinstance(text, str) for text in value.values())


def _listed(ids: set[str]) -> str:
    return ", ".join(shown(item) for item in sorted(ids)[:5]) + (", ..." if len(ids) > 5 else "")


def questions_of(
    requests: Sequence[JudgeRequest], *, max_tokens: int, grouping: int = 1, again: bool = False
) -> list[tuple[list[int], Question]]:
    """Return the questions that ask for verdicts on requests, each with the indexes of its requests in its order.

    A question holds at most ``grouping`` claims of the same trajectory, persona and dimension, shuffled by content so that no claim
    always comes first. ``again``: the first answers had quotes that are not in the transcript.
    """
    return [
        (group, proposition_question([requests[i] for i in group], max_tokens=max_tokens, again=again))
        for group in _groups(requests, grouping)
    ]


def _groups(requests: Sequence[JudgeRequest], size: int) -> list[list[int]]:
    if size <= 1:
        return [[index] for index in range(len(requests))]
    shared = attrgetter("dimension", "trajectory", "persona", "sample", "agent_id")
    groups: list[list[int]] = []
    for indexes in grouped(range(len(requests)), lambda index: shared(requests[index])).values():
        indexes.sort(key=lambda index: requests[index].key)
        random.Random(seed_from(*(requests[index].key for index in indexes))).shuffle(indexes)
        groups += [indexes[start : start + size] for start in range(0, len(indexes), size)]
    return groups
