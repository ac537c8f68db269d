"""Claims drafted by a model from what an agent said, each with the quotes it came from."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from persona_pipeline.claims.drafting import (
    MECHANISM,
    RULES,
    AgentTranscript,
    Drafted,
    Quote,
    ask_for,
    quoted,
    require_free,
    standing_quotes,
    text_problem,
    visible,
    warnings_of,
    what_was_said,
    write_new,
)
from persona_pipeline.errors import ConfigError
from persona_pipeline.evaluation.request import select_dimensions
from persona_pipeline.judging.claims import EVIDENCE_SCHEMA, plain_json
from persona_pipeline.judging.verdict import Backend, Question, schema_problem
from persona_pipeline.propositions import DIMENSIONS, PROPOSITIONS, find_proposition_set, template_variables
from persona_pipeline.world import World
from persona_pipeline.world.canonical import content_hash
from persona_pipeline.world.personas import load_persona

SPEAKER = "Speaker A"
_MOST_CLAIMS, _LONGEST = 8, 300
_MAX_TOKENS = 4096
_ID = re.compile(r"[^a-z0-9]+")
CLAIM_RULES = (
    RULES
    + """
Write claims: single sentences in the present tense that a judge will later call true or false of other messages of this speaker.
Each is about one thing, can be decided from messages alone, names no message, and stands for itself. Write {{agent_name}} for the
speaker. About a third of them should be anti-patterns, "inverted": true, which would be bad if they were true and are
not true of these messages; quote what shows the opposite. "id" is three or four words in lower case with hyphens.
"if_low" says in one sentence what to change when the claim is judged low.

Answer with one JSON object and nothing else: {"claims": [{"evidence": [{"message": "m3", "quote": "..."}], "id": "...",
"claim": "...", "inverted": false, "if_low": "..."}]}
"""
)
SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["claims"],
    "properties": {
        "claims": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["evidence", "id", "claim", "inverted", "if_low"],
                "properties": {
                    "evidence": EVIDENCE_SCHEMA,
                    "id": {"type": "string"},
                    "claim": {"type": "string"},
                    "inverted": {"type": "boolean"},
                    "if_low": {"type": "string"},
                },
            },
        }
    },
}
PROMPT_VERSION = f"draft-claims-1-{content_hash({'rules': CLAIM_RULES, 'schema': SCHEMA})[:8]}"


@dataclass(frozen=True)
class ClaimDraft:
    """What is asked for a draft of claims. ``path``: where they will be written; ``taken``: ids that claims have already."""

    path: Path
    dimension: str
    said: AgentTranscript
    taken: frozenset[str]
    question: Question


@dataclass(frozen=True)
class _Claim:
    id: str
    claim: str
    inverted: bool
    if_low: str
    quotes: Sequence[Quote]


def plan_claims(world: World, agent_id: str, dimension: str, window: str = "all") -> ClaimDraft:
    """Return the question that drafts an agent's claims of a dimension; nothing is asked yet.

    Raises:
        ConfigError: bad input, no messages, or a draft that is there already.
    """
    (name,) = select_dimensions([dimension])
    said = what_was_said(world, agent_id, window, SPEAKER)
    path = world.root / PROPOSITIONS / name / f"{agent_id}.draft.yaml"
    require_free(path)
    known = find_proposition_set(world.root / PROPOSITIONS, name, agent_id)
    claims = [item.claim for item in known.propositions] if known else []
    context = (
        [f"Claims that are there already and need not be said again, as JSON:\n{plain_json(claims)}"] if claims else []
    )
    persona = _persona(world, agent_id)
    if persona and DIMENSIONS[name].shows_persona:
        context.insert(0, f"Persona of the speaker, as JSON:\n{plain_json({'persona': persona})}")
    question = Question(
        kind=MECHANISM,
        subject={"of": "claims", "dimension": name, "persona": persona, "claims": claims, **said.subject},
        label=f"draft of {name} claims of {agent_id}",
        system=CLAIM_RULES,
        context=tuple(context),
        evidence=said.evidence,
        ask=f"Write at most {_MOST_CLAIMS} claims about {SPEAKER}. They are about {DIMENSIONS[name].about}.",
        schema=SCHEMA,
        max_tokens=_MAX_TOKENS,
        agent_id=agent_id,
        dimension=name,
        mechanism=MECHANISM,
        prompt_version=PROMPT_VERSION,
        check=lambda data: schema_problem(SCHEMA, data),
    )
    return ClaimDraft(
        path, name, said, frozenset(item.id for item in known.propositions) if known else frozenset(), question
    )


def draft_claims(draft: ClaimDraft, backend: Backend) -> Drafted:
    """Ask for the claims and write those that stand on what was said, each marked as a draft.

    Raises:
        ConfigError: somebody wrote the file meanwhile.
    """
    answer, failure, usage = ask_for(draft.question, backend)
    warnings = warnings_of(draft.said)
    if answer is None:
        return Drafted(warnings=warnings, failure=failure, usage=usage)
    kept: list[_Claim] = []
    dropped: list[str] = []
    taken = set(draft.taken)
    for item in answer["claims"]:
        quotes, problem = standing_quotes(draft.said, item["evidence"])
        problem = problem or _problem(item) or ("there are enough already" if len(kept) == _MOST_CLAIMS else "")
        if problem:
            dropped.append(f"{visible(item['claim'])[:80]!r}: {problem}")
            continue
        kept.append(_Claim(_free_id(item["id"], taken), item["claim"], item["inverted"], item["if_low"], quotes))
    if kept:
        write_new(draft.path, "\n".join(_lines(draft, kept)) + "\n")
    return Drafted(draft.path if kept else None, len(kept), tuple(dropped), warnings, usage=usage)


def _problem(item: Mapping[str, Any]) -> str:
    if found := text_problem(item["claim"], _LONGEST) or text_problem(item["if_low"], _LONGEST):
        return found
    odd = [name for name in template_variables(item["claim"]) if name != "agent_name"]
    if odd:
        return f"{{{{{odd[0]}}}}} would not be filled in"
    return "" if "{{agent_name}}" in item["claim"] else "it does not speak of {{agent_name}}"


def _free_id(wanted: str, taken: set[str]) -> str:
    """Return an id that no claim has, and remember it."""
    stem = _ID.sub("-", wanted.lower()).strip("-")[:60].strip("-") or "draft"
    found, number = stem, 1
    while found in taken:
        number += 1
        found = f"{stem}-{number}"
    taken.add(found)
    return found


def _lines(draft: ClaimDraft, claims: Sequence[_Claim]) -> Iterator[str]:
    yield "# yaml-language-server: $schema=../../schemas/propositions.json"
    yield "# Drafted by a model. Nothing here is judged: read each claim, and move those that hold into"
    yield f"# {draft.said.agent_id}.yaml without their draft mark."
    yield f"dimension: {draft.dimension}"
    yield f"agent_id: {draft.said.agent_id}"
    yield "propositions:"
    for item in claims:
        for quote in item.quotes:
            yield f"  # {visible(quote.message_id)}: {visible(quote.text)}"
        yield f"  - id: {quoted(item.id)}"
        yield f"    claim: {quoted(item.claim)}"
        if item.inverted:
            yield "    inverted: true"
        yield f"    recommendations_for_improvement: {quoted(item.if_low)}"
        yield "    draft: true"


def _persona(world: World, agent_id: str) -> str | None:
    try:
        return load_persona(world.root, agent_id).persona
    except ConfigError:
        return None
