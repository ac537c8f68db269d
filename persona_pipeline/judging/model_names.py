"""One name for one model, however a proxy or a cloud spells it."""

import re
from functools import lru_cache

_CLAUDE = re.compile(r"(?:^|\.)(claude-.+)$")
_DOTTED = re.compile(r"(?<=\d)\.(?=\d)")
# A version on Bedrock, an alias, a date.
_AFTER_NAME = re.compile(r"(?:-v\d+(?::\d+\w*)?|:[\w-]+|@\w+|-latest|-\d{8})$")
_REGIONAL = re.compile(r"(?:^|/)(?!global\.)(?:[a-z-]+\.)?anthropic\.claude-")


@lru_cache
def model_name(spelled: str) -> str:
    """Return the name by which settings and prices know a model.

    What stands before the last slash says who serves it, and goes. Of Claude models the region, version and date go too:
    ``bedrock/us.anthropic.claude-haiku-5-5-20260101-v1:0`` is ``claude-haiku-5-5``. Other names keep what follows them, since
    ``gemma3:4b`` is no ``gemma3:27b``.
    """
    name = spelled.strip().lower().rpartition("/")[2]
    claude = _CLAUDE.search(name)
    if not claude:
        return name
    name = _DOTTED.sub("-", claude[1])
    while (shorter := _AFTER_NAME.sub("", name)) != name:
        name = shorter
    return name


def is_regional(spelled: str) -> bool:
    """Whether the id asks Bedrock for a model kept to a region, which costs more than one served from anywhere."""
    return bool(_REGIONAL.search(spelled.strip().lower()))
