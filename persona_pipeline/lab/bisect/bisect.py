"""The search for the commit, and the change in it, that made an agent's scores drop."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from persona_pipeline.base.errors import ConfigError, NothingError
from persona_pipeline.base.options import PROPOSITION_DELTA, REGRESSION_DELTA, WINDOW
from persona_pipeline.evaluation.against import AskedOnce
from persona_pipeline.evaluation.read import WorldReader
from persona_pipeline.guard.report import EXIT_COVERAGE, EXIT_OK
from persona_pipeline.judging.verdict import Judge, JudgeRequest
from persona_pipeline.lab.bisect.causes import THE_CAUSE, Step, cause_of
from persona_pipeline.lab.bisect.history import (
    WRITTEN,
    CommitHistory,
    History,
    RunHistory,
    State,
    stored_evaluations,
)
from persona_pipeline.lab.results import Bisection, CauseKind, Fall, PastPoint
from persona_pipeline.lab.versions import Commits, KnownJudge, readable_recordings
from persona_pipeline.scoring.results import add_usage
from persona_pipeline.version import __version__
from persona_pipeline.world.changes import ask_git
from persona_pipeline.world.messages.store import MESSAGES
from persona_pipeline.world.propositions.models import select_dimensions
from persona_pipeline.world.revisions import READ, find_revision, revisions_between, tree_of
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


# Below this share of a drop, other steps are named too.
MOST_OF_IT = 0.8
_SMALLEST_STEP = 0.25


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
    """Return the causes of an agent's drops, and the missing judgments.

    ``by``: one of ``HISTORIES``; ``auto``: commits where messages are in git and changed there. ``live``: a judge for missing
    judgments. ConfigError: no repository, no such commit, fewer than two stored evaluations, or invalid files.
    """
    in_git = by == "commits" or (by == "auto" and has_messages(world, request.bad))
    found, missing = (bisect_commits if in_git else bisect_evaluations)(world, request, live)
    if by == "auto" and in_git and found.good == found.bad and len(stored_evaluations(world, request.agent_id)) > 1:
        # No input has changed since the last good state, so the cause is in the messages over time.
        return bisect_evaluations(world, request, live)
    return found, missing


def bisect_commits(
    world: World, request: BisectRequest, live: Judge | None = None
) -> tuple[Bisection, list[JudgeRequest]]:
    """Search the commits of a world's repository; see ``bisect``."""
    revisions = revisions_between(world.root, request.good or _first_good(world, request), request.bad, [*READ])
    with Commits(world.root, request.agent_id) as commits:
        newest = readable_recordings(commits.at(revisions[-1]).recordings, world.settings)
        judge = KnownJudge(WorldReader(world).known, (newest,) if newest else (), asking=_once(live))
        return _Search(CommitHistory(world, commits, judge, revisions, request.window), request).result()


def bisect_evaluations(
    world: World, request: BisectRequest, live: Judge | None = None
) -> tuple[Bisection, list[JudgeRequest]]:
    """Search an agent's stored evaluations instead; see ``bisect``."""
    with Commits(world.root, request.agent_id, WRITTEN) as commits:
        history = RunHistory(world, commits, KnownJudge(WorldReader(world).known, asking=_once(live)))
        if len(history) < 2:
            raise NothingError(
                f"{len(history)} evaluations of {request.agent_id!r} are stored; it takes two to compare"
            )
        return _Search(history, request).result()


def _once(live: Judge | None) -> AskedOnce | None:
    return AskedOnce(live) if live else None


