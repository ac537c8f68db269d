"""An interview: ask scenes in sessions, judge the conversations by the agent's claims, and compare with the baseline.

Its results are plain values that are also their JSON.
"""

import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from persona_pipeline.base.documents.json import JsonError, content_hash, rfc3339, strict_json, write_atomically
from persona_pipeline.base.errors import (
    EXIT_BUDGET,
    EXIT_COVERAGE,
    EXIT_OK,
    ConfigError,
    Problem,
    raise_problems,
    worst_exit_code,
)
from persona_pipeline.base.files import read_regular
from persona_pipeline.base.status import Result
from persona_pipeline.evaluation.plan import AgentPlan, judge_plans, refused
from persona_pipeline.evaluation.read import coverage_of
from persona_pipeline.guard.baselines.golden import BASELINES
from persona_pipeline.guard.baselines.statistics import LEVEL
from persona_pipeline.judging.estimate import estimate
from persona_pipeline.judging.providers.base import ModelOptions
from persona_pipeline.judging.verdict import Judge, Unscored, Usage
from persona_pipeline.lab.answering import (
    USUAL_ANSWER,
    Answering,
    AskedScene,
    answer_plan,
    answers_folder,
    price_of_answers,
)
from persona_pipeline.lab.results import CHANGE, Asked, MeanChange, Value, check_change
from persona_pipeline.lab.scenes import Scene
from persona_pipeline.lab.statistics import (
    FEWEST_SCENES,
    Numbers,
    change_of,
    mean_interval,
    means,
    variance_of,
)
from persona_pipeline.lab.versions import HERE, HiddenNames, Version, VersionAgent
from persona_pipeline.scoring.adherence import THRESHOLD
from persona_pipeline.scoring.results import ANSWERS, DimensionEvaluation, PropositionResult, add_usage
from persona_pipeline.suites.answering.base import OutputCache
from persona_pipeline.version import __version__
from persona_pipeline.world.personas import check_agent_id
from persona_pipeline.world.propositions.models import CONVERGENCE, select_dimensions
from persona_pipeline.world.world import World

SESSIONS = 3
CLAIM_CHANGE, UNDECIDED = 3.0, 2.5
MOST_LINES = 10
_ALONE = "nobody but the agent and a visitor speaks in an interview"


class InterviewScore(Value):
    """A dimension's score, 0-9: the mean over scenes, each the mean of its sessions.

    Attributes:
        low, high: its 95 % interval; None below six scenes.
        kinds: the mean of each kind of scene that has one.
        scenes: how many have a score; ``unjudged``: conversations that failed; ``silent``: those with nothing to judge.
        claims: hash of the claims it was judged by.
    """

    score: float | None = None
    low: float | None = None
    high: float | None = None
    kinds: dict[str, float] = Field(default_factory=dict)
    scenes: int = 0
    unjudged: int = 0
    silent: int = 0
    claims: str = ""


class MeanVerdict(MeanChange):
    """The verdict on a dimension, on a kind of scene in it, or on a claim. ``why``: the reason if it is inconclusive."""

    dimension: str
    claim: str = ""
    kind: str = ""
    verdict: Result
    why: str = ""


class WorstLine(Value):
    """A line that breaks claims, ``dimension/id`` each. ``score``: the lowest, 0-9; ``asked``: the visitor's line before it."""

    claims: tuple[str, ...]
    score: float
    scene: str
    session: int
    asked: str
    quote: str
    reasoning: str = ""


class InterviewedScene(Value):
    """A scene as it was asked, and its scores: by dimension or ``dimension/claim`` one a session."""

    kind: str
    hash: str
    scores: dict[str, tuple[Annotated[float, Field(ge=0, le=9)] | None, ...]] = Field(default_factory=dict)


class Interview(Asked):
    """An interview of an agent, played by a target.

    Attributes:
        persona: hash of the persona; ``hidden``: the judge did not see its names.
        not_asked: dimensions that an interview does not have, and why.
        verdicts: since the baseline, whole dimensions first; empty without a baseline.
        baseline: its time; ``changed``: scenes left out, as they are not in both.
        whole: every scene was answered and judged.
    """

    version: str
    agent_id: str
    display_name: str
    taken_at: str
    target: str
    judge: str
    models: tuple[str, ...] = ()
    persona: str
    hidden: bool = False
    sessions: int = Field(ge=1, le=100)
    scenes: dict[str, InterviewedScene]
    dimensions: dict[str, InterviewScore]
    not_asked: dict[str, str] = Field(default_factory=dict)
    worst: tuple[WorstLine, ...] = ()
    baseline: str = ""
    changed: int = 0
    verdicts: tuple[MeanVerdict, ...] = ()
    whole: bool = True


