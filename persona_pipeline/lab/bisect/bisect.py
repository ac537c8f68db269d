"""The search for the commit, and the change in it, that made an agent's scores drop."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from persona_pipeline.base.documents.json import rfc3339
from persona_pipeline.base.errors import ConfigError, NothingError
from persona_pipeline.base.options import PROPOSITION_DELTA, REGRESSION_DELTA, WINDOW
from persona_pipeline.evaluation.history import saved_runs
from persona_pipeline.evaluation.read import WorldReader
from persona_pipeline.evaluation.snapshot import AgentScope, Inputs
from persona_pipeline.guard.report import EXIT_COVERAGE, EXIT_OK, AgentEvaluation
from persona_pipeline.judging.money import model_name
from persona_pipeline.judging.open import RECORDINGS
from persona_pipeline.judging.verdict import Judge, JudgeRequest
from persona_pipeline.lab.bisect.causes import THE_CAUSE, Step, cause_of, voice_lines
from persona_pipeline.lab.results import Bisection, Cause, CauseKind, Fall, PastPoint
from persona_pipeline.lab.states import (
    HERE,
    CommitStates,
    RecordedAnswers,
    Side,
    SideAgent,
    State,
    readable_recordings,
    state_of,
)
from persona_pipeline.version import __version__
from persona_pipeline.world.changes import ask_git
from persona_pipeline.world.messages.store import MESSAGES
from persona_pipeline.world.models import Window
from persona_pipeline.world.personas import persona_path
from persona_pipeline.world.propositions.loading import StoredSet
from persona_pipeline.world.propositions.models import ALL_DIMENSIONS, select_dimensions
from persona_pipeline.world.revisions import READ, Revision, find_revision, revisions_between, revisions_of, tree_of
from persona_pipeline.world.runs import runs_by_window
from persona_pipeline.world.world import World


@dataclass(frozen=True)
class Interval:
    """Two points between which a score dropped; ``unknown``: points in between without a score."""

    good: int
    bad: int
    unknown: tuple[int, ...] = ()


def find_step(value: Callable[[int], float | None], good: int, bad: int) -> Interval:
    """Return a step across the middle of two scores, with as few looks as halving takes where all points have one."""
    first, last = value(good), value(bad)
    if first is None or last is None:
        raise ValueError("both ends must have a score")
    middle = (first + last) / 2
    while bad - good > 1:
        halfway = (good + bad) // 2
        from_the_middle = sorted(range(good + 1, bad), key=lambda place: abs(place - halfway))
        place = next((p for p in from_the_middle if value(p) is not None), None)
        if place is None:
            return Interval(good, bad, tuple(range(good + 1, bad)))
        score = value(place)
        good, bad = (good, place) if score is not None and score <= middle else (place, bad)
    return Interval(good, bad)


_MOST_REVISIONS = 200


class CommitHistory:
    """The commits in which something changed that the agent's scores may rest on, oldest first."""

    source = "commits"

    def __init__(self, states: CommitStates, revisions: list[Revision]) -> None:
        self.states, self.answers = states, states.answers
        self.revisions = revisions[:1]
        for revision in revisions[1:]:
            if states.fingerprint(revision) != states.fingerprint(self.revisions[-1]):
                self.revisions.append(revision)

    def __len__(self) -> int:
        return len(self.revisions)

    def state(self, place: int) -> State | None:
        """Return the agent's state at a point, None: it has no score; ConfigError: files are not valid."""
        return self.states.state(self.revisions[place])

    def point(self, place: int, score: float | None = None) -> PastPoint:
        """Return the point with the names that people use for it."""
        revision = self.revisions[place]
        at = None if revision.at is None else rfc3339(revision.at)
        return PastPoint(name=revision.short, commit=revision.id, subject=revision.subject, at=at, score=score)


