"""What a comparison would take at most, before it is paid for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from persona_pipeline.judging.estimate import Estimate, Range, estimate, in_dollars
from persona_pipeline.judging.money import estimated_tokens, price
from persona_pipeline.judging.open import RECORDINGS, JudgeOptions
from persona_pipeline.judging.providers.base import ModelOptions
from persona_pipeline.judging.recordings.replay import RecordedBackend
from persona_pipeline.judging.verdict import JudgeRequest, Usage
from persona_pipeline.lab.compare.compare import AskedVersions, Contest
from persona_pipeline.lab.compare.scenes import AskedScene, Scene
from persona_pipeline.lab.results import ComparisonRequest
from persona_pipeline.lab.states import readable_recordings

# Of an answer in a chat: short, about, long.
_ANSWER = (20, 90, 350)
_WORDS = "word " * 72


@dataclass(frozen=True)
class ComparisonEstimate:
    """What a comparison takes if it goes to its last scene; mostly it is decided sooner.

    Attributes:
        judging: by judge, one or two.
        answers: how many answers are asked for at most; ``answers_usd``: their price, None: not known.
    """

    judging: tuple[Estimate, ...]
    scenes: int
    recorded: int = 0
    answers: int = 0
    answers_usd: Range | None = None

    def __str__(self) -> str:
        lines = [f"at most {self.scenes} scenes an agent; it stops when all is decided"]
        lines += [str(item) for item in self.judging]
        if self.recorded:
            lines.append(f"{self.recorded} judgments are taken from recordings and cost nothing")
        if self.answers:
            usd = "no price is known" if self.answers_usd is None else in_dollars(self.answers_usd)
            lines.append(f"{self.answers} answers: {usd}")
        return "\n".join(lines)


def estimate_comparison(
    contest: Contest,
    scenes: Mapping[str, Sequence[Scene]],
    request: ComparisonRequest,
    judge: str | None,
    asking: AskedVersions,
) -> ComparisonEstimate:
    """Return what a comparison takes at most.

    Args:
        judge: the provider of a live judge; None: that of the settings, or Anthropic.
        asking: which two judges are compared, and which recordings are taken.

    Raises:
        ConfigError: files of a version are not valid.
    """
    asked: tuple[list[JudgeRequest], list[JudgeRequest]] = ([], [])
    answers: list[AskedScene] = []
    wanted, _, _ = contest.agents(request)
    for agent_id in wanted:
        tally = contest.tally(agent_id, request)
        for scene in scenes.get(agent_id, ()):
            said = (f"{_WORDS}1", f"{_WORDS}2") if contest.answering else ()
            for requests, plan in zip(asked, contest.plans(tally, scene, said, request), strict=True):
                requests += plan.requests
            if contest.answering:
                pairs = zip(contest.answering.targets, (tally.before, tally.after), strict=True)
                answers += [AskedScene(target, agent, scene) for target, agent in pairs]
    settings = contest.world.settings
    if asking.models is None:
        unique = list({item.key: item for item in (*asked[0], *asked[1])}.values())
        missing = _unrecorded(contest, unique, asking.options)
        found = (estimate(missing, options=ModelOptions.from_settings(settings, judge), store=contest.world.store),)
        recorded = len(unique) - len(missing)
    else:
        own = [settings.model_copy(update={"judge_model": model}) for model in asking.models]
        found = tuple(
            estimate(list(requests), options=ModelOptions.from_settings(each, judge), store=contest.world.store)
            for requests, each in zip(asked, own, strict=True)
        )
        recorded = 0
    most = max((len(own) for own in scenes.values()), default=0)
    return ComparisonEstimate(found, most, recorded, len(answers), _price(answers, settings.judge_prices))


def _unrecorded(contest: Contest, requests: Sequence[JudgeRequest], options: JudgeOptions) -> list[JudgeRequest]:
    if options.fresh:
        return list(requests)
    settings = contest.world.settings
    also = tuple(side.recordings for side in reversed(contest.sides) if readable_recordings(side.recordings, settings))
    recorded = RecordedBackend(contest.world.root / RECORDINGS, also, settings)
    return [item for item in requests if not recorded.has_recorded([item])]


def _price(answers: Sequence[AskedScene], prices: str) -> Range | None:
    total = Range()
    for item in answers:
        model = getattr(item.target, "model", None)
        read = sum(estimated_tokens(message["content"]) for message in item.messages)
        usages = [Usage(input_tokens=read, output_tokens=tokens) for tokens in _ANSWER]
        usd = [price(usage, model, prices=prices) if isinstance(model, str) else None for usage in usages]
        if any(each is None for each in usd):
            return None
        total += Range(*(each or 0.0 for each in usd))
    return total