@dataclass(frozen=True)
class InterviewRequest:
    """Whom to interview, and how.

    Attributes:
        dimensions: None for all that it has claims of, convergence left out.
        sessions: how often every scene is asked, from its beginning.
        change: points (0-9) that a dimension, or a kind of scene in it, may drop.
        samples: judgments per claim.
        hide_names: the judge sees invented names.
    """

    agent_id: str
    dimensions: Sequence[str] | None = None
    sessions: int = SESSIONS
    change: float = CHANGE
    samples: int = 1
    hide_names: bool = True

    def __post_init__(self) -> None:
        check_change(self.change)


def interviewee(world: World, request: InterviewRequest) -> VersionAgent:
    """Return the agent with the claims it is judged by; ConfigError: it does not exist, is not valid, or has no claims."""
    wanted = [name for name in select_dimensions(request.dimensions) if name != CONVERGENCE.name]
    agent = Version(HERE, world.root).agent(request.agent_id, wanted)
    agent = replace(agent, sets={name: stored for name, stored in agent.sets.items() if stored.propositions})
    if not agent.sets:
        raise ConfigError(f"{request.agent_id} has no claims of {', '.join(wanted)}; nothing can be judged by")
    return agent


def _names(agent: VersionAgent, request: InterviewRequest) -> HiddenNames:
    return HiddenNames.of(agent) if request.hide_names else HiddenNames({})


def _plan(
    world: World, shown_agent: VersionAgent, names: HiddenNames, scene: Scene, texts: Sequence[str], samples: int
) -> AgentPlan:
    """Return the questions about a conversation, with the names that the judge sees."""
    shown = replace(scene, turns=tuple(map(names.hide, scene.turns)))
    return answer_plan(world, shown_agent, shown, [*map(names.hide, texts)], samples)


def _session(agent: VersionAgent, scenes: Sequence[Scene], session: int, answering: Answering) -> list[AskedScene]:
    """Return the questions to the target in a session, counted from 0."""
    target, sent = answering.targets[0], answering.with_persona
    return [AskedScene(target, agent, replace(item, attempt=session), sent) for item in scenes]


def keep_answers(world: World, agent_id: str, answering: Answering, *, fresh: bool = False) -> tuple[Path, int, str]:
    """Keep answers until the interview is finished, so that a stopped one continues, and bots remember their conversations.

    Returns the folder, the number of answers in it, and since when. ``fresh``: kept answers are removed first.
    """
    name = f"{agent_id}-{content_hash([agent_id, answering.targets[0].name])[:12]}"
    folder = answers_folder(world).parent / "interviews" / name
    if fresh:
        shutil.rmtree(folder, ignore_errors=True)
    begun = folder / "begun"
    if not begun.exists():
        write_atomically(begun, f"{uuid.uuid4().hex} {rfc3339(datetime.now(UTC))}")
    answering.run, _, since = read_regular(begun).decode("utf-8").partition(" ")
    answering.cache = answering.kept = OutputCache(folder)
    return folder, sum(1 for _ in folder.glob("*/*.json")), since


