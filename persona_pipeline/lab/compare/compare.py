"""Comparison of two versions: open both with judges and targets, estimate, then judge scene by scene until decided."""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from persona_pipeline.base.errors import ConfigError, NothingError, raise_problems
from persona_pipeline.evaluation.plan import AgentPlan, judge_plans, refused
from persona_pipeline.evaluation.read import ALL_TIME, WorldReader, coverage_of
from persona_pipeline.evaluation.snapshot import Inputs
from persona_pipeline.guard.baselines.statistics import LEVEL
from persona_pipeline.guard.report import EXIT_BUDGET, EXIT_COVERAGE, EXIT_OK, EXIT_REGRESSION, worst_exit_code
from persona_pipeline.judging.estimate import estimate
from persona_pipeline.judging.open import RECORDINGS, JudgeOptions, open_judge
from persona_pipeline.judging.providers.base import ModelOptions
from persona_pipeline.judging.recordings.replay import RecordedBackend
from persona_pipeline.judging.synthetic import SAMPLE_PROMPTS
from persona_pipeline.judging.verdict import Judge, JudgeRequest, Unscored, Usage
from persona_pipeline.lab.answering import (
    SCENE_CHANNEL,
    USUAL_ANSWER,
    VISITOR,
    Answering,
    AskedScene,
    ChosenTargets,
    SceneAnswers,
    answer_plan,
    price_of_answers,
)
from persona_pipeline.lab.compare.lines import with_lines
from persona_pipeline.lab.compare.tally import AgentTally, differences_of, rule_of
from persona_pipeline.lab.results import ComparisonRequest, ScoreChange, VersionComparison
from persona_pipeline.lab.scenes import Scene, interview_scenes
from persona_pipeline.lab.versions import Version, VersionAgent, open_versions, readable_recordings, split_versions
from persona_pipeline.scoring.results import add_usage
from persona_pipeline.version import __version__
from persona_pipeline.world.models import Message, Window, conversations, grouped, seed_from
from persona_pipeline.world.propositions.models import CONVERGENCE, select_dimensions
from persona_pipeline.world.world import World

# How much of the talk before an answer is shown.
CONTEXT = 8
_Item = TypeVar("_Item")
# Scenes with nothing to judge after which a row is given up.
FEWEST = 6
DECIDED, ALL_SEEN, NO_MONEY = "all is decided", "every scene was judged", "the budget is spent"


@dataclass(frozen=True)
class Contest:
    """Two versions to compare, with their judge and targets.

    Attributes:
        sides: before and after.
        answering: both answer the same scenes; None: the same messages are judged.
        recordings: folders with recordings of versions.
        unreadable: versions whose recordings cannot be believed or are of an older form: they are not used.
    """

    world: World
    sides: tuple[Version, Version]
    judge: Judge
    answering: Answering | None = None
    recordings: tuple[Path, ...] = ()
    unreadable: tuple[str, ...] = ()

    @property
    def pays(self) -> bool:
        return self.answering is not None or self.judge.live

    def agents(self, request: ComparisonRequest) -> tuple[list[str], list[str], list[str]]:
        """Return the agents that both have, and those that only one has."""
        before, after = (side.agent_ids() for side in self.sides)
        both = [agent_id for agent_id in before if agent_id in after]
        wanted = both if request.agents is None else list(dict.fromkeys(request.agents))
        if missing := [agent_id for agent_id in wanted if agent_id not in both]:
            raise ConfigError(f"{', '.join(missing)}: not in both versions; they share {', '.join(both) or 'nobody'}")
        if not wanted:
            raise NothingError("the two versions have no agent in common")
        if request.agents is not None:
            return wanted, [], []
        return wanted, sorted({*before} - {*after}), sorted({*after} - {*before})

    def tally(self, agent_id: str, request: ComparisonRequest) -> AgentTally:
        """Read an agent in both versions."""
        # Only the agent and a visitor speak in an interview.
        left_out = (CONVERGENCE.name,) if request.interview else ()
        dimensions = [name for name in select_dimensions(request.dimensions) if name not in left_out]
        before, after = self.sides
        return AgentTally(before.agent(agent_id, dimensions), after.agent(agent_id, dimensions))

    def plans(
        self, tally: AgentTally, scene: Scene, texts: Sequence[Sequence[str]], request: ComparisonRequest
    ) -> tuple[AgentPlan, AgentPlan]:
        """Return the open questions about a scene for each side; ``texts``: the answers of both, if any."""
        if self.answering is None:
            own = (tally.before, tally.after)
            before, after = (window_plan(self.world, agent, scene, request.samples) for agent in own)
        else:
            # Both answer to the persona and the claims of the version after.
            before, after = (answer_plan(self.world, tally.after, scene, text, request.samples) for text in texts)
        return _only(before, tally.due), _only(after, tally.due)

    def asked_scenes(self, tally: AgentTally, scene: Scene) -> list[AskedScene]:
        """Return the questions of a scene to the targets; empty if messages are judged."""
        if self.answering is None:
            return []
        with_persona, agents = self.answering.with_persona, (tally.before, tally.after)
        pairs = zip(self.answering.targets, agents, strict=True)
        return [AskedScene(target, agent, scene, with_persona) for target, agent in pairs]


