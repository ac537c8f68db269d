"""Assert types by name: built-in ones, and those of other packages (entry point ``persona_pipeline.asserts``)."""

from collections.abc import Mapping
from typing import Any

from persona_pipeline.base.errors import did_you_mean
from persona_pipeline.base.options import Registry
from persona_pipeline.suites.format.models import AssertFields

_HERE = "persona_pipeline.suites.asserts"
BUILT_IN = {
    "contains": f"{_HERE}.texts:Contains",
    "regex": f"{_HERE}.texts:Regex",
    "is_json": f"{_HERE}.is_json:IsJson",
    "equals": f"{_HERE}.texts:Equals",
    "rubrics": f"{_HERE}.llm_judge:Rubrics",
    "llm_judge": f"{_HERE}.llm_judge:LlmJudge",
    "code_judge": f"{_HERE}.code_judge:CodeJudge",
    "tool_trajectory": f"{_HERE}.tool_trajectory:ToolTrajectory",
    "field_accuracy": f"{_HERE}.field_accuracy:FieldAccuracy",
    "composite": f"{_HERE}.composite:Composite",
    "agent_judge": f"{_HERE}.agent_judge:AgentJudge",
    "pairwise": f"{_HERE}.pairwise:Pairwise",
    "execution_metrics": f"{_HERE}.limits:ExecutionMetrics",
    "latency": f"{_HERE}.limits:LatencyLimit",
    "cost": f"{_HERE}.limits:CostLimit",
    "token_usage": f"{_HERE}.limits:TokenUsageLimit",
    "propositions": f"{_HERE}.persona:PropositionClaims",
    "fades": f"{_HERE}.persona:CharacterFades",
    "persona_drift": f"{_HERE}.persona:PersonaDrift",
    "voice": f"{_HERE}.persona:VoiceSounds",
}
# Types that are contains with these fields, and other spellings with the type and the fields that they mean.
OF_CONTAINS: dict[str, dict[str, Any]] = {
    "icontains": {"ignore_case": True},
    "contains_all": {},
    "contains_any": {"of": "any"},
    "icontains_all": {"ignore_case": True},
    "icontains_any": {"ignore_case": True, "of": "any"},
    "starts_with": {"at": "start"},
    "ends_with": {"at": "end"},
}
ALIASES: dict[str, tuple[str, Mapping[str, Any]]] = {
    "rubric": ("rubrics", {}),
    "code": ("code_judge", {}),
    "code_grader": ("code_judge", {}),
    "llm_grader": ("llm_judge", {}),
    "contains_json": ("is_json", {"anywhere": True}),
    **{spelled: ("contains", fields) for spelled, fields in OF_CONTAINS.items()},
}


def type_meant(spelled: str) -> tuple[str, Mapping[str, Any]]:
    """Return the registered type and the fields that a spelling means: ``is-json`` is ``is_json``, ``rubric`` is ``rubrics``."""
    name = spelled.replace("-", "_")
    return ALIASES.get(name, (name, {}))


def canonical_type(spelled: str) -> str:
    """Return the registered spelling of a type."""
    return type_meant(spelled)[0]


TYPES = Registry("persona_pipeline.asserts", AssertFields, BUILT_IN, what="assert type", spelled=canonical_type)
find_type = TYPES.find
# The type of functions, for suites in Python only.
FUNCTIONS = Registry("", AssertFields, {"function": f"{_HERE}.code_judge:Function"}, what="assert type")


def register(name: str, model: type[AssertFields]) -> None:
    """Add an assert type to this process; an entry point adds it to every process. Raises ``ConfigError``: the name is taken."""
    TYPES.add(name, model)


def unknown_type(spelled: str) -> str:
    """Return the message for an unknown type."""
    hint = did_you_mean(canonical_type(spelled), [*TYPES.names(), *ALIASES])
    return f"type {spelled!r} is unknown{hint or TYPES.hint(spelled)}"


def default_assert(kind: str) -> Any:
    """Return the default assert of a test: a built-in type without its own fields."""
    model = find_type(kind)
    assert model is not None
    return model.model_validate({"type": kind, "name": kind})