@dataclass
class _Conversations:
    """What conversations came to: a score a session, by scene and dimension or ``dimension/claim``; the lines that were quoted."""

    scenes: Sequence[Scene]
    sessions: int
    scores: dict[str, dict[str, list[float | None]]] = field(default_factory=dict)
    unjudged: Counter[str] = field(default_factory=Counter)
    silent: Counter[str] = field(default_factory=Counter)
    lines: dict[tuple[str, int, str], WorstLine] = field(default_factory=dict)

    def add(self, scene: Scene, found: Mapping[str, DimensionEvaluation], show: Callable[[str], str]) -> None:
        """Take a judged conversation in; ``show``: returns a text with the real names."""
        turns = {scene.answer_id(turn): turn + 1 for turn in range(len(scene.turns))}
        for name, item in found.items():
            self._note(name, scene, item.score)
            if item.score is None:
                (self.silent if item.unscored in ANSWERS else self.unjudged)[name] += 1
            for row in item.propositions.values():
                if not row.algorithmic:
                    self._note(f"{name}/{row.id}", scene, row.score)
                    self._quote(f"{name}/{row.id}", scene, turns, row, show)

    def _note(self, name: str, scene: Scene, score: float | None) -> None:
        own = self.scores.setdefault(scene.id, {})
        own.setdefault(name, [None] * self.sessions)[scene.attempt] = score

    def _quote(
        self, claim: str, scene: Scene, turns: Mapping[str, int], row: PropositionResult, show: Callable[[str], str]
    ) -> None:
        for quote in row.evidence if row.score is not None and row.score < THRESHOLD else ():
            turn = turns.get(quote.message_id or "")
            if not quote.verified or turn is None:
                continue
            key, score = (scene.id, scene.attempt, quote.quote), row.score or 0.0
            known, asked = self.lines.get(key), scene.turns[turn - 1]
            claims = tuple(dict.fromkeys([*(known.claims if known else ()), claim]))
            if known and known.score <= score:
                self.lines[key] = known.model_copy(update={"claims": claims})
                continue
            self.lines[key] = WorstLine(
                claims=claims, score=score, scene=scene.id, session=scene.attempt + 1, asked=asked,
                quote=show(quote.quote), reasoning=show(row.reasoning),
            )  # fmt: skip

    def score(self, name: str, claims: str) -> InterviewScore:
        """Return a dimension's score over the scenes; ``claims``: their hash."""
        by_scene = means(_table([self.scores.get(scene.id, {}).get(name, ()) for scene in self.scenes], self.sessions))
        known = np.isfinite(by_scene)
        kinds = {scene.kind: [other.kind == scene.kind for other in self.scenes] & known for scene in self.scenes}
        score, low, high = mean_interval(by_scene[known])
        return InterviewScore(
            score=score,
            low=low,
            high=high,
            kinds={kind: float(by_scene[own].mean()) for kind, own in kinds.items() if own.any()},
            scenes=int(known.sum()),
            unjudged=self.unjudged[name],
            silent=self.silent[name],
            claims=claims,
        )

    def asked(self) -> dict[str, InterviewedScene]:
        """Return the scenes with their scores."""
        return {
            scene.id: InterviewedScene(
                kind=scene.kind,
                hash=scene.hash,
                scores={name: tuple(row) for name, row in self.scores.get(scene.id, {}).items()},
            )
            for scene in self.scenes
        }


def hold_interview(
    world: World,
    request: InterviewRequest,
    scenes: Sequence[Scene],
    judge: Judge,
    answering: Answering,
    baseline: Interview | None = None,
) -> Interview:
    """Ask every scene in every session, judge the answers, and return the interview.

    ``baseline``: an earlier interview to compare with. ConfigError: the agent's files are not valid, or do not describe it yet.
    """
    agent, tally = interviewee(world, request), _Conversations(scenes, request.sessions)
    persona, names = agent.persona, _names(agent, request)
    shown = names.hidden(agent)
    raise_problems(refused(judge, [persona]))
    usage, models, out_of_money, held = Usage(), set[str](), False, 0
    while held < request.sessions and not out_of_money:
        asked = _session(agent, scenes, held, answering)
        answers = answering.answers(asked)
        whole = [place for place, answer in enumerate(answers) if not answer.missing]
        tally.unjudged.update(dict.fromkeys(agent.sets, len(asked) - len(whole)))
        plans = [
            _plan(world, shown, names, asked[place].scene, answers[place].texts, request.samples) for place in whole
        ]
        judged = judge_plans(plans, judge)
        for place, item in zip(whole, judged, strict=True):
            tally.add(asked[place].scene, item.dimensions(), names.show)
        usage = add_usage([usage, *(cost for item in judged for cost in item.costs.values())])
        verdicts = [verdict for item in judged for verdict in item.verdicts]
        models |= {verdict.model for verdict in verdicts if verdict.model}
        out_of_money = answering.out_of_money or any(verdict.unscored is Unscored.BUDGET for verdict in verdicts)
        held += 1
    found = Interview(
        version=__version__,
        agent_id=persona.agent_id,
        display_name=persona.display_name,
        taken_at=rfc3339(datetime.now(UTC)),
        target=answering.targets[0].name,
        judge=judge.name,
        models=tuple(sorted(models)),
        persona=persona.hash,
        hidden=request.hide_names,
        sessions=held,
        scenes=tally.asked(),
        dimensions={name: tally.score(name, stored.version) for name, stored in agent.sets.items()},
        not_asked={CONVERGENCE.name: _ALONE},
        worst=tuple(sorted(tally.lines.values(), key=lambda line: (-len(line.claims), line.score))[:MOST_LINES]),
        answers=answering.asked,
        unanswered=dict(answering.failures),
        answers_usd=answering.usd,
        usage=usage,
        whole=not out_of_money and not tally.unjudged.total(),
    )
    if baseline is not None:
        found = held_against(baseline, found, request, coverage_of(world.settings)[judge.live])
    # Without a baseline nothing is held, however good it looks.
    codes = {EXIT_OK if found.verdicts else EXIT_COVERAGE, EXIT_BUDGET if out_of_money else EXIT_OK}
    code = worst_exit_code(codes | {row.verdict.status.exit_code for row in found.verdicts})
    return found.model_copy(update={"exit_code": code})


