"""Scenes written by the judge's model for a persona and its claims, into a draft that nothing reads before a person has."""

import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from persona_pipeline.base.calls import run_async
from persona_pipeline.base.documents.json import content_hash, list_schema, object_schema, visible
from persona_pipeline.base.documents.yaml import to_yaml
from persona_pipeline.judging.claims import TEXT_SCHEMA, plain_json
from persona_pipeline.judging.verdict import Backend, Question
from persona_pipeline.lab.claims.drafts import KIND, Drafted, check_free, text_problem, write_new
from persona_pipeline.lab.interview.interviewee import Interviewee, InterviewRequest
from persona_pipeline.lab.interview_scenes import INTERVIEWS, KINDS, spoken_languages
from persona_pipeline.scoring.text.agreement import UNKNOWN, language_of
from persona_pipeline.scoring.text.tokens import is_unspaced, tokenize
from persona_pipeline.world.world import World

_RULES: str = tomllib.loads((Path(__file__).parent / "data" / "writing.toml").read_text(encoding="utf-8"))["rules"]
_SCENE = {
    "kind": {**TEXT_SCHEMA, "enum": list(KINDS)},
    "language": TEXT_SCHEMA,
    "claim": TEXT_SCHEMA,
    "turns": list_schema(TEXT_SCHEMA),
}
_SCHEMA = object_schema({"scenes": list_schema(object_schema(_SCENE))})
_EACH, _MOST_CLAIMS, _LONG, _MAX_TOKENS = 3, 6, 12, 12_000
# So many words in a row that a line shares with persona or claims give away what is judged.
_SHARED = 5


@dataclass(frozen=True)
class ScenesDraft:
    """What is asked for scenes. ``path``: where they go; ``secret``: persona and claims; ``wanted``: scenes by kind."""

    path: Path
    question: Question
    claims: tuple[str, ...]
    secret: tuple[str, ...]
    wanted: dict[str, int]


def plan_scenes(world: World, agent_id: str, languages: Sequence[str] | None = None) -> ScenesDraft:
    """Return the question that has an agent's scenes written; ConfigError: bad input, or a draft that is there already."""
    path = world.root / INTERVIEWS / f"{agent_id}.draft.yaml"
    check_free(path)
    agent = Interviewee.of(world, InterviewRequest(agent_id)).agent
    spoken = list(languages or spoken_languages(world, agent_id))
    sets = {name: stored.propositions.propositions for name, stored in agent.sets.items() if stored.propositions}
    claims = {f"{name}/{item.id}": item.claim for name, own in sets.items() for item in own}
    subject = {"persona": agent.persona.persona, "claims": claims}
    wanted = {kind: _EACH for kind in KINDS if kind not in ("language", "claim")}
    wanted |= {"language": _EACH * (len(spoken) - 1), "claim": min(_MOST_CLAIMS, len(claims))}
    counts = ", ".join(f"{count} of {kind}" for kind, count in wanted.items() if count)
    others = f"; those of kind language in each of: {', '.join(spoken[1:])}" if spoken[1:] else ""
    question = Question(
        kind=KIND,
        subject={"of": "interview", **subject, "languages": spoken},
        label=f"scenes of an interview of {agent_id}",
        system=_RULES,
        evidence=plain_json(subject),
        ask=f"Write {counts}. All are in the language with the ISO 639 code {spoken[0]}{others}.",
        schema=_SCHEMA,
        max_tokens=_MAX_TOKENS,
        agent_id=agent_id,
        prompt_version=f"interview-1-{content_hash({'rules': _RULES, 'schema': _SCHEMA})[:8]}",
    )
    return ScenesDraft(path, question, tuple(claims), (agent.persona.persona, *claims.values()), wanted)


def write_scenes(draft: ScenesDraft, backend: Backend) -> Drafted:
    """Ask for the scenes and write those that can be used."""
    answer = run_async(backend.ask([draft.question]))[0]
    if answer.data is None:
        return Drafted(failure=f"{answer.unscored}: {answer.detail}", usage=answer.usage)
    kept: list[dict[str, object]] = []
    dropped: list[str] = []
    numbers: Counter[str] = Counter()
    secret = {words for text in draft.secret for words in _runs(text)}
    for item in answer.data["scenes"]:
        kind, turns = item["kind"], [" ".join(line.split()) for line in item["turns"]]
        problem = next(filter(None, map(text_problem, turns)), "" if turns else "it has no lines")
        if not problem and any(words in secret for line in turns for words in _runs(line)):
            problem = "it gives away what is judged"
        if not problem and kind == "long" and len(turns) < _LONG:
            problem = f"it has {len(turns)} lines, and {_LONG} are wanted"
        if not problem and language_of(turns) not in (item["language"], UNKNOWN):
            problem = f"it is not in {item['language']}"
        if not problem and kind == "claim" and item["claim"] not in draft.claims:
            problem = f"there is no claim {item['claim']}"
        if problem:
            dropped.append(f"{kind} {visible(' '.join(turns))[:80]!r}: {problem}")
            continue
        numbers[kind] += 1
        named = {"claim": item["claim"]} if kind == "claim" else {}
        kept.append(
            {"id": f"{kind}-{numbers[kind]}", "kind": kind, "language": item["language"], **named, "turns": turns}
        )
    dropped += [f"{kind}: {numbers[kind]} of {n} scenes" for kind, n in draft.wanted.items() if numbers[kind] < n]
    if kept:
        told = f"# Written by {answer.model}: read it, then take .draft out of its name.\n"
        write_new(draft.path, told + to_yaml({"scenes": kept}))
    return Drafted(draft.path if kept else None, len(kept), tuple(dropped), usage=answer.usage)


def _runs(text: str) -> list[tuple[str, ...]]:
    words = tokenize(text)
    # In scripts without spaces a word is a character.
    size = _SHARED * (3 if any(map(is_unspaced, words)) else 1)
    return [tuple(words[place : place + size]) for place in range(len(words) - size + 1)]
