"""A scorer in two halves: from one agent's case what must be judged, and the score once it has been. So runs can be estimated,
batched and pooled.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Protocol

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.judging.verdict import JudgeRequest, Unscored, Verdict
from persona_pipeline.scoring.judged import JudgedPropositions
from persona_pipeline.scoring.results import DimensionEvaluation, PropositionResult, weighted_mean
from persona_pipeline.scoring.text.agreement import AgreementLexicon
from persona_pipeline.world.models import Entry, Message, Window, message_entry, seed_from
from persona_pipeline.world.propositions.dimensions import Dimension
from persona_pipeline.world.propositions.models import PropositionSet


@dataclass(frozen=True)
class AgentCase:
    """The input of every scorer.

    Attributes:
        messages: the agent's own in the window, in order of time, direct ones included.
        earlier: the agent's own in the window before, of the same length; empty for an unbounded window.
        channels: every message of each channel the agent spoke in, in the window.
        earlier_channels: the same channels in the window before.
        history: what each speaker of ``channels`` said before the window, in all channels, oldest first; without it the
            earlier channels stand in.
        names: display names by agent id.
        samples: judgments asked for per claim.
        repeats: more of them for single claims, by dimension and claim.
        lexicon: what counts as agreement; None: English.
    """

    agent_id: str
    display_name: str
    persona: str
    window: Window
    messages: Sequence[Message]
    earlier: Sequence[Message] = ()
    channels: Mapping[str, Sequence[Message]] = field(default_factory=dict)
    earlier_channels: Mapping[str, Sequence[Message]] = field(default_factory=dict)
    history: Mapping[str, Sequence[str]] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    samples: int = 1
    repeats: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    lexicon: AgreementLexicon | None = None

    def samples_of(self, propositions: PropositionSet) -> dict[str, int]:
        """Return how often each claim of a set is judged."""
        more = self.repeats.get(propositions.dimension, {})
        return {item.id: more.get(item.id, self.samples) for item in propositions.propositions}

    def name_of(self, agent_id: str) -> str:
        return self.names.get(agent_id, agent_id)

    def entry(self, message: Message) -> Entry:
        """Return the message under its speaker's real name."""
        recipient = None if message.recipient is None else self.name_of(message.recipient)
        return message_entry(message, self.name_of(message.agent_id), recipient=recipient)

    def seed(self, *parts: str) -> int:
        """Return a seed that depends on who and which messages, never on what they say."""
        return seed_from(self.agent_id, *parts, *(message.id for message in self.messages))

    def group_channels(self) -> dict[str, Sequence[Message]]:
        """Return the channels in which somebody else spoke too."""
        return {
            channel: messages
            for channel, messages in self.channels.items()
            if len({message.agent_id for message in messages}) > 1
        }

    def earlier_texts(self) -> dict[str, list[str]]:
        """Return what each speaker said before the window, oldest first."""
        if self.history:
            return {agent_id: list(texts) for agent_id, texts in self.history.items()}
        found: dict[str, list[str]] = {}
        everything = (message for messages in self.earlier_channels.values() for message in messages)
        for message in sorted(everything, key=lambda message: (message.created_at, message.id)):
            found.setdefault(message.agent_id, []).append(message.text)
        return found

    def own_count(self, messages: Sequence[Message]) -> int:
        return sum(message.agent_id == self.agent_id for message in messages)


@dataclass(frozen=True)
class DimensionPlan:
    """``requests`` for the judge, and ``finish``, which takes their verdicts in order and returns the evaluation."""

    requests: Sequence[JudgeRequest]
    finish: Callable[[Sequence[Verdict]], DimensionEvaluation]


class Scorer(Protocol):
    """Plans one dimension for one agent."""

    def __call__(self, case: AgentCase, propositions: PropositionSet) -> DimensionPlan: ...


def load_scorer(dimension: Dimension) -> Scorer:
    """Return the scorer that a dimension names.

    Raises:
        ConfigError: there is none of that name.
    """
    module, _, name = dimension.scorer.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"the scorer {dimension.scorer!r} of {dimension.name} cannot be loaded: {error}") from error


@dataclass(frozen=True)
class Part:
    """One weighted part of a dimension. ``score`` None with ``failed``: it should be there and is not; else it does not apply."""

    score: float | None
    weight: float
    failed: bool = False


def compose(parts: Sequence[Part]) -> float | None:
    """Return the weighted mean of the parts that apply, 0-9; None when one failed or none applies."""
    if any(part.failed for part in parts):
        return None
    present = [(part.score, part.weight) for part in parts if part.score is not None]
    return weighted_mean(present) if present else None


def judged_part(judged: JudgedPropositions, weight: float = 1.0) -> Part:
    """Return the judged part of a dimension: failed when it has no score and a judgment that was due is missing."""
    score = judged.mean()
    return Part(score, weight, failed=score is None and judged.n_scored < judged.n_expected)


def algorithmic_row(
    row_id: str, claim: str, score: float | None, reasoning: str, unscored: Unscored = Unscored.NO_EVIDENCE
) -> PropositionResult:
    """Return the row of a computed part; no score means there was nothing to compute it from, or it cannot be read."""
    return PropositionResult(
        id=row_id,
        claim=claim,
        algorithmic=True,
        score=score,
        unscored=unscored.value if score is None else None,
        reasoning=reasoning,
        detail=reasoning if score is None else "",
    )


def evaluation(
    dimension: str,
    judged: JudgedPropositions,
    rows: Sequence[PropositionResult],
    parts: Sequence[Part],
    statistics: Mapping[str, object],
    propositions: PropositionSet,
) -> DimensionEvaluation:
    """Return the dimension's evaluation from its judged propositions, its computed rows and the parts of its score."""
    score = compose(parts)
    computed = [row for row in rows if row.score is not None]
    return DimensionEvaluation(
        dimension=dimension,
        score=score,
        unscored=judged.reason() if score is None else None,
        n_scored=judged.n_scored + len(computed),
        n_expected=judged.n_expected + len(computed),
        propositions={**judged.results, **{row.id: row for row in rows}},
        statistics=dict(statistics),
        usage=judged.usage,
        proposition_set_hash=propositions.hash,
    )


def no_evidence(dimension: str, propositions: PropositionSet, detail: str) -> DimensionPlan:
    """Return a plan that asks nothing: there is nothing to judge."""
    results = {
        item.id: PropositionResult(
            id=item.id,
            claim=item.claim,
            weight=item.weight,
            inverted=item.inverted,
            unscored=Unscored.NO_EVIDENCE.value,
            detail=detail,
            recommendation=item.recommendations_for_improvement,
        )
        for item in propositions.propositions
    }
    judged = JudgedPropositions(results=results)
    return DimensionPlan((), lambda _: evaluation(dimension, judged, (), (), {}, propositions))
