"""Report of a run over one or more agents: every output is rendered from it."""

import hashlib
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator
from typing_extensions import TypedDict

from persona_pipeline.base.errors import EXIT_BUDGET, EXIT_COVERAGE, EXIT_OK, EXIT_REGRESSION, worst_exit_code
from persona_pipeline.base.status import ACCEPTED, NOTHING, Result, Status
from persona_pipeline.guard.baselines.models import Acceptance, BaselineComparison, DimensionComparison
from persona_pipeline.judging.verdict import Usage
from persona_pipeline.scoring.messages.verdicts import MessageVerdicts
from persona_pipeline.scoring.results import (
    ANSWERS,
    NOT_IN_OVERALL,
    DimensionEvaluation,
    PropositionResult,
    add_usage,
    overall_score,
)
from persona_pipeline.world.models import Window


class Provenance(TypedDict, total=False):
    """Origin of an agent's scores: judge, prompt, samples, persona and messages; hashes are hex.

    ``judge_models`` and ``prompt_versions``: of all answers, sorted; the singular is the same as one text (None: no answer). Runs
    of earlier releases may have more or fewer keys.
    """

    __pydantic_config__ = ConfigDict(extra="allow")  # pyright: ignore[reportGeneralTypeIssues]

    judge: str
    judge_model: str | None
    judge_models: list[str]
    prompt_version: str | None
    prompt_versions: list[str]
    persona_hash: str
    messages_hash: str
    samples: int


class RunProvenance(TypedDict, total=False):
    """Origin of a whole run: release, judge, window and rules; ``against``: the commit whose files decided."""

    __pydantic_config__ = ConfigDict(extra="allow")  # pyright: ignore[reportGeneralTypeIssues]

    version: str
    judge: str | None
    judge_models: list[str]
    judge_notes: list[str]
    prompt_versions: list[str]
    window: str
    window_end: str | None
    dimensions: list[str]
    samples: int
    min_coverage: float
    regression_delta: float
    proposition_delta: float
    against: dict[str, Any]


class AgentEvaluation(BaseModel, extra="forbid"):
    """An evaluation of an agent on a window.

    Attributes:
        run_id: derived from the inputs: the same inputs give the same run.
        overall: mean of the scored dimensions except ideas_quantity, 0-9; None: there is none, or one of them failed.
        sample_size: number of the agent's messages in the window.
    """

    run_id: str
    agent_id: str
    display_name: str
    overall: float | None = None
    dimensions: dict[str, DimensionEvaluation] = Field(default_factory=dict)
    window_start: datetime | None = None
    window_end: datetime
    sample_size: int = 0
    synthetic: bool = False
    provenance: Provenance = Field(default_factory=Provenance)
    usage: Usage = Field(default_factory=Usage)

    @property
    def window(self) -> Window:
        """The window that was evaluated."""
        return Window(self.window_end, self.window_start)

    @property
    def messages(self) -> MessageVerdicts | None:
        """The verdicts on single messages; None: the judge was not asked."""
        adherence = self.dimensions.get("adherence")
        return adherence.messages if adherence else None

    def with_dimensions(self, dimensions: Mapping[str, DimensionEvaluation]) -> "AgentEvaluation":
        """Return the evaluation with other dimensions and their overall score."""
        return self.model_copy(update={"dimensions": dict(dimensions), "overall": overall_of(dimensions)})


def overall_of(dimensions: Mapping[str, DimensionEvaluation]) -> float | None:
    """Return the mean of the dimensions' scores, 0-9; None where one is missing through a failure.

    A dimension that does not apply is left out of the mean: an agent alone has no convergence, but an overall score.
    """
    if any(item.score is None and item.failed for name, item in dimensions.items() if name not in NOT_IN_OVERALL):
        return None
    return overall_score({name: item.score for name, item in dimensions.items()})


def uuid_from(text: str) -> uuid.UUID:
    """Return a name-based UUID of a text."""
    return uuid.UUID(bytes=hashlib.sha256(text.encode()).digest()[:16], version=5)


# Kinds of findings that concern every dimension of an agent.
OF_THE_AGENT = frozenset({"judge_health", "known_drift", "low_power"})


@dataclass(frozen=True)
class FindingKind:
    """A kind of finding.

    ``exit_code``: 1: regression; 3 or 4: inconclusive. ``group``: its name for ``--fail-on`` and ``--only-fail-on``; "": its own
    name. ``warns``: a warning, which only counts where these options name it.
    """

    name: str
    exit_code: int
    group: str = ""
    warns: bool = False


