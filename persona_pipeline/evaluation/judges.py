"""Which judge a run uses: recorded by default, live by name."""

from dataclasses import dataclass
from pathlib import Path

from persona_pipeline.errors import ConfigError
from persona_pipeline.judging.progress import Progress
from persona_pipeline.judging.providers.registry import RECORDED
from persona_pipeline.judging.recorded import RecordedBackend, RecordedJudge, RecordingJudge, RecordingWriter
from persona_pipeline.judging.recorded_first import RecordedFirstJudge
from persona_pipeline.judging.verdict import Judge
from persona_pipeline.settings import get_settings
from persona_pipeline.world import World

RECORDINGS = "recordings"


@dataclass(frozen=True)
class JudgeOptions:
    """What a live judge may spend and keep.

    Attributes:
        max_usd: US dollars this run may cost; None: no limit.
        record: write the verdicts to the world's recordings.
        fresh: ask anew what recordings or the store already answer.
        grouping: claims of one transcript in one call; None: as the settings say.
        progress: hears of every judgment of a live judge.
        also: further folders of recordings; the world's own come first.
        min_coverage: share (0-1) of judgments that must be scored, noted beside what is recorded as failed; None: the settings'.
    """

    max_usd: float | None = None
    record: bool = False
    fresh: bool = False
    grouping: int | None = None
    progress: Progress | None = None
    also: tuple[Path, ...] = ()
    min_coverage: float | None = None


def open_judge(name: str, world: World, options: JudgeOptions | None = None) -> Judge:
    """Return the judge of a name. A live one is asked only what recordings and the store do not answer.

    Raises:
        ConfigError: the name is unknown, an option does not fit it, or its recordings or settings are not valid.
    """
    options = options or JudgeOptions()
    if name == RECORDED:
        if options.record:
            raise ConfigError("--record needs a live judge; add --judge anthropic")
        return RecordedJudge(RecordedBackend(world.root / RECORDINGS, options.also))
    from persona_pipeline.judging.anthropic import open_anthropic_judge

    folder = world.root / RECORDINGS
    recorded = RecordedJudge(RecordedBackend(folder, options.also))
    judge: Judge = open_anthropic_judge(
        get_settings(),
        judge=name,
        store=world.store,
        max_usd=options.max_usd,
        grouping=options.grouping,
        fresh=options.fresh,
        progress=options.progress,
    )
    if options.record:
        judge = RecordingJudge(judge, RecordingWriter(folder, options.min_coverage))
    return judge if options.fresh else RecordedFirstJudge(judge, recorded, progress=options.progress)


def writer_of(judge: Judge) -> RecordingWriter | None:
    """Return what writes the verdicts of an opened judge; None where they are not recorded."""
    judging = judge.judging if isinstance(judge, RecordedFirstJudge) else judge
    return judging.writer if isinstance(judging, RecordingJudge) else None
