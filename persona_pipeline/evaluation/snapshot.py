"""Everything an evaluation reads, in one value that is complete before the first question.

With the answers it was given it can be saved: a run that anybody can make again, without its world, its store or a judge.
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
from persona_pipeline.scoring.messages.verdicts import MessageVerdicts, Role
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
        past: the agent was evaluated on a newer window: what is found here is history.
        synthetic: generated conversations are evaluated instead of what it really said.
        persona: None: as the store has it.
        alike: whose lines it says and whose voice it has come to have, of all agents.
    """

    agent_id: str
    window: Window
    dimensions: tuple[str, ...]
    past: bool = False
    synthetic: bool = False
    persona: Persona | None = None
    alike: tuple[VoiceFinding, ...] = ()


@dataclass(frozen=True)
class Snapshot:
    """What an evaluation is made from. Whoever holds it needs neither the world nor its store.

    Attributes:
        agents: who is evaluated now; ``earlier``: the windows before that are evaluated too, the oldest first.
        problems: lines of message files that were left out, and messages of the future.
        broken: agents whose files are not valid, with everything wrong with them.
        read_at: when the messages were read.
        claims: each agent's sets by dimension, as far as any are known.
        fresh: sets of every dimension as the files have them now, of agents of whom only a part is to be scored; what is wrong
            with those that are not valid.
        messages: what was really said, around the windows; ``generated``: conversations that were made up.
        names: display names of everybody.
        lexicon: what counts as agreement; None: English.
        baselines: of the agents that are evaluated; ``watched``: of those from which they borrow what others vary by.
        results: what earlier runs on these windows said, as JSON text by run id.
        points: earlier windows of agents that are evaluated or watched, oldest first.
        canon: what people laid down of agents; ``facts``: what those said of themselves, once that was asked.
        drifts: known drifts of the agents that are evaluated.
        voices: what is found of the agents' own voices; ``learnt``: those that are to be kept as they are here now.
        missing: agents with a baseline and no persona; ``left_out``: those that the run should be expected to have, and has not.
        most_messages: of an agent in a window, messages that are judged one by one; 0: none. ``read_messages``: verdicts on them
            by run id, once that was asked; ``known_verdicts``: those that the store has of agents, oldest first.
        labelled: verdicts of people on messages, by agent and message.
        anchors: messages with a known verdict, by which the judge is checked; ``anchor_answers``: once they were asked.
        coverage: the share of judgments (0-1) that must be scored in a replay, and with a live judge.
        speakers: how speakers and personas go together, as far as it concerns the agents that are asked for.
    """

    agents: Sequence[AgentScope] = ()
    earlier: Sequence[AgentScope] = ()
    problems: Sequence[Problem] = ()
    broken: Mapping[str, tuple[Problem, ...]] = field(default_factory=dict)
    read_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    claims: Mapping[str, Mapping[str, StoredSet]] = field(default_factory=dict)
    fresh: Mapping[str, tuple[Mapping[str, StoredSet], tuple[Problem, ...]]] = field(default_factory=dict)
    messages: MessageLog = field(default_factory=MessageLog)
    generated: MessageLog = field(default_factory=MessageLog)
    names: Mapping[str, str] = field(default_factory=dict)
    lexicon: AgreementLexicon | None = None
    baselines: Mapping[str, Baseline] = field(default_factory=dict)
    watched: Watched = field(default_factory=Watched)
    label_counts: tuple[int, int] = (0, 0)
    results: Mapping[str, str] = field(default_factory=dict)
    points: Mapping[str, Sequence[Point]] = field(default_factory=dict)
    canon: Mapping[str, Sequence[Fact]] = field(default_factory=dict)
    facts: Mapping[str, FactsFound] = field(default_factory=dict)
    most_messages: int = 0
    read_messages: Mapping[str, MessageVerdicts] = field(default_factory=dict)
    known_verdicts: Mapping[str, Sequence[StoredVerdict]] = field(default_factory=dict)
    labelled: Mapping[str, Mapping[str, Role]] = field(default_factory=dict)
    anchors: Sequence[AnchoredAgent] = ()
    anchor_answers: AnchorAnswers | None = None
    drifts: Mapping[str, Sequence[KnownDrift]] = field(default_factory=dict)
    voices: Mapping[str, Sequence[Finding]] = field(default_factory=dict)
    learnt: Annotated[Sequence[LearntVoice], Field(exclude=True)] = ()
    missing: Sequence[str] = ()
    left_out: Sequence[str] = ()
    speakers: NameMatch = field(default_factory=NameMatch)
    coverage: Annotated[tuple[float, float], Field(exclude=True)] = (1.0, 0.95)

    def run(self, run_id: str) -> AgentEvaluation | None:
        """Return what an earlier run of this id said; None where there was none."""
        text = self.results.get(run_id)
        return AgentEvaluation.model_validate_json(text) if text else None

    def persona(self, scope: AgentScope) -> Persona:
        """Return who a scope is about."""
        if scope.persona is None:
            raise ConfigError(
                f"agent {scope.agent_id!r} has no persona in the store; write personas/{scope.agent_id}.yaml"
            )
        return scope.persona


FORMAT = "persona-snapshot/1"
_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class RunReplay:
    """A run that can be made again.

    Attributes:
        judge: its name; ``live``: it was asked, and would have been asked again for what fell; ``notes``: what it said of itself.
        rules: as they were in force.
        answers: by the key of the question.
        statistics: what the report shows beside the scores.
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
    """Says what was said when the run was made; the fields are those of ``RunReplay``."""

    name: str
    live: bool
    notes: Sequence[str]
    answers: Mapping[str, Verdict]

    def has_recorded(self, requests: Iterable[JudgeRequest], *, failures: bool = False) -> bool:
        """Whether all of these were answered; ``failures``: with a failure too."""
        found = [self.answers.get(request.key) for request in requests]
        return all(item is not None and (failures or not item.has_failed) for item in found)

    async def judge(self, requests: Sequence[JudgeRequest]) -> list[Verdict]:
        """Return verdicts in the order of the requests; what was not asked then is not recorded."""
        why = {"unscored": Unscored.UNRECORDED, "detail": "the run that was saved did not ask it"}
        return [self.answers.get(item.key) or Verdict(item.proposition_id, **why) for item in requests]


def save_replay(path: Path, replay: RunReplay) -> None:
    """Write a run to a file; compressed where its name ends in ``.gz``. Nothing of the machine it was made on is in it.

    What sources say of messages beyond what is judged stays out, and so do the folders of files with problems. ``OSError``: the
    file cannot be written.
    """
    snapshot = replay.snapshot
    bare = replace(
        snapshot,
        messages=_bare(snapshot.messages),
        generated=_bare(snapshot.generated),
        problems=[replace(item, path=item.path and Path(item.path).name) for item in snapshot.problems],
    )
    data = _adapter().dump_json(replace(replay, snapshot=bare))
    # Without a time in its head the same run is the same file.
    write_atomically(path, gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def load_replay(path: Path) -> RunReplay:
    """Read a run from a file; ``ConfigError``: it cannot be read, or is none of this version."""
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
