"""Versions of a world: both sides of a comparison, and an agent's state at a commit, scored from recordings."""

import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from persona_pipeline.base.calls import run_async
from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.base.settings import Settings
from persona_pipeline.evaluation.folder import folder_inputs
from persona_pipeline.evaluation.plan import AgentPlan, Judged, build_case, plan_case
from persona_pipeline.evaluation.read import ALL_TIME
from persona_pipeline.evaluation.snapshot import AgentScope, Inputs
from persona_pipeline.judging.claims import no_entries
from persona_pipeline.judging.money import model_name
from persona_pipeline.judging.open import RECORDINGS, OpenedJudge
from persona_pipeline.judging.recordings.known import KnownVerdicts
from persona_pipeline.judging.recordings.replay import RecordedBackend
from persona_pipeline.judging.verdict import Judge, JudgeRequest, Unscored, Verdict
from persona_pipeline.lab.results import CauseKind, ComparisonRequest
from persona_pipeline.scoring.results import DimensionEvaluation
from persona_pipeline.world.changes import ask_git
from persona_pipeline.world.models import Persona, Window, grouped, parse_window
from persona_pipeline.world.names import read_names
from persona_pipeline.world.personas import PERSONAS, agent_ids, load_persona
from persona_pipeline.world.propositions.loading import PROPOSITIONS, StoredSet
from persona_pipeline.world.propositions.models import ALL_DIMENSIONS
from persona_pipeline.world.revisions import Revision, find_revision, read_blobs, revision_folder, tree_of, write_files
from persona_pipeline.world.world import World

HERE = "as it stands"


@dataclass(frozen=True)
class SideAgent:
    """One agent of a version. ``sets``: its claims by dimension; ``names``: display names of all agents."""

    persona: Persona
    sets: Mapping[str, StoredSet]
    names: Mapping[str, str]


