"""The dimensions agents are scored on: each is declared once, and everything else reads it here."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module

from persona_pipeline.base.errors import ConfigError, Problem, did_you_mean

# ``module:NAME`` of further dimensions, with commas between them.
VARIABLE = "PERSONA_DIMENSIONS"


@dataclass(frozen=True)
class Dimension:
    """One dimension.

    Attributes:
        name: in files, tables and options.
        scorer: what plans its judgments and puts its score together, ``package.module:function``; see ``scoring.Scorer``.
        about: what its claims are about and what their judge sees, in a clause, for whoever drafts claims.
        label, short_label: its heading, and where there is little room; "": the name.
        shows_persona: the judge is shown the persona unless a file says otherwise; the others never show it.
        shows_channel: its judge reads a whole channel, which claims may name.
        by_action: files may ask for single messages to be judged (``level: action``).
        has_catchphrases: files may list phrases.
        in_overall: its score is part of the overall score.
        judged_weight, parts: what its judged claims and its computed parts, by id, weigh in its score.
    """

    name: str
    scorer: str
    about: str
    label: str = ""
    short_label: str = ""
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
    has_catchphrases=True,
    judged_weight=0.4,
    parts={"_ngram": 0.4, "_catchphrase": 0.2},
)
CONVERGENCE = Dimension(
    "convergence",
    "persona_pipeline.scoring.convergence:plan_convergence",
    "what tells it apart from other speakers by voice alone; the judge will see a whole channel, without names",
    short_label="converg.",
    shows_channel=True,
    judged_weight=0.4,
    parts={"_vocabulary": 0.3, "_agreement": 0.3},
)
IDEAS_QUANTITY = Dimension(
    "ideas_quantity",
    "persona_pipeline.scoring.ideas_quantity:plan_ideas_quantity",
    "which ideas of its own it brings; the judge will see whole channels",
    label="Ideas",
    shows_persona=True,
    shows_channel=True,
    in_overall=False,
)


def _further(named: str) -> list[Dimension]:
    """Return the dimensions that ``VARIABLE`` names."""
    found = []
    for item in filter(None, map(str.strip, named.split(","))):
        module, _, name = item.partition(":")
        try:
            dimension = getattr(import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigError(f"{VARIABLE}: {item!r} cannot be loaded: {error}; write module:NAME") from error
        if not isinstance(dimension, Dimension):
            raise ConfigError(f"{VARIABLE}: {item!r} is no persona_pipeline.world.propositions.dimensions.Dimension")
        found.append(dimension)
    return found


BUILT_IN = (ADHERENCE, CONSISTENCY, FLUENCY, CONVERGENCE, IDEAS_QUANTITY)
# In the order they are reported.
DIMENSIONS: Mapping[str, Dimension] = {item.name: item for item in (*BUILT_IN, *_further(os.environ.get(VARIABLE, "")))}
ALL_DIMENSIONS: tuple[str, ...] = tuple(DIMENSIONS)


def select_dimensions(dimensions: Sequence[str] | None) -> list[str]:
    """Return the dimensions asked for, in their fixed order; None: all.

    Raises:
        ConfigError: one is unknown.
    """
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
