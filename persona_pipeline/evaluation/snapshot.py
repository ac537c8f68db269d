"""Everything an evaluation reads, complete before the first question.

Saved together with the judge's answers it is a replay: the same run again, without the world, the store or a judge.
"""

import gzip
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from persona_pipeline.base.documents.json import write_atomically
from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.base.files import read_regular
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.evaluation.history import Point, StoredVerdict
from persona_pipeline.guard.anchors import AnchorAnswers, AnchoredAgent
from persona_pipeline.guard.baselines.golden import Watched
from persona_pipeline.guard.baselines.models import Baseline
from persona_pipeline.guard.gate import GateRules
from persona_pipeline.guard.known_drift import KnownDrift
from persona_pipeline.guard.report import AgentEvaluation, Finding
from persona_pipeline.judging.verdict import JudgeRequest, Unscored, Verdict
from persona_pipeline.scoring.facts.reading import Fact, FactsFound
from persona_pipeline.scoring.messages.verdicts import MessageVerdict, MessageVerdicts, Role
from persona_pipeline.scoring.style.likeness import VoiceFinding
from persona_pipeline.scoring.style.monitor import LearntVoice
from persona_pipeline.scoring.text.agreement import AgreementLexicon
from persona_pipeline.version import __version__
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
    coverage: Annotated[tuple[float, float], Field(exclude=True)] = (1.0, 0.95)

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
        messages: verdicts on messages by run id, once asked.
        anchors: the judge's answers on anchors, once asked.
    """

    drifts: Mapping[str, Sequence[KnownDrift]] = field(default_factory=dict)
    voices: Mapping[str, Sequence[Finding]] = field(default_factory=dict)
    learnt: Annotated[Sequence[LearntVoice], Field(exclude=True)] = ()
    facts: Mapping[str, FactsFound] = field(default_factory=dict)
    messages: Mapping[str, MessageVerdicts] = field(default_factory=dict)
    anchors: AnchorAnswers | None = None


@dataclass(frozen=True)
class Snapshot:
    """Everything an evaluation reads. Its holder needs neither the world nor the store."""

    inputs: Inputs = field(default_factory=Inputs)
    reference: Reference = field(default_factory=Reference)
    signals: Signals = field(default_factory=Signals)


FORMAT = "persona-snapshot/2"
_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class RunReplay:
    """A run that can be repeated.

    Attributes:
        judge: its name; ``live``: a live judge, which confirms drops; ``notes``: its notes for reports.
        rules: the rules in force.
        answers: by key of the question.
        statistics: the report's statistics.
    """

    snapshot: Snapshot
    request: EvaluationRequest
    rules: GateRules
    judge: str
    live: bool = False
    notes: Sequence[str] = ()
    answers: Mapping[str, Verdict] = field(default_factory=dict)
    statistics: Mapping[str, Any] = field(default_factory=dict)
    version: str = __version__
    format: str = FORMAT


@dataclass
class ReplayedJudge:
    """Gives the answers of a saved run; the fields are those of ``RunReplay``."""

    name: str
    live: bool
    notes: Sequence[str]
    answers: Mapping[str, Verdict]

    def has_recorded(self, requests: Iterable[JudgeRequest], *, failures: bool = False) -> bool:
        """Return whether all requests have an answer; ``failures``: a failure counts."""
        found = [self.answers.get(request.key) for request in requests]
        return all(item is not None and (failures or not item.has_failed) for item in found)

    async def judge(self, requests: Sequence[JudgeRequest]) -> list[Verdict]:
        """Return verdicts in the order of the requests; a question that was not asked is unrecorded."""
        why = {"unscored": Unscored.UNRECORDED, "detail": "the run that was saved did not ask it"}
        return [self.answers.get(item.key) or Verdict(item.proposition_id, **why) for item in requests]


def save_replay(path: Path, replay: RunReplay) -> None:
    """Write a run to a file, compressed where its name ends in ``.gz``; ``OSError``: it cannot be written.

    Extras of messages and absolute paths are left out.
    """
    inputs = replay.snapshot.inputs
    bare = replace(
        inputs,
        messages=_bare(inputs.messages),
        generated=_bare(inputs.generated),
        problems=[replace(item, path=item.path and Path(item.path).name) for item in inputs.problems],
    )
    data = _adapter().dump_json(replace(replay, snapshot=replace(replay.snapshot, inputs=bare)))
    # Without a time in its head the same run is the same file.
    write_atomically(path, gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def load_replay(path: Path) -> RunReplay:
    """Read a run from a file; ``ConfigError``: it cannot be read, or another version wrote it."""
    try:
        data = read_regular(path)
        replay = _adapter().validate_json(gzip.decompress(data) if data.startswith(_MAGIC) else data)
    except OSError as error:
        raise ConfigError(Problem(f"cannot be read ({error.strerror or error}); check the path", str(path))) from error
    except (ValidationError, EOFError, zlib.error) as error:
        why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise ConfigError(
            Problem(f"is no snapshot of this version ({why}); write one with evaluate --save-snapshot", str(path))
        ) from error
    if replay.format != FORMAT:
        raise ConfigError(
            Problem(f"is a {replay.format!r}, and this is version {__version__}, which reads {FORMAT!r}", str(path))
        )
    return replay


@cache
def _adapter() -> TypeAdapter[RunReplay]:
    return TypeAdapter(RunReplay)


def _bare(log: MessageLog) -> MessageLog:
    return MessageLog(tuple(replace(message, extras={}) for message in log.messages))