@dataclass
class _Spent:
    usage: Usage = field(default_factory=Usage)
    out_of_money: bool = False


def compare_versions(contest: Contest, scenes: dict[str, list[Scene]], request: ComparisonRequest) -> VersionComparison:
    """Judge both versions scene by scene, stop when every dimension is decided, and return the result.

    Agents without scenes are not compared. ConfigError: files of a version are not valid, or a persona is not described yet.
    """
    wanted, only_before, only_after = contest.agents(request)
    tallies = {agent_id: contest.tally(agent_id, request) for agent_id in wanted}
    # Targets would answer, and be paid, before the judge is asked.
    personas = (agent.persona for item in tallies.values() for agent in (item.before, item.after))
    raise_problems(refused(contest.judge, personas))
    spent = _Spent()
    most, stopped = max((len(scenes.get(agent_id, ())) for agent_id in wanted), default=0), ALL_SEEN
    for place in range(most):
        due = {
            agent_id: (tally, scenes[agent_id][place])
            for agent_id, tally in tallies.items()
            if place < len(scenes.get(agent_id, ())) and tally.due
        }
        if not due:
            continue
        _take(contest, due, request, spent)
        if spent.out_of_money:
            stopped = NO_MONEY
            # The end of the budget does not depend on scores: open conversations count as far as they go.
            for tally in tallies.values():
                tally.close()
            break
        for agent_id, (tally, scene) in due.items():
            later = scenes[agent_id][place + 1 : place + 2]
            if not (scene.conversation and later and later[0].conversation == scene.conversation):
                tally.close(scene.kind)
        # Where nothing is paid for, every scene is seen.
        if contest.pays and _decide(tallies, request):
            stopped = DECIDED
            break
    told = zip(tallies.items(), differences_of(list(tallies.values()), request.change), strict=True)
    agents = {agent_id: with_lines(agent, tally.answered) for (agent_id, tally), agent in told}
    answering = contest.answering
    found = VersionComparison(
        version=__version__,
        before=contest.sides[0].name,
        after=contest.sides[1].name,
        scenes_are="windows" if answering is None else "answers",
        judge=contest.judge.name,
        targets=None if answering is None else (answering.targets[0].name, answering.targets[1].name),
        change=request.change,
        level=LEVEL,
        rule=rule_of(len(wanted)),
        most=most,
        stopped=stopped,
        agents=agents,
        only_before=tuple(only_before),
        only_after=tuple(only_after),
        usage=spent.usage,
        answers=0 if answering is None else answering.asked,
        unanswered={} if answering is None else dict(answering.failures),
        answers_usd=0.0 if answering is None else answering.usd,
    )
    return found.model_copy(update={"exit_code": _exit_code(found, contest, spent)})


