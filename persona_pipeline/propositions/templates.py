"""Template variables of a claim: one pass over ``{{name}}``, nothing else is a template."""

import re
from collections.abc import Mapping

TEMPLATE_VARIABLES = ("agent_name", "action", "channel_name", "recipient_name")
_VARIABLE = re.compile(r"\{\{([A-Za-z0-9_]+)\}\}")
_SPACED = re.compile(r"\{\{(?=\s|[^{}]*\s\}\})\s*([A-Za-z0-9_]+)\s*\}\}")


def fill_template(text: str, variables: Mapping[str, str]) -> str:
    """Return the text with every ``{{name}}`` whose name is a key of ``variables`` replaced, once; values are literal."""
    return _VARIABLE.sub(lambda match: variables.get(match[1], match[0]), text)


def filled_variables(dimension: str, level: str) -> tuple[str, ...]:
    """Return the variables an evaluation fills in claims of a dimension; ``level`` is that of the file."""
    if dimension == "adherence":
        return TEMPLATE_VARIABLES if level == "action" else ("agent_name",)
    return ("agent_name", "channel_name") if dimension in ("convergence", "ideas_quantity") else ("agent_name",)


def spaced_variables(text: str) -> list[str]:
    """Return what looks like a variable and is none for the spaces in its braces, such as ``{{ agent_name }}``."""
    return [match[0] for match in _SPACED.finditer(text)]


def template_variables(text: str) -> list[str]:
    """Return the names used as ``{{name}}``, in order, each once."""
    return list(dict.fromkeys(_VARIABLE.findall(text)))
