"""Claims and personas drafted by a model from an agent's messages, each sentence with its quotes.

Drafts are not judged or read before a person has checked them, and no file is overwritten.
"""

import re
import textwrap
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from persona_pipeline.base.calls import run_async
from persona_pipeline.base.documents.json import content_hash, list_schema, object_schema, visible
from persona_pipeline.base.errors import ConfigError, NothingError, Problem
from persona_pipeline.base.settings import Settings
from persona_pipeline.evaluation.read import WorldReader
from persona_pipeline.judging.claims import (
    EVIDENCE_SCHEMA,
    TEXT_SCHEMA,
    checked_quote,
    plain_json,
    reads_as_injection,
    suspicious_entries,
)
from persona_pipeline.judging.estimate import estimate
from persona_pipeline.judging.open import OpenedJudge
from persona_pipeline.judging.providers.base import ModelOptions
from persona_pipeline.judging.verdict import Backend, Judge, Question, Usage
from persona_pipeline.scoring.text.agreement import ENGLISH, UNKNOWN, language_of
from persona_pipeline.scoring.text.tokens import tokenize
from persona_pipeline.suites.format.models import apart
from persona_pipeline.world.models import Message, Trajectory, message_entry, windowed
from persona_pipeline.world.personas import PERSONAS, check_agent_id, load_persona
from persona_pipeline.world.propositions.loading import PROPOSITIONS, find_proposition_set
from persona_pipeline.world.propositions.models import DIMENSIONS, select_dimensions, template_variables
from persona_pipeline.world.world import World, write_new

KIND = "draft"
SPEAKER = "Speaker A"
_MOST_CLAIMS, _LONGEST, _MAX_TOKENS, _WIDTH = 8, 300, 4096, 110
_ID = re.compile(r"[^a-z0-9]+")
_FIRST_N, _LAST_N = 40, 160
# Shorter quotes are in nearly any message.
_FEWEST_WORDS = 3

_DATA = Path(__file__).parent / "data"
_RULES = tomllib.loads((_DATA / "drafts.toml").read_text(encoding="utf-8"))
CLAIM_RULES, PERSONA_RULES = _RULES["both"] + _RULES["claims"], _RULES["both"] + _RULES["persona"]
_CLAIM = {"id": TEXT_SCHEMA, "claim": TEXT_SCHEMA, "inverted": {"type": "boolean"}, "if_low": TEXT_SCHEMA}
CLAIM_SCHEMA = object_schema({"claims": list_schema(object_schema({"evidence": EVIDENCE_SCHEMA, **_CLAIM}))})

# The parts of a persona, in their order, and how each begins.
PARTS = {"who": "", "writes": "How it writes: ", "brings": "What it brings: ", "never": "What it never does: "}
_SENTENCE = {"part": {**TEXT_SCHEMA, "enum": list(PARTS)}, "sentence": TEXT_SCHEMA}
PERSONA_SCHEMA = object_schema({"sentences": list_schema(object_schema({"evidence": EVIDENCE_SCHEMA, **_SENTENCE}))})


@dataclass(frozen=True)
class AgentTranscript:
    """An agent's messages, as shown to a model.

    Attributes:
        name: its display name, as the messages or its persona have it.
        suspicious: ids of messages that read as if they were written for a judge.
    """

    agent_id: str
    name: str
    trajectory: Trajectory
    suspicious: frozenset[str]

    @property
    def evidence(self) -> str:
        return plain_json(self.trajectory.content())

    @property
    def subject(self) -> dict[str, Any]:
        """The source of a draft, for the key of a recording."""
        return {"agent_id": self.agent_id, "trajectory": content_hash(self.trajectory.content())}


@dataclass(frozen=True)
class DraftQuote:
    message_id: str
    text: str


# A sentence as the model wrote it, with its quotes.
Kept = tuple[Mapping[str, Any], Sequence[DraftQuote]]


@dataclass(frozen=True)
class Drafted:
    """The result of a draft.

    Attributes:
        path: the new file; None: nothing was left to write.
        kept: number of claims or sentences in it.
        dropped: sentences that were left out, and why.
        warnings: messages that read as if they were written for a judge.
        failure: why the model gave no answer.
    """

    path: Path | None = None
    kept: int = 0
    dropped: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    failure: str = ""
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True)
class Draft:
    """A request for a draft.

    Attributes:
        path: the new file.
        said: the messages that every item must quote.
        key: of the list in the answer; ``part``: of an item's sentence.
        problem: returns the problem of an item, given the items that are kept; "": it is kept.
        text: returns the file's text, given the kept items.
        language: of the draft.
    """

    path: Path
    question: Question
    said: AgentTranscript
    key: str
    part: str
    problem: Callable[[Mapping[str, Any], Sequence[Kept]], str]
    text: Callable[[Sequence[Kept]], str]
    language: str = UNKNOWN


