"""Assert types by name: the built-in ones, and those other packages add by entry point ``persona_pipeline.asserts``."""

from functools import lru_cache

from persona_pipeline.entry_points import load_class, offered
from persona_pipeline.errors import ConfigError, did_you_mean
from persona_pipeline.suites.asserts.agent_judge import AgentJudge
from persona_pipeline.suites.asserts.base import Assert
from persona_pipeline.suites.asserts.code_judge import CodeJudge
from persona_pipeline.suites.asserts.composite import Composite
from persona_pipeline.suites.asserts.contains import SPELLINGS as OF_CONTAINS
from persona_pipeline.suites.asserts.contains import Contains
from persona_pipeline.suites.asserts.cost import Cost
from persona_pipeline.suites.asserts.equals import Equals
from persona_pipeline.suites.asserts.execution_metrics import ExecutionMetrics
from persona_pipeline.suites.asserts.field_accuracy import FieldAccuracy
from persona_pipeline.suites.asserts.is_json import SPELLINGS as OF_IS_JSON
from persona_pipeline.suites.asserts.is_json import IsJson
from persona_pipeline.suites.asserts.latency import Latency
from persona_pipeline.suites.asserts.llm_judge import LlmJudge
from persona_pipeline.suites.asserts.pairwise import Pairwise
from persona_pipeline.suites.asserts.persona_drift import PersonaDrift
from persona_pipeline.suites.asserts.propositions import Propositions
from persona_pipeline.suites.asserts.regex import Regex
from persona_pipeline.suites.asserts.rubrics import Rubrics
from persona_pipeline.suites.asserts.token_usage import TokenUsageLimit
from persona_pipeline.suites.asserts.tool_trajectory import ToolTrajectory

ENTRY_POINTS = "persona_pipeline.asserts"

_TYPES: dict[str, type[Assert]] = {
    "contains": Contains,
    "regex": Regex,
    "is_json": IsJson,
    "equals": Equals,
    "rubrics": Rubrics,
    "llm_judge": LlmJudge,
    "code_judge": CodeJudge,
    "tool_trajectory": ToolTrajectory,
    "field_accuracy": FieldAccuracy,
    "composite": Composite,
    "agent_judge": AgentJudge,
    "pairwise": Pairwise,
    "execution_metrics": ExecutionMetrics,
    "latency": Latency,
    "cost": Cost,
    "token_usage": TokenUsageLimit,
    "propositions": Propositions,
    "persona_drift": PersonaDrift,
}
BUILT_IN = tuple(_TYPES)
# Other spellings of the same types.
ALIASES = {
    "rubric": "rubrics",
    "code": "code_judge",
    "code_grader": "code_judge",
    "llm_grader": "llm_judge",
    **dict.fromkeys(OF_CONTAINS, "contains"),
    **dict.fromkeys(OF_IS_JSON, "is_json"),
}


def register(name: str, model: type[Assert]) -> None:
    """Add an assert type to this process. An entry point does the same for every process.

    Raises:
        ConfigError: the name is taken.
    """
    name = canonical_type(name)
    if _TYPES.setdefault(name, model) is not model:
        raise ConfigError(f"assert type {name!r} is taken by {_TYPES[name].__name__}; choose another name")


def canonical_type(spelled: str) -> str:
    """Return the registered spelling of a type: ``is-json`` is ``is_json``, ``rubric`` is ``rubrics``."""
    name = spelled.replace("-", "_")
    return ALIASES.get(name, name)


def find_type(name: str) -> type[Assert] | None:
    """Return the class of a canonical type, None when nobody registered it.

    Raises:
        ConfigError: an entry point of that name cannot be loaded.
    """
    if name not in _TYPES and name in _entry_points():
        _TYPES[name] = load_class(_entry_points()[name], Assert, "assert type")
    return _TYPES.get(name)


@lru_cache(maxsize=1)
def _entry_points() -> dict:
    # Looking through every installed package takes time, so only an unknown type brings us here.
    return {canonical_type(point.name): point for point in offered(ENTRY_POINTS).values()}


def known_types() -> list[str]:
    """Return every type there is, built-in ones first."""
    return [*_TYPES, *(name for name in _entry_points() if name not in _TYPES)]


def unknown_type(spelled: str) -> str:
    """Return what to say about a type that nobody registered."""
    known = known_types()
    hint = did_you_mean(canonical_type(spelled), [*known, *ALIASES])
    return f"type {spelled!r} is unknown{hint or '; known: ' + ', '.join(known)}"


def default_assert(kind: str) -> Assert:
    """Return the assert of a test that has none: a built-in type without fields of its own."""
    model = find_type(kind)
    assert model is not None
    item = model.model_validate({"type": kind})
    object.__setattr__(item, "name", kind)
    return item
