"""Scorers in two steps: plan the judgments of an agent, then compute the score from the verdicts. The separation lets runs be
estimated, batched and pooled.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.judging.verdict import JudgeRequest, Unscored, Usage, Verdict
from persona_pipeline.scoring.results import (
    DimensionEvaluation,
    PropositionResult,
    QuotedEvidence,
    add_usage,
    final_score,
    spread,
    weighted_mean,
)
from persona_pipeline.scoring.style.likeness import VoiceFinding
from persona_pipeline.scoring.text.agreement import AgreementLexicon
from persona_pipeline.world.models import Entry, Message, Trajectory, Window, grouped, message_entry, seed_from
from persona_pipeline.world.propositions.models import (
    DIMENSIONS,
    Proposition,
    PropositionSet,
    claim_variables,
    fill_template,
)


@dataclass(frozen=True)
class AgentCase:
    """The input of every scorer.

    Attributes:
        messages: the agent's own messages in the window, in order of time, including direct messages.
        earlier: the agent's own messages in the previous window of the same length; empty for an unbounded window.
        channels: all messages in the window, by channel in which the agent spoke.
        earlier_channels: the same channels in the previous window.
        history: texts of each speaker before the window, in the channels in which the agent spoke then or since, oldest first.
        names: display names by agent id.
        samples: number of judgments per claim.
        repeats: number of judgments for single claims, by dimension and claim; overrides ``samples``.
        lexicon: terms that count as agreement; None: English.
        alike: findings that the agent uses the lines or the voice of another agent of its world.
        before: the agent's own messages in all windows that define its usual level, including ``earlier``.
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
    alike: Sequence[VoiceFinding] = ()
    before: Sequence[Message] = ()

    def samples_of(self, propositions: PropositionSet) -> dict[str, int]:
        """Return the number of judgments of each claim of a set."""
        more = self.repeats.get(propositions.dimension, {})
        return {item.id: more.get(item.id, self.samples) for item in propositions.propositions}

    def name_of(self, agent_id: str) -> str:
        return self.names.get(agent_id, agent_id)

    def entry(self, message: Message) -> Entry:
        """Return the message under its speaker's real name."""
        recipient = None if message.recipient is None else self.name_of(message.recipient)
        return message_entry(message, self.name_of(message.agent_id), recipient=recipient)

    def seed(self, *parts: str) -> int:
        """Return a seed that depends on the agent and the message ids, not on the texts."""
        return seed_from(self.agent_id, *parts, *(message.id for message in self.messages))

    def group_channels(self) -> dict[str, Sequence[Message]]:
        """Return the channels in which another agent spoke too."""
        return {
            channel: messages
            for channel, messages in self.channels.items()
            if len({message.agent_id for message in messages}) > 1
        }

    def own_count(self, messages: Sequence[Message]) -> int:
        return sum(message.agent_id == self.agent_id for message in messages)


@dataclass(frozen=True)
class JudgingContext:
    """A trajectory on which every proposition is judged.

    Attributes:
        part: name that distinguishes it from the others, such as a channel; None when it is the only one.
        weight: its weight in a proposition's score.
        variables: values of the claim's template variables.
    """

    trajectory: Trajectory
    variables: Mapping[str, str]
    part: str | None = None
    weight: float = 1.0


@dataclass(frozen=True)
class JudgedPropositions:
    """Results of propositions, combined from their verdicts.

    ``n_expected`` and ``n_scored`` count judgments. Neither counts answers (``no_evidence``, ``not_applicable``).
    """

    results: dict[str, PropositionResult] = field(default_factory=dict)
    n_scored: int = 0
    n_expected: int = 0
    ideas: dict[str, tuple[str, ...]] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)

    def mean(self) -> float | None:
        """Return the weighted mean of the scored propositions; None when none is scored or all weights are 0."""
        pairs = [(item.score, item.weight) for item in self.results.values() if item.score is not None]
        return weighted_mean(pairs) if sum(weight for _, weight in pairs) > 0 else None

    def reason(self) -> str:
        """Return the reason for a missing score: the first failure, else the first answer, else ``no_evidence``."""
        reasons = [Unscored(item.unscored) for item in self.results.values() if item.unscored]
        failures = [reason for reason in reasons if not reason.is_answer]
        return (failures or reasons or [Unscored.NO_EVIDENCE])[0].value


