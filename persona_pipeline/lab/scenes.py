"""Scenes that an agent answers, and those of an interview: a visitor's lines, from ``interviews/AGENT.yaml`` or the package's."""

import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from pydantic import BaseModel, Field

from persona_pipeline.base.documents.json import content_hash
from persona_pipeline.base.documents.yaml import load_document, validate_document
from persona_pipeline.base.errors import ConfigError, NothingError, did_you_mean
from persona_pipeline.scoring.text.agreement import ENGLISH, language_of
from persona_pipeline.scoring.text.tokens import base_language, languages_of
from persona_pipeline.world.models import Message, NotBlank, Window
from persona_pipeline.world.personas import check_agent_id, find_yaml, load_persona
from persona_pipeline.world.world import World

INTERVIEWS = "interviews"
SceneKind = Literal["small_talk", "pressure", "off_topic", "meta", "flattery", "long", "language", "claim"]
KINDS: tuple[str, ...] = get_args(SceneKind)
_SHIPPED = Path(__file__).parent / "data" / "interview_scenes.toml"
_MOST_READ = 200


# Time of written scenes: judgments must not depend on the day.
SOME_DAY = Window(datetime(2026, 1, 1, tzinfo=UTC))


@dataclass(frozen=True)
class Scene:
    """One scene of a comparison or an interview.

    Attributes:
        window: its messages are judged; of an answered scene, its time.
        context: messages before the answer, oldest first; empty where messages are judged as they are.
        turns: the visitor's lines, whatever the answers are; empty: the context is answered, once.
        conversation: its scenes are alike and count once, as their mean; they are neighbours. Empty: it is alone.
        attempt: 0-based: the same scene may be answered again.
        kind: of an interview's scene; a change may show in scenes of a single kind.
        language: what its lines are in, as a code such as ``de``; "": not said.
    """

    id: str
    window: Window = SOME_DAY
    context: tuple[Message, ...] = ()
    turns: tuple[str, ...] = ()
    attempt: int = 0
    conversation: str = ""
    kind: str = ""
    language: str = ""

    @property
    def lines(self) -> tuple[str, ...]:
        """What the visitor says before each answer; ``""`` where all of that is in the context."""
        return self.turns or ("",)

    @property
    def hash(self) -> str:
        """SHA-256 of the visitor's lines, which identifies an interview's scene together with its id."""
        return content_hash([self.kind, self.language, *self.turns])

    def answer_id(self, place: int) -> str:
        """Return the id of an answer as a message, by its place (from 0) in the scene."""
        return f"{self.id}-answer-{place + 1}" if place else f"{self.id}-answer"


class SceneFields(BaseModel, extra="forbid"):
    """A scene as it is written."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$", description="Its name; an interview is compared by it.")
    kind: SceneKind = Field(description="What it tries: each kind is told apart in the report.")
    language: str = Field("", pattern=r"^([a-z]{2,3})?$", description="The language of its lines, such as de.")
    claim: str = Field("", description="The claim it is meant to bring out, as dimension/id.")
    turns: list[NotBlank] = Field(
        min_length=1, max_length=60, description="What the visitor says, line by line, whatever the answers are."
    )


class InterviewFile(BaseModel, extra="forbid", title="Interview"):
    """The scenes of an agent's interview, ``interviews/<agent_id>.yaml``."""

    agent_id: str | None = Field(None, description="The agent's id; must be the file's name.")
    scenes: list[SceneFields] = Field(min_length=1, max_length=400, description="The scenes, in any order.")


def interview_scenes(
    world: World,
    agent_id: str,
    languages: Sequence[str] | None = None,
    *,
    kinds: Collection[str] | None = None,
) -> list[Scene]:
    """Return an agent's scenes: those of its file, else the package's in its languages.

    Args:
        languages: of the package's scenes, the agent's own first; None: those of its messages, or of its persona.
        kinds: only these; None: all.

    Raises ``ConfigError``: the agent does not exist, its file is not valid, a kind is unknown, or no scene is left.
    """
    if unknown := next((kind for kind in kinds or () if kind not in KINDS), None):
        raise ConfigError(f"kind of scene {unknown!r} is unknown{did_you_mean(unknown, KINDS)}; use {', '.join(KINDS)}")
    path = find_yaml(world.root / INTERVIEWS, check_agent_id(agent_id))
    found = load_scenes(path) if path else shipped_scenes(languages or spoken_languages(world, agent_id))
    found = [scene for scene in found if kinds is None or scene.kind in kinds]
    if not found:
        raise NothingError(f"{agent_id} has no scene of these kinds: {', '.join(sorted(kinds or ()))}")
    return found


def load_scenes(path: Path) -> list[Scene]:
    """Read a file of scenes; ConfigError: it is not valid, with every problem and its line."""
    document = load_document(path)
    file = validate_document(InterviewFile, document)
    problems = [
        document.problem(("scenes", place, "id"), f"{scene.id!r} stands twice; give each scene a name of its own")
        for place, scene in enumerate(file.scenes)
        if scene.id in [other.id for other in file.scenes[:place]]
    ]
    if file.agent_id not in (None, path.stem):
        problems.append(document.problem(("agent_id",), f"{file.agent_id!r} is not the file's name; write {path.stem}"))
    if problems:
        raise ConfigError(problems)
    return [Scene(item.id, turns=tuple(item.turns), kind=item.kind, language=item.language) for item in file.scenes]


def shipped_scenes(languages: Sequence[str]) -> list[Scene]:
    """Return the package's scenes in the first language, and small talk in each of the others.

    Languages without scenes are skipped; without any, scenes are in English.
    """
    known = [name for name in dict.fromkeys(map(base_language, languages)) if name in _shipped()] or [ENGLISH]
    by_kind = [(kind, known[0], scenes) for kind, scenes in _shipped()[known[0]].items()]
    by_kind += [("language", name, _shipped()[name]["small_talk"]) for name in known[1:]]
    return [
        Scene(f"{kind}-{f'{name}-' * (kind == 'language')}{place}", turns=tuple(turns), kind=kind, language=name)
        for kind, name, scenes in by_kind
        for place, turns in enumerate(scenes, start=1)
    ]


@cache
def _shipped() -> Mapping[str, Mapping[str, Sequence[Sequence[str]]]]:
    return tomllib.loads(_SHIPPED.read_text(encoding="utf-8"))


def spoken_languages(world: World, agent_id: str) -> list[str]:
    """Return the languages an agent writes in, most first; without messages the language of its persona."""
    world.sync_messages()
    said = [message.text for message in world.messages(agent_id=agent_id)[-_MOST_READ:]]
    return languages_of(said) if said else [language_of([load_persona(world.root, agent_id).persona])]