KINDS: Mapping[str, FindingKind] = {
    kind.name: kind
    for kind in (
        FindingKind("regression", EXIT_REGRESSION),
        FindingKind("proposition_drop", EXIT_REGRESSION, "regression"),
        FindingKind("threshold", EXIT_REGRESSION),
        FindingKind("out_of_character", EXIT_REGRESSION, "regression"),
        FindingKind("undecided", EXIT_COVERAGE),
        FindingKind("all_dropped", EXIT_REGRESSION, "regression"),
        FindingKind("low_power", EXIT_COVERAGE, "undecided"),
        FindingKind("doubted", EXIT_COVERAGE, "undecided"),
        FindingKind("coverage", EXIT_COVERAGE),
        FindingKind("nothing_evaluated", EXIT_COVERAGE, "coverage"),
        FindingKind("missing_agent", EXIT_COVERAGE, "coverage"),
        FindingKind("judge_health", EXIT_COVERAGE, "coverage"),
        FindingKind("other_judge", EXIT_COVERAGE, "coverage"),
        FindingKind("base", EXIT_COVERAGE, "coverage"),
        FindingKind("no_baseline", EXIT_COVERAGE),
        FindingKind("known_drift", EXIT_COVERAGE, "no_baseline"),
        FindingKind("budget", EXIT_BUDGET),
        FindingKind("calibration", EXIT_COVERAGE),
        FindingKind("new_baseline", EXIT_OK, warns=True),
        FindingKind("accepted", EXIT_OK, warns=True),
        FindingKind("terms", EXIT_OK, warns=True),
        # No run finds these any more; stored runs have them.
        FindingKind("reading", EXIT_COVERAGE, warns=True),
        FindingKind("people", EXIT_COVERAGE, warns=True),
        FindingKind("trend", EXIT_REGRESSION, "moved", warns=True),
        FindingKind("voice_check", EXIT_REGRESSION, "voice_alarm", warns=True),
        FindingKind("moved", EXIT_REGRESSION, warns=True),
        FindingKind("injection", EXIT_COVERAGE, warns=True),
        FindingKind("names", EXIT_COVERAGE, "unknown_speaker", warns=True),
        FindingKind("clone", EXIT_REGRESSION, warns=True),
        FindingKind("voices", EXIT_REGRESSION, "clone", warns=True),
        FindingKind("said_again", EXIT_REGRESSION, warns=True),
        FindingKind("contradiction", EXIT_REGRESSION, warns=True),
        FindingKind("facts", EXIT_COVERAGE, "contradiction", warns=True),
        FindingKind("voice_alarm", EXIT_REGRESSION, warns=True),
        FindingKind("judge_changed", EXIT_COVERAGE, warns=True),
    )
}


class Finding(BaseModel, extra="forbid"):
    """One reason why a run is not clean, in one actionable sentence.

    Attributes:
        kind: one of ``KINDS``.
        exit_code: 1: regression; 3 or 4: inconclusive; 0: warning. Default: its kind's.
        remedy: what to do; often the same for many findings.
        command: the command that would decide an inconclusive result.
        messages: ids of quoted messages.
    """

    kind: str
    exit_code: int = EXIT_OK
    message: str
    remedy: str = ""
    command: str = ""
    agent_id: str | None = None
    dimension: str | None = None
    proposition_id: str | None = None
    messages: list[str] = Field(default_factory=list, exclude_if=lambda ids: not ids)

    @model_validator(mode="before")
    @classmethod
    def _as_its_kind(cls, data: Any) -> Any:
        known = KINDS.get(str(data.get("kind"))) if isinstance(data, dict) else None
        return data if known is None or known.warns else {"exit_code": known.exit_code, **data}

    @property
    def text(self) -> str:
        """The message and its remedy."""
        return f"{self.message}; {self.remedy}" if self.remedy else self.message


def about(agent_id: str, kind: str, text: str, **more: Any) -> Finding:
    """Return a finding about an agent. ``text``: the sentence after its id. ``more``: other fields of the finding."""
    return Finding(kind=kind, message=f"{agent_id}: {text}", agent_id=agent_id, **more)


def doubt_of(findings: Iterable[Finding]) -> Finding | None:
    """Return why a run's judge cannot be believed, as it quotes wrongly or failed its check; None: a baseline may be taken."""
    return next((finding for finding in findings if finding.kind == "judge_health"), None)


class LooserRule(BaseModel, extra="forbid", frozen=True):
    """A rule of a run that lets more pass than usual. ``usual``: the default, or a stricter value of ``persona.yaml``.

    ``text``: the rule in a headline, such as "9 points allowed".
    """

    rule: str
    text: str
    value: float | bool | None = None
    usual: float | bool | None = None