class RunHistory:
    """An agent's stored evaluations, one a window; their personas and claims are looked up in git by their hash."""

    source = "evaluations"

    def __init__(self, world: World, agent_id: str, states: CommitStates) -> None:
        self.world, self.agent_id, self.states, self.answers = world, agent_id, states, states.answers
        self.runs = _stored(world, agent_id)

    def __len__(self) -> int:
        return len(self.runs)

    def state(self, place: int) -> State | None:
        evaluation = self.runs[place]
        stored = State(
            rfc3339(evaluation.window_end), None, evaluation.dimensions, fingerprint=_fingerprint(evaluation)
        )
        known = self._personas.get(str(evaluation.provenance.get("persona_hash")))
        if known is None:
            return stored
        agent, file = known
        claims = {item.proposition_set_hash for item in evaluation.dimensions.values()}
        sets = {name: self._sets[digest] for name, digest in _sets_of(evaluation).items() if digest in self._sets}
        stored = replace(stored, persona_file=file)
        if len(sets) < len(claims):
            return stored
        window = Window(evaluation.window_end, evaluation.window_start)
        models = frozenset(model_name(name) for name in evaluation.provenance.get("judge_models", ()))
        own = SideAgent(agent.persona, sets, self._now.names)
        scope = AgentScope(self.agent_id, window, (), persona=own.persona)
        built = state_of(
            WorldReader(self.world).gathered(Inputs(agents=[scope])), own, window, self.answers, models=models
        )
        if built.plan is None or built.plan.messages_hash != evaluation.provenance.get("messages_hash"):
            # Messages of that window were added or removed since, so its judgments cannot be repeated.
            return stored
        return replace(stored, plan=built.plan, verdicts=built.verdicts, agent=own)

    def point(self, place: int, score: float | None = None) -> PastPoint:
        at = rfc3339(self.runs[place].window_end)
        return PastPoint(name=at, subject="window's end", at=at, score=score)

    @cached_property
    def _now(self) -> SideAgent:
        return Side(HERE, self.world.root).agent(self.agent_id, ALL_DIMENSIONS)

    @cached_property
    def _versions(self) -> list[tuple[SideAgent, tuple[str, str]]]:
        path = persona_path(self.world.root, self.agent_id)
        name = path.relative_to(self.world.root).as_posix()
        found: list[tuple[SideAgent, tuple[str, str]]] = []
        try:
            revisions = revisions_of(self.world.root, ["personas", "propositions"], _MOST_REVISIONS)
        except ConfigError:
            # Without git only the current files are known.
            revisions = []
        for revision in revisions:
            root = self.states.root(revision)
            try:
                agent = Side(revision.short, root, revision).agent(self.agent_id, ALL_DIMENSIONS)
                found.append((agent, (name, (root / name).read_text(encoding="utf-8-sig"))))
            except (ConfigError, OSError):
                # Not valid in that commit, or not there yet.
                continue
        return [*found, (self._now, (name, path.read_text(encoding="utf-8-sig")))]

    @cached_property
    def _personas(self) -> Mapping[str, tuple[SideAgent, tuple[str, str]]]:
        # The first commit that had it is the one that made it.
        return {item[0].persona.hash: item for item in reversed(self._versions)}

    @cached_property
    def _sets(self) -> Mapping[str, StoredSet]:
        return {
            stored.propositions.hash: stored
            for agent, _ in self._versions
            for stored in agent.sets.values()
            if stored.propositions is not None
        }


History = CommitHistory | RunHistory


def _sets_of(evaluation: AgentEvaluation) -> dict[str, str]:
    return {name: item.proposition_set_hash or "" for name, item in evaluation.dimensions.items()}


def _fingerprint(evaluation: AgentEvaluation) -> dict[CauseKind, str]:
    told = evaluation.provenance
    return {
        CauseKind.PERSONA: str(told.get("persona_hash")),
        CauseKind.CLAIMS: str(sorted(_sets_of(evaluation).items())),
        CauseKind.MESSAGES: str(told.get("messages_hash")),
        CauseKind.JUDGE: ", ".join(told.get("judge_models", ())),
    }


