"""Estimate of a run before it is paid for: judging, confirmation, and generated conversations."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from persona_pipeline.base.errors import ConfigError, raise_problems
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.evaluation.plan import (
    AgentPlan,
    SyntheticAgents,
    facts_requests,
    plans_of,
    silent_agents,
    with_generated,
)
from persona_pipeline.evaluation.read import WorldReader
from persona_pipeline.evaluation.snapshot import Inputs
from persona_pipeline.guard.anchors import AnchorRound
from persona_pipeline.guard.baselines.regression import most_confirmations
from persona_pipeline.judging.estimate import Estimate, claim_questions, dollars, estimate
from persona_pipeline.judging.money import model_name
from persona_pipeline.judging.open import RECORDINGS, JudgeOptions, OpenedJudge
from persona_pipeline.judging.providers.base import ModelOptions
from persona_pipeline.judging.recordings.replay import RecordedBackend
from persona_pipeline.judging.synthetic import expected_conversations
from persona_pipeline.judging.verdict import Judge, Question
from persona_pipeline.world.world import World


@dataclass(frozen=True)
class RunEstimate:
    """Estimate of a run.

    Attributes:
        judging: judgments that are neither recorded nor stored.
        recorded: number of recorded judgments.
        confirming: judgments that confirmation adds if everything drops; usually none.
        generated: calls for conversations that are generated first; they are in ``judging``.
        worst_usd: largest cost; None: the model's price is unknown.
    """

    judging: Estimate
    recorded: int = 0
    confirming: int = 0
    generated: int = 0
    worst_usd: float | None = None

    @property
    def usd(self) -> float | None:
        """The expected cost, in which nothing is confirmed; None: the model's price is unknown."""
        return self.judging.usd

    def __str__(self) -> str:
        lines = [str(self.judging)]
        if self.recorded:
            lines.append(
                f"{self.recorded} judgments are taken from recordings and cost nothing; --fresh asks them again"
            )
        if self.generated:
            lines.append(f"{self.generated} of these calls generate conversations")
        if self.confirming:
            most = ""
            if self.worst_usd is not None:
                most = f", at most {dollars(self.worst_usd - (self.judging.worst_usd or 0.0))}"
            lines.append(
                f"if everything dropped, confirming it would add up to {self.confirming} judgments{most}; mostly it adds none"
            )
        if self.confirming and self.judging.usage.calls and self.usd and self.worst_usd is not None:
            lines.append(f"all of it about {dollars(self.usd)}, at most {dollars(self.worst_usd)}")
        return "\n".join(lines)


def estimate_run(
    world: World,
    request: EvaluationRequest,
    judge: str | None = None,
    asking: JudgeOptions | None = None,
    *,
    count: bool = True,
) -> RunEstimate:
    """Return what a live run would take; ``ConfigError``: bad input.

    Args:
        judge: the provider; None or the recorded judge: that of the settings, or Anthropic.
        count: off where the API is not to be asked how many tokens it is.
    """
    asking, request = asking or JudgeOptions(), world.settled(request)
    options = ModelOptions.from_settings(world.settings, judge)
    if options.is_anthropic and not model_name(options.model).startswith("claude-"):
        raise ConfigError(
            f"the judge anthropic has no model {options.model!r}, so it has no price; set PERSONA_JUDGE_MODEL to one of its "
            "models (claude-...), or PERSONA_JUDGE to the provider that has it"
        )
    reader = WorldReader(world)
    inputs = reader.inputs(request)
    baselines, broken = reader.baselines(scope.agent_id for scope in inputs.scopes)
    inputs = inputs.without(broken)
    silent = silent_agents(inputs) if request.synthetic else []
    drafts = {scope.agent_id: expected_conversations(scope.persona, ends=scope.window.end) for scope in silent}
    inputs = with_generated(inputs, SyntheticAgents({name: messages for name, (_, messages) in drafts.items()}))
    talks = [question for questions, _ in drafts.values() for question in questions]
    plans = [*plans_of(inputs, request)]
    asked = [item for plan in plans for item in plan.requests]
    recorded = RecordedBackend(world.root / RECORDINGS, settings=world.settings)
    missing = asked if asking.fresh else [item for item in asked if not recorded.has_recorded([item])]
    store = None if asking.fresh else world.store
    known = {} if asking.fresh else recorded.recordings
    also = [question for question in _on_messages(reader, inputs, request, plans) if question.key not in known]
    also += _facts_questions(reader, inputs, fresh=asking.fresh) if request.facts else ()
    judging = estimate(
        missing, options=options, grouping=asking.grouping, store=store, count=count, also=[*also, *talks]
    )
    real = [plan for plan in plans if plan.agent_id in baselines and not plan.scope.synthetic]
    compared = {str(place): len(plan.requests) for place, plan in enumerate(real)}
    confirming = most_confirmations(compared, request.samples) if request.confirm else 0
    worst = judging.worst_usd
    if confirming and worst is not None:
        whole = estimate(asked, options=options)
        worst += confirming * (whole.worst_usd or 0.0) / max(1, whole.usage.calls)
    return RunEstimate(judging, len(asked) - len(missing), confirming, len(talks), worst)