def has_messages(world: World, commit: str) -> bool:
    """Whether the world's messages are in its repository, and so in every commit."""
    try:
        return bool(tree_of(world.root, find_revision(world.root, commit).id, [MESSAGES]))
    except ConfigError:
        return False


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
        self._missing: dict[str, JudgeRequest] = {}
        self._seen: dict[int, State | None] = {}

    def result(self) -> tuple[Bisection, list[JudgeRequest]]:
        """Return the causes of all drops, and the judgments that would have to be made."""
        ends = (0, len(self.history) - 1)
        good, bad = map(self._state, ends)
        if good is None or bad is None:
            which = self.history.point(ends[good is not None])
            raise ConfigError(
                f"{self.request.agent_id} has no persona or no message at {which.name}; name another commit with --good or --bad"
            )
        falls = tuple(self._fall(*subject, good, bad) for subject in self._subjects(good, bad))
        spent = add_usage(self.history.judge.spent)
        found = Bisection(
            version=__version__,
            agent_id=self.request.agent_id,
            source=self.history.source,
            good=self.history.point(0).name,
            bad=self.history.point(ends[1]).name,
            falls=falls,
            looked_at=len(self._seen),
            missing=len(self._missing),
            calls=spent.calls,
            usd=spent.usd,
            exit_code=EXIT_OK if all(fall.cause is not None for fall in falls) else EXIT_COVERAGE,
        )
        return found, list(self._missing.values())

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

        def point(place: int) -> PastPoint:
            return self.history.point(place, value(place))

        last = len(self.history) - 1
        fall = Fall(dimension=dimension, claim=claim, good=point(0), bad=point(last))
        whole = (value(0) or 0.0) - (value(last) or 0.0)
        for state, name in ((good, "good"), (bad, "bad")):
            if state.value(dimension, claim) is None:
                rows = state.dimensions[dimension].failures
                self._miss(state.unanswered(dimension, rows))
                why = f"{len(rows)} claims are not judged at the {name} end, {state.label}"
                return fall.model_copy(update={"why_not": why})
        step = find_step(value, 0, last)
        before, after = self._state(step.good), self._state(step.bad)
        assert before is not None and after is not None
        for state in filter(None, map(self._state, step.unknown)):
            self._miss(state.unanswered(dimension))
        share = min(1.0, ((value(step.good) or 0.0) - (value(step.bad) or 0.0)) / whole) if whole else 0.0
        found: dict[str, Any] = {
            "last_good": point(step.good),
            "first_bad": point(step.bad),
            "share": share,
            **self._explained(Step(before, after, dimension, self.history.judge, claim), point(step.bad).name),
        }
        if step.unknown and "cause" not in found:
            between = f"{len(step.unknown)} commits between the two are not judged"
            found["why_not"] = "; ".join(filter(None, (found["why_not"], between)))
        if share < MOST_OF_IT:
            found["steps"] = tuple(self._other_steps(value, step.bad))
        return fall.model_copy(update=found)

    def _explained(self, step: Step, where: str) -> dict[str, Any]:
        """Return the cause of a step, or the possible causes and why it is not known."""
        if step.before.plan is None or step.after.plan is None:
            old, new = step.before.inputs, step.after.inputs
            kinds = [kind for kind in old if old[kind] != new.get(kind)]
            told = " and ".join(kinds) or "nothing that is known of"
            why = f"{told} changed between them, and the persona or the messages of then are not known any more"
            return {"candidates": tuple(kinds), "why_not": why}
        points = step.explain()
        self._miss(step.missing)
        total = sum(abs(value) for value in points.values())
        falling = {kind: value for kind, value in points.items() if value > 0}
        kind = max(falling, key=lambda name: falling[name], default=None)
        if kind is not None and falling[kind] >= THE_CAUSE * sum(falling.values()):
            return {"cause": cause_of(step, kind, falling[kind] / total)}
        kinds = sorted({*(name for name in falling if name is not None), *step.kinds})
        return {"candidates": tuple(kinds), "why_not": _why_not(falling, kinds, where)}

    def _miss(self, requests: Sequence[JudgeRequest]) -> None:
        self._missing |= {request.key: request for request in requests}

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


def _why_not(falling: dict[CauseKind | None, float], kinds: Sequence[CauseKind], where: str) -> str:
    if not kinds:
        return f"nothing that the judge is shown changed at {where}"
    told = ", ".join(f"{kind} {points:.1f}" for kind, points in falling.items() if kind is not None)
    if None not in falling:
        return f"several things share the drop: {told} points"
    return f"{' and '.join(kinds)} changed together at {where}, and the one was never judged without the other"
