"""The gate over stored messages: the number each threshold would have held, and the number of them out of character."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pydantic import BaseModel, Field

from persona_pipeline.base.calls import run_async
from persona_pipeline.base.errors import NothingError
from persona_pipeline.corrections.configuration import read_config
from persona_pipeline.corrections.judgment import (
    ClaimFiles,
    GateFacts,
    NotJudgedError,
    gather_facts,
    question_of,
    reviewed,
)
from persona_pipeline.corrections.records import Action, GateCall, PriorAttempts, decide
from persona_pipeline.guard.labels.files import LABELS
from persona_pipeline.guard.labels.messages import load_message_labels, majority
from persona_pipeline.judging.estimate import Estimate, estimate
from persona_pipeline.judging.open import RECORDINGS
from persona_pipeline.judging.providers.base import ModelOptions
from persona_pipeline.judging.recordings.replay import RecordedBackend
from persona_pipeline.judging.verdict import Answer, Backend, Question, Usage
from persona_pipeline.scoring.messages.verdicts import Role
from persona_pipeline.world.models import CorrectionSettings, Message, Window, grouped
from persona_pipeline.world.propositions.models import ADHERENCE
from persona_pipeline.world.world import World


class Held(BaseModel, frozen=True, extra="forbid"):
    """The number of messages that a threshold holds, and the number of them known to be out of character (``out``)."""

    threshold: float
    held: int
    out: int


class GateReplay(BaseModel, frozen=True, extra="forbid"):
    """The gate of an agent over stored messages.

    Attributes:
        threshold: the current one; ``enabled``: whether the gate is on.
        messages: number of messages; ``measured`` of them have a score, ``unmeasured``: the others by reason.
        known: messages with a verdict of the judge, in or out, or else a label of people; ``out`` of them are out of character.
        held: by threshold, the lowest first.
        judges: number of scores by model.
    """

    agent_id: str
    enabled: bool
    threshold: float
    messages: int
    measured: int
    unmeasured: dict[str, int] = Field(default_factory=dict)
    known: int = 0
    out: int = 0
    held: list[Held] = Field(default_factory=list)
    judges: dict[str, int] = Field(default_factory=dict)


class Replay(BaseModel, frozen=True, extra="forbid"):
    """The gates of agents over stored messages; ``usd`` and ``calls`` are of the judge."""

    results: list[GateReplay]
    usd: float | None = 0.0
    calls: int = 0


def thresholds(present: float) -> list[float]:
    """Return the thresholds that are looked at: every half point of the scale, and the one that is set now."""
    return sorted({*(step / 2 for step in range(19)), present})


_ON = CorrectionSettings(action_gate_enabled=True)


@dataclass(frozen=True)
class ReplayedCheck:
    """A stored message, the gate's question about it, and the judge's answer.

    ``score``: 0-9; None: not scored, for the given ``reason``. ``verdict``: None: the answer is older than the question.
    ``question``: None if the gate would not have asked.
    """

    message: Message
    facts: GateFacts | None = None
    question: Question | None = None
    score: float | None = None
    verdict: Role | None = None
    reason: str = ""
    model: str | None = None
    usage: Usage = field(default_factory=Usage)

    def is_held(self, threshold: float) -> bool:
        """Whether the gate holds the message at a threshold."""
        is_out = self.verdict is Role.OUT
        return decide(self.score, threshold, attempt=1, max_attempts=1, is_out=is_out) is not Action.COMMIT

    def is_out(self, labels: Mapping[tuple[str, str], bool]) -> bool | None:
        """Whether the message is out of character, by the verdict, else by labels of ``labelled_out``; None: unknown."""
        if self.verdict in (Role.IN, Role.OUT):
            return self.verdict is Role.OUT
        return labels.get((self.message.id, self.message.text))


def labelled_out(world: World, agent_id: str) -> dict[tuple[str, str], bool]:
    """Return whether people say that a message, by id and text, is out of character; a tie is left out."""
    labels = [label for label in load_message_labels(world.root / LABELS) if label.agent_id == agent_id]
    said = grouped(labels, lambda label: (label.message, label.text))
    verdicts = {place: majority(own) for place, own in said.items()}
    return {place: verdict is Role.OUT for place, verdict in verdicts.items() if verdict is not Role.UNCLEAR}


def questions_about(world: World, agent_id: str, messages: Sequence[Message]) -> list[ReplayedCheck]:
    """Return the gate's questions about an agent's messages as of their sending, with today's persona and claims.

    ConfigError: the agent has no persona or no valid adherence claims.
    """
    claims, found = ClaimFiles(world.root, ADHERENCE.name), []
    for message in messages:
        place = (message.channel, message.recipient)
        call = GateCall(agent_id, message.text, *place, attempt=1, action_id="", known=PriorAttempts(), ends=0.0)
        facts = gather_facts(world, claims, call, _ON, before=(message.created_at, message.id))
        # The gate is on.
        assert facts is not None
        try:
            found.append(ReplayedCheck(message, facts, question_of(agent_id, facts)))
        except NotJudgedError as error:
            found.append(ReplayedCheck(message, reason=error.reason))
    return found


async def check_messages(backend: Backend, asked: Sequence[ReplayedCheck]) -> list[ReplayedCheck]:
    """Return the judge's answers on messages, in their order; a failed call affects only its message."""
    questions = [item.question for item in asked if item.question]
    # The first alone: it writes the prefix to the API's cache that the others read.
    answers = iter([*await backend.ask(questions[:1]), *await backend.ask(questions[1:])])
    return [_checked(item, item.facts, next(answers)) if item.question and item.facts else item for item in asked]