def _take(
    contest: Contest, due: dict[str, tuple[AgentTally, Scene]], request: ComparisonRequest, spent: _Spent
) -> None:
    """Answer and judge one scene of every agent that is not decided."""
    plans: list[tuple[str, AgentPlan, AgentPlan]] = []
    answers: dict[str, tuple[SceneAnswers, SceneAnswers]] = {}
    if answering := contest.answering:
        said = answering.answers([item for tally, scene in due.values() for item in contest.asked_scenes(tally, scene)])
        answers = {agent_id: (said[2 * place], said[2 * place + 1]) for place, agent_id in enumerate(due)}
        if answering.out_of_money:
            spent.out_of_money = True
            return
    for agent_id, (tally, scene) in due.items():
        both = answers.get(agent_id)
        if both and (both[0].missing or both[1].missing):
            tally.failed()
            continue
        texts = [own.texts for own in both or ()]
        before, after = _due(contest, tally, contest.plans(tally, scene, texts, request), pays=contest.pays)
        if both is None or tally.is_new(before, after, texts):
            plans.append((agent_id, before, after))
    befores, afters = [before for _, before, _ in plans], [after for _, _, after in plans]
    # One call: a request that both versions share is sent, and paid, once.
    judged = judge_plans([*befores, *afters], contest.judge)
    spent.usage = add_usage([spent.usage, *(cost for item in judged for cost in item.costs.values())])
    if any(verdict.unscored is Unscored.BUDGET for item in judged for verdict in item.verdicts):
        # Half a scene is not a pair: the paid half may depend on its text.
        spent.out_of_money = True
        return
    for (agent_id, _, _), before, after in zip(plans, judged[: len(plans)], judged[len(plans) :], strict=True):
        tally, scene = due[agent_id]
        tally.add(scene, before.dimensions(), after.dimensions(), answers.get(agent_id))


def _due(
    contest: Contest, tally: AgentTally, plans: tuple[AgentPlan, AgentPlan], *, pays: bool
) -> tuple[AgentPlan, AgentPlan]:
    """Return the questions worth asking: those that are equal for both sides only where they cost nothing."""
    if contest.answering is not None:
        return plans
    before, after = plans
    tally.note_alike(before, after)
    if not pays:
        return plans
    tally.done |= {name for name in before.plans if name in tally.alike}
    due = [name for name in before.plans if name not in tally.done]
    return _only(before, due), _only(after, due)


def _only(plan: AgentPlan, dimensions: Sequence[str]) -> AgentPlan:
    return replace(plan, plans={name: own for name, own in plan.plans.items() if name in dimensions})


def _decide(tallies: dict[str, AgentTally], request: ComparisonRequest) -> bool:
    """Mark the dimensions that are decided, and return whether all of all agents are."""
    found = differences_of(list(tallies.values()), request.change, looking=True)
    for tally, agent in zip(tallies.values(), found, strict=True):
        tally.done |= {name for name, item in agent.dimensions.items() if item.moved is not ScoreChange.OPEN}
        # A row that needs more than a scene has, such as an earlier window, stays silent in the next one too.
        tally.done |= {name for name, item in agent.dimensions.items() if item.silent >= FEWEST and not item.scenes}
    return not any(tally.due for tally in tallies.values())


def _exit_code(found: VersionComparison, contest: Contest, spent: _Spent) -> int:
    codes = {EXIT_REGRESSION} if found.fell else {EXIT_OK}
    if spent.out_of_money:
        codes.add(EXIT_BUDGET)
    least = coverage_of(contest.world.settings)[contest.judge.live]
    scored = [item for agent in found.agents.values() for item in agent.dimensions.values()]
    covered = all(item.scenes >= least * (item.scenes + item.unjudged) - 1e-9 for item in scored)
    is_open = any(item.moved is ScoreChange.OPEN for item in scored)
    if is_open or not covered or not any(item.scenes or item.asked_alike for item in scored):
        codes.add(EXIT_COVERAGE)
    return worst_exit_code(codes)


