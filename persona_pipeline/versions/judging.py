"""Who judges the versions: one judge for both, or two that are compared themselves."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from persona_pipeline.calibration.known import KnownVerdicts
from persona_pipeline.errors import ConfigError
from persona_pipeline.judging.claims import no_entries
from persona_pipeline.judging.money import model_name
from persona_pipeline.judging.open import RECORDED, JudgeOptions, open_judge
from persona_pipeline.judging.verdict import Judge, JudgeRequest, Unscored, Verdict
from persona_pipeline.settings import get_settings
from persona_pipeline.world import World


@dataclass(frozen=True)
class KnownJudge:
    """What one model said, as far as it is recorded or was paid for; nobody is asked."""

    known: KnownVerdicts
    model: str
    live: bool = False

    @property
    def name(self) -> str:
        """What stands in provenance."""
        return f"recorded:{self.model}"

    async def judge(self, requests: Sequence[JudgeRequest]) -> list[Verdict]:
        return [self._verdict(request, said) for request, said in zip(requests, self.known.on(requests), strict=True)]

    def _verdict(self, request: JudgeRequest, said: Sequence[Verdict]) -> Verdict:
        if not request.trajectory.entries:
            return no_entries(request)
        own = [item for item in said if item.model and model_name(item.model) == model_name(self.model)]
        if request.sample < len(own):
            return own[request.sample]
        detail = f"{request.dimension}/{request.proposition_id}: {self.model} was never asked"
        return Verdict(request.proposition_id, unscored=Unscored.UNRECORDED, detail=detail)


def two_judges(world: World, name: str, models: tuple[str, str], options: JudgeOptions) -> tuple[Judge, Judge]:
    """Return judges of two models, each with what it judged before; the recorded judge is what is known of both.

    Raises:
        ConfigError: an option does not fit, or the provider's settings are not usable.
    """
    if options.record:
        raise ConfigError("--record keeps one answer a judgment, and two judges give two; leave it out")
    if name == RECORDED:
        known = KnownVerdicts.of(world)
        return KnownJudge(known, models[0]), KnownJudge(known, models[1])
    # Neither may spend what the other needs.
    options = replace(options, recorded=False, max_usd=None if options.max_usd is None else options.max_usd / 2)
    before, after = (
        open_judge(name, world, options, settings=get_settings().model_copy(update={"judge_model": model}))
        for model in models
    )
    return before, after


def one_judge(world: World, name: str, options: JudgeOptions) -> tuple[Judge, Judge]:
    """Return the same judge twice.

    Raises:
        ConfigError: the name is unknown, or an option does not fit.
    """
    judge = open_judge(name, world, options)
    return judge, judge
