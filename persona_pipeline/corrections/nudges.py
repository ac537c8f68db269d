"""Nudge texts: data, one file an agent, with a fallback for everybody else."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

from persona_pipeline.documents import load_document, validate_document
from persona_pipeline.errors import ConfigError, Problem
from persona_pipeline.propositions.templates import claim_variables, fill_template
from persona_pipeline.world.files import find_yaml, is_agent_id, yaml_stems
from persona_pipeline.world.models import seed_from

NUDGES = "nudges"
FALLBACK = "_default"
_PACKAGED = Path(__file__).parent / "data" / NUDGES

NudgeText = Annotated[str, Field(min_length=1, max_length=2000)]


class _NudgeFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    agent_id: str | None = None
    anti_convergence: list[NudgeText] = Field(min_length=1)

    @field_validator("anti_convergence")
    @classmethod
    def _not_blank(cls, texts: list[str]) -> list[str]:
        if not all(text.strip() for text in texts):
            raise ValueError("holds an empty text")
        return texts


@dataclass(frozen=True)
class Nudges:
    """Texts by agent id; ``_default`` is for agents without their own.

    ``{{agent_name}}`` and, where it is known, ``{{channel_name}}`` are filled in.
    """

    texts: Mapping[str, tuple[str, ...]]

    @classmethod
    def load(cls, root: Path | None = None) -> "Nudges":
        """Return the nudges that come with the package, with those of a world's ``nudges`` folder in their place.

        Raises:
            ConfigError: a file of the folder is not valid; every problem of all of them.
        """
        texts = dict(_packaged())
        if root is not None and (root / NUDGES).is_dir():
            texts |= _read(root / NUDGES)
        return cls(texts)

    def choose(self, agent_id: str, *seed: str, variables: Mapping[str, str] | None = None) -> str:
        """Return one of the agent's texts; which one depends on the seed alone."""
        texts = self.texts.get(agent_id) or self.texts[FALLBACK]
        text = random.Random(seed_from(agent_id, *seed)).choice(texts)
        return fill_template(text, claim_variables(variables or {})).strip()


@cache
def _packaged() -> Mapping[str, tuple[str, ...]]:
    return _read(_PACKAGED)


def _read(folder: Path) -> dict[str, tuple[str, ...]]:
    texts: dict[str, tuple[str, ...]] = {}
    problems: list[Problem] = []
    for stem in yaml_stems(folder):
        try:
            path = find_yaml(folder, stem)
            if path is not None:
                texts[stem] = _texts(path, stem)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return texts


def _texts(path: Path, stem: str) -> tuple[str, ...]:
    document = load_document(path)
    if stem != FALLBACK and not is_agent_id(stem):
        raise ConfigError(Problem(f"{stem!r} cannot be an agent's id; name the file after the agent", str(path)))
    file = validate_document(_NudgeFile, document)
    if file.agent_id not in (None, stem):
        raise ConfigError(document.problem(("agent_id",), f"agent_id is not the file's name; write {stem!r}"))
    return tuple(file.anti_convergence)