class BaselineTerms(BaseModel, extra="forbid", frozen=True):
    """The baseline that an agent is compared with.

    Attributes:
        window_start, window_end: the time that its windows cover; ``windows``: their number.
        accepted: why it was taken although a drift was known or scores were lower than before; None: neither was known.
    """

    captured_at: datetime
    window_start: str | None = None
    window_end: str | None = None
    windows: int = 1
    accepted: Acceptance | None = None


class Terms(BaseModel, extra="forbid"):
    """Terms of a verdict: agents left out, looser rules, baselines, accepted drops, and what decides the exit code.

    Attributes:
        left_out: agents that ``persona.yaml`` leaves out, or that have a baseline and were not named.
        accepted: drops that the rules allow, a sentence each.
        fail_on: warnings that fail the run; ``only_fail_on``: the only findings that can fail it; None: the usual ones.
    """

    left_out: list[str] = Field(default_factory=list)
    looser: list[LooserRule] = Field(default_factory=list)
    baselines: dict[str, BaselineTerms] = Field(default_factory=dict)
    accepted: list[str] = Field(default_factory=list)
    fail_on: list[str] = Field(default_factory=list)
    only_fail_on: list[str] | None = None


class Conclusion(BaseModel, extra="forbid", frozen=True):
    """Verdict on a claim, a dimension, an agent or a run.

    Attributes:
        verdict: None: there was nothing to judge, and it counts nowhere.
        reason: in a sentence; for a held result, which drops would be missed.
        command: the command that would decide an inconclusive result; "": none.
        accepted: it held only because the rules allow a drop.
    """

    verdict: Result | None = None
    reason: str = ""
    command: str = ""
    accepted: bool = Field(default=False, exclude_if=lambda accepted: not accepted)

    @property
    def status(self) -> Status:
        """The status that every output shows."""
        if self.verdict is Result.HELD and self.accepted:
            return ACCEPTED
        return self.verdict.status if self.verdict else NOTHING

    @classmethod
    def of(cls, findings: Iterable[Finding]) -> "Conclusion | None":
        """Return the conclusion of the worst finding; None: all are warnings."""
        serious = [item for item in findings if item.exit_code != EXIT_OK]
        worst = worst_exit_code({item.exit_code for item in serious})
        if worst == EXIT_OK:
            return None
        first = next(item for item in serious if item.exit_code == worst)
        verdict = Result.FELL if worst == EXIT_REGRESSION else Result.CANNOT_TELL
        return cls(verdict=verdict, reason=first.message, command=first.command)


class DimensionConclusion(Conclusion, frozen=True):
    """Verdict on a dimension, and on each of its claims by id."""

    claims: dict[str, Conclusion] = Field(default_factory=dict)


class Expense(BaseModel, extra="forbid"):
    """Cost of a part of a run.

    Attributes:
        mechanism: ``evaluation``, ``confirmation`` (repeated judgments of drops), ``history`` (earlier windows), ``synthetic``
            (generated conversations), ``facts`` (statements of agents) or ``judge_check`` (anchors; of the first agent).
        dimension: None: not spent on a single dimension.
    """

    mechanism: str
    agent_id: str
    dimension: str | None = None
    usage: Usage


class AgentReport(BaseModel, extra="forbid"):
    """An agent's evaluation, its comparison with the baseline, findings and current costs.

    Attributes:
        past: the agent was evaluated on a newer window, so this is history.
        outlined: claims and their reasons are left out; the store has them.
    """

    evaluation: AgentEvaluation
    comparison: BaselineComparison
    findings: list[Finding] = Field(default_factory=list)
    expenses: list[Expense] = Field(default_factory=list)
    past: bool = False
    outlined: bool = False

    @property
    def conclusion(self) -> Conclusion:
        """Verdict on the agent: the worst of its dimensions and of itself."""
        if found := Conclusion.of(self.findings):
            return found
        held = [item for _, item in sorted(self.conclusions.items()) if item.verdict is Result.HELD]
        if held and self.accepted:
            return Conclusion(verdict=Result.HELD, reason=self.accepted[0].message, accepted=True)
        if held:
            return Conclusion(verdict=Result.HELD, reason=next((item.reason for item in held if item.reason), ""))
        said = "none of its claims applies" if self.evaluation.sample_size else "it said nothing in the window"
        return Conclusion(reason=f"nothing to judge: {said}")

    @property
    def accepted(self) -> list[Finding]:
        """The drops that the rules or ``persona.yaml`` allow."""
        return [finding for finding in self.findings if finding.kind == "accepted"]

    @property
    def conclusions(self) -> dict[str, DimensionConclusion]:
        """Verdict on each dimension, in the order of the evaluation."""
        return {
            name: _conclude(item, self.comparison.dimensions.get(name), self.findings)
            for name, item in self.evaluation.dimensions.items()
        }


