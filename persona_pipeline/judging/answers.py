"""Reading a judge's answer strictly, and turning it into verdicts with checked quotes."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from persona_pipeline.documents import JsonError, strict_json
from persona_pipeline.judging.injection import suspicious_entries
from persona_pipeline.judging.verdict import SCALE, Evidence, JudgeRequest, Unscored, Usage, Verdict
from persona_pipeline.world.trajectory import Trajectory

_FIELDS = {"proposition_id", "evidence", "reasoning", "ideas", "verdict", "score"}
_VERDICTS = {"scored": None, "not_applicable": Unscored.NOT_APPLICABLE, "no_evidence": Unscored.NO_EVIDENCE}


class InvalidAnswerError(ValueError):
    """The text is no answer to the question; the message says why in one line."""


def parse_object(text: str) -> dict[str, Any]:
    """Return the JSON object that is the whole of the text.

    Raises:
        InvalidAnswerError: anything else, text around it, a duplicate key, NaN or infinity included.
    """
    if not text.strip():
        raise InvalidAnswerError("the answer has no text")
    try:
        data = strict_json(text)
    except JsonError as error:
        raise InvalidAnswerError(f"the answer is not JSON ({error.msg})") from None
    if not isinstance(data, dict):
        raise InvalidAnswerError(f"the answer is a JSON {type(data).__name__}, not an object")
    return data


def proposition_problem(data: Any, ids: Sequence[str]) -> str | None:
    """Return what is wrong with an answer to a question about these propositions, or None."""
    if not isinstance(data, dict) or set(data) != {"verdicts"} or not isinstance(data["verdicts"], list):
        return "the answer is not an object with the one key 'verdicts', a list"
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


def verdicts_of(
    data: Mapping[str, Any],
    requests: Sequence[JudgeRequest],
    *,
    model: str | None,
    prompt_version: str | None,
    usage: Usage,
) -> list[Verdict]:
    """Return the verdicts of a valid answer, in the order of the requests; the first carries the usage."""
    items = {item["proposition_id"]: item for item in data["verdicts"]}
    verdicts = []
    for index, request in enumerate(requests):
        item = items[request.proposition_id]
        unscored = _VERDICTS[item["verdict"].lower()]
        verdicts.append(
            Verdict(
                proposition_id=request.proposition_id,
                score=item["score"] if unscored is None else None,
                unscored=unscored,
                reasoning=item["reasoning"],
                evidence=tuple(
                    checked_quote(request.trajectory, quoted["message"], quoted["quote"]) for quoted in item["evidence"]
                ),
                ideas=tuple(item["ideas"]) if request.lists_ideas else (),
                model=model,
                prompt_version=prompt_version,
                usage=usage if index == 0 else Usage(),
                injection_suspected=bool(suspicious_entries(request.trajectory)),
            )
        )
    return verdicts


def no_entries(request: JudgeRequest) -> Verdict:
    """Return the verdict on a trajectory without entries; nobody needs to be asked."""
    detail = "there are no messages to judge"
    return Verdict(request.proposition_id, unscored=Unscored.NO_EVIDENCE, detail=detail)


def checked_quote(trajectory: Trajectory, local_id: str, quote: str) -> Evidence:
    """Return a quote under its message's outside id; ``verified`` if it stands there, white space folded."""
    entry = trajectory.entry(local_id)
    folded = " ".join(quote.split())
    verified = entry is not None and bool(folded) and folded in " ".join(entry.text.split())
    return Evidence(entry.message_id if entry else None, quote, verified)


def _item_problem(item: Any) -> str | None:
    if not isinstance(item, dict) or set(item) != _FIELDS:
        return f"a verdict does not have exactly the fields {', '.join(sorted(_FIELDS))}"
    if not isinstance(item["proposition_id"], str) or not isinstance(item["reasoning"], str):
        return "proposition_id or reasoning of a verdict is not a string"
    name = item["proposition_id"]
    if not isinstance(item["ideas"], list) or not all(isinstance(idea, str) for idea in item["ideas"]):
        return f"the ideas of {name!r} are not a list of strings"
    if not isinstance(item["evidence"], list) or not all(_is_quote(quoted) for quoted in item["evidence"]):
        return f"the evidence of {name!r} is not a list of message and quote"
    # Structured output does not promise the case of a string enum.
    if not isinstance(item["verdict"], str) or item["verdict"].lower() not in _VERDICTS:
        return f"verdict {_shown(item['verdict'])} of {name!r} is none of {', '.join(_VERDICTS)}"
    if _VERDICTS[item["verdict"].lower()] is not None:
        return None if item["score"] is None else f"{name!r} is {item['verdict']} and yet has a score"
    if type(item["score"]) is not int or item["score"] not in SCALE:
        return f"score {_shown(item['score'])} of {name!r} is not a whole number from 0 to 9"
    return None


def _is_quote(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and set(value) == {"message", "quote"}
        and isinstance(value["message"], str)
        and isinstance(value["quote"], str)
    )


def _listed(ids: set[str]) -> str:
    return ", ".join(_shown(item) for item in sorted(ids)[:5]) + (", ..." if len(ids) > 5 else "")


def _shown(value: Any) -> str:
    """A value from the model, short and on one line."""
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
