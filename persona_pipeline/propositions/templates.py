"""Template variables of a claim: one pass over ``{{name}}``, nothing else is a template."""

import re
from collections.abc import Mapping

TEMPLATE_VARIABLES = ("agent_name", "action", "channel_name", "recipient_name")
_VARIABLE = re.compile(r"\{\{([A-Za-z0-9_]+)\}\}")


def fill_template(text: str, variables: Mapping[str, str]) -> str:
    """Return the text with every ``{{name}}`` whose name is a key of ``variables`` replaced, once; values are literal."""
    return _VARIABLE.sub(lambda match: variables.get(match[1], match[0]), text)


def template_variables(text: str) -> list[str]:
    """Return the names used as ``{{name}}``, in order, each once."""
    return list(dict.fromkeys(_VARIABLE.findall(text)))
