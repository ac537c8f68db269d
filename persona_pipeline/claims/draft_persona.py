"""A persona drafted by a model from an agent's logs, each sentence with the quotes it came from."""

import textwrap
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
from persona_pipeline.judging.claims import EVIDENCE_SCHEMA
from persona_pipeline.judging.verdict import Backend, Question, schema_problem
from persona_pipeline.world import World
from persona_pipeline.world.canonical import content_hash
from persona_pipeline.world.personas import PERSONAS

SPEAKER = "Speaker A"
_LONGEST, _MAX_TOKENS, _WIDTH = 300, 4096, 110
# The parts of a persona, in their order, and how each begins.
PARTS = {"who": "", "writes": "How it writes: ", "brings": "What it brings: ", "never": "What it never does: "}

PERSONA_RULES = (
    RULES
    + """
Write a persona from which an actor could play the speaker: single sentences, each about one thing, that say "it" of the speaker
and give no name. "part" is one of: who (what it does, wants and worries about), writes (sentence length, punctuation, spelling,
turns of phrase), brings (what it adds to a conversation), never (what it avoids where others would not; quote what it does
instead). Three to five sentences a part.

Answer with one JSON object and nothing else: {"sentences": [{"evidence": [{"message": "m3", "quote": "..."}], "part": "writes",
"sentence": "..."}]}
"""
)
SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["sentences"],
    "properties": {
        "sentences": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["evidence", "part", "sentence"],
                "properties": {
                    "evidence": EVIDENCE_SCHEMA,
                    "part": {"type": "string", "enum": list(PARTS)},
                    "sentence": {"type": "string"},
                },
            },
        }
    },
}
PROMPT_VERSION = f"draft-persona-1-{content_hash({'rules': PERSONA_RULES, 'schema': SCHEMA})[:8]}"


@dataclass(frozen=True)
class PersonaDraft:
    """What is asked for a draft of a persona. ``path``: where it will be written."""

    path: Path
    said: AgentTranscript
    question: Question


def plan_persona(world: World, agent_id: str, window: str = "all") -> PersonaDraft:
    """Return the question that drafts an agent's persona from its messages; nothing is asked yet.

    Raises:
        ConfigError: bad input, no messages, or a draft that is there already.
    """
    said = what_was_said(world, agent_id, window, SPEAKER)
    path = world.root / PERSONAS / f"{agent_id}.draft.yaml"
    require_free(path)
    question = Question(
        kind=MECHANISM,
        subject={"of": "persona", **said.subject},
        label=f"draft of a persona of {agent_id}",
        system=PERSONA_RULES,
        evidence=said.evidence,
        ask=f"Write the persona of {SPEAKER}.",
        schema=SCHEMA,
        max_tokens=_MAX_TOKENS,
        agent_id=agent_id,
        mechanism=MECHANISM,
        prompt_version=PROMPT_VERSION,
        check=lambda data: schema_problem(SCHEMA, data),
    )
    return PersonaDraft(path, said, question)


def draft_persona(draft: PersonaDraft, backend: Backend) -> Drafted:
    """Ask for the persona and write the sentences that stand on what was said, as a draft that no command reads.

    Raises:
        ConfigError: somebody wrote the file meanwhile.
    """
    answer, failure, usage = ask_for(draft.question, backend)
    warnings = warnings_of(draft.said)
    if answer is None:
        return Drafted(warnings=warnings, failure=failure, usage=usage)
    kept: list[tuple[Mapping[str, Any], Sequence[Quote]]] = []
    dropped: list[str] = []
    for item in answer["sentences"]:
        quotes, problem = standing_quotes(draft.said, item["evidence"])
        if problem := problem or text_problem(item["sentence"], _LONGEST):
            dropped.append(f"{visible(item['sentence'])[:80]!r}: {problem}")
        else:
            kept.append((item, quotes))
    if kept:
        write_new(draft.path, "\n".join(_lines(draft.said, kept)) + "\n")
    return Drafted(draft.path if kept else None, len(kept), tuple(dropped), warnings, usage=usage)


def _lines(said: AgentTranscript, kept: Sequence[tuple[Mapping[str, Any], Sequence[Quote]]]) -> Iterator[str]:
    yield "# yaml-language-server: $schema=../schemas/persona.json"
    yield f"# Drafted by a model from messages. No command reads it: correct it, and rename it to {said.agent_id}.yaml."
    yield f"agent_id: {said.agent_id}"
    yield f"display_name: {quoted(said.name) if visible(said.name) else said.agent_id}"
    yield "persona: |"
    for part, opening in PARTS.items():
        sentences = [visible(item["sentence"]) for item, _ in kept if item["part"] == part]
        if sentences:
            yield from textwrap.wrap(opening + " ".join(sentences), _WIDTH, initial_indent="  ", subsequent_indent="  ")
            yield ""
    yield "# What it came from:"
    for item, quotes in kept:
        for quote in quotes:
            yield f"# {visible(item['sentence'])} <- {visible(quote.message_id)}: {visible(quote.text)}"
