"""Known facts about an agent: canon, which people write in a file next to its persona, and the facts in the store."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, time
from pathlib import Path

import sqlalchemy as sa
from pydantic import BaseModel, Field
from sqlalchemy.engine import Connection

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import upsert
from persona_pipeline.base.documents.json import visible, write_atomically
from persona_pipeline.base.documents.yaml import load_document, parse_document, validate_document
from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.base.options import Day
from persona_pipeline.judging.claims import plain_json
from persona_pipeline.scoring.facts.reading import KINDS, Fact
from persona_pipeline.world.models import NotBlank
from persona_pipeline.world.personas import CANON, PERSONAS, check_agent_id, find_yaml

# The store keeps this number of the newest facts of an agent.
MOST_KEPT = 500
_INDENT = re.compile(r"^( *)- ", re.MULTILINE)


class CanonFact(BaseModel, extra="forbid"):
    """One thing that is so of an agent, whatever it says."""

    fact: NotBlank = Field(max_length=300, description="What is so, in a sentence.")
    kind: str = Field("", pattern=f"^({'|'.join(KINDS)})?$", description="Facts it is held against; by default all.")
    since: Day | None = Field(None, description="Nothing said before this day is held against it.")


class CanonFile(BaseModel, extra="forbid", title="Canon"):
    """What is laid down of an agent, ``personas/AGENT.canon.yaml``."""

    canon: list[CanonFact] = Field(description="What is so of the agent.")


def load_canon(root: Path, agent_id: str) -> list[Fact]:
    """Return the canon facts of an agent with file and line; empty without a file. ``ConfigError``: the file is not valid."""
    path = find_yaml(root / PERSONAS, f"{check_agent_id(agent_id)}{CANON}")
    return [] if path is None else parse_canon(path)


def parse_canon(path: Path, text: str | None = None) -> list[Fact]:
    """Return the facts of a canon file; ``text``: content to parse instead of the file's."""
    document = load_document(path) if text is None else parse_document(text, str(path))
    found = []
    for number, item in enumerate(validate_document(CanonFile, document).canon):
        source = f"{PERSONAS}/{path.name}:{document.where(('canon', number))[0]}"
        since = item.since and datetime.combine(item.since, time(), UTC)
        said = dict.fromkeys(("value", "quote", "line"), " ".join(item.fact.split()))
        found.append(Fact(kind=item.kind, source=source, said_at=since, is_canon=True, **said))
    return found


def mark_canon(root: Path, agent_id: str, fact: Fact) -> Path:
    """Add a fact to the canon of its agent and return the file; a fact that is there already is not added again.

    ``ConfigError``: the file is not valid, or its list is not at the end of the file.
    """
    folder, stem = root / PERSONAS, f"{check_agent_id(agent_id)}{CANON}"
    path = find_yaml(folder, stem) or folder / f"{stem}.yaml"
    text, known = ("canon:", []) if not path.exists() else (path.read_text(encoding="utf-8"), parse_canon(path))
    said = visible(fact.text.removeprefix(f"{fact.kind}: "))[:300]
    if any((item.kind, item.value) == (fact.kind, said) for item in known):
        return path
    start = f"\n{(_INDENT.findall(text) or [''])[0]}"
    since = f"{start}  since: {fact.said_at:%Y-%m-%d}" if fact.said_at else ""
    text = f"{text.rstrip()}{start}- fact: {plain_json(said)}{start}  kind: {fact.kind}{since}\n"
    try:
        parse_canon(path, text)
    except ConfigError as error:
        why = "cannot be added to; make 'canon', a list, the last thing in it, or add the fact by hand"
        raise ConfigError(Problem(why, str(path))) from error
    write_atomically(path, text)
    return path


def known_facts(connection: Connection, agent_id: str) -> list[Fact]:
    """Return the stored facts of an agent, oldest first, without those whose message was deleted."""
    table, messages = tables.remembered, tables.run_messages
    kept = connection.execute(sa.select(table.c.value).where(table.c.name == _name(agent_id))).scalar_one_or_none()
    facts = [Fact.model_validate(item) for item in kept or ()]
    among = messages.c.id.in_({fact.source for fact in facts})
    there = set(connection.execute(sa.select(messages.c.id).where(among)).scalars()) if facts else set()
    return [fact for fact in facts if fact.source in there]


def keep_facts(connection: Connection, agent_id: str, facts: Sequence[Fact]) -> None:
    """Add facts to the stored ones and keep the newest 500."""
    every = {fact.id: fact for fact in (*known_facts(connection, agent_id), *facts)}
    newest = sorted(every.values(), key=lambda fact: (str(fact.said_at), fact.id))[-MOST_KEPT:]
    row = {"name": _name(agent_id), "value": [fact.model_dump(mode="json") for fact in newest]}
    upsert(connection, tables.remembered, [row])


def _name(agent_id: str) -> str:
    return f"facts of {agent_id}"
