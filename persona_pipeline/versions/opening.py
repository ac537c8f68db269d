"""What a comparison opens: both versions, who judges, who answers, and the scenes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from persona_pipeline.errors import ConfigError
from persona_pipeline.judging.money import Budget
from persona_pipeline.judging.open import JudgeOptions, OpenedJudge
from persona_pipeline.judging.verdict import Judge
from persona_pipeline.suites.answering.base import OutputCache
from persona_pipeline.suites.format.models import Suite
from persona_pipeline.suites.running.opening import open_targets
from persona_pipeline.versions.answering import Answering, answers_folder, inputs_of
from persona_pipeline.versions.comparing import Contest
from persona_pipeline.versions.judging import one_judge, two_judges
from persona_pipeline.versions.request import ComparisonRequest
from persona_pipeline.versions.scenes import Scene, moments, suite_scenes, window_scenes
from persona_pipeline.versions.sides import open_sides
from persona_pipeline.versions.states import readable_recordings
from persona_pipeline.world import World


@dataclass(frozen=True)
class AnsweringOptions:
    """Who answers.

    Attributes:
        names: of the targets of before and after, as the targets file has them.
        file: the targets file; None: the nearest to the suite or the world.
        with_persona: each version's persona goes along.
        allow_code: targets that run programs may.
        environment, network: what a targets file inside the repository may read and reach.
        suites: whose tests' inputs are the scenes; without one they are drawn from the messages.
    """

    names: tuple[str, str]
    file: Path | None = None
    with_persona: bool = True
    allow_code: bool = False
    environment: Sequence[str] = ()
    network: bool = False
    suites: Sequence[Suite] = ()


@dataclass(frozen=True)
class Asking:
    """Who is asked.

    Attributes:
        judge: the provider, or ``recorded``.
        models: of two judges that are compared; None: one judge.
        answering: None: nobody answers, messages are judged.
    """

    judge: str
    options: JudgeOptions = field(default_factory=JudgeOptions)
    models: tuple[str, str] | None = None
    answering: AnsweringOptions | None = None


@contextmanager
def open_contest(world: World, before: str, after: str, asking: Asking) -> Iterator[Contest]:
    """Open two versions (``""``: the world as it stands) and everybody who is asked about them.

    Raises:
        ConfigError: there is no such version, judge or target, or an option does not fit.
    """
    with open_sides(world.root, before, after) as sides:
        # What is recorded now comes first, then what the newer version has: one answer for both sides to one question.
        others = [side for side in reversed(sides) if side.root != world.root]
        folders = tuple(side.recordings for side in others if readable_recordings(side.recordings) is not None)
        left_out = tuple(side.name for side in others if side.recordings not in folders)
        options = replace(asking.options, also=folders)
        if asking.models:
            judges = two_judges(world, asking.judge, asking.models, options)
        else:
            judges = one_judge(world, asking.judge, options)
        answering = _answering(world, asking.answering, judges[0], options) if asking.answering else None
        try:
            yield Contest(world, sides, judges, answering, left_out)
        finally:
            if answering:
                answering.close()


def scenes_of(contest: Contest, request: ComparisonRequest, suites: Sequence[Suite] = ()) -> dict[str, list[Scene]]:
    """Return the scenes of every agent, in the order they are looked at.

    Raises:
        ConfigError: there is no message, or no test.
    """
    world, (wanted, _, _) = contest.world, contest.agents(request)
    world.sync_messages()
    if contest.answering is None:
        return {agent_id: window_scenes(world, agent_id, request) for agent_id in wanted}
    if suites:
        tests = inputs_of(suites)
        return {agent_id: suite_scenes(tests, agent_id, request) for agent_id in wanted}
    return {agent_id: moments(world, agent_id, request) for agent_id in wanted}


def _answering(world: World, asked: AnsweringOptions, judge: Judge, options: JudgeOptions) -> Answering:
    beside = asked.suites[0].path if asked.suites else world.root / "targets.yaml"
    targets = open_targets(beside, asked.file, environment=asked.environment, network=asked.network)
    if targets is None:
        raise ConfigError("there is no targets file; write targets.yaml beside the world, or name one with --targets")
    budget = judge.budget if isinstance(judge, OpenedJudge) else None
    if budget is None and options.max_usd is not None:
        budget = Budget(options.max_usd)
    before, after = (targets.open(name) for name in asked.names)
    return Answering(
        (before, after),
        None if options.fresh else OutputCache(answers_folder(world.root)),
        with_persona=asked.with_persona,
        allow_code=asked.allow_code,
        budget=budget,
    )