# Below this share of a drop, other steps are named too.
MOST_OF_IT = 0.8
_SMALLEST_STEP = 0.25
_SHOWN = 60


@dataclass(frozen=True)
class BisectRequest:
    """The request for a search.

    Attributes:
        good, bad: commits; good None: the last that wrote the agent's baseline, else the first with its persona.
        dimension, claim: None: all that dropped beyond the limit.
        window: length of the window that is scored at each point.
        regression_delta, proposition_delta: points (0-9) by which a dimension, a claim must drop.
    """

    agent_id: str
    good: str | None = None
    bad: str = "HEAD"
    dimension: str | None = None
    claim: str | None = None
    window: str = WINDOW
    regression_delta: float = REGRESSION_DELTA
    proposition_delta: float = PROPOSITION_DELTA


HISTORIES = ("auto", "commits", "evaluations")


def bisect(
    world: World, request: BisectRequest, by: str = "auto", live: Judge | None = None
) -> tuple[Bisection, list[JudgeRequest]]:
    """Return the causes of an agent's drops, the start of a change of its voice, and the missing judgments.

    ``by``: one of ``HISTORIES``; ``auto``: commits where messages are in git and changed there. ``live``: a judge for missing
    judgments. ConfigError: no repository, no such commit, fewer than two stored evaluations, or invalid files.
    """
    in_git = by == "commits" or (by == "auto" and has_messages(world, request.bad))
    found, answers = (bisect_commits if in_git else bisect_evaluations)(world, request, live)
    if by == "auto" and in_git and found.good == found.bad and len(_stored(world, request.agent_id)) > 1:
        # No input has changed since the last good state, so the cause is in the messages over time.
        found, answers = bisect_evaluations(world, request, live)
    found = found.model_copy(update={"voice": voice_lines(world, request.agent_id)})
    return found, list(answers.missing.values())


def bisect_commits(
    world: World, request: BisectRequest, live: Judge | None = None
) -> tuple[Bisection, RecordedAnswers]:
    """Search the commits of a world's repository; see ``bisect``."""
    good = request.good or _first_good(world, request)
    answers = RecordedAnswers(WorldReader(world).known, live=live)
    with CommitStates(world, request.agent_id, answers, request.window) as states:
        history = CommitHistory(states, revisions_between(world.root, good, request.bad, [*READ]))
        newest = states.root(history.revisions[-1])
        answers.also = tuple(readable_recordings(root / RECORDINGS, world.settings) for root in (world.root, newest))
        return _searched(history, request), answers


def bisect_evaluations(
    world: World, request: BisectRequest, live: Judge | None = None
) -> tuple[Bisection, RecordedAnswers]:
    """Search an agent's stored evaluations instead; see ``bisect``."""
    answers = RecordedAnswers(WorldReader(world).known, live=live)
    with CommitStates(world, request.agent_id, answers, request.window) as states:
        history = RunHistory(world, request.agent_id, states)
        if len(history) < 2:
            raise NothingError(
                f"{len(history)} evaluations of {request.agent_id!r} are stored; it takes two to compare"
            )
        return _searched(history, request), answers


def has_messages(world: World, commit: str) -> bool:
    """Whether the world's messages are in its repository, and so in every commit."""
    try:
        return bool(tree_of(world.root, find_revision(world.root, commit).id, [MESSAGES]))
    except ConfigError:
        return False


def _stored(world: World, agent_id: str) -> list[AgentEvaluation]:
    saved = saved_runs(runs_by_window(world.store, agent_id))
    return [run.evaluation for run in saved if not run.evaluation.synthetic]