def questions_of(world: World, options: ModelOptions, request: EvaluationRequest) -> list[Question]:
    """Return the first questions of an evaluation: claims, messages and the judge's check. ``ConfigError``: bad input."""
    request, reader = world.settled(request), WorldReader(world)
    inputs = reader.inputs(request)
    plans = list(plans_of(inputs, request))
    requests = [asked for plan in plans for asked in plan.requests]
    claims = claim_questions(requests, options, request.grouping or world.settings.judge_grouping)
    return [*claims, *_on_messages(reader, inputs, request, plans)]


def _on_messages(
    reader: WorldReader, inputs: Inputs, request: EvaluationRequest, plans: Sequence[AgentPlan]
) -> list[Question]:
    """Return the questions about whole messages: of the plans, and of the judge's check."""
    day = max(scope.window.end for scope in inputs.agents).date()
    baselines, _ = reader.baselines(scope.agent_id for scope in inputs.agents)
    asked = AnchorRound(reader.anchors(inputs, baselines, request), day, 2 if request.update_baseline else 1)
    return [call.question for call in (*(reading for plan in plans for reading in plan.readings), *asked.calls)]


def _facts_questions(reader: WorldReader, inputs: Inputs, *, fresh: bool) -> list[Question]:
    """Return unrecorded questions about conversations; comparing facts takes at most one more call an agent."""
    inputs, world = reader.with_canon(inputs), reader.world
    raise_problems(inputs.broken)
    known = {} if fresh else RecordedBackend(world.root / RECORDINGS, settings=world.settings).recordings
    asked = [talk.question for item in facts_requests(inputs) for talk in item.talks]
    return [question for question in asked if question.key not in known]


def estimate_facts(world: World, request: EvaluationRequest) -> Estimate:
    """Return what it takes to read what agents said of themselves, without comparing it; see ``estimate_run``."""
    options = ModelOptions.from_settings(world.settings, request.judge)
    reader = WorldReader(world)
    asked = _facts_questions(reader, reader.inputs(world.settled(request)), fresh=request.fresh)
    return estimate([], options=options, store=None if request.fresh else world.store, also=asked)


def missing_text(
    world: World, judging: Judge, command: str, judge: str | None = None, asking: JudgeOptions | None = None
) -> str:
    """Return failed judgments of a recording judge, the command that repeats them, and its price; "": none failed.

    ``judging``: from ``open_judge``; ``judge`` and ``asking``: as in ``estimate_run``.
    """
    writer = judging.writer if isinstance(judging, OpenedJudge) else None
    if writer is None or not writer.failed:
        return ""
    asked, reasons = zip(*writer.failed.values(), strict=True)
    said = ", ".join(f"{count} {reason}" for reason, count in sorted(Counter(reasons).items()))
    options = ModelOptions.from_settings(world.settings, judge)
    # Not counted: the API may be what failed.
    grouping = (asking or JudgeOptions()).grouping
    taken = estimate(asked, options=options, grouping=grouping, store=world.store, count=False)
    cost = "" if taken.usd is None else f", about ${max(0.01, taken.usd):.2f}"
    return f"{len(asked)} of {len(writer.asked)} judgments failed ({said}); `{command}` asks them again{cost}"