def _conclude(
    item: DimensionEvaluation, compared: DimensionComparison | None, findings: Iterable[Finding]
) -> DimensionConclusion:
    own = [found for found in findings if found.dimension == item.dimension or found.kind in OF_THE_AGENT]
    told = Conclusion.of(own)
    if told is None and item.score is not None:
        missed = compared.power.missed if compared and compared.power else ""
        accepted = next((found.message for found in own if found.kind == "accepted"), "")
        said = accepted or (f"{missed} would be missed" if missed else "")
        told = Conclusion(verdict=Result.HELD, reason=said, accepted=bool(accepted))
    judged = [row for row in item.propositions.values() if not row.algorithmic]
    told = told or Conclusion(reason=item.unscored or "")
    claims = {row.id: _conclude_claim(row, compared, own) for row in judged}
    return DimensionConclusion(**dict(told), claims=claims)


def _conclude_claim(
    row: PropositionResult, compared: DimensionComparison | None, findings: Iterable[Finding]
) -> Conclusion:
    """Return the verdict on a claim: from its own findings, else from those of its judge or dimension."""
    if row.unscored in ANSWERS:
        return Conclusion(reason=row.unscored or "")
    everywhere = [
        item for item in findings if item.proposition_id is None and item.kind not in ("regression", "undecided")
    ]
    if row.score is None:
        told = Conclusion.of(item for item in everywhere if item.kind in ("coverage", "budget"))
        return Conclusion(
            verdict=Result.CANNOT_TELL, reason=row.detail or row.unscored or "", command=told.command if told else ""
        )
    if found := Conclusion.of(item for item in findings if item.proposition_id == row.id):
        return found
    unknown = compared is None or compared.status in ("no_baseline", "other_judge") or compared.doubted
    if unknown or any(item.kind in OF_THE_AGENT for item in everywhere):
        return Conclusion.of(everywhere) or Conclusion(verdict=Result.CANNOT_TELL, reason="no baseline")
    return Conclusion(verdict=Result.HELD)


def expenses_of(
    agent_id: str, dimensions: Iterable[DimensionEvaluation], mechanism: str = "evaluation"
) -> list[Expense]:
    """Return the cost of judging these dimensions; nothing for dimensions without calls."""
    return [
        Expense(mechanism=mechanism, agent_id=agent_id, dimension=item.dimension, usage=item.usage)
        for item in dimensions
        if item.usage.calls
    ]


class RunReport(BaseModel, extra="forbid"):
    """The whole run.

    ``statistics`` holds what concerns several agents, such as the voice map; ``expenses`` all that was paid; ``terms``: of its
    verdict.
    """

    agents: dict[str, AgentReport] = Field(default_factory=dict)
    findings: list[Finding] = Field(default_factory=list)
    exit_code: int = EXIT_OK
    provenance: RunProvenance = Field(default_factory=RunProvenance)
    statistics: dict[str, Any] = Field(default_factory=dict)
    expenses: list[Expense] = Field(default_factory=list)
    terms: Terms = Field(default_factory=Terms)

    @property
    def usage(self) -> Usage:
        """What the run cost in all."""
        return add_usage(expense.usage for expense in self.expenses)

    @property
    def conclusion(self) -> Conclusion:
        """Verdict on the run: a regression, else inconclusive, else held."""
        found = [agent.conclusion for _, agent in sorted(self.agents.items())]
        found += [of_run] if (of_run := Conclusion.of(self.findings)) else []
        none = Conclusion(verdict=Result.CANNOT_TELL, reason="nobody has anything to judge")
        return min(
            (one for one in found if one.verdict), key=lambda one: (one.verdict or Result.HELD).rank, default=none
        )

    def all_findings(self) -> list[Finding]:
        """Return the run's own findings and every agent's."""
        return [*self.findings, *(finding for agent in self.agents.values() for finding in agent.findings)]


def provider_of(evaluation: AgentEvaluation) -> str:
    """Return the provider that judged; "" after a judge that no option names, such as recordings."""
    provider, named, _ = str(evaluation.provenance.get("judge", "")).partition(":")
    return provider if named else ""


def judge_to_ask(evaluation: AgentEvaluation) -> str:
    """Return the provider to ask again: the one that judged, anthropic where it has no name."""
    return provider_of(evaluation) or "anthropic"
