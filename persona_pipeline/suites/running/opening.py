"""What running a suite opens, each only when it is needed: targets, the world, the judge."""

import dataclasses
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from persona_pipeline.base.errors import ConfigError

if TYPE_CHECKING:
    from persona_pipeline.suites.grading.suite_judge import BackedJudge, SuiteJudge
    from persona_pipeline.suites.running.targets_file import Targets
    from persona_pipeline.world.world import World

RECORDINGS = "recordings"


def world_root() -> Path:
    """Return the world's folder of the settings."""
    from persona_pipeline.base.settings import get_settings

    return get_settings().world_root


def open_targets(
    suite: Path,
    path: Path | None,
    *,
    environment: Iterable[str] | None = None,
    network: bool = False,
    folders: Iterable[Path] = (),
) -> "Targets | None":
    """Return the targets of a file, by default the nearest one; None when there is none.

    Args:
        environment, network, folders: what a file inside the suite's repository may reach beside what the settings allow; one
            outside is the user's own.
    """
    from persona_pipeline.suites.answering.base import grants_for
    from persona_pipeline.suites.running.targets_file import find_targets_file, load_targets

    found = path or find_targets_file(suite)
    if found is None:
        return None
    given = grants_for(found, suite, environment=environment or None, network=network or None, folders=folders)
    return load_targets(found, given)


@dataclass(frozen=True)
class JudgeOpener:
    """Opens a judge, and knows without opening it what its answers rest on.

    Attributes:
        name: ``recorded``, or the provider of a live judge.
        recordings: the folder its answers are recorded in; None: it is asked.
    """

    open: "Callable[[], SuiteJudge]"
    name: str
    recordings: Path | None

    def __call__(self) -> "SuiteJudge":
        return self.open()

    @property
    def identity(self) -> Any:
        """What makes it answer as it does, as JSON: another model, prompt or server is another judge."""
        return judge_identity(self.name)


def judge_identity(name: str) -> Any:
    """Return all that makes a judge of the settings answer as it does: server, model, how it is asked, the wording of questions."""
    from persona_pipeline.base.documents.json import content_hash
    from persona_pipeline.base.settings import get_settings
    from persona_pipeline.judging.claims import PROMPT_VERSION
    from persona_pipeline.judging.open import RECORDED
    from persona_pipeline.judging.providers.base import ModelOptions
    from persona_pipeline.suites.grading import judge_questions as asked

    if name == RECORDED:
        return RECORDED
    settings = get_settings()
    rules = (asked.FREEFORM_RULES, asked.CHECKLIST_RULES, asked.ANALYTIC_RULES, asked.PAIRWISE_RULES)
    wording = content_hash([*rules, asked.FREEFORM_ASK, asked.PAIRWISE_ASK])[:8]
    try:
        options = ModelOptions.from_settings(settings, name)
        where = [options.name, options.endpoint, options.effort, options.max_tokens]
    except ConfigError as error:
        # Whoever opens it will say so.
        where = [name, str(error)]
    return [*where, settings.judge_grouping, PROMPT_VERSION, wording]


def judge_opener(
    name: str, *, record: bool = False, max_usd: float | None = None, world: "World | None" = None
) -> JudgeOpener:
    """Return what opens the judge: suites that ask nothing need no recordings, no key and no settings.

    Args:
        world: whose recordings and store are used; None: those of the settings.

    Raises:
        ConfigError: the name is unknown, or the options do not fit it.
    """
    from persona_pipeline.judging.open import RECORDED, find_provider

    if name != RECORDED:
        find_provider(name)
    elif record:
        raise ConfigError("--record needs a live judge; add --judge anthropic")

    def opened() -> "SuiteJudge":
        from persona_pipeline.base.settings import get_settings
        from persona_pipeline.judging.open import JudgeOptions, open_judge
        from persona_pipeline.suites.grading.suite_judge import SuiteJudge

        options = JudgeOptions(max_usd, record, recorded=False)
        return SuiteJudge(open_judge(name, world, options, settings=None if world else get_settings()))

    folder = (world.root if world else world_root()) / RECORDINGS if name == RECORDED else None
    return JudgeOpener(opened, name, folder)


class SharedJudge:
    """A judge, or a function that opens it, for whichever thread needs it first. Whoever makes one closes it."""

    def __init__(self, judge: "Callable[[], BackedJudge | SuiteJudge] | BackedJudge | None") -> None:
        self.given = judge
        self._opened: SuiteJudge | None = None
        self._lock = threading.Lock()

    def get(self) -> "SuiteJudge":
        """Return the judge, opened."""
        from persona_pipeline.suites.grading.suite_judge import SuiteJudge

        with self._lock:
            if self._opened is None:
                given: Any = self.given() if callable(self.given) else self.given
                self._opened = given if isinstance(given, SuiteJudge) else SuiteJudge(given)
            return self._opened

    @property
    def name(self) -> str | None:
        """Who judges; None while nobody was needed."""
        return self._opened.name if self._opened else None

    @property
    def identity(self) -> Any:
        """What makes the judge answer as he does (``JudgeOpener``). One who does not say it is opened, and goes by his name."""
        known = getattr(self.given, "identity", None)
        if known is not None or self.given is None:
            return known
        judge = self.get().judge
        return [getattr(judge, name, None) for name in ("name", "model", "prompt_version")]

    @property
    def recordings(self) -> Path | None:
        """The folder a recorded judge answers from; None of any other."""
        return getattr(self.given, "recordings", None)

    @property
    def usage(self) -> Mapping[str, Any]:
        """What its judgments took so far."""
        return dataclasses.asdict(self._opened.usage) if self._opened else {}

    def usage_since(self, before: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what its judgments took since they had taken ``before``."""
        return {key: value - before.get(key, 0) for key, value in self.usage.items()}

    def close(self) -> None:
        if self._opened:
            self._opened.close()