def what_was_said(world: World, agent_id: str, window: str) -> AgentTranscript:
    """Return an agent's real messages of a window (``all``, or a length before the newest message)."""
    check_agent_id(agent_id)
    world.sync_messages()
    messages: Sequence[Message] = world.messages(WorldReader(world).window(window), agent_id=agent_id)
    if not messages:
        raise NothingError(f"{agent_id} said nothing in the window; choose another with --window, or check the id")
    shown = windowed([message_entry(message, SPEAKER) for message in messages], _FIRST_N, _LAST_N)
    suspicious = frozenset(suspicious_entries(shown))
    return AgentTranscript(agent_id, world.display_names().get(agent_id, agent_id), shown, suspicious)


def draft_backend(judge: Judge) -> Backend:
    """Return the backend for a draft's question; ConfigError: the judge can only judge claims."""
    if not isinstance(judge, OpenedJudge):
        raise ConfigError(f"the judge {judge.name!r} drafts nothing; add --judge anthropic")
    return judge.without_recorded()


def cost_of(question: Question, settings: Settings) -> str:
    """Return the expected cost of a question, in words."""
    return str(estimate([], options=ModelOptions.from_settings(settings), also=[question]))


def _question(of: str, agent_id: str, rules: str, schema: dict[str, Any], **asked: Any) -> Question:
    version = f"{of}-1-{content_hash({'rules': rules, 'schema': schema})[:8]}"
    return Question(kind=KIND, system=rules, schema=schema, agent_id=agent_id, prompt_version=version, **asked)


def write_draft(draft: Draft, backend: Backend) -> Drafted:
    """Ask, and write the items without a problem, marked as drafts; ConfigError: the file exists."""
    answer = run_async(backend.ask([draft.question]))[0]
    warnings = tuple(
        f"message {visible(message_id)} reads as if it was written for a judge; nothing rests on it"
        for message_id in sorted(draft.said.suspicious)
    )
    if answer.data is None:
        return Drafted(warnings=warnings, failure=f"{answer.unscored}: {answer.detail}", usage=answer.usage)
    kept: list[Kept] = []
    dropped: list[str] = []
    for item in answer.data[draft.key]:
        quotes, problem = standing_quotes(draft.said, item["evidence"])
        if problem := problem or draft.problem(item, kept):
            dropped.append(f"{visible(item[draft.part])[:80]!r}: {problem}")
        else:
            kept.append((item, quotes))
    if kept:
        write_new(draft.path.parent, {draft.path.name: draft.text(kept)})
    return Drafted(draft.path if kept else None, len(kept), tuple(dropped), warnings, usage=answer.usage)


def check_free(path: Path) -> None:
    """Look whether a draft can go to a path; ConfigError: something is there, which is not overwritten."""
    if path.is_symlink() or path.exists():
        why = "exists already and is not overwritten; read it, then move it away or delete it"
        raise ConfigError(Problem(why, str(path)))


def standing_quotes(said: AgentTranscript, evidence: Sequence[Mapping[str, str]]) -> tuple[list[DraftQuote], str]:
    """Return the quotes that are in the messages they name; without any, also the reason."""
    found: list[DraftQuote] = []
    why = "it has no quote"
    for item in evidence:
        checked = checked_quote(said.trajectory, item["message"], item["quote"])
        if not checked.verified or checked.message_id is None:
            why = "none of its quotes is in the messages"
        elif len(tokenize(item["quote"])) < _FEWEST_WORDS:
            why = f"its quotes are shorter than {_FEWEST_WORDS} words"
        elif checked.message_id in said.suspicious:
            why = "it rests on a message that reads as if it was written for a judge"
        else:
            found.append(DraftQuote(checked.message_id, " ".join(item["quote"].split())))
    return found, "" if found else why


def text_problem(text: str) -> str:
    """Return the problem of a sentence of a model, or an empty text."""
    if not text.strip():
        return "it is empty"
    if len(text) > _LONGEST:
        return f"it is longer than {_LONGEST} characters"
    if not text.isprintable():
        return "it holds characters that cannot be seen"
    return "it reads as if it was written for a judge" if reads_as_injection(text) else ""