def _searched(history: History, request: BisectRequest) -> Bisection:
    search = _Search(history, request)
    falls, answers = tuple(search.falls()), history.answers
    return Bisection(
        version=__version__,
        agent_id=request.agent_id,
        source=history.source,
        good=history.point(0).name,
        bad=history.point(len(history) - 1).name,
        falls=falls,
        looked_at=search.looked_at,
        missing=len(answers.missing),
        calls=answers.calls,
        usd=answers.usd,
        exit_code=EXIT_OK if all(fall.cause is not None for fall in falls) else EXIT_COVERAGE,
    )


def _first_good(world: World, request: BisectRequest) -> str:
    """Return the last commit that wrote the agent's baseline, else the first that had its persona."""
    bad = find_revision(world.root, request.bad).id
    for path in (f"baselines/{request.agent_id}.json", f"personas/{request.agent_id}.yaml"):
        newest = path.startswith("baselines")
        listed = ask_git(world.root, "log", "--first-parent", "--format=%H", bad, "--", path).split()
        if listed:
            return listed[0 if newest else -1].decode("ascii")
    raise ConfigError(f"no commit has a persona of {request.agent_id!r}; name one with --good")


class _Search:
    def __init__(self, history: History, request: BisectRequest) -> None:
        self.history, self.request = history, request
        self._seen: dict[int, State | None] = {}

    @property
    def looked_at(self) -> int:
        return len(self._seen)

    def falls(self) -> list[Fall]:
        good, bad = self._state(0), self._state(len(self.history) - 1)
        if good is None or bad is None:
            which = self.history.point(0 if good is None else len(self.history) - 1)
            raise ConfigError(
                f"{self.request.agent_id} has no persona or no message at {which.name}; name another commit with --good or --bad"
            )
        return [self._fall(dimension, claim, good, bad) for dimension, claim in self._subjects(good, bad)]

    def _subjects(self, good: State, bad: State) -> list[tuple[str, str | None]]:
        """Return the dropped dimensions, or those not judged at one end, and such claims of the other dimensions."""
        if self.request.dimension and self.request.claim:
            name, key = self.request.dimension, self.request.claim
            for state in (good, bad):
                if name not in state.dimensions or key not in state.dimensions[name].propositions:
                    raise ConfigError(
                        f"{name}/{key} is no claim of {self.request.agent_id} at {state.label}; name another"
                    )
            return [(name, key)]
        found: list[tuple[str, str | None]] = []
        named = [self.request.dimension] if self.request.dimension else None
        for name in select_dimensions(named):
            if name not in good.dimensions or name not in bad.dimensions:
                continue
            if self._fell(good, bad, name, None, self.request.regression_delta):
                found.append((name, None))
                continue
            claims = good.dimensions[name].propositions
            found += [(name, key) for key in claims if self._fell(good, bad, name, key, self.request.proposition_delta)]
        return found

    def _fell(self, good: State, bad: State, dimension: str, claim: str | None, delta: float) -> bool:
        before, after = good.value(dimension, claim), bad.value(dimension, claim)
        if before is None or after is None:
            # A dimension without judgments at one end may have dropped; its claims are not listed.
            return claim is None and any(state.dimensions[dimension].failures for state in (good, bad))
        return before - after > delta + 1e-9

    def _fall(self, dimension: str, claim: str | None, good: State, bad: State) -> Fall:
        def value(place: int) -> float | None:
            state = self._state(place)
            return state.value(dimension, claim) if state else None

        last = len(self.history) - 1
        first_score, last_score = value(0), value(last)
        start = Fall(
            dimension=dimension,
            claim=claim,
            good=self.history.point(0, first_score),
            bad=self.history.point(last, last_score),
        )
        if first_score is None or last_score is None:
            state, name = (good, "good") if first_score is None else (bad, "bad")
            rows = state.dimensions[dimension].failures
            self.history.answers.miss(state.unanswered(dimension, rows))
            why = f"{len(rows)} claims are not judged at the {name} end, {state.label}"
            return start.model_copy(update={"why_not": why})
        step = find_step(value, 0, last)
        before, after = self._state(step.good), self._state(step.bad)
        assert before is not None and after is not None
        whole = first_score - last_score
        found = start.model_copy(
            update={
                "last_good": self.history.point(step.good, value(step.good)),
                "first_bad": self.history.point(step.bad, value(step.bad)),
                "share": min(1.0, ((value(step.good) or 0.0) - (value(step.bad) or 0.0)) / whole) if whole else 0.0,
            }
        )
        for place in step.unknown:
            if state := self._state(place):
                self.history.answers.miss(state.unanswered(dimension))
        explained = self._explained(found, Step(before, after, dimension, self.history.answers, claim))
        if step.unknown and explained.cause is None:
            between = f"{len(step.unknown)} commits between the two are not judged"
            explained = explained.model_copy(update={"why_not": "; ".join(filter(None, (explained.why_not, between)))})
        if explained.share < MOST_OF_IT:
            explained = explained.model_copy(update={"steps": tuple(self._other_steps(value, step.bad))})
        return explained

    def _explained(self, fall: Fall, step: Step) -> Fall:
        if step.before.plan is None or step.after.plan is None:
            return _by_fingerprint(fall, step)
        points = step.explain()
        total = sum(abs(value) for value in points.values())
        falling = {kind: value for kind, value in points.items() if value > 0}
        kind = max(falling, key=lambda name: falling[name], default=None)
        if kind is not None and falling[kind] >= THE_CAUSE * sum(falling.values()):
            return fall.model_copy(update={"cause": cause_of(step, kind, falling[kind] / total)})
        kinds = sorted({*(name for name in falling if name is not None), *step.kinds})
        return fall.model_copy(update={"candidates": tuple(kinds), "why_not": _why_not(falling, kinds, fall)})

    def _other_steps(self, value: Callable[[int], float | None], but: int) -> list[PastPoint]:
        scores = [(place, value(place)) for place in range(len(self.history))]
        known = [(place, score) for place, score in scores if score is not None]
        return [
            self.history.point(place, score)
            for (_, before), (place, score) in pairwise(known)
            if before - score >= _SMALLEST_STEP and place != but
        ]

    def _state(self, place: int) -> State | None:
        if place not in self._seen:
            ends = place in (0, len(self.history) - 1)
            try:
                self._seen[place] = self.history.state(place)
            except ConfigError:
                # A commit in between whose files were not valid has no score; git bisect would skip it.
                if ends:
                    raise
                self._seen[place] = None
        return self._seen[place]


