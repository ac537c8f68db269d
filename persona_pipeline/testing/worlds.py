"""Worlds for tests, written to a folder piece by piece."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from persona_pipeline.world.messages.store import MESSAGES
from persona_pipeline.world.personas import PERSONAS
from persona_pipeline.world.propositions.models import ALL_DIMENSIONS
from persona_pipeline.world.world import World

FIRST_MESSAGE = datetime(2026, 3, 2, 9, tzinfo=UTC)
SAID = (
    ("ann", "general", "2026-03-02T09:00:00Z", "The kettle is older than I am."),
    ("bob", "general", "2026-03-02T09:05:00Z", "Kettles do not age, they mature."),
    ("ann", None, "2026-03-03T10:00:00Z", "Bob has feelings about kettles."),
    ("ann", "general", "2026-03-09T09:00:00Z", "New week, same kettle."),
    ("bob", "general", "2026-03-09T09:10:00Z", "I oiled it."),
    ("ann", "general", "2026-03-10T11:00:00Z", "You oiled a kettle?"),
    ("bob", "general", "2026-03-10T11:01:00Z", "Twice. It purrs now."),
    ("ann", None, "2026-03-11T12:00:00Z", "Please hide the oil."),
)


class WorldBuilder:
    """Writes a world's files piece by piece; every call is on disk when it returns.

        world = (
            WorldBuilder(tmp_path)
            .persona("ann", "Ann is dry and brief.")
            .claim("adherence", "dry", "{{agent_name}} is dry")
            .say("ann", "The kettle is older than I am.")
            .open()
        )

    Args:
        root: the world's folder; it is made if it is not there.
    """

    def __init__(self, root: Path | str) -> None:
        self.root: Path = Path(root)
        self._claims: dict[tuple[str, str | None], list[dict[str, Any]]] = {}
        self._count = 0
        (self.root / PERSONAS).mkdir(parents=True, exist_ok=True)

    def persona(self, agent_id: str, text: str, *, display_name: str | None = None, **fields: Any) -> Self:
        """Write who an agent is.

        Args:
            display_name: None: the id with a capital.
            fields: further fields of the persona file, such as ``aliases``.
        """
        self._write(
            f"{PERSONAS}/{agent_id}.yaml",
            {"display_name": display_name or agent_id.title(), "persona": text, **fields},
        )
        return self

    def claim(self, dimension: str, name: str, claim: str, *, agent_id: str | None = None, **fields: Any) -> Self:
        """Add a claim to a dimension.

        Args:
            name: the claim's id.
            agent_id: the agent of the claim; None: all agents (``_default.yaml``).
            fields: further fields of the claim, such as ``weight``.
        """
        claims = self._claims.setdefault((dimension, agent_id), [])
        claims.append({"id": name, "claim": claim, **fields})
        owner = {} if agent_id is None else {"agent_id": agent_id}
        self._write(
            f"propositions/{dimension}/{agent_id or '_default'}.yaml",
            {"dimension": dimension, **owner, "propositions": claims},
        )
        return self

    def say(
        self,
        agent_id: str,
        text: str,
        *,
        at: datetime | str | None = None,
        channel: str | None = "general",
        recipient: str | None = None,
    ) -> Self:
        """Add a message, ``m1``, ``m2`` and so on, to ``messages/all.jsonl``.

        Args:
            at: its time, as a datetime or RFC 3339; None: a minute after the first message for each one before.
            channel: where; it is left out when there is a recipient.
            recipient: the recipient of a direct message.
        """
        self._count += 1
        when = FIRST_MESSAGE + timedelta(minutes=self._count - 1) if at is None else at
        row = {
            "id": f"m{self._count}",
            "agent_id": agent_id,
            "text": text,
            "created_at": when if isinstance(when, str) else when.isoformat(),
            **({"channel": channel} if recipient is None else {"recipient": recipient}),
        }
        path = self.root / MESSAGES / "all.jsonl"
        path.parent.mkdir(exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        return self

    def open(self, database_url: str | None = None) -> World:
        """Return the world in its current state.

        Args:
            database_url: its store; by default the settings', else SQLite in the world's folder.

        Raises:
            ConfigError: the store cannot be opened.
        """
        return World.open(self.root, database_url)

    def _write(self, name: str, data: dict[str, Any]) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # JSON is YAML.
        path.write_text(json.dumps(data, indent=1), encoding="utf-8")


def write_small_world(root: Path, said: Iterable[tuple[str, str | None, str, str]] = SAID) -> Path:
    """Write a world of two agents (ann, bob) with one claim a dimension and return its folder.

    Args:
        said: messages as (speaker, channel, time, text); channel None: directly to bob.
    """
    builder = WorldBuilder(root)
    builder.persona("ann", "Ann is dry and brief.").persona("bob", "Bob loves machines.")
    for dimension in ALL_DIMENSIONS:
        builder.claim(dimension, f"{dimension}-claim", "{{agent_name}} is interesting")
    for agent_id, channel, time, text in said:
        builder.say(agent_id, text, at=time, channel=channel, recipient=None if channel else "bob")
    return root