def estimate_interview(
    world: World,
    request: InterviewRequest,
    scenes: Sequence[Scene],
    answering: Answering,
    provider: str | None,
) -> str:
    """Return the estimate of an interview in words; ``provider``: of the judge, None: the settings', or Anthropic."""
    agent, settings = interviewee(world, request), world.settings
    names = _names(agent, request)
    shown = names.hidden(agent)
    asked = [item for session in range(request.sessions) for item in _session(agent, scenes, session, answering)]
    texts = [[f"{USUAL_ANSWER}{item.scene.attempt} {n}" for n, _ in enumerate(item.scene.turns)] for item in asked]
    plans = (
        _plan(world, shown, names, item.scene, said, request.samples) for item, said in zip(asked, texts, strict=True)
    )
    requests = [judgment for plan in plans for judgment in plan.requests]
    judging = estimate(requests, options=ModelOptions.from_settings(settings, provider), store=world.store)
    return (
        f"{len(scenes)} scenes, asked in {request.sessions} sessions: {sum(map(len, texts))} answers and {len(requests)} "
        f"judgments\n{judging}\n{price_of_answers(asked, settings.judge_prices)}"
    )


def held_against(before: Interview, now: Interview, request: InterviewRequest, least: float) -> Interview:
    """Return an interview with what became of each mean since an earlier one.

    A dimension drops by more than ``request.change``, a claim by more than 3 points, and beyond chance. ``least``: the share
    (0-1) of conversations that must be judged.
    """
    scenes = [key for key, item in now.scenes.items() if key in before.scenes and before.scenes[key].hash == item.hash]
    groups = {"": list(range(len(scenes)))}
    for place, key in enumerate(scenes):
        groups.setdefault(now.scenes[key].kind, []).append(place)
    known = before.dimensions if request.dimensions is None else now.dimensions
    dimensions = list(dict.fromkeys([*now.dimensions, *known]))
    whys = {name: _why_not(before, now, name, len(scenes), least) for name in dimensions}
    told = [name for name in dimensions if not whys[name]]
    rows = [MeanVerdict(dimension=name, verdict=Result.CANNOT_TELL, why=why) for name, why in whys.items() if why]
    scored = [{name for key in scenes for name in side.scenes[key].scores} for side in (before, now)]
    claims = sorted(name for name in scored[0] & scored[1] if "/" in name and name.partition("/")[0] in told)
    tests = len(told) * len(groups) + len(claims)
    for name in (*told, *claims):
        dimension, _, claim = name.partition("/")
        first, last = (
            _table((side.scenes[key].scores.get(name, ()) for key in scenes), side.sessions) for side in (before, now)
        )
        whole = variance_of(first)
        for kind, own in {"": groups[""]}.items() if claim else groups.items():
            # Few sessions of a kind may agree by chance.
            variance = variance_of(first[own], whole[0], least=whole[0]) if kind else whole
            item = change_of(first[own], last[own], variance, tests)
            if item is not None:
                rows.append(_verdict(item, CLAIM_CHANGE if claim else request.change, dimension, claim, kind))
            elif not claim and now.dimensions[dimension].unjudged and np.isfinite(first[own]).any():
                why = "none of these scenes is judged"
                rows.append(MeanVerdict(dimension=dimension, kind=kind, verdict=Result.CANNOT_TELL, why=why))
    rows.sort(key=lambda row: (bool(row.claim), bool(row.kind), row.verdict.rank))
    left_out = len({*before.scenes, *now.scenes}) - len(scenes)
    return now.model_copy(update={"verdicts": tuple(rows), "baseline": before.taken_at, "changed": left_out})


