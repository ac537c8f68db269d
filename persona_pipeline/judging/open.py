"""Opening a judge: for evaluations, suites, the gate, comparisons and canaries alike."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.base.settings import Settings
from persona_pipeline.judging.judge import Claims, OpenedJudge
from persona_pipeline.judging.judge import replayed_by as replayed_by
from persona_pipeline.judging.progress import IN_A_LOG as IN_A_LOG
from persona_pipeline.judging.progress import ON_A_TERMINAL as ON_A_TERMINAL
from persona_pipeline.judging.progress import Progress
from persona_pipeline.judging.providers.base import RECORDED, ModelOptions
from persona_pipeline.judging.providers.base import find_provider as find_provider
from persona_pipeline.judging.recordings.replay import RecordedBackend
from persona_pipeline.judging.recordings.writing import RecordingWriter

if TYPE_CHECKING:
    from persona_pipeline.judging.model.asking import ModelBackend
    from persona_pipeline.world.world import World

RECORDINGS = "recordings"


@dataclass(frozen=True)
class JudgeOptions:
    """Limits of a live judge, and where its answers are kept.

    Attributes:
        max_usd: US dollars this run may cost; None: no limit.
        record: write the verdicts to the world's recordings.
        fresh: ask again despite recordings or stored answers.
        grouping: claims per call; None: as the settings say.
        progress: is updated with every judgment of a live judge.
        also: further folders of recordings; the world's own come first.
        min_coverage: share (0-1) of judgments that must be scored, noted in recorded failures; None: the settings'.
        recorded: use recorded answers.
        kept: answers are kept in the store and count against the day's limit.
        agents: agents of the questions; recordings of other agents are not read. None: all agents.
    """

    max_usd: float | None = None
    record: bool = False
    fresh: bool = False
    grouping: int | None = None
    progress: Progress | None = None
    also: tuple[Path, ...] = ()
    min_coverage: float | None = None
    recorded: bool = True
    kept: bool = True
    agents: Sequence[str] | None = None

    @classmethod
    def of(cls, request: EvaluationRequest, progress: Progress | None = None) -> "JudgeOptions":
        """Return what a request asks of its judge."""
        names = ("max_usd", "record", "fresh", "grouping", "min_coverage", "agents")
        return cls(**{name: getattr(request, name) for name in names}, progress=progress)


def open_judge(
    name: str,
    world: "World | None" = None,
    options: JudgeOptions | None = None,
    *,
    settings: Settings | None = None,
    calling: ModelOptions | None = None,
) -> OpenedJudge:
    """Return the judge of a name. A live one is asked only what recordings and the store do not answer.

    Args:
        world: whose recordings and store are used; None: those of the settings, which must then be given.
        settings: of the judge; None: the world's.
        calling: how a live judge is called; None: as its settings say.

    Raises:
        ConfigError: the name is unknown, an option does not fit it, a key, a package or a price is missing, or the recordings or
            settings are not valid.
    """
    options = options or JudgeOptions()
    if settings is None:
        if world is None:
            raise ValueError("a judge is opened for a world or for settings")
        settings = world.settings
    folder = (world.root if world else settings.world_root) / RECORDINGS
    others = set(world.agent_ids()) - set(options.agents) if world and options.agents is not None else ()
    if name == RECORDED:
        if options.record:
            raise ConfigError("--record needs a live judge; add --judge anthropic")
        return OpenedJudge(RecordedBackend(folder, options.also, settings, without=others))
    calling = calling or ModelOptions.from_settings(settings, name)
    coverage = settings.min_coverage_live if options.min_coverage is None else options.min_coverage
    is_recorded = options.recorded and not options.fresh
    return OpenedJudge(
        _model(calling, world, options, settings),
        Claims(calling.max_tokens, options.grouping or calling.grouping, calling.canaries),
        RecordedBackend(folder, options.also, settings, without=others) if is_recorded else None,
        RecordingWriter(folder, coverage, settings.signing_secret, others) if options.record else None,
        options.progress,
    )


def _model(calling: ModelOptions, world: "World | None", options: JudgeOptions, settings: Settings) -> "ModelBackend":
    from persona_pipeline.base.database.engine import default_url, open_store
    from persona_pipeline.judging.cache import JudgmentCache
    from persona_pipeline.judging.model.asking import ModelBackend
    from persona_pipeline.judging.money import Budget, daily_limit

    calling.require_usable()
    if not options.kept:
        return ModelBackend(calling)
    store = world.store if world else open_store(default_url(settings))
    daily = daily_limit(settings, store)
    return ModelBackend(
        calling,
        cache=JudgmentCache(store, anew=options.fresh),
        budget=None if options.max_usd is None and daily is None else Budget(options.max_usd, daily),
        progress=options.progress,
    )
