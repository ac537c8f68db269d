"""Kinds of values that several parts of the suite format share."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

PASS, BORDERLINE = 0.8, 0.6


class StrictFields(BaseModel):
    """Part of a file as it is written: no value is converted into another kind, and an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


def _gate(value: Any) -> bool | float:
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float) and 0 < value <= 1:
        return float(value)
    raise ValueError("must be true, false or a minimum score above 0 and at most 1")


Text = Annotated[str, Field(min_length=1)]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Limit = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Gate = Annotated[
    bool | float,
    BeforeValidator(_gate),
    WithJsonSchema({"anyOf": [{"type": "boolean"}, {"type": "number", "exclusiveMinimum": 0, "maximum": 1}]}),
]