def _table(rows: Iterable[Sequence[float | None]], sessions: int) -> Numbers:
    """Return scores as (scenes, sessions), NaN where there is none."""
    return np.array([[*row, *[None] * sessions][:sessions] for row in rows], float)


def _why_not(before: Interview, now: Interview, name: str, scenes: int, least: float) -> str:
    """Return why a dimension cannot be held against an earlier interview; "": it can."""
    old, new = before.dimensions.get(name), now.dimensions.get(name)
    if old is None or new is None:
        return f"the {'baseline' if old is None else 'agent'} has no claims of it"
    if old.claims != new.claims:
        return "its claims are not those of the baseline; take it again"
    if before.models != now.models or before.hidden != now.hidden:
        return "the baseline was judged by another model, or with other names shown; take it again"
    if scenes < FEWEST_SCENES or not new.scenes:
        return f"{min(scenes, new.scenes)} scenes are scored that the baseline has too; {FEWEST_SCENES} are needed"
    judged = sum(score is not None for item in now.scenes.values() for score in item.scores.get(name, ()))
    return "" if judged >= least * (judged + new.unjudged) - 1e-9 else f"{new.unjudged} conversations are not judged"


def _verdict(item: MeanChange, allowed: float, dimension: str, claim: str, kind: str) -> MeanVerdict:
    drop, verdict, why = -(item.change or 0.0), Result.HELD, ""
    if drop > allowed + 1e-9 and (item.p_value or 0.0) <= LEVEL:
        verdict = Result.FELL
    elif drop > (max(UNDECIDED, allowed) if claim or kind else allowed + 1e-9):
        verdict, why = Result.CANNOT_TELL, "it is lower, and that may be chance; more sessions would tell"
    elif not (claim or kind) and item.scenes < FEWEST_SCENES:
        verdict, why = Result.CANNOT_TELL, f"only {item.scenes} scenes have a score in both; {FEWEST_SCENES} are needed"
    told = {**vars(item), "detectable": max(item.detectable or 0.0, allowed)}
    return MeanVerdict(dimension=dimension, claim=claim, kind=kind, verdict=verdict, why=why, **told)


def baseline_file(root: Path, agent_id: str) -> Path:
    """Return the path of an agent's baseline interview."""
    return root / BASELINES / "interviews" / f"{check_agent_id(agent_id)}.json"


def find_interview_baseline(root: Path, agent_id: str) -> Interview | None:
    """Return the interview that an agent's later ones are held against, None without one; ConfigError: the file is not valid."""
    path = baseline_file(root, agent_id)
    if not path.exists():
        return None
    try:
        found = Interview.model_validate(strict_json(read_regular(path).decode("utf-8")), strict=False)
    except (JsonError, ValueError, OSError) as error:
        why = f"is no interview ({type(error).__name__}); take it again with interview {agent_id} --baseline"
        raise ConfigError(Problem(why, str(path))) from error
    if found.agent_id != agent_id:
        raise ConfigError(Problem(f"is the interview of {found.agent_id!r}, not of {agent_id!r}", str(path)))
    return found


def save_interview_baseline(root: Path, found: Interview) -> Path:
    """Write an interview as the baseline, without its texts; ConfigError: it is not complete."""
    if not found.whole:
        raise ConfigError(
            "an interview that is not fully answered and judged cannot be a baseline; run it again to continue"
        )
    kept = found.model_copy(update={"worst": (), "verdicts": (), "baseline": "", "changed": 0, "exit_code": 0})
    path = baseline_file(root, found.agent_id)
    write_atomically(path, kept.model_dump_json(indent=2) + "\n")
    return path
