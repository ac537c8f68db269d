"""Requests and responses of the service. Strict: a number is not a string and 1 is not true."""

import uuid
from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from persona_pipeline.corrections.configuration import StoredConfig
from persona_pipeline.corrections.nudges import Intervention
from persona_pipeline.corrections.records import Action, Outcome
from persona_pipeline.scoring.messages.verdicts import Role
from persona_pipeline.world.models import CorrectionSettings

AGENT_ID = r"^[a-z0-9][a-z0-9_-]{0,63}$"
AgentId = Annotated[str, Field(pattern=AGENT_ID, examples=["michael"])]
# No NUL, which no database keeps.
Place = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00]*$", examples=["general"])]
ActionId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


# JSON has one kind of number: 2.0 is as whole as 2.
WholeNumber = Annotated[int, BeforeValidator(_whole)]


class _Wire(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, from_attributes=True)


class GateRequest(_Wire):
    """A text an agent is about to send, to a channel or to a recipient."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"required": ["channel"], "properties": {"channel": {"type": "string"}, "recipient": {"type": "null"}}},
                {
                    "required": ["recipient"],
                    "properties": {"recipient": {"type": "string"}, "channel": {"type": "null"}},
                },
            ]
        }
    )

    agent_id: AgentId
    text: str = Field(max_length=50_000)
    channel: Place | None = None
    recipient: Place | None = None
    attempt: WholeNumber = Field(
        default=1, ge=1, le=1000, description="1 for the first text; one more after each retry."
    )
    action_id: ActionId | None = Field(default=None, description="What the first response of this action returned.")
    run_id: uuid.UUID | None = Field(default=None, strict=False)

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.channel is None) == (self.recipient is None):
            raise ValueError("give exactly one of channel and recipient")
        return self


class GateResponse(_Wire):
    """What to do with the text: ``commit`` and ``force`` send it, ``retry`` has the agent write it again."""

    action: Action
    outcome: Outcome
    text: str
    feedback: str | None
    score: float | None
    threshold: float | None
    verdict: Role | None = Field(
        description="Of the whole message; `out` is held whatever the score. Null: the judge did not say."
    )
    reason: str | None
    action_id: str
    attempt: int
    latency_ms: float


class InterventionsRequest(_Wire):
    """The agent that speaks next, and its channel; none for a direct message."""

    agent_id: AgentId
    channel: Place | None = None


class NudgeResponse(_Wire):
    """One piece of guidance and the share (0-1) that rose above its threshold."""

    kind: Intervention
    text: str
    share: float
    threshold: float


class InterventionsResponse(_Wire):
    """``guidance`` is appended to the prompt of this one turn and kept nowhere; null: nothing to say."""

    guidance: str | None = Field(validation_alias="block")
    nudges: tuple[NudgeResponse, ...]
    withheld: tuple[NudgeResponse, ...] = Field(description="Found and not given: the agent's corrections only watch.")
    failed: bool = Field(description="Nothing could be looked up in time, so there is no guidance.")


class ConfigRequest(CorrectionSettings, frozen=True, extra="forbid", strict=True):
    """All settings of an agent; a missing one gets its default, which for every correction is off."""

    max_correction_attempts: WholeNumber = Field(default=2, ge=0, le=10)


class ConfigResponse(CorrectionSettings, frozen=True, extra="forbid"):
    """An agent's settings. ``source``: ``persona`` (its file) or ``api`` (set here or by command line)."""

    agent_id: str
    source: Literal["persona", "api"]
    updated_at: datetime

    @classmethod
    def of(cls, config: StoredConfig) -> Self:
        told = {"agent_id": config.agent_id, "source": config.source, "updated_at": config.updated_at}
        return cls.model_validate(told | config.settings.model_dump())


class StatisticsQuery(_Wire):
    """Which agent (default: all) and how far back from now (default: ever)."""

    agent_id: AgentId | None = None
    window: Annotated[str, Field(pattern="^[0-9]{1,4}[hd]$", examples=["7d"])] | None = None


class HealthResponse(_Wire):
    """``degraded``: the store does not answer; texts then go through unchecked."""

    status: Literal["ok", "degraded"]
    judge: str
    version: str


class ErrorResponse(_Wire):
    """Why a request was not answered."""

    detail: str
