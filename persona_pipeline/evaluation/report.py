"""One run over one or more agents: what the command line prints and every report is rendered from."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from persona_pipeline.baselines.models import BaselineComparison
from persona_pipeline.evaluation.results import AgentEvaluation
from persona_pipeline.scoring.results import UsageSummary

EXIT_OK, EXIT_REGRESSION, EXIT_CONFIG, EXIT_COVERAGE, EXIT_BUDGET = 0, 1, 2, 3, 4
_SEVERITY = (EXIT_CONFIG, EXIT_BUDGET, EXIT_COVERAGE, EXIT_REGRESSION)


def worst_exit_code(codes: set[int]) -> int:
    """Return the one code that stands for several: 2 over 4 over 3 over 1 over 0."""
    return next((code for code in _SEVERITY if code in codes), EXIT_OK)


class Finding(BaseModel):
    """One reason why a run is not clean, in one sentence a person can act on.

    kind: ``regression``, ``proposition_drop``, ``threshold``, ``coverage``, ``no_baseline``, ``budget``, ``nothing_evaluated``.
    """

    model_config = ConfigDict(extra="forbid")

    kind: str
    exit_code: int
    message: str
    agent_id: str | None = None
    dimension: str | None = None
    proposition_id: str | None = None


class AgentReport(BaseModel):
    """One agent's evaluation, its comparison with the baseline, and what is wrong."""

    model_config = ConfigDict(extra="forbid")

    evaluation: AgentEvaluation
    comparison: BaselineComparison
    findings: list[Finding] = Field(default_factory=list)


class RunReport(BaseModel):
    """The whole run. ``statistics`` holds what concerns several agents (voice map); ``history`` scores over earlier windows."""

    model_config = ConfigDict(extra="forbid")

    agents: dict[str, AgentReport] = Field(default_factory=dict)
    findings: list[Finding] = Field(default_factory=list)
    exit_code: int = EXIT_OK
    provenance: dict[str, Any] = Field(default_factory=dict)
    statistics: dict[str, Any] = Field(default_factory=dict)
    usage: UsageSummary = Field(default_factory=UsageSummary)

    def all_findings(self) -> list[Finding]:
        """Return the run's own findings and every agent's."""
        return [*self.findings, *(finding for agent in self.agents.values() for finding in agent.findings)]
