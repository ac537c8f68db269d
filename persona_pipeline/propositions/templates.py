"""Template variables of a claim: one pass over ``{{name}}``, nothing else is a template."""

import re
from collections.abc import Mapping

import regex

from persona_pipeline.propositions.dimensions import DIMENSIONS

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
