"""Everything an evaluation reads, complete before the first question."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from persona_pipeline.base.errors import Problem
from persona_pipeline.evaluation.history import Point, StoredVerdict
from persona_pipeline.guard.anchors import AnchoredAgent
from persona_pipeline.guard.baselines.golden import Watched
from persona_pipeline.guard.baselines.models import Baseline
from persona_pipeline.guard.known_drift import KnownDrift
from persona_pipeline.guard.report import AgentEvaluation, Finding
from persona_pipeline.scoring.facts.reading import Fact, FactsFound
from persona_pipeline.scoring.messages.verdicts import MessageVerdict, MessageVerdicts, Role
from persona_pipeline.scoring.style.likeness import VoiceFinding
from persona_pipeline.scoring.style.monitor import LearntVoice
from persona_pipeline.scoring.text.agreement import AgreementLexicon
from persona_pipeline.world.messages.store import MessageLog
from persona_pipeline.world.models import Persona, Window
from persona_pipeline.world.propositions.loading import StoredSet
from persona_pipeline.world.speakers import NameMatch


@dataclass(frozen=True)
class AgentScope:
    """One agent, the window it is evaluated on, and the dimensions that are scored.

    Attributes:
        past: the agent was evaluated on a newer window, so the results are history.
        synthetic: generated conversations are evaluated instead of real messages.
        alike: agents whose lines it repeats or whose voice it has taken over.
    """

    agent_id: str
    window: Window
    dimensions: tuple[str, ...]
    persona: Persona
    past: bool = False
    synthetic: bool = False
    alike: tuple[VoiceFinding, ...] = ()


@dataclass(frozen=True)
class Inputs:
    """Agents, claims and messages: everything that questions are made of.

    Attributes:
        agents: scopes to evaluate now; ``earlier``: windows before them that are evaluated too, oldest first.
        problems: skipped lines of message files, and messages dated in the future.
        broken: agents with invalid files, and every problem in them.
        read_at: when the messages were read.
        claims: claim sets by agent and dimension; ``invalid``: problems in the files of dimensions that were not requested.
        messages: real messages around the windows; ``generated``: generated conversations.
        names: display names by speaker.
        lexicon: words of agreement; None: English.
        canon: facts that people wrote down about agents.
        most_messages: largest number of messages of an agent that are judged one by one; 0: none.
        missing: agents with a baseline and no persona; ``left_out``: expected agents that are not evaluated.
        speakers: match of speakers and personas, for the requested agents.
    """

    agents: Sequence[AgentScope] = ()
    earlier: Sequence[AgentScope] = ()
    problems: Sequence[Problem] = ()
    broken: Mapping[str, tuple[Problem, ...]] = field(default_factory=dict)
    read_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    claims: Mapping[str, Mapping[str, StoredSet]] = field(default_factory=dict)
    invalid: Mapping[str, tuple[Problem, ...]] = field(default_factory=dict)
    messages: MessageLog = field(default_factory=MessageLog)
    generated: MessageLog = field(default_factory=MessageLog)
    names: Mapping[str, str] = field(default_factory=dict)
    lexicon: AgreementLexicon | None = None
    canon: Mapping[str, Sequence[Fact]] = field(default_factory=dict)
    most_messages: int = 0
    missing: Sequence[str] = ()
    left_out: Sequence[str] = ()
    speakers: NameMatch = field(default_factory=NameMatch)

    @property
    def scopes(self) -> list[AgentScope]:
        """All scopes, the current ones first."""
        return [*self.agents, *self.earlier]

    def without(self, broken: Mapping[str, tuple[Problem, ...]]) -> "Inputs":
        """Return the inputs without agents that turned out to be broken."""
        agents, earlier = (
            [item for item in scopes if item.agent_id not in broken] for scopes in (self.agents, self.earlier)
        )
        return replace(self, agents=agents, earlier=earlier, broken={**self.broken, **broken})


@dataclass(frozen=True)
class Reference:
    """Everything that current scores are compared with or checked by.

    Attributes:
        baselines: of evaluated agents; ``watched``: of the agents from which typical variation is learnt.
        results: earlier runs on the same windows, as JSON text by run id.
        points: earlier windows of evaluated and watched agents, oldest first.
        verdicts: stored verdicts on messages by agent, oldest first; ``labelled``: verdicts of people, by agent and message.
        label_counts: number of messages and of judgments that people labelled.
        anchors: messages with a known verdict that check the judge.
        coverage: share of judgments (0-1) that must be scored in a replay, and with a live judge.
    """

    baselines: Mapping[str, Baseline] = field(default_factory=dict)
    watched: Watched = field(default_factory=Watched)
    results: Mapping[str, str] = field(default_factory=dict)
    points: Mapping[str, Sequence[Point]] = field(default_factory=dict)
    verdicts: Mapping[str, Sequence[StoredVerdict]] = field(default_factory=dict)
    labelled: Mapping[str, Mapping[str, Role]] = field(default_factory=dict)
    label_counts: tuple[int, int] = (0, 0)
    anchors: Sequence[AnchoredAgent] = ()
    coverage: tuple[float, float] = (1.0, 0.95)

    def run(self, run_id: str) -> AgentEvaluation | None:
        """Return an earlier run; None: none has this id."""
        text = self.results.get(run_id)
        return AgentEvaluation.model_validate_json(text) if text else None

    def baseline(self, scope: AgentScope) -> Baseline | None:
        """Return the baseline of a scope; generated conversations are not compared."""
        return None if scope.synthetic else self.baselines.get(scope.agent_id)

    def series(self, agent_id: str, read: Sequence[MessageVerdicts], end: datetime) -> list[MessageVerdict]:
        """Return the verdicts on an agent's messages up to ``end``; the first in ``read`` counts, stored ones come last.

        Stored verdicts of another judge or question are left out: a change of the judge is not one of the agent.
        """
        own = [item for item in read if item.agent_id == agent_id]
        judged_by = {item.judged_by for item in own}
        stored = (item for item in self.verdicts.get(agent_id, ()) if item.judged_by in judged_by)
        found = {item.verdict.message: item.verdict for item in stored}
        found |= {verdict.message: verdict for item in reversed(own) for verdict in item.verdicts}
        return [item for item in found.values() if item.said_at <= end]


@dataclass(frozen=True)
class Signals:
    """Findings in addition to the scores of claims.

    Attributes:
        drifts: known drifts by agent.
        voices: findings on agents' own voices; ``learnt``: voices to store.
        facts: statements of agents about themselves, once asked.
    """

    drifts: Mapping[str, Sequence[KnownDrift]] = field(default_factory=dict)
    voices: Mapping[str, Sequence[Finding]] = field(default_factory=dict)
    learnt: Sequence[LearntVoice] = ()
    facts: Mapping[str, FactsFound] = field(default_factory=dict)


@dataclass(frozen=True)
class Snapshot:
    """Everything an evaluation reads. Its holder needs neither the world nor the store."""

    inputs: Inputs = field(default_factory=Inputs)
    reference: Reference = field(default_factory=Reference)
    signals: Signals = field(default_factory=Signals)
