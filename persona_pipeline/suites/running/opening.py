"""What running a suite opens, each only when it is needed: targets, the world, the judge."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from persona_pipeline.errors import ConfigError

if TYPE_CHECKING:
    from persona_pipeline.suites.asserts.suite_judge import SuiteJudge
    from persona_pipeline.suites.targets import Targets
    from persona_pipeline.world import World

RECORDINGS = "recordings"


def world_root() -> Path:
    """Return the world's folder of the settings."""
    from persona_pipeline.settings import get_settings

    return get_settings().world_root


def open_targets(
    suite: Path, path: Path | None, *, environment: Iterable[str] | None = None, network: bool = False
) -> "Targets | None":
    """Return the targets of a file, by default the nearest one; None when there is none.

    Args:
        environment, network: what a file inside the suite's repository may reach beside what the settings allow; one outside is
            the user's own.
    """
    from persona_pipeline.suites.targets import find_targets_file, grants_for, load_targets

    found = path or find_targets_file(suite)
    if found is None:
        return None
    return load_targets(found, grants_for(found, suite, environment=environment or None, network=network or None))


def judge_opener(
    name: str, *, record: bool = False, max_usd: float | None = None, world: "World | None" = None
) -> "Callable[[], SuiteJudge]":
    """Return a function that opens the judge: suites that ask nothing need no recordings, no key and no settings.

    Args:
        world: whose recordings and store are used; None: those of the settings.

    Raises:
        ConfigError: the name is unknown, or the options do not fit it.
    """
    from persona_pipeline.judging.providers.registry import RECORDED, find_provider

    if name != RECORDED:
        find_provider(name)
    elif record:
        raise ConfigError("--record needs a live judge; add --judge anthropic")

    def opened() -> "SuiteJudge":
        from persona_pipeline.suites.asserts.suite_judge import SuiteJudge

        if name == RECORDED:
            from persona_pipeline.judging.recorded import RecordedJudge

            return SuiteJudge(RecordedJudge((world.root if world else world_root()) / RECORDINGS))
        return _live(name, record=record, max_usd=max_usd, world=world)

    return opened


def _live(name: str, *, record: bool, max_usd: float | None, world: "World | None") -> "SuiteJudge":
    from persona_pipeline.judging.anthropic import open_anthropic_judge
    from persona_pipeline.judging.recorded import RecordingWriter
    from persona_pipeline.settings import get_settings
    from persona_pipeline.store import open_store
    from persona_pipeline.suites.asserts.suite_judge import SuiteJudge

    judge: Any = open_anthropic_judge(
        get_settings(), judge=name, store=world.store if world else open_store(), max_usd=max_usd, mechanism="suite"
    )
    if not record:
        return SuiteJudge(judge)
    writer = RecordingWriter((world.root if world else world_root()) / RECORDINGS)
    return SuiteJudge(judge, record=writer.record_answers, record_verdicts=writer.record)
