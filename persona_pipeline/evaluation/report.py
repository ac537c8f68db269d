"""One run over one or more agents: what the command line prints and every report is rendered from."""

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from persona_pipeline.baselines.models import BaselineComparison
from persona_pipeline.evaluation.results import AgentEvaluation
from persona_pipeline.scoring.results import DimensionEvaluation, UsageSummary, add_usage

EXIT_OK, EXIT_REGRESSION, EXIT_CONFIG, EXIT_COVERAGE, EXIT_BUDGET = 0, 1, 2, 3, 4
_SEVERITY = (EXIT_CONFIG, EXIT_BUDGET, EXIT_COVERAGE, EXIT_REGRESSION)


def worst_exit_code(codes: set[int]) -> int:
    """Return the one code that stands for several: 2 over 4 over 3 over 1 over 0."""
    return next((code for code in _SEVERITY if code in codes), EXIT_OK)


class Finding(BaseModel):
    """One reason why a run is not clean, in one sentence a person can act on.

    Attributes:
        kind: ``regression``, ``proposition_drop``, ``threshold``, ``coverage``, ``no_baseline``, ``budget``,
            ``nothing_evaluated``, ``missing_agent``, ``judge_health``, ``other_judge``, ``calibration``, and the warnings
            ``trend``, ``injection``, ``names``, ``clone``, ``voices``, ``voice_alarm``, ``doubted`` and ``judge_changed``.
        remedy: what to do about it, where a command mends it; often the same for many findings.
    """

    model_config = ConfigDict(extra="forbid")

    kind: str
    exit_code: int
    message: str
    remedy: str = ""
    agent_id: str | None = None
    dimension: str | None = None
    proposition_id: str | None = None

    @property
    def text(self) -> str:
        """The message and its remedy."""
        return f"{self.message}; {self.remedy}" if self.remedy else self.message


class Expense(BaseModel):
    """What one part of a run cost.

    Attributes:
        mechanism: ``evaluation``, ``confirmation`` (what fell was judged again), ``history`` (earlier windows) or ``synthetic``
            (conversations were generated).
        dimension: None where the money was not spent on one.
    """

    model_config = ConfigDict(extra="forbid")

    mechanism: str
    agent_id: str
    dimension: str | None = None
    usage: UsageSummary


class AgentReport(BaseModel):
    """One agent's evaluation, its comparison with the baseline, what is wrong, and what it cost this time.

    Attributes:
        past: the agent was evaluated on a newer window: this is history.
        outlined: claims and their reasons were left out: the store has them, and a page of many agents does not show them.
    """

    model_config = ConfigDict(extra="forbid")

    evaluation: AgentEvaluation
    comparison: BaselineComparison
    findings: list[Finding] = Field(default_factory=list)
    expenses: list[Expense] = Field(default_factory=list)
    past: bool = False
    outlined: bool = False


def expenses_of(
    agent_id: str, dimensions: Iterable[DimensionEvaluation], mechanism: str = "evaluation"
) -> list[Expense]:
    """Return what judging these dimensions of an agent cost; nothing for those that cost no call."""
    return [
        Expense(mechanism=mechanism, agent_id=agent_id, dimension=item.dimension, usage=item.usage)
        for item in dimensions
        if item.usage.calls
    ]


class RunReport(BaseModel):
    """The whole run. ``statistics`` holds what concerns several agents, such as the voice map; ``expenses`` all that was paid."""

    model_config = ConfigDict(extra="forbid")

    agents: dict[str, AgentReport] = Field(default_factory=dict)
    findings: list[Finding] = Field(default_factory=list)
    exit_code: int = EXIT_OK
    provenance: dict[str, Any] = Field(default_factory=dict)
    statistics: dict[str, Any] = Field(default_factory=dict)
    expenses: list[Expense] = Field(default_factory=list)

    @property
    def usage(self) -> UsageSummary:
        """What the run cost in all."""
        return add_usage(expense.usage for expense in self.expenses)

    def all_findings(self) -> list[Finding]:
        """Return the run's own findings and every agent's."""
        return [*self.findings, *(finding for agent in self.agents.values() for finding in agent.findings)]
