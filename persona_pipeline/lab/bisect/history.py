"""The points of an agent's history, and its state at each: commits, or stored evaluations."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

from persona_pipeline.base.documents.json import rfc3339
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.evaluation.folder import folder_inputs
from persona_pipeline.evaluation.history import saved_runs
from persona_pipeline.evaluation.plan import AgentPlan, judge_plans
from persona_pipeline.evaluation.read import ALL_TIME, WorldReader
from persona_pipeline.evaluation.snapshot import Inputs
from persona_pipeline.guard.report import AgentEvaluation
from persona_pipeline.judging.money import model_name
from persona_pipeline.judging.verdict import JudgeRequest, Verdict
from persona_pipeline.lab.results import CauseKind, PastPoint
from persona_pipeline.lab.versions import HERE, Commits, KnownJudge, Version, VersionAgent, readable_recordings
from persona_pipeline.scoring.results import DimensionEvaluation
from persona_pipeline.world.models import Window, grouped, parse_window
from persona_pipeline.world.personas import PERSONAS
from persona_pipeline.world.propositions.loading import PROPOSITIONS
from persona_pipeline.world.propositions.models import ALL_DIMENSIONS, Proposition
from persona_pipeline.world.revisions import Revision, revisions_of
from persona_pipeline.world.runs import runs_by_window
from persona_pipeline.world.world import World

# What a stored evaluation was made from, besides its messages: their versions are looked up in git.
WRITTEN = (PERSONAS, PROPOSITIONS)
_MOST_REVISIONS = 200


@dataclass(frozen=True)
class State:
    """An agent at one point of its history.

    Attributes:
        agent, plan: its version and the questions about it; None: only its stored scores are known.
        verdicts: of the plan's requests, by key.
        inputs: of a stored evaluation, hashes of what it was made from.
    """

    label: str
    dimensions: Mapping[str, DimensionEvaluation]
    agent: VersionAgent | None = None
    plan: AgentPlan | None = None
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    inputs: Mapping[CauseKind, str] = field(default_factory=dict)

    def value(self, dimension: str, claim: str | None = None) -> float | None:
        """Return a score, 0-9; None where it is not known, or rests on less than all that should be judged."""
        found = self.dimensions.get(dimension)
        if found is None:
            return None
        if claim is not None:
            row = found.propositions.get(claim)
            return row.score if row is not None else None
        return None if found.failures else found.score

    def claims(self, dimension: str) -> Mapping[str, Proposition]:
        """Return the claims of a dimension by id."""
        return self.agent.claims.get(dimension, {}) if self.agent else {}

    def is_hard(self, dimension: str) -> bool | None:
        """Whether a dimension is judged in hard mode; None: it has no claims."""
        stored = self.agent.sets.get(dimension) if self.agent else None
        return stored.propositions.hard if stored and stored.propositions else None

    def requests(self, dimension: str) -> dict[str, list[JudgeRequest]]:
        """Return the requests to the judge on a dimension, by claim."""
        plan = self.plan.plans.get(dimension) if self.plan else None
        return grouped(plan.requests if plan else (), lambda request: request.proposition_id)

    def unanswered(self, dimension: str, claims: Collection[str] | None = None) -> list[JudgeRequest]:
        """Return the judgments of a dimension, or of some of its claims, that have no verdict."""
        asked = [
            item for key, own in self.requests(dimension).items() if claims is None or key in claims for item in own
        ]
        return [item for item in asked if item.key not in self.verdicts]


def state_of(label: str, agent: VersionAgent, inputs: Inputs, window: Window, judge: KnownJudge) -> State:
    """Return an agent's state on a window of some messages, as far as it is judged; ConfigError: its files are not valid."""
    plan = agent.plan(inputs, window)
    (judged,) = judge_plans([plan], judge)
    verdicts = {key: verdict for key, verdict in judged.answers.items() if not verdict.has_failed}
    return State(label, judged.dimensions(), agent, plan, verdicts)


