"""Propositions: claims about an agent, read from YAML and merged."""

from persona_pipeline.propositions.dimensions import ALL_DIMENSIONS, DIMENSIONS, Dimension
from persona_pipeline.propositions.loading import (
    PROPOSITIONS,
    find_proposition_set,
    load_proposition_file,
    load_proposition_set,
    proposition_files_hash,
)
from persona_pipeline.propositions.models import (
    ACTION_LEVEL_WINDOW_DEFAULTS,
    EVALUATION_WINDOW_DEFAULTS,
    Catchphrase,
    Proposition,
    PropositionSet,
    WindowDefaults,
)
from persona_pipeline.propositions.storing import StoredSet, store_proposition_set, stored_proposition_sets
from persona_pipeline.propositions.templates import (
    TEMPLATE_VARIABLES,
    fill_template,
    filled_variables,
    spaced_variables,
    template_variables,
)

__all__ = [
    "ACTION_LEVEL_WINDOW_DEFAULTS",
    "ALL_DIMENSIONS",
    "DIMENSIONS",
    "EVALUATION_WINDOW_DEFAULTS",
    "PROPOSITIONS",
    "TEMPLATE_VARIABLES",
    "Catchphrase",
    "Dimension",
    "Proposition",
    "PropositionSet",
    "StoredSet",
    "WindowDefaults",
    "fill_template",
    "filled_variables",
    "find_proposition_set",
    "load_proposition_file",
    "load_proposition_set",
    "proposition_files_hash",
    "spaced_variables",
    "store_proposition_set",
    "stored_proposition_sets",
    "template_variables",
]