def _checked(item: ReplayedCheck, facts: GateFacts, answer: Answer) -> ReplayedCheck:
    told = replace(item, model=answer.model, usage=answer.usage)
    try:
        review = reviewed(answer, facts)
        return replace(told, score=review.score, verdict=review.message and review.message.verdict)
    except NotJudgedError as error:
        return replace(told, reason=error.reason)


@dataclass(frozen=True)
class ReplayRequest:
    """The agents whose messages are replayed. ``newest``: at most this number of messages of each agent, the newest."""

    agents: Sequence[str]
    window: Window | None = None
    newest: int | None = None


def estimate_replay(world: World, request: ReplayRequest, judge: str | None, *, fresh: bool = False) -> Estimate:
    """Return the estimated cost of a live judge. Raises ``ConfigError``: bad input."""
    asked = [
        item for agent in request.agents for item in questions_about(world, agent, _messages(world, request, agent))
    ]
    questions = [item.question for item in asked if item.question]
    recorded = RecordedBackend(world.root / RECORDINGS, settings=world.settings)
    missing = questions if fresh else [item for item in questions if item.key not in recorded.recordings]
    options = ModelOptions.from_settings(world.settings, judge)
    return estimate([], options=options, store=None if fresh else world.store, also=missing)


def replay(world: World, request: ReplayRequest, backend: Backend) -> Replay:
    """Replay the gate over stored messages; nothing is changed by it.

    Raises:
        ConfigError: an agent's files or the labels are not valid, or it has said nothing.
    """
    results: list[GateReplay] = []
    usage = Usage()
    for agent_id in request.agents:
        settings = read_config(world.store, agent_id).settings
        asked = questions_about(world, agent_id, _messages(world, request, agent_id))
        checked = run_async(check_messages(backend, asked))
        usage = sum((item.usage for item in checked), usage)
        results.append(_summed(agent_id, settings, checked, labelled_out(world, agent_id)))
    return Replay(results=results, usd=usage.usd, calls=usage.calls)


def _messages(world: World, request: ReplayRequest, agent_id: str) -> list[Message]:
    found = world.messages(request.window, agent_id=agent_id)
    if not found:
        raise NothingError(f"agent {agent_id!r} has no stored message in this window; ingest some, or widen --window")
    return found if request.newest is None else found[-request.newest :]


def _summed(
    agent_id: str,
    settings: CorrectionSettings,
    checked: Sequence[ReplayedCheck],
    labels: Mapping[tuple[str, str], bool],
) -> GateReplay:
    scored = [item for item in checked if item.score is not None]
    out = [item.is_out(labels) for item in scored]
    present = settings.action_gate_threshold
    held: list[Held] = []
    for threshold in thresholds(present) if scored else ():
        found = [known for item, known in zip(scored, out, strict=True) if item.is_held(threshold)]
        held.append(Held(threshold=threshold, held=len(found), out=found.count(True)))
    return GateReplay(
        agent_id=agent_id,
        enabled=settings.action_gate_enabled,
        threshold=present,
        messages=len(checked),
        measured=len(scored),
        unmeasured=dict(sorted(Counter(item.reason for item in checked if item.score is None).items())),
        known=len(out) - out.count(None),
        out=out.count(True),
        held=held,
        judges=dict(sorted(Counter(item.model or "" for item in scored).items())),
    )