class CommitHistory:
    """The commits in which something changed that the agent's scores may rest on, oldest first.

    ``length``: the window that is scored, such as ``7d``; it ends at the newest message of each commit.
    """

    source = "commits"

    def __init__(self, world: World, commits: Commits, judge: KnownJudge, revisions: list[Revision], length: str):
        self.world, self.commits, self.judge, self.length = world, commits, judge, length
        self.revisions, before = list[Revision](), None
        for revision in revisions:
            files = commits.files(revision)
            if files != before:
                self.revisions.append(revision)
            before = files

    def __len__(self) -> int:
        return len(self.revisions)

    def state(self, place: int) -> State | None:
        """Return the agent's state at a point, None: it has no persona or message; ConfigError: files are not valid."""
        version, agent_id = self.commits.at(self.revisions[place]), self.commits.agent_id or ""
        inputs = folder_inputs(version.root, self.world.clock())
        newest = inputs.messages.newest
        if agent_id not in version.agent_ids() or newest is None:
            return None
        window = Window.ending(newest, None if self.length == ALL_TIME else parse_window(self.length))
        own = readable_recordings(version.recordings, self.world.settings)
        judge = replace(self.judge, also=(*([own] if own else []), *self.judge.also))
        return state_of(version.label, version.agent(agent_id, ALL_DIMENSIONS), inputs, window, judge)

    def point(self, place: int, score: float | None = None) -> PastPoint:
        """Return the point with the names that people use for it."""
        revision = self.revisions[place]
        at = None if revision.at is None else rfc3339(revision.at)
        return PastPoint(name=revision.short, commit=revision.id, subject=revision.subject, at=at, score=score)


class RunHistory:
    """An agent's stored evaluations, one a window; their personas and claims are looked up in git by their hash."""

    source = "evaluations"

    def __init__(self, world: World, commits: Commits, judge: KnownJudge) -> None:
        self.world, self.commits, self.judge = world, commits, judge
        self.runs = stored_evaluations(world, commits.agent_id or "")

    def __len__(self) -> int:
        return len(self.runs)

    def state(self, place: int) -> State | None:
        """Return the agent's state at a point: its stored scores, and the questions where its files and messages are known."""
        run, told = self.runs[place], self.runs[place].provenance
        sets = {name: item.proposition_set_hash for name, item in run.dimensions.items()}
        inputs = {
            CauseKind.PERSONA: str(told.get("persona_hash")),
            CauseKind.CLAIMS: str(sorted(sets.items())),
            CauseKind.MESSAGES: str(told.get("messages_hash")),
            CauseKind.JUDGE: ", ".join(told.get("judge_models", ())),
        }
        stored = State(rfc3339(run.window_end), run.dimensions, inputs=inputs)
        for agent in self._versions:
            known = {name: own.propositions.hash for name, own in agent.sets.items() if own.propositions}
            if agent.persona.hash != told.get("persona_hash") or not sets.items() <= known.items():
                continue
            # The names in transcripts are those of the store.
            agent = replace(agent, sets={name: agent.sets[name] for name in sets}, names={})
            gathered = WorldReader(self.world).gathered(Inputs(agents=[agent.scope(run.window)]))
            models = frozenset(map(model_name, told.get("judge_models", ())))
            built = state_of(stored.label, agent, gathered, run.window, replace(self.judge, models=models))
            if built.plan is None or built.plan.messages_hash != told.get("messages_hash"):
                # Messages of that window were added or removed since, so its judgments cannot be repeated.
                return stored
            return replace(built, dimensions=run.dimensions, inputs=inputs)
        return stored

    def point(self, place: int, score: float | None = None) -> PastPoint:
        """Return the point with the names that people use for it."""
        at = rfc3339(self.runs[place].window_end)
        return PastPoint(name=at, subject="window's end", at=at, score=score)

    @cached_property
    def _versions(self) -> list[VersionAgent]:
        """The agent in all known versions of the world, oldest first."""
        root, agent_id, revisions = self.world.root, self.commits.agent_id or "", list[Revision]()
        with suppress(ConfigError):
            # Without git only the current files are known.
            revisions = revisions_of(root, WRITTEN, _MOST_REVISIONS)
        found = list[VersionAgent]()
        for version in (*map(self.commits.at, revisions), Version(HERE, root)):
            # Not valid in that commit, or not there yet.
            with suppress(ConfigError, OSError):
                found.append(version.agent(agent_id, ALL_DIMENSIONS))
        return found


History = CommitHistory | RunHistory


def stored_evaluations(world: World, agent_id: str) -> Sequence[AgentEvaluation]:
    """Return an agent's evaluations of real messages, one a window, oldest first."""
    saved = saved_runs(runs_by_window(world.store, agent_id))
    return [run.evaluation for run in saved if not run.evaluation.synthetic]
