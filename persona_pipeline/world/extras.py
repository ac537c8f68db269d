"""What a source says of a message beyond what is evaluated: kept beside it, within bounds, and never judged."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from persona_pipeline.world.canonical import storable

# Characters of JSON that a message keeps, and how deeply it nests.
MOST_EXTRAS, DEEPEST = 16_000, 20
# Under this key stand the names of the keys that were cut, the first so many of them and of each so many characters.
CUT = "_cut"
_MOST_NAMED, _LONGEST_NAME = 20, 64


def bounded_extras(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return JSON values by key as a message keeps them: in their order, as many keys whole as fit in 16,000 characters.

    A key that does not fit, or nests deeper than 20, is named in the list under ``_cut``. NUL and lone surrogates become U+FFFD.
    """
    kept: dict[str, Any] = {}
    cut: list[str] = []
    room = MOST_EXTRAS
    for key, value in found.items():
        name = storable(key)
        try:
            one = {name: _clean(value, DEEPEST)}
        except ValueError:
            one = {}
        size = len(json.dumps(one, ensure_ascii=False, allow_nan=False))
        if one and size <= room:
            kept |= one
            room -= size
        else:
            cut.append(name[:_LONGEST_NAME])
    return {**kept, CUT: cut[:_MOST_NAMED]} if cut else kept


def cut_keys(extras: Mapping[str, Any]) -> Iterable[str]:
    """Return the names of the keys that a message did not keep."""
    cut = extras.get(CUT)
    return [str(name) for name in cut] if isinstance(cut, list) else []


def _clean(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return storable(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if not depth:
        raise ValueError("nested too deeply")
    if isinstance(value, Mapping):
        return {storable(str(key)): _clean(item, depth - 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(item, depth - 1) for item in value]
    raise ValueError(f"{type(value).__name__} is not JSON")
