"""Propositions: claims about an agent, the set they stand in, their files as they are written, and template variables (spec/1)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import regex
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from persona_pipeline.base.documents.json import content_hash
from persona_pipeline.world.propositions.dimensions import ALL_DIMENSIONS, DIMENSIONS


@dataclass(frozen=True)
class WindowDefaults:
    """How many entries of a trajectory are shown when a file does not say."""

    first_n: int
    last_n: int


EVALUATION_WINDOW_DEFAULTS = WindowDefaults(first_n=10, last_n=100)
ACTION_LEVEL_WINDOW_DEFAULTS = WindowDefaults(first_n=5, last_n=10)


@dataclass(frozen=True)
class Proposition:
    """One claim. ``inverted``: true is bad, so the raw score is flipped."""

    id: str
    claim: str
    weight: float = 1.0
    inverted: bool = False
    recommendations_for_improvement: str | None = None


@dataclass(frozen=True)
class Catchphrase:
    """A phrase the agent should use at a rate (uses per message) within ``min_rate`` and ``max_rate``."""

    phrase: str
    min_rate: float
    max_rate: float


@dataclass(frozen=True)
class PropositionSet:
    """The merged propositions of one dimension for one agent (default file, then the agent's)."""

    dimension: str
    propositions: tuple[Proposition, ...]
    agent_id: str | None = None
    include_personas: bool = True
    hard: bool = False
    target_type: str = "agent"
    level: str = "evaluation"
    first_n: int | None = None
    last_n: int | None = None
    catchphrases: tuple[Catchphrase, ...] = ()

    def window(self, defaults: WindowDefaults = EVALUATION_WINDOW_DEFAULTS) -> tuple[int, int]:
        """Return ``(first_n, last_n)`` with the context's defaults where the files say nothing."""
        first_n = defaults.first_n if self.first_n is None else self.first_n
        last_n = defaults.last_n if self.last_n is None else self.last_n
        return first_n, last_n

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; absent optional values are left out."""
        data: dict[str, Any] = {"dimension": self.dimension}
        for name in ("agent_id", "include_personas", "hard", "target_type", "level", "first_n", "last_n"):
            if getattr(self, name) is not None:
                data[name] = getattr(self, name)
        if self.catchphrases:
            data["catchphrases"] = [vars(catchphrase) for catchphrase in self.catchphrases]
        data["propositions"] = [
            {key: value for key, value in vars(proposition).items() if value is not None}
            for proposition in self.propositions
        ]
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "PropositionSet":
        """Return the set that ``to_dict`` wrote."""
        rest = {key: value for key, value in data.items() if key not in ("propositions", "catchphrases")}
        return cls(
            **rest,
            propositions=tuple(Proposition(**item) for item in data["propositions"]),
            catchphrases=tuple(Catchphrase(**item) for item in data.get("catchphrases", ())),
        )

    @property
    def hash(self) -> str:
        """SHA-256 of the set's content."""
        return content_hash(self.to_dict())


if TYPE_CHECKING:
    DimensionName = str
else:
    DimensionName = Literal[ALL_DIMENSIONS]

Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]
Rate = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class PropositionEntry(BaseModel):
    """One claim."""

    model_config = ConfigDict(extra="forbid", title="Proposition")

    id: str = Field(description="Unique in the merged set.", min_length=1)
    claim: str = Field(
        description="What is true of the agent. {{agent_name}}, {{action}}, {{channel_name}}, {{recipient_name}}."
    )
    weight: Weight = Field(1.0, description="Relative weight in the dimension's score.")
    inverted: bool = Field(False, description="An anti-pattern: true is bad, so the raw score is flipped.")
    recommendations_for_improvement: str | None = Field(None, description="Advice given when the score is low.")
    draft: bool = Field(False, description="A proposal that nobody has read yet: checked, and not judged.")

    @field_validator("id", "claim")
    @classmethod
    def _not_blank(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("must not be empty")
        return value

    @field_validator("id")
    @classmethod
    def _not_reserved(cls, value: str) -> str:
        if value.startswith("_"):
            raise ValueError("must not start with '_'; such ids are kept for computed scores")
        return value


class CatchphraseEntry(BaseModel):
    """A phrase and the rate, in uses per message, it should keep within."""

    model_config = ConfigDict(extra="forbid", title="Catchphrase")

    phrase: str
    min_rate: Rate = 0.0
    max_rate: Rate = 1.0

    @field_validator("phrase")
    @classmethod
    def _not_blank(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("must not be empty")
        return value

    @model_validator(mode="after")
    def _ordered(self) -> "CatchphraseEntry":
        if self.min_rate > self.max_rate:
            raise ValueError(f"min_rate {self.min_rate:g} is above max_rate {self.max_rate:g}; swap them")
        return self


class PropositionFile(BaseModel):
    """``propositions/<dimension>/<_default or agent_id>.yaml``. A key that is absent keeps the default file's value."""

    model_config = ConfigDict(extra="forbid", title="Propositions")

    dimension: DimensionName
    agent_id: str | None = Field(None, description="The file's name; '_default' or absent in _default.yaml.")
    include_personas: bool = Field(True, description="Whether the persona is in the judge's context.")
    hard: bool = Field(False, description="Scores below 9 lose 20 percent.")
    target_type: Literal["agent", "environment"] = Field(
        "agent", description="One agent's messages, or the whole channel."
    )
    level: Literal["evaluation", "action"] = Field(
        "evaluation", description="Adherence only: judge the window, or single actions."
    )
    first_n: Count | None = Field(
        None, description="First entries of the trajectory that are shown (default 10; action 5)."
    )
    last_n: Count | None = Field(
        None, description="Last entries of the trajectory that are shown (default 100; action 10)."
    )
    catchphrases: list[CatchphraseEntry] = Field(default_factory=list, description="Fluency only.")
    propositions: list[PropositionEntry] = Field(default_factory=list)


TEMPLATE_VARIABLES = ("agent_name", "action", "channel_name", "recipient_name")
_VARIABLE = re.compile(r"\{\{([A-Za-z0-9_]+)\}\}")
_SPACED = re.compile(r"\{\{(?=\s|[^{}]*\s\}\})\s*([A-Za-z0-9_]+)\s*\}\}")


# Letters of any script, digits and the signs that names have: no quotes, no line breaks, no braces.
_NAME = regex.compile(r"[\p{L}\p{M}\p{N}](?:[\p{L}\p{M}\p{N} _.&+#@/'’()-]{0,62}[\p{L}\p{M}\p{N}_.+#)])?")


def claim_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return variables as they may stand in a claim, which a judge trusts: names are data of others.

    Names of channels and recipients are quoted, and none is longer than 64 characters or has other signs than names have: what is
    not such a name becomes a neutral label.
    """
    return {name: _in_claim(name, value) for name, value in variables.items()}


def is_plain_name(text: str) -> bool:
    """Whether a text is a name that may stand in a claim: at most 64 letters, digits, spaces and ``_.&+#@/'’()-``."""
    return text.isprintable() and _NAME.fullmatch(text) is not None


def _in_claim(name: str, value: str) -> str:
    if name == "action":
        return value
    if not is_plain_name(value):
        return f"the {name.removesuffix('_name')}"
    return value if name == "agent_name" else f'"{value}"'


def fill_template(text: str, variables: Mapping[str, str]) -> str:
    """Return the text with every ``{{name}}`` whose name is a key of ``variables`` replaced, once; values are literal."""
    return _VARIABLE.sub(lambda match: variables.get(match[1], match[0]), text)


def filled_variables(dimension: str, level: str) -> tuple[str, ...]:
    """Return the variables an evaluation fills in claims of a dimension; ``level`` is that of the file."""
    return TEMPLATE_VARIABLES if level == "action" else DIMENSIONS[dimension].variables


def spaced_variables(text: str) -> list[str]:
    """Return what looks like a variable and is none for the spaces in its braces, such as ``{{ agent_name }}``."""
    return [match[0] for match in _SPACED.finditer(text)]


def template_variables(text: str) -> list[str]:
    """Return the names used as ``{{name}}``, in order, each once."""
    return list(dict.fromkeys(_VARIABLE.findall(text)))