def quoted(text: str) -> str:
    """Return a text as a YAML scalar on one line in double quotes, without invisible characters."""
    return plain_json(visible(text))


def plan_claims(world: World, agent_id: str, dimension: str, window: str = "all") -> Draft:
    """Return the question that drafts an agent's claims; ConfigError: bad input, no messages, or a draft that is there already."""
    (name,) = select_dimensions([dimension])
    said = what_was_said(world, agent_id, window)
    known = find_proposition_set(world.root / PROPOSITIONS, name, agent_id)
    there_already = known.propositions if known else []
    claims = [item.claim for item in there_already]
    there = f"Claims that are there already and need not be said again, as JSON:\n{plain_json(claims)}"
    context = [there] if claims else []
    persona = None
    with suppress(ConfigError):
        persona = load_persona(world.root, agent_id).persona
    if persona and DIMENSIONS[name].shows_persona:
        context.insert(0, f"Persona of the speaker, as JSON:\n{plain_json({'persona': persona})}")
    # Claims are in the persona's language, as they are held against it; without one, in that of the messages.
    language = language_of([persona] if persona else [entry.text for entry in said.trajectory.entries])
    written = "" if language in (ENGLISH, UNKNOWN) else f" Write them in the language with the ISO 639 code {language}."
    path = world.root / PROPOSITIONS / name / f"{agent_id}.draft.yaml"
    check_free(path)
    question = _question(
        "draft-claims",
        agent_id,
        CLAIM_RULES,
        CLAIM_SCHEMA,
        subject={"of": "claims", "dimension": name, "persona": persona, "claims": claims, **said.subject},
        evidence=said.evidence,
        ask=f"Write at most {_MOST_CLAIMS} claims about {SPEAKER}. They are about {DIMENSIONS[name].about}.{written}",
        max_tokens=_MAX_TOKENS,
        label=f"draft of {name} claims of {agent_id}",
        context=tuple(context),
        dimension=name,
    )
    taken = {item.id for item in there_already}

    def text(kept: Sequence[Kept]) -> str:
        facts = {"agent_id": agent_id, "dimension": name, "language": language}
        return _filled("claims.yaml.j2", **facts, kept=kept, free_id=lambda wanted: _free_id(wanted, taken))

    return Draft(path, question, said, "claims", "claim", _claim_problem, text, language)


def _claim_problem(item: Mapping[str, Any], kept: Sequence[Kept]) -> str:
    if found := text_problem(item["claim"]) or text_problem(item["if_low"]):
        return found
    odd = [name for name in template_variables(item["claim"]) if name != "agent_name"]
    if odd:
        return f"{{{{{odd[0]}}}}} would not be filled in"
    if "{{agent_name}}" not in item["claim"]:
        return "it does not speak of {{agent_name}}"
    return "there are enough already" if len(kept) == _MOST_CLAIMS else ""


def _free_id(wanted: str, taken: set[str]) -> str:
    """Return an id that no claim has, and remember it."""
    stem = _ID.sub("-", wanted.lower()).strip("-")[:60].strip("-") or "draft"
    return apart(stem, taken)


def plan_persona(world: World, agent_id: str, window: str = "all") -> Draft:
    """Return the question that drafts a persona from messages; ConfigError: bad input, no messages, or a draft that is there."""
    path, said = world.root / PERSONAS / f"{agent_id}.draft.yaml", what_was_said(world, agent_id, window)
    check_free(path)
    question = _question(
        "draft-persona",
        agent_id,
        PERSONA_RULES,
        PERSONA_SCHEMA,
        subject={"of": "persona", **said.subject},
        evidence=said.evidence,
        ask=f"Write the persona of {SPEAKER}.",
        max_tokens=_MAX_TOKENS,
        label=f"draft of a persona of {agent_id}",
    )

    def text(kept: Sequence[Kept]) -> str:
        return _filled("persona.yaml.j2", said=said, kept=kept, parts=PARTS)

    return Draft(path, question, said, "sentences", "sentence", lambda item, _: text_problem(item["sentence"]), text)


def _filled(template: str, **facts: Any) -> str:
    loader = FileSystemLoader(_DATA)
    made = Environment(loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters.update(visible=visible, quoted=quoted)
    made.filters["wrapped"] = partial(textwrap.wrap, width=_WIDTH, initial_indent="  ", subsequent_indent="  ")
    return made.get_template(template).render(facts).removesuffix("\n") + "\n"
