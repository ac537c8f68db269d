"""Templates of prompts and asserts, filled in a sandbox with a budget.

A stranger's template may loop, repeat and pad. Every loop, call, filter and joined text is counted before it runs.
"""

import functools
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import StrictUndefined, nodes
from jinja2 import TemplateError as JinjaError
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from persona_pipeline.suites.format.javascript import stringify
from persona_pipeline.suites.format.models import over_texts
from persona_pipeline.suites.importing.findings import PYDANTIC_EVALS, Part, listed

_WHOLE = re.compile(r"\{\{-?\s*(?:vars\.)?([A-Za-z_]\w*)\s*-?\}\}")
# Of one template: characters of its text; steps and characters on the way; how large one call may make a value.
MOST_CHARACTERS, MOST_STEPS, MOST_OF_A_CALL = 1_000_000, 3_000_000, 20_000_000
# Texts that they are given say how long the result is, where no budget sees it.
_REFUSED = ("format", "format_map")


class TemplateError(ValueError):
    """The template cannot be filled; the message says why."""


# Blocks that run where nothing is counted. A macro calls itself; the others collect text.
_UNBOUNDED = (nodes.Macro, nodes.CallBlock, nodes.FilterBlock, nodes.AssignBlock, nodes.With)


class _Sandbox(ImmutableSandboxedEnvironment):
    """Fills one template within a budget of steps and characters."""

    intercepted_binops = frozenset(["*", "**", "%", "+"])

    def __init__(self) -> None:
        super().__init__(undefined=StrictUndefined, finalize=self.shown, keep_trailing_newline=True)
        self.left = MOST_STEPS
        kept = {name: one for name, one in self.filters.items() if name not in _REFUSED}
        kept["dump"] = lambda value: json.dumps(value, ensure_ascii=False)
        self.filters = {name: self.counted(one) for name, one in kept.items()}
        self.filters |= {"_sized": self.sized, "_looped": self.looped}
        self.globals = {"range": self.globals["range"]}

    def sized(self, value: Any) -> Any:
        """Spend the values and characters that a value holds, and return it."""
        waiting = [value]
        while waiting:
            one = waiting.pop()
            self.left -= 1 + (len(one) if isinstance(one, str | range) else 0)
            if self.left < 0:
                raise SecurityError(f"it takes more than {MOST_STEPS:,} steps or characters")
            waiting += one.values() if isinstance(one, dict) else one if isinstance(one, list | tuple) else ()
        return value

    def looped(self, values: Any, cost: int) -> Any:
        """Spend a loop: for each value its body."""
        values = values if isinstance(values, list | dict | tuple | range | str) else list(values)
        self.left -= len(values) * cost
        return self.sized(values)

    def before(self, given: list[Any]) -> None:
        """Refuse a call whose result could be too large: a number is a width or a count, and sizes multiply."""
        sizes: list[float] = []
        for one in given:
            before = self.left
            self.sized(one)
            sizes.append(1 + abs(one) if isinstance(one, int | float) else before - self.left)
        if math.prod(sizes) > MOST_OF_A_CALL:
            raise SecurityError("it makes a value that is too large")

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def count(*args: Any, **kwargs: Any) -> Any:
            self.before([*args, *kwargs.values()])
            return self.sized(function(*args, **kwargs))

        return count

    def call(self, context: Any, function: Any, *args: Any, **kwargs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        widths = [] if function is self.globals["range"] else [*args, *kwargs.values()]
        self.before([getattr(function, "__self__", 0), *widths])
        return self.sized(super().call(context, function, *args, **kwargs))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        numbers = all(isinstance(value, int | float) and abs(value) < MOST_CHARACTERS for value in (left, right))
        if (operator != "+" and not numbers) or (operator == "**" and abs(right) > 100):
            raise SecurityError(f"{operator} is for numbers")
        return super().call_binop(context, operator, self.sized(left), self.sized(right))

    def getattr(self, obj: Any, attribute: str) -> Any:
        # A key comes before a method, and lengths are properties.
        if isinstance(obj, str | list) and attribute == "length":
            return len(obj)
        if attribute in _REFUSED and not isinstance(obj, dict):
            raise SecurityError(f"{attribute} is not available")
        return super().getitem(obj, attribute) if isinstance(obj, dict) else super().getattr(obj, attribute)

    def shown(self, value: Any) -> Any:
        self.sized(value)
        return "" if value is None else stringify(value) if isinstance(value, dict | list | float | bool) else value

    def filled(self, template: str, variables: Mapping[str, Any]) -> str:
        """Return the text of a template, every part of it that can grow counted."""
        tree = self.parse(template)
        for node in tree.find_all(_UNBOUNDED):
            raise SecurityError(f"line {node.lineno}: {type(node).__name__.lower()} is not available")
        for node in list(
            tree.find_all((nodes.For, nodes.Assign, nodes.Test, nodes.Compare, nodes.Concat, nodes.Getitem))
        ):
            if isinstance(node, nodes.For):
                inside = node.find_all((nodes.Node,))
                cost = sum(1 + len(str(getattr(one, "data", getattr(one, "value", "")))) for one in inside)
                node.iter = nodes.Filter(node.iter, "_looped", [nodes.Const(cost)], [], None, None)
            elif isinstance(node, nodes.Compare):
                node.expr = _counted(node.expr)
                for operand in node.ops:
                    operand.expr = _counted(operand.expr)
            elif isinstance(node, nodes.Concat):
                node.nodes = [_counted(one) for one in node.nodes]
            elif not isinstance(node, nodes.Getitem) or isinstance(node.arg, nodes.Slice):
                node.node = _counted(node.node)
        tree.set_environment(self)
        return self.from_string(tree).render({**variables, "vars": dict(variables)})


def _counted(node: Any) -> nodes.Expr:
    return nodes.Filter(node, "_sized", [], [], None, None)


def fill(value: Any, variables: Mapping[str, Any]) -> Any:
    """Return a value with every template in it filled; one that is a variable and nothing else becomes the thing itself."""
    return over_texts(value, lambda text: _fill(text, variables))


def alone_in(value: Any) -> list[str]:
    """Return the variables that stand alone in the templates of a text or of several."""
    return [name for text in listed(value) if isinstance(text, str) for name in _WHOLE.findall(text)]


def _fill(template: str, variables: Mapping[str, Any]) -> Any:
    if not any(sign in template for sign in ("{{", "{%", "{#")):
        return template
    only = _WHOLE.fullmatch(template.strip())
    if only and isinstance(variables.get(only[1]), dict | list):
        return variables[only[1]]
    try:
        text = _Sandbox().filled(template, variables)
    except (JinjaError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError) as error:
        raise TemplateError(f"{str(error).splitlines()[0] if str(error) else type(error).__name__}") from error
    if len(text) > MOST_CHARACTERS:
        raise TemplateError(f"becomes longer than {MOST_CHARACTERS:,} characters")
    return text


def filled(part: Part, value: Any, variables: Mapping[str, Any], *keys: str | int) -> Any:
    """Return a value with its templates filled; None, and a finding, where one cannot be. pydantic-evals has none."""
    if part.findings.origin == PYDANTIC_EVALS:
        return value
    try:
        made = fill(value, variables)
    except TemplateError as problem:
        return part.none(f"the template ({problem})", *keys)
    part.findings.spend("characters", len(made) if isinstance(made, str) else 1, part)
    return made


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