@dataclass(frozen=True)
class JudgingPlan:
    """The requests of a set over its contexts; ``collect`` takes the verdicts in the same order."""

    propositions: PropositionSet
    contexts: Sequence[JudgingContext]
    requests: tuple[JudgeRequest, ...]
    samples: Mapping[str, int]

    def collect(self, verdicts: Sequence[Verdict]) -> JudgedPropositions:
        """Combine the verdicts of ``requests``; ValueError: the numbers differ."""
        pairs = grouped(zip(self.requests, verdicts, strict=True), lambda pair: pair[0].proposition_id)
        results: dict[str, PropositionResult] = {}
        ideas: dict[str, tuple[str, ...]] = {}
        for proposition in self.propositions.propositions:
            own, samples = pairs.get(proposition.id, []), self.samples[proposition.id]
            results[proposition.id] = self._result(proposition, own)
            for position, (request, verdict) in enumerate(own):
                part = self.contexts[position // samples].part or ""
                if request.lists_ideas and request.sample == 0 and verdict.score is not None:
                    ideas[part] = verdict.ideas
        expected = [v for v in verdicts if not (v.unscored and v.unscored.is_answer)]
        return JudgedPropositions(
            results=results,
            n_scored=sum(verdict.score is not None for verdict in verdicts),
            n_expected=len(expected),
            ideas=ideas,
            usage=add_usage(verdict.usage for verdict in verdicts),
        )

    def _result(self, proposition: Proposition, pairs: Sequence[tuple[JudgeRequest, Verdict]]) -> PropositionResult:
        scored = [(request, verdict) for request, verdict in pairs if verdict.score is not None]
        result = PropositionResult(
            id=proposition.id,
            claim=pairs[0][0].claim if pairs else proposition.claim,
            weight=proposition.weight,
            inverted=proposition.inverted,
            recommendation=proposition.recommendations_for_improvement,
            keys=[request.key for request, _ in pairs],
            injection_suspected=any(verdict.injection_suspected for _, verdict in pairs),
        )
        failed = [verdict for _, verdict in pairs if verdict.unscored and not verdict.unscored.is_answer]
        result.failed = dict(Counter(verdict.unscored.value for verdict in failed if verdict.unscored))
        result.detail = failed[0].detail if failed else ""
        # A stale recording is never averaged away: a partial score would look like a complete one.
        stale = [verdict for verdict in failed if verdict.unscored is Unscored.UNRECORDED]
        if stale or not scored:
            first = (stale or failed or [verdict for _, verdict in pairs] or [None])[0]
            result.unscored = first.unscored.value if first and first.unscored else Unscored.NO_EVIDENCE.value
            result.detail = first.detail if first else "there is nothing to judge"
            result.reasoning = first.reasoning if first else ""
            return result
        samples = self.samples[proposition.id]
        groups = [pairs[start : start + samples] for start in range(0, len(self.contexts) * samples, samples)]
        by_context = [[float(v.score) for _, v in group if v.score is not None] for group in groups]
        result.raw = weighted_mean(
            (sum(scores) / len(scores), context.weight)
            for context, scores in zip(self.contexts, by_context, strict=True)
            if scores
        )
        result.score = final_score(result.raw, inverted=proposition.inverted, hard=self.propositions.hard)
        result.samples = [float(verdict.score or 0) for _, verdict in scored]
        if samples > 1:
            result.spread, result.standard_error = _pooled_spread(by_context)
        result.reasoning = " / ".join(dict.fromkeys(verdict.reasoning for _, verdict in scored))
        result.evidence = [
            QuotedEvidence(message_id=item.message_id, quote=item.quote, verified=item.verified)
            for _, verdict in scored
            for item in verdict.evidence
        ]
        if len(self.contexts) > 1:
            result.parts = [
                {
                    "part": self.contexts[position // samples].part,
                    "weight": self.contexts[position // samples].weight,
                    "raw": verdict.score,
                    "unscored": verdict.unscored and verdict.unscored.value,
                    "reasoning": verdict.reasoning,
                }
                for position, (_, verdict) in enumerate(pairs)
            ]
        return result


def _pooled_spread(groups: Sequence[Sequence[float]]) -> tuple[float | None, float | None]:
    """Return the spread and standard error of repeated judgments, pooled over contexts."""
    deviations = [(spread(group)[0], len(group)) for group in groups]
    known = [(deviation, n) for deviation, n in deviations if deviation is not None]
    if not known:
        return None, None
    degrees = sum(n - 1 for _, n in known)
    pooled = math.sqrt(sum(deviation**2 * (n - 1) for deviation, n in known) / degrees)
    return pooled, pooled / math.sqrt(sum(n for _, n in known))


def recorded_coverage(verdicts: Iterable[Verdict]) -> float | None:
    """Return the highest required coverage that failed recordings hold; None: see ``DimensionEvaluation.min_coverage``."""
    asked = [verdict.min_coverage for verdict in verdicts if verdict.has_failed]
    return max((least for least in asked if least is not None), default=None) if None not in asked else None


@dataclass(frozen=True)
class DimensionPlan:
    """``requests`` for the judge, and ``finish``, which takes their verdicts in order and returns the evaluation."""

    requests: Sequence[JudgeRequest]
    finish: Callable[[Sequence[Verdict]], DimensionEvaluation]


# Plans one dimension for one agent.
Scorer = Callable[[AgentCase, PropositionSet], DimensionPlan]


@cache
def scorers() -> Mapping[str, Scorer]:
    """Return the scorer of each dimension; ConfigError: a dimension names a scorer that does not exist."""
    found = dict[str, Scorer]()
    for item in DIMENSIONS.values():
        module, _, name = item.scorer.partition(":")
        try:
            found[item.name] = getattr(import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigError(f"the scorer {item.scorer!r} of {item.name} cannot be loaded: {error}") from error
    return found


@dataclass(frozen=True)
class Part:
    """Weighted part of a dimension. ``score`` None with ``failed``: the score is missing; None without: the part does not apply."""

    score: float | None
    weight: float
    failed: bool = False


def compose(parts: Sequence[Part]) -> float | None:
    """Return the weighted mean of the parts that apply, 0-9; None when a part failed or none applies."""
    if any(part.failed for part in parts):
        return None
    present = [(part.score, part.weight) for part in parts if part.score is not None]
    return weighted_mean(present) if present else None


def judged_part(judged: JudgedPropositions, weight: float = 1.0) -> Part:
    """Return the judged part of a dimension: failed when it has no score and an expected judgment is missing."""
    score = judged.mean()
    return Part(score, weight, failed=score is None and judged.n_scored < judged.n_expected)


# Rows and parts of the score that are computed or judged, and the dimension's own numbers.
Composed = tuple[Sequence[PropositionResult], Sequence[Part], Mapping[str, object]]


def judged_plan(
    case: AgentCase,
    propositions: PropositionSet,
    contexts: Sequence[JudgingContext],
    compose_with: Callable[[JudgedPropositions], Composed],
    *,
    persona: str | None = None,
    lists_ideas: bool = False,
) -> DimensionPlan:
    """Return the plan of a dimension: every proposition is judged on every context; an empty context has no request.

    Args:
        compose_with: returns the computed rows, all parts of the score and the statistics for judged propositions.
        persona: shown to the judge only if the set includes personas; None in dimensions that do not show it.
        lists_ideas: the first proposition's judgment also lists the ideas of each context.
    """
    contexts = [context for context in contexts if context.trajectory.entries]
    samples = case.samples_of(propositions)
    requests = tuple(
        JudgeRequest(
            dimension=propositions.dimension,
            proposition_id=proposition.id,
            claim=fill_template(proposition.claim, claim_variables(context.variables)),
            trajectory=context.trajectory,
            persona=persona if propositions.include_personas else None,
            lists_ideas=lists_ideas and index == 0,
            sample=sample,
            agent_id=case.agent_id,
        )
        for index, proposition in enumerate(propositions.propositions)
        for context in contexts
        for sample in range(samples[proposition.id])
    )

    def finish(verdicts: Sequence[Verdict]) -> DimensionEvaluation:
        judged = JudgingPlan(propositions, contexts, requests, samples).collect(verdicts)
        rows, parts, statistics = compose_with(judged)
        score, computed = compose(parts), [row for row in rows if row.score is not None]
        return DimensionEvaluation(
            dimension=propositions.dimension,
            score=score,
            unscored=judged.reason() if score is None else None,
            n_scored=judged.n_scored + len(computed),
            n_expected=judged.n_expected + len(computed),
            propositions={**judged.results, **{row.id: row for row in rows}},
            statistics=dict(statistics),
            usage=judged.usage,
            proposition_set_hash=propositions.hash,
        )

    return DimensionPlan(requests, finish)


def no_evidence(
    case: AgentCase, propositions: PropositionSet, detail: str, statistics: Mapping[str, object] | None = None
) -> DimensionPlan:
    """Return a plan without requests, for a case without evidence."""

    def composed(judged: JudgedPropositions) -> Composed:
        for result in judged.results.values():
            result.detail = detail
        return (), (), statistics or {}

    return judged_plan(case, propositions, (), composed)
