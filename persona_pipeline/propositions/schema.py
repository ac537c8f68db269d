"""A proposition file as it is written (spec/1), strictly typed. Its JSON schema is what editors complete from."""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from persona_pipeline.propositions.dimensions import ALL_DIMENSIONS

if TYPE_CHECKING:
    DimensionName = str
else:
    DimensionName = Literal[ALL_DIMENSIONS]

Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]
Rate = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class PropositionEntry(BaseModel):
    """One claim."""

    model_config = ConfigDict(extra="forbid", title="Proposition")

    id: str = Field(description="Unique in the merged set.", min_length=1)
    claim: str = Field(
        description="What is true of the agent. {{agent_name}}, {{action}}, {{channel_name}}, {{recipient_name}}."
    )
    weight: Weight = Field(1.0, description="Relative weight in the dimension's score.")
    inverted: bool = Field(False, description="An anti-pattern: true is bad, so the raw score is flipped.")
    recommendations_for_improvement: str | None = Field(None, description="Advice given when the score is low.")
    draft: bool = Field(False, description="A proposal that nobody has read yet: checked, and not judged.")

    @field_validator("id", "claim")
    @classmethod
    def _not_blank(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("must not be empty")
        return value

    @field_validator("id")
    @classmethod
    def _not_reserved(cls, value: str) -> str:
        if value.startswith("_"):
            raise ValueError("must not start with '_'; such ids are kept for computed scores")
        return value


class CatchphraseEntry(BaseModel):
    """A phrase and the rate, in uses per message, it should keep within."""

    model_config = ConfigDict(extra="forbid", title="Catchphrase")

    phrase: str
    min_rate: Rate = 0.0
    max_rate: Rate = 1.0

    @field_validator("phrase")
    @classmethod
    def _not_blank(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("must not be empty")
        return value

    @model_validator(mode="after")
    def _ordered(self) -> "CatchphraseEntry":
        if self.min_rate > self.max_rate:
            raise ValueError(f"min_rate {self.min_rate:g} is above max_rate {self.max_rate:g}; swap them")
        return self


class PropositionFile(BaseModel):
    """``propositions/<dimension>/<_default or agent_id>.yaml``. A key that is absent keeps the default file's value."""

    model_config = ConfigDict(extra="forbid", title="Propositions")

    dimension: DimensionName
    agent_id: str | None = Field(None, description="The file's name; '_default' or absent in _default.yaml.")
    include_personas: bool = Field(True, description="Whether the persona is in the judge's context.")
    hard: bool = Field(False, description="Scores below 9 lose 20 percent.")
    target_type: Literal["agent", "environment"] = Field(
        "agent", description="One agent's messages, or the whole channel."
    )
    level: Literal["evaluation", "action"] = Field(
        "evaluation", description="Adherence only: judge the window, or single actions."
    )
    first_n: Count | None = Field(
        None, description="First entries of the trajectory that are shown (default 10; action 5)."
    )
    last_n: Count | None = Field(
        None, description="Last entries of the trajectory that are shown (default 100; action 10)."
    )
    catchphrases: list[CatchphraseEntry] = Field(default_factory=list, description="Fluency only.")
    propositions: list[PropositionEntry] = Field(default_factory=list)
