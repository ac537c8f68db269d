"""Support voices of the benchmarks as messages, with what they say later."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml

from persona_pipeline.world.models import Message

LINES = Path(__file__).parents[2] / "benchmarks" / "everyday"
FIRST_DAY, DAY, TALK = datetime(2026, 5, 29, 9, tzinfo=UTC), 8, 4


def lines_of(language: str, kind: str = "voice") -> list[str]:
    return yaml.safe_load((LINES / f"{language}.yaml").read_text(encoding="utf-8"))[kind]


def support(language: str, texts: Sequence[str], name: str | None = None, **extras: str) -> list[Message]:
    """Return an agent's messages, four a conversation, two conversations a day."""
    return [
        Message(
            f"{language}-{n}",
            name or language,
            text,
            FIRST_DAY + timedelta(days=n // DAY, minutes=n % DAY),
            f"{language}-{n // TALK}",
            extras=extras,
        )
        for n, text in enumerate(texts)
    ]


def drifted(language: str, name: str | None = None) -> list[Message]:
    """Return 120 messages of its own, and from 13 June on 40 courtesies of a support desk."""
    return support(language, [*lines_of(language)[:120], *lines_of(language, "courtesies")[:40]], name)


def together(*said: Sequence[Message]) -> list[Message]:
    return sorted((item for messages in said for item in messages), key=lambda item: (item.created_at, item.id))
