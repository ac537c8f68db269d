"""Histories of an agent: commits of its world, or its stored evaluations, one state after the other."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Protocol

from persona_pipeline.errors import ConfigError
from persona_pipeline.evaluation.history import latest_runs
from persona_pipeline.evaluation.read import read_scopes
from persona_pipeline.evaluation.report import AgentEvaluation
from persona_pipeline.evaluation.snapshot import AgentScope, Snapshot
from persona_pipeline.judging.money import model_name
from persona_pipeline.propositions import ALL_DIMENSIONS
from persona_pipeline.propositions.storing import StoredSet
from persona_pipeline.versions.finding import Kind, Point
from persona_pipeline.versions.sides import HERE, Side, SideAgent
from persona_pipeline.versions.states import Answers, CommitStates, State, state_of
from persona_pipeline.world import World
from persona_pipeline.world.canonical import rfc3339
from persona_pipeline.world.models import Window
from persona_pipeline.world.personas import persona_path
from persona_pipeline.world.revisions import Revision, revisions_of

_MOST_REVISIONS = 200


class History(Protocol):
    """Points in time, oldest first. ``source``: ``commits`` or ``evaluations``."""

    source: str
    answers: Answers

    def __len__(self) -> int: ...

    def state(self, place: int) -> State | None:
        """Return the agent as it stood there, None where it has no score; raises ``ConfigError`` where files are not valid."""
        ...

    def point(self, place: int, score: float | None = None) -> Point:
        """Return what a person calls that point."""
        ...


class CommitHistory:
    """The commits in which something changed that the agent's scores may rest on."""

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
        return self.states.state(self.revisions[place])

    def point(self, place: int, score: float | None = None) -> Point:
        revision = self.revisions[place]
        at = None if revision.at is None else rfc3339(revision.at)
        return Point(name=revision.short, commit=revision.id, subject=revision.subject, at=at, score=score)


class RunHistory:
    """An agent's stored evaluations, one a window; their personas and claims are looked up in git by their hash."""

    source = "evaluations"

    def __init__(self, world: World, agent_id: str, states: CommitStates) -> None:
        self.world, self.agent_id, self.states, self.answers = world, agent_id, states, states.answers
        self.runs = [run.evaluation for run in latest_runs(world.store, agent_id) if not run.evaluation.synthetic]

    def __len__(self) -> int:
        return len(self.runs)

    def state(self, place: int) -> State | None:
        evaluation = self.runs[place]
        stored = State(self._label(place), None, evaluation.dimensions, fingerprint=_fingerprint(evaluation))
        known = self._personas.get(str(evaluation.provenance.get("persona_hash")))
        if known is None:
            return stored
        agent, revision, file = known
        claims = {item.proposition_set_hash for item in evaluation.dimensions.values()}
        sets = {name: self._sets[digest] for name, digest in _sets_of(evaluation).items() if digest in self._sets}
        stored = replace(stored, persona_file=file, revision=revision)
        if len(sets) < len(claims):
            return stored
        window = Window(evaluation.window_end, evaluation.window_start)
        models = frozenset(model_name(name) for name in evaluation.provenance.get("judge_models", ()))
        own = SideAgent(agent.persona, sets, self._now.names)
        scope = AgentScope(self.agent_id, window, (), persona=own.persona)
        built = state_of(read_scopes(self.world, Snapshot(agents=[scope])), own, window, self.answers, models=models)
        if built.plan is None or built.plan.messages_hash != evaluation.provenance.get("messages_hash"):
            # Messages of that window came or went since: what was judged then cannot be asked again.
            return stored
        return replace(stored, plan=built.plan, verdicts=built.verdicts, agent=own)

    def point(self, place: int, score: float | None = None) -> Point:
        at = rfc3339(self.runs[place].window_end)
        return Point(name=self._label(place), subject="window's end", at=at, score=score)

    def _label(self, place: int) -> str:
        return rfc3339(self.runs[place].window_end)

    @cached_property
    def _now(self) -> SideAgent:
        return Side(HERE, self.world.root).agent(self.agent_id, ALL_DIMENSIONS)

    @cached_property
    def _versions(self) -> list[tuple[SideAgent, Revision | None, tuple[str, str]]]:
        path = persona_path(self.world.root, self.agent_id)
        name = path.relative_to(self.world.root).as_posix()
        found: list[tuple[SideAgent, Revision | None, tuple[str, str]]] = []
        try:
            revisions = revisions_of(self.world.root, ["personas", "propositions"], _MOST_REVISIONS)
        except ConfigError:
            # A world without git knows only how it stands.
            revisions = []
        for revision in revisions:
            root = self.states.root(revision)
            try:
                agent = Side(revision.short, root, revision).agent(self.agent_id, ALL_DIMENSIONS)
                found.append((agent, revision, (name, (root / name).read_text(encoding="utf-8-sig"))))
            except (ConfigError, OSError):
                # Not valid in that commit, or not there yet.
                continue
        return [*found, (self._now, None, (name, path.read_text(encoding="utf-8-sig")))]

    @cached_property
    def _personas(self) -> Mapping[str, tuple[SideAgent, Revision | None, tuple[str, str]]]:
        # The first commit that had it is the one that made it.
        return {item[0].persona.hash: item for item in reversed(self._versions)}

    @cached_property
    def _sets(self) -> Mapping[str, StoredSet]:
        return {
            stored.propositions.hash: stored
            for agent, _, _ in self._versions
            for stored in agent.sets.values()
            if stored.propositions is not None
        }


def _sets_of(evaluation: AgentEvaluation) -> dict[str, str]:
    return {name: item.proposition_set_hash or "" for name, item in evaluation.dimensions.items()}


def _fingerprint(evaluation: AgentEvaluation) -> dict[Kind, str]:
    told = evaluation.provenance
    return {
        Kind.PERSONA: str(told.get("persona_hash")),
        Kind.CLAIMS: str(sorted(_sets_of(evaluation).items())),
        Kind.MESSAGES: str(told.get("messages_hash")),
        Kind.JUDGE: ", ".join(told.get("judge_models", ())),
    }
