"""Filling the templates of other tools: Nunjucks there, Jinja here, which agree on what prompts use."""

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from persona_pipeline.suites.format.javascript import stringify

_WHOLE = re.compile(r"\{\{-?\s*(?:vars\.)?([A-Za-z_]\w*)\s*-?\}\}")
MOST_CHARACTERS = 1_000_000


class TemplateError(ValueError):
    """The template cannot be filled; the message says why."""


@lru_cache(maxsize=1)
def _environment() -> Any:
    from jinja2 import StrictUndefined
    from jinja2.exceptions import SecurityError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Environment(ImmutableSandboxedEnvironment):
        # A template may not make large values out of small ones.
        intercepted_binops = frozenset(["*", "**"])

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            if not all(isinstance(value, int | float) and abs(value) < MOST_CHARACTERS for value in (left, right)):
                raise SecurityError(f"{operator} is for numbers")
            return super().call_binop(context, operator, left, right)

    made = Environment(undefined=StrictUndefined, finalize=_shown, keep_trailing_newline=True)
    made.filters["dump"] = lambda value: json.dumps(value, ensure_ascii=False)
    return made


def _shown(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else stringify(value) if isinstance(value, dict | list) else value


def is_template(text: str) -> bool:
    """Return whether anything in a text would be filled."""
    return "{{" in text or "{%" in text or "{#" in text


def fill(value: Any, variables: Mapping[str, Any]) -> Any:
    """Return a value with every template in it filled; one that is a variable and nothing else becomes the thing itself.

    Raises:
        TemplateError: a variable is not there, or the template is none.
    """
    if isinstance(value, list):
        return [fill(item, variables) for item in value]
    if isinstance(value, dict):
        return {key: fill(item, variables) for key, item in value.items()}
    if not isinstance(value, str) or not is_template(value):
        return value
    only = _WHOLE.fullmatch(value.strip())
    if only and isinstance(variables.get(only[1]), dict | list):
        return variables[only[1]]
    from jinja2 import TemplateError as JinjaError

    try:
        text = _environment().from_string(value).render({**variables, "vars": dict(variables)})
    except (JinjaError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
        raise TemplateError(f"{str(error).splitlines()[0] if str(error) else type(error).__name__}") from error
    if len(text) > MOST_CHARACTERS:
        raise TemplateError(f"becomes longer than {MOST_CHARACTERS:,} characters")
    return text


def known_variables(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return variables with templates in them filled from the others, as far as that goes."""
    found = dict(given)
    for name, value in given.items():
        try:
            found[name] = fill(value, {key: item for key, item in given.items() if key != name})
        except TemplateError:
            # Text that looks like a template may be meant so.
            found[name] = value
    return found