@dataclass(frozen=True)
class Side:
    """A version of a world.

    Attributes:
        label: a revision's name, a folder, or ``as it stands``.
        root: its folder; that of a commit exists while the sides are open.
        revision: the commit; None: a folder.
    """

    label: str
    root: Path
    revision: Revision | None = None

    @property
    def name(self) -> str:
        """The label, with the commit if it is not in it."""
        short = self.revision.short if self.revision else ""
        return self.label if not short or short in self.label else f"{self.label} ({short})"

    @property
    def recordings(self) -> Path:
        """Its recorded judgments."""
        return self.root / RECORDINGS

    def agent_ids(self) -> list[str]:
        """Return its agents, sorted; ConfigError: a file's name cannot be an agent's id."""
        with self._named():
            return agent_ids(self.root)

    def agent(self, agent_id: str, dimensions: Sequence[str]) -> SideAgent:
        """Read an agent's persona and claims; ConfigError: files are missing or not valid, with their places in this version."""
        with self._named():
            persona = load_persona(self.root, agent_id)
            sets = {name: StoredSet.read(self.root / PROPOSITIONS, name, agent_id) for name in dimensions}
        names = {known: item.display_name or known for known, item in read_names(self.root).items()}
        return SideAgent(persona, sets, names)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Name the commit of a problem instead of the folder it was unpacked to."""
        try:
            yield
        except ConfigError as error:
            if self.revision is None:
                raise
            whole, label = f"{self.root}/", f"{self.label}:"
            named = [
                replace(p, message=p.message.replace(whole, label), path=p.path and p.path.replace(whole, label))
                for p in error.problems
            ]
            raise ConfigError(named) from error


def split_versions(text: str) -> tuple[str, str]:
    """Return both sides of ``A..B`` (``A..`` is ``A..HEAD``); a single version comes before the current files, ``""``.

    ``A...B`` is the change of ``B`` since its common ancestor with ``A``, as in ``git diff``. ConfigError: nothing is before the
    dots.
    """
    if Path(text).is_dir() or ".." not in text:
        return text, ""
    before, dots, after = text.partition("...") if "..." in text else text.partition("..")
    if not before:
        raise ConfigError(f"{text!r} does not say what comes before; write REV..REV, such as main..HEAD")
    return (f"{before}...{after or 'HEAD'}" if dots == "..." else before), after or "HEAD"


@contextmanager
def open_sides(root: Path, before: str, after: str) -> Iterator[tuple[Side, Side]]:
    """Open both sides; commits are unpacked to a temporary folder, and nothing of them is run.

    A side is a commit's name, a folder with a world, or ``""`` for the current files. ConfigError: the version does not exist.
    """
    with ExitStack() as stack:
        yield _opened(stack, root, before), _opened(stack, root, after)


def _opened(stack: ExitStack, root: Path, name: str) -> Side:
    if not name:
        return Side(HERE, root)
    folder = Path(name).expanduser()
    if (folder / PERSONAS).is_dir():
        return Side(name, folder.resolve())
    if folder.is_dir():
        raise ConfigError(Problem("is no world: it has no personas folder; name a world's folder or a commit", name))
    label, *parted = name.split("...", 1)
    revision = find_revision(root, label)
    if parted:
        # Where the two parted.
        base = ask_git(root, "merge-base", revision.id, find_revision(root, parted[0]).id)
        revision = find_revision(root, base.decode("ascii").strip())
    return Side(label, stack.enter_context(revision_folder(root, revision)), revision)


@dataclass(frozen=True)
class State:
    """An agent at one point of its history.

    Attributes:
        agent: None: only its stored scores are still known.
        verdicts: of the plan's requests, by key.
        persona_file: path and text of the persona's file.
        fingerprint: hashes of the inputs of a stored evaluation; empty where the inputs are known.
    """

    label: str
    plan: AgentPlan | None
    dimensions: Mapping[str, DimensionEvaluation]
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    agent: SideAgent | None = None
    persona_file: tuple[str, str] = ("", "")
    fingerprint: Mapping[CauseKind, str] = field(default_factory=dict)

    def value(self, dimension: str, claim: str | None = None) -> float | None:
        """Return a score, 0-9; None where it is not known, or rests on less than all that should be judged."""
        found = self.dimensions.get(dimension)
        if found is None:
            return None
        if claim is not None:
            row = found.propositions.get(claim)
            return row.score if row is not None else None
        return None if found.failures else found.score

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


@dataclass
class RecordedAnswers:
    """All known verdicts: recordings, the store, and a live judge that may be asked.

    Attributes:
        known: of the world.
        also: current recordings and those of other states.
        live: asked for missing verdicts; None: makes no API calls.
        missing: requests without a verdict, by key.
    """

    known: KnownVerdicts
    also: tuple[OpenedJudge | None, ...] = ()
    live: Judge | None = None
    missing: dict[str, JudgeRequest] = field(default_factory=dict)
    calls: int = 0
    usd: float | None = 0.0
    _told: dict[str, Verdict] = field(default_factory=dict)

    def of(
        self,
        requests: Sequence[JudgeRequest],
        own: Judge | None = None,
        models: Collection[str] | None = None,
    ) -> dict[str, Verdict]:
        """Return verdicts by key; missing ones are left out.

        ``own``: recordings to look at first. ``models``: of these models only; None: of any.
        """

        def holds(verdict: Verdict) -> bool:
            named = models is None or model_name(verdict.model or "") in models
            return named and (verdict.unscored is None or verdict.unscored.is_answer)

        found: dict[str, Verdict] = {}
        wanted = {request.key: request for request in requests}
        for judge in filter(None, (own, *self.also)):
            rest = [request for key, request in wanted.items() if key not in found]
            if rest:
                found |= {r.key: v for r, v in zip(rest, run_async(judge.judge(rest)), strict=True) if holds(v)}
        rest = [request for key, request in wanted.items() if key not in found]
        said = [next(filter(holds, own), None) for own in self.known.on(rest)] if rest else []
        found |= {r.key: v for r, v in zip(rest, said, strict=True) if v is not None}
        found |= {key: self._told[key] for key in wanted if key not in found and key in self._told}
        rest = [request for key, request in wanted.items() if key not in found]
        if rest and self.live:
            told = run_async(self.live.judge(rest))
            self.calls += sum(verdict.usage.calls for verdict in told)
            for verdict in told:
                self.usd = None if self.usd is None or verdict.usage.usd is None else self.usd + verdict.usage.usd
            self._told |= {r.key: v for r, v in zip(rest, told, strict=True) if holds(v)}
            found |= {request.key: self._told[request.key] for request in rest if request.key in self._told}
        return found

    def miss(self, requests: Sequence[JudgeRequest]) -> None:
        """Note judgments that would have to be made."""
        self.missing |= {request.key: request for request in requests}


class CommitStates(AbstractContextManager["CommitStates"]):
    """Reads an agent's states from commits.

    ``length``: the window that is scored, such as ``7d``; it ends at the newest message of each commit.
    """

    def __init__(self, world: World, agent_id: str, answers: RecordedAnswers, length: str) -> None:
        self.world, self.agent_id, self.answers, self.length = world, agent_id, answers, length
        self._folder = tempfile.TemporaryDirectory(prefix="persona-bisect-")
        self._blobs: dict[str, bytes] = {}
        self._trees: dict[str, dict[str, str]] = {}

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def fingerprint(self, revision: Revision) -> frozenset[tuple[str, str]]:
        """Return the files of a commit that can change a score of the agent, with their contents' names."""
        return frozenset(self._tree(revision).items())

    def root(self, revision: Revision) -> Path:
        """Return a folder that holds the world of a commit."""
        folder = Path(self._folder.name) / revision.id
        if not folder.exists():
            tree = self._tree(revision)
            new = [blob for blob in dict.fromkeys(tree.values()) if blob not in self._blobs]
            self._blobs |= dict(zip(new, read_blobs(self.world.root, new), strict=True))
            write_files({path: self._blobs[blob] for path, blob in tree.items()}, folder)
        return folder

    def state(self, revision: Revision) -> State | None:
        """Return the agent's state in a commit; None where it has no persona or message. ConfigError: its files are not valid."""
        root = self.root(revision)
        side, inputs = Side(revision.short, root, revision), folder_inputs(root, self.world.clock())
        newest = inputs.messages.newest
        if self.agent_id not in side.agent_ids() or newest is None:
            return None
        window = Window.ending(newest, None if self.length == ALL_TIME else parse_window(self.length))
        path = next(path for path in self._tree(revision) if path.startswith(f"personas/{self.agent_id}.y"))
        own = readable_recordings(root / RECORDINGS, self.world.settings)
        found = state_of(inputs, side.agent(self.agent_id, ALL_DIMENSIONS), window, self.answers, own)
        text = (root / path).read_text(encoding="utf-8-sig")
        return replace(found, label=revision.short, persona_file=(path, text))

    def _tree(self, revision: Revision) -> dict[str, str]:
        if revision.id not in self._trees:
            tree = tree_of(self.world.root, revision.id)
            self._trees[revision.id] = {k: v for k, v in tree.items() if not _is_anothers(k, self.agent_id)}
        return self._trees[revision.id]