def _by_fingerprint(fall: Fall, step: Step) -> Fall:
    """Return the cause by the hashes of two stored evaluations, where no more is known of them."""
    old, new = step.before.fingerprint, step.after.fingerprint
    kinds = [kind for kind in old if old[kind] != new.get(kind)]
    if len(kinds) != 1:
        told = " and ".join(kinds) or "nothing that is known of"
        why = f"{told} changed between them, and the persona or the messages of then are not known any more"
        return fall.model_copy(update={"candidates": tuple(kinds), "why_not": why})
    (kind,) = kinds
    what = f"{old[kind][:_SHOWN]} became {new[kind][:_SHOWN]}" if kind in (CauseKind.PERSONA, CauseKind.JUDGE) else ""
    evidence = ("nothing else differs of what the two evaluations were made from", *filter(None, [what]))
    return fall.model_copy(
        update={"cause": Cause(kind=kind, share=1.0, what=(what,) if what else (), evidence=evidence)}
    )


def _why_not(falling: dict[CauseKind | None, float], kinds: Sequence[CauseKind], fall: Fall) -> str:
    where = fall.first_bad.name if fall.first_bad else "this step"
    if not kinds:
        return f"nothing that the judge is shown changed at {where}"
    told = ", ".join(f"{kind} {points:.1f}" for kind, points in falling.items() if kind is not None)
    if None not in falling:
        return f"several things share the drop: {told} points"
    return f"{' and '.join(kinds)} changed together at {where}, and the one was never judged without the other"