def window_scenes(world: World, agent_id: str, request: ComparisonRequest) -> list[Scene]:
    """Return the windows in which an agent spoke, in an order by seed: the newest and those of the same length before it.

    Neighbouring weeks are alike and count as one conversation. ConfigError: no messages or windows.
    """
    window: Window | None = WorldReader(world).window(request.window, request.as_of)
    said = [message.created_at for message in world.messages(agent_id=agent_id)]
    found = []
    while window is not None and len(found) < request.scenes and said and window.end >= said[0]:
        if any(moment in window for moment in said):
            found.append(Scene(window.end.isoformat(), window))
        window = None if request.window == ALL_TIME else window.previous()
    length = block_length(len(found))
    blocks = [found[start : start + length] for start in range(0, len(found), length)]
    return _together(_shuffled(blocks, agent_id, request))


def block_length(windows: int) -> int:
    """Return how many neighbouring windows count as one: two from 8 on, three from 27, four from 64 (the rate of Kuensch, 1989)."""
    return max(1, int(windows ** (1 / 3) + 1e-9))


def moments(world: World, agent_id: str, request: ComparisonRequest) -> list[Scene]:
    """Return moments in which an agent answered, each with the messages before it, by conversation in an order by seed.

    Each conversation (one place, no pause of an hour) gives about the same number of scenes. Without conversations the sample
    prompts are used. Too few scenes are answered again.
    """
    newest = world.newest_message_time()
    window = WorldReader(world).window(request.window, request.as_of) if newest else Window(datetime.now(UTC))
    talks: dict[str, list[Message]] = {}
    found: dict[str, list[Scene]] = {}
    messages = world.messages(window)
    for message, number in zip(messages, conversations(messages), strict=True):
        talk = talks.setdefault(message.conversation, [])
        if message.agent_id == agent_id and talk and talk[-1].agent_id != agent_id:
            scene = Scene(message.id, Window(message.created_at), tuple(talk[-CONTEXT:]))
            found.setdefault(str(number), []).append(scene)
        talk.append(message)
    if not found:
        return _as_many(_shuffled(_prompts(agent_id, window.end), agent_id, request), request.scenes)
    conversing = _shuffled(list(found.values()), agent_id, request)
    each, more = divmod(request.scenes, len(conversing))
    drawn = (
        _as_many(_shuffled(scenes, agent_id, request), each + (place < more)) for place, scenes in enumerate(conversing)
    )
    return _together(drawn)


def script_scenes(scenes: Sequence[Scene], agent_id: str, request: ComparisonRequest) -> list[Scene]:
    """Return an interview's scenes, one kind after another in turn, those of a kind in an order by seed."""
    kinds = grouped(_shuffled(list(scenes), agent_id, request), lambda scene: scene.kind)
    # However soon it is decided, each kind was seen about as often.
    each = [_as_many(own, request.scenes) for own in kinds.values()]
    return [scene for together in zip(*each, strict=True) for scene in together][: request.scenes]


def window_plan(world: World, agent: VersionAgent, scene: Scene, samples: int) -> AgentPlan:
    """Return the questions about a window by one version's persona and claims."""
    gathered = WorldReader(world).gathered(Inputs(agents=[agent.scope(scene.window)]))
    return agent.plan(gathered, scene.window, samples)


def _prompts(agent_id: str, end: datetime) -> list[Scene]:
    found = []
    for place, (line, *_) in enumerate(SAMPLE_PROMPTS, start=1):
        said = Message(f"prompt-{place}-0", VISITOR, line, end - timedelta(minutes=1), SCENE_CHANNEL)
        found.append(Scene(f"prompt-{place}", Window(end), (said,)))
    return found


def _shuffled(found: list[_Item], agent_id: str, request: ComparisonRequest) -> list[_Item]:
    random.Random(seed_from("scenes", request.seed, agent_id)).shuffle(found)
    return found