def state_of(
    inputs: Inputs,
    agent: SideAgent,
    window: Window,
    answers: RecordedAnswers,
    own: Judge | None = None,
    *,
    models: Collection[str] | None = None,
) -> State:
    """Return an agent's state on a window of some messages, as far as it is judged; ConfigError: its files are not valid.

    ``own``, ``models``: as in ``RecordedAnswers.of``.
    """
    plan = plan_of(inputs, agent, scope_of(agent, window), ComparisonRequest().samples)
    verdicts = answers.of([item for item in plan.requests if item.trajectory.entries], own, models)
    told = [verdicts.get(item.key) or _nobody(item) for item in plan.requests]
    return State("", plan, Judged(plan, told).dimensions(), verdicts, agent)


def scope_of(agent: SideAgent, window: Window) -> AgentScope:
    """Return the scope of an agent on a window: the dimensions that it has claims for."""
    claimed = tuple(name for name, stored in agent.sets.items() if stored.propositions is not None)
    return AgentScope(agent.persona.agent_id, window, claimed, past=True, persona=agent.persona)


def plan_of(inputs: Inputs, agent: SideAgent, scope: AgentScope, samples: int) -> AgentPlan:
    """Return the requests to the judge on some messages, with one version's persona and claims."""
    case = build_case(inputs, agent.persona, scope, samples)
    return plan_case(replace(case, names={**case.names, **agent.names}), scope, agent.sets)


def readable_recordings(folder: Path, settings: Settings) -> OpenedJudge | None:
    """Return the recordings of a folder; None: a line is not valid, as in formats of older versions."""
    try:
        return OpenedJudge(RecordedBackend(folder, settings=settings))
    except ConfigError:
        return None


def _nobody(request: JudgeRequest) -> Verdict:
    if not request.trajectory.entries:
        return no_entries(request)
    return Verdict(request.proposition_id, unscored=Unscored.UNRECORDED, detail="nobody judged it")


def _is_anothers(path: str, agent_id: str) -> bool:
    """Whether a file is another agent's claims or recordings; personas and messages of others matter for all agents."""
    parts = path.split("/")
    if parts[0] == "propositions" and len(parts) == 3:
        return Path(parts[2]).stem not in ("_default", agent_id)
    return parts[0] == RECORDINGS and len(parts) > 2 and parts[1] != agent_id
