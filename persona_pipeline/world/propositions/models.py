"""Dimensions; propositions, which are claims about an agent; their sets and files; and template variables."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Literal

import regex
from pydantic import BaseModel, Field, field_validator, model_validator

from persona_pipeline.base.documents.json import content_hash
from persona_pipeline.base.errors import ConfigError, Problem, did_you_mean
from persona_pipeline.base.text import names_in
from persona_pipeline.world.models import NotBlank

# ``module:NAME`` of further dimensions, with commas between them.
VARIABLE = "PERSONA_DIMENSIONS"


@dataclass(frozen=True)
class Dimension:
    """A dimension.

    Attributes:
        name: in files, tables and options.
        scorer: plans its judgments and computes its score, ``package.module:function``; see ``scoring.Scorer``.
        about: subject of its claims and what their judge sees, in a clause, for drafts of claims.
        label, short_label: its heading, and a short one; "": the name.
        gloss: one or two words that explain it.
        shows_persona: the judge sees the persona unless a file says otherwise; other dimensions never show it.
        shows_channel: its judge reads a whole channel, which claims may name.
        by_action: files may ask for single messages to be judged (``level: action``).
        has_catchphrases: files may list phrases.
        in_overall: its score is part of the overall score.
        judged_weight, parts: weights of its judged claims and of its computed parts, by id, in its score.
    """

    name: str
    scorer: str
    about: str
    label: str = ""
    short_label: str = ""
    gloss: str = ""
    shows_persona: bool = False
    shows_channel: bool = False
    by_action: bool = False
    has_catchphrases: bool = False
    in_overall: bool = True
    judged_weight: float = 1.0
    parts: Mapping[str, float] = field(default_factory=dict)

    @property
    def heading(self) -> str:
        """Its label, or its name as one."""
        return self.label or self.name.replace("_", " ").capitalize()

    @property
    def variables(self) -> tuple[str, ...]:
        """The template variables that its claims may use."""
        return ("agent_name", "channel_name") if self.shows_channel else ("agent_name",)


ADHERENCE = Dimension(
    "adherence",
    "persona_pipeline.scoring.adherence:plan_adherence",
    "how it writes and what it cares about; the judge will see the persona and many of its messages",
    short_label="adher.",
    shows_persona=True,
    by_action=True,
)

CONSISTENCY = Dimension(
    "consistency",
    "persona_pipeline.scoring.consistency:plan_consistency",
    "what stays the same from week to week; the judge will see pairs of excerpts, earlier and later, without names",
    short_label="consist.",
)

FLUENCY = Dimension(
    "fluency",
    "persona_pipeline.scoring.fluency:plan_fluency",
    "how varied its sentences and messages are built; the judge will see ten of its messages",
    gloss="variety",
    has_catchphrases=True,
    judged_weight=0.4,
    parts={"_ngram": 0.4, "_catchphrase": 0.2},
)

CONVERGENCE = Dimension(
    "convergence",
    "persona_pipeline.scoring.convergence:plan_convergence",
    "what tells it apart from other speakers by voice alone; the judge will see a whole channel, without names",
    short_label="converg.",
    gloss="distinct voices",
    shows_channel=True,
    judged_weight=0.4,
    parts={"_vocabulary": 0.3, "_agreement": 0.3},
)

IDEAS_QUANTITY = Dimension(
    "ideas_quantity",
    "persona_pipeline.scoring.ideas_quantity:plan_ideas_quantity",
    "which ideas of its own it brings; the judge will see whole channels",
    short_label="ideas",
    shows_persona=True,
    shows_channel=True,
    in_overall=False,
)


def _further(named: str) -> list[Dimension]:
    """Return the dimensions that ``VARIABLE`` names."""
    found = []
    for item in names_in(named):
        module, _, name = item.partition(":")
        try:
            dimension = getattr(import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigError(f"{VARIABLE}: {item!r} cannot be loaded: {error}; write module:NAME") from error
        if not isinstance(dimension, Dimension):
            raise ConfigError(f"{VARIABLE}: {item!r} is no persona_pipeline.world.propositions.models.Dimension")
        found.append(dimension)
    return found


BUILT_IN = (ADHERENCE, CONSISTENCY, FLUENCY, CONVERGENCE, IDEAS_QUANTITY)

# In the order they are reported.
DIMENSIONS: Mapping[str, Dimension] = {item.name: item for item in (*BUILT_IN, *_further(os.environ.get(VARIABLE, "")))}

ALL_DIMENSIONS: tuple[str, ...] = tuple(DIMENSIONS)


def dimension_label(name: str) -> str:
    """Return the heading of a dimension, by which every report calls it."""
    return DIMENSIONS[name].heading if name in DIMENSIONS else name.replace("_", " ").capitalize()


def select_dimensions(dimensions: Sequence[str] | None) -> list[str]:
    """Return the dimensions asked for, in their fixed order; None: all. ConfigError: one is unknown."""
    if dimensions is None:
        return list(ALL_DIMENSIONS)
    problems = [
        Problem(f"unknown dimension {d!r}{did_you_mean(d, ALL_DIMENSIONS) or '; known: ' + ', '.join(ALL_DIMENSIONS)}")
        for d in dimensions
        if d not in ALL_DIMENSIONS
    ]
    if problems:
        raise ConfigError(problems)
    return [dimension for dimension in ALL_DIMENSIONS if dimension in dimensions]


# How many entries of a trajectory are shown, first and last, when a file does not say.
EVALUATION_WINDOW_DEFAULTS, ACTION_LEVEL_WINDOW_DEFAULTS = (10, 100), (5, 10)


@dataclass(frozen=True)
class Proposition:
    """One claim. ``inverted``: true is bad, so the raw score is flipped. ``applies_to``: see ``PropositionEntry``."""

    id: str
    claim: str
    weight: float = 1.0
    inverted: bool = False
    recommendations_for_improvement: str | None = None
    applies_to: str | None = None


@dataclass(frozen=True)
class Catchphrase:
    """A phrase the agent should use at a rate (uses per message) within ``min_rate`` and ``max_rate``."""

    phrase: str
    min_rate: float
    max_rate: float


@dataclass(frozen=True)
class PropositionSet:
    """The merged propositions of a dimension for an agent (default file, then the agent's)."""

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

    def window(self, defaults: tuple[int, int] = EVALUATION_WINDOW_DEFAULTS) -> tuple[int, int]:
        """Return ``(first_n, last_n)`` with the context's defaults where the files say nothing."""
        first_n, last_n = defaults
        return first_n if self.first_n is None else self.first_n, last_n if self.last_n is None else self.last_n

    def about_messages(self) -> "PropositionSet":
        """Return the set without the claims that one message cannot show."""
        return replace(self, propositions=tuple(item for item in self.propositions if item.applies_to != "window"))

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


class PropositionEntry(BaseModel, extra="forbid", title="Proposition"):
    """One claim."""

    id: NotBlank = Field(description="Unique in the merged set.", min_length=1)
    claim: NotBlank = Field(
        description="What is true of the agent. {{agent_name}}, {{action}}, {{channel_name}}, {{recipient_name}}."
    )
    weight: Weight = Field(1.0, description="Relative weight in the dimension's score.")
    inverted: bool = Field(False, description="An anti-pattern: true is bad, so the raw score is flipped.")
    recommendations_for_improvement: str | None = Field(None, description="Advice given when the score is low.")
    applies_to: Literal["window"] | None = Field(
        None, description="window: a habit that one message cannot show, so no message is judged by it."
    )
    draft: bool = Field(False, description="A proposal that nobody has read yet: checked, and not judged.")

    @field_validator("id")
    @classmethod
    def _not_reserved(cls, value: str) -> str:
        if value.startswith("_"):
            raise ValueError("must not start with '_'; such ids are kept for computed scores")
        return value


class CatchphraseEntry(BaseModel, extra="forbid", title="Catchphrase"):
    """A phrase and the rate, in uses per message, it should keep within."""

    phrase: NotBlank
    min_rate: Rate = 0.0
    max_rate: Rate = 1.0

    @model_validator(mode="after")
    def _ordered(self) -> "CatchphraseEntry":
        if self.min_rate > self.max_rate:
            raise ValueError(f"min_rate {self.min_rate:g} is above max_rate {self.max_rate:g}; swap them")
        return self


class PropositionFile(BaseModel, extra="forbid", title="Propositions"):
    """``propositions/<dimension>/<_default or agent_id>.yaml``. A key that is absent keeps the default file's value."""

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
_SPACED = re.compile(
    r"\{\{(?=\s|[^{}]*\s\}\})\s*([A-Za-z0-9_]+)\s*\}\}"
    rf"|(?<!\{{)\{{\s*(?:{'|'.join(TEMPLATE_VARIABLES)})\s*\}}(?!\}})"
)

# Letters of any script, digits and the signs that names have: no quotes, no line breaks, no braces.
_NAME = regex.compile(r"[\p{L}\p{M}\p{N}](?:[\p{L}\p{M}\p{N} _.&+#@/'’()-]{0,62}[\p{L}\p{M}\p{N}_.+#)])?")


def claim_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return variables as they are written into a claim, which a judge trusts: names are other people's data.

    Names of channels and recipients are quoted. A name longer than 64 characters, or with signs that names do not have,
    becomes a neutral label.
    """
    return {name: _in_claim(name, value) for name, value in variables.items()}


def _in_claim(name: str, value: str) -> str:
    if name == "action":
        return value
    if not (value.isprintable() and _NAME.fullmatch(value)):
        return f"the {name.removesuffix('_name')}"
    return value if name == "agent_name" else f'"{value}"'


def fill_template(text: str, variables: Mapping[str, str]) -> str:
    """Return the text with every ``{{name}}`` whose name is a key of ``variables`` replaced, once; values are literal."""
    return _VARIABLE.sub(lambda match: variables.get(match[1], match[0]), text)


def filled_variables(dimension: str, level: str) -> tuple[str, ...]:
    """Return the variables an evaluation fills in claims of a dimension; ``level`` is that of the file."""
    return TEMPLATE_VARIABLES if level == "action" else DIMENSIONS[dimension].variables


def spaced_variables(text: str) -> list[str]:
    """Return what looks like a variable and is none for its braces, such as ``{{ agent_name }}`` and ``{agent_name}``."""
    return [match[0] for match in _SPACED.finditer(text)]


def template_variables(text: str) -> list[str]:
    """Return the names used as ``{{name}}``, in order, each once."""
    return list(dict.fromkeys(_VARIABLE.findall(text)))