def _together(conversations: Iterable[Sequence[Scene]]) -> list[Scene]:
    return [replace(scene, conversation=scenes[0].id) for scenes in conversations for scene in scenes]


def _as_many(scenes: Sequence[Scene], wanted: int) -> list[Scene]:
    return [replace(scenes[place % len(scenes)], attempt=place // len(scenes)) for place in range(wanted) if scenes]


@contextmanager
def open_contest(
    world: World, versions: str, other: str, judge: str, options: JudgeOptions, targets: ChosenTargets | None = None
) -> Iterator[Contest]:
    """Open two versions with their judge and targets.

    ``versions``: both, as ``REV..REV`` or ``REV...REV``, or the one before; ``""``: the current files. ``other``: the one after,
    where it is not in ``versions``. ``judge``: the provider, or ``recorded``. ``targets``: None: messages are judged. ConfigError:
    a version, judge or target does not exist, or an option does not fit.
    """
    before, after = (versions, other) if other else split_versions(versions)
    with open_versions(world.root, before, after) as sides:
        # Current recordings first, then those of the newer version: one answer for both sides to one question.
        others = [side for side in reversed(sides) if side.root != world.root]
        folders = tuple(
            side.recordings for side in others if readable_recordings(side.recordings, world.settings) is not None
        )
        left_out = tuple(side.name for side in others if side.recordings not in folders)
        options = replace(options, also=folders)
        opened = open_judge(judge, world, options)
        answering = targets.open(world, opened, options) if targets else None
        try:
            yield Contest(world, sides, opened, answering, folders, left_out)
        finally:
            if answering:
                answering.close()


def scenes_of(contest: Contest, request: ComparisonRequest) -> dict[str, list[Scene]]:
    """Return the scenes of every agent, in their order; ConfigError: no messages."""
    world, (wanted, _, _) = contest.world, contest.agents(request)
    world.sync_messages()
    if contest.answering is None:
        return {agent_id: window_scenes(world, agent_id, request) for agent_id in wanted}
    if request.interview:
        return {agent_id: script_scenes(interview_scenes(world, agent_id), agent_id, request) for agent_id in wanted}
    return {agent_id: moments(world, agent_id, request) for agent_id in wanted}


def estimate_comparison(
    contest: Contest,
    scenes: Mapping[str, Sequence[Scene]],
    request: ComparisonRequest,
    judge: str | None,
    *,
    fresh: bool = False,
) -> str:
    """Return in words the cost of a comparison up to its last scene; usually it is decided sooner.

    ``judge``: the provider of a live one; None: the settings', or Anthropic. ``fresh``: recordings are not used.
    """
    asked: list[JudgeRequest] = []
    answers: list[AskedScene] = []
    wanted, _, _ = contest.agents(request)
    for agent_id in wanted:
        tally = contest.tally(agent_id, request)
        for scene in scenes.get(agent_id, ()):
            said = tuple([f"{USUAL_ANSWER}{side}"] * len(scene.lines) for side in (1, 2)) if contest.answering else ()
            for plan in _due(contest, tally, contest.plans(tally, scene, said, request), pays=True):
                asked += plan.requests
            answers += contest.asked_scenes(tally, scene)
    world, settings = contest.world, contest.world.settings
    unique = {item.key: item for item in asked}.values()
    known = RecordedBackend(world.root / RECORDINGS, contest.recordings, settings)
    missing = [item for item in unique if fresh or not known.has_recorded([item])]
    most = max((len(own) for own in scenes.values()), default=0)
    taken = estimate(missing, options=ModelOptions.from_settings(settings, judge), store=world.store)
    lines = [f"at most {most} scenes an agent; it stops when all is decided", str(taken)]
    if recorded := len(unique) - len(missing):
        lines.append(f"{recorded} judgments are taken from recordings and cost nothing")
    if answers:
        lines.append(
            f"{sum(len(item.scene.lines) for item in answers)} {price_of_answers(answers, settings.judge_prices)}"
        )
    return "\n".join(lines)
