"""Versions of a world: at a commit, in a folder, or as it is; their agents, and what is known of the judge's answers."""

import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import regex

from persona_pipeline.base.calls import run_async
from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.base.settings import Settings
from persona_pipeline.evaluation.against import AskedOnce
from persona_pipeline.evaluation.plan import AgentPlan, build_case, plan_case
from persona_pipeline.evaluation.snapshot import AgentScope, Inputs
from persona_pipeline.judging.claims import no_entries
from persona_pipeline.judging.money import model_name
from persona_pipeline.judging.open import RECORDINGS, OpenedJudge
from persona_pipeline.judging.recordings.known import KnownVerdicts
from persona_pipeline.judging.recordings.replay import RecordedBackend
from persona_pipeline.judging.verdict import Judge, JudgeRequest, Unscored, Usage, Verdict
from persona_pipeline.world.changes import ask_git
from persona_pipeline.world.models import Persona, Window
from persona_pipeline.world.names import read_names
from persona_pipeline.world.personas import PERSONAS, agent_ids, load_persona, persona_path
from persona_pipeline.world.propositions.loading import PROPOSITIONS, StoredSet
from persona_pipeline.world.propositions.models import Proposition
from persona_pipeline.world.revisions import READ, Revision, find_revision, read_blobs, tree_of, write_files

HERE = "the working world"


@dataclass(frozen=True)
class VersionAgent:
    """One agent of a version.

    ``sets``: its claims by dimension; ``names``: display names of all agents; ``file``: path and text of the persona's file.
    """

    persona: Persona
    sets: Mapping[str, StoredSet] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    file: tuple[str, str] = ("", "")

    @cached_property
    def claims(self) -> dict[str, dict[str, Proposition]]:
        """Its claims by dimension and id; dimensions without claims are left out."""
        known = {name: stored.propositions.propositions for name, stored in self.sets.items() if stored.propositions}
        return {name: {item.id: item for item in own} for name, own in known.items()}

    def scope(self, window: Window) -> AgentScope:
        """Return its scope on a window: the dimensions that it has claims for."""
        return AgentScope(self.persona.agent_id, window, tuple(self.claims), self.persona, past=True)

    def plan(self, inputs: Inputs, window: Window, samples: int = 1) -> AgentPlan:
        """Return the questions about the messages of a window, with this version's persona and claims."""
        scope = self.scope(window)
        case = build_case(inputs, scope, samples)
        return plan_case(replace(case, names={**case.names, **self.names}), scope, self.sets)


@dataclass(frozen=True)
class Version:
    """A version of a world.

    Attributes:
        label: a revision's name, a folder, or ``the working world``.
        root: its folder; that of a commit exists while its ``Commits`` are open.
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

    def agent(self, agent_id: str, dimensions: Sequence[str]) -> VersionAgent:
        """Read an agent's persona and claims; ConfigError: files are missing or not valid, with their places in this version."""
        with self._named():
            persona, path = load_persona(self.root, agent_id), persona_path(self.root, agent_id)
            sets = {name: StoredSet.read(self.root / PROPOSITIONS, name, agent_id) for name in dimensions}
        names = {known: item.display_name or known for known, item in read_names(self.root).items()}
        file = (path.relative_to(self.root).as_posix(), path.read_text(encoding="utf-8-sig"))
        return VersionAgent(persona, sets, names, file)

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


class Commits(AbstractContextManager["Commits"]):
    """Versions of a world from its repository, unpacked to a temporary folder; nothing of them is run.

    ``agent_id``: other agents' claims and recordings are left out; None: nothing is. ``folders``: only these are read.
    """

    def __init__(self, root: Path, agent_id: str | None = None, folders: Sequence[str] = READ) -> None:
        self.root, self.agent_id, self.folders = root, agent_id, folders
        self._folder = tempfile.TemporaryDirectory(prefix="persona-commits-")

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def files(self, revision: Revision) -> dict[str, str]:
        """Return the blobs of a commit's files by path: all that a score can rest on."""
        tree = tree_of(self.root, revision.id, self.folders)
        return {path: blob for path, blob in tree.items() if not self._is_anothers(path)}

    def at(self, revision: Revision, label: str = "") -> Version:
        """Return the world at a commit."""
        folder = Path(self._folder.name) / revision.id
        if not folder.exists():
            blobs = self.files(revision)
            write_files(dict(zip(blobs, read_blobs(self.root, blobs.values()), strict=True)), folder)
        return Version(label or revision.short, folder, revision)

    def named(self, name: str) -> Version:
        """Return the version of a name: a commit, a folder with a world, or ``""`` for the current files.

        ``A...B``: where the two parted. ConfigError: the version does not exist, or has no personas.
        """
        if not name:
            return Version(HERE, self.root)
        folder = Path(name).expanduser()
        if (folder / PERSONAS).is_dir():
            return Version(name, folder.resolve())
        if folder.is_dir():
            raise ConfigError(
                Problem("is no world: it has no personas folder; name a world's folder or a commit", name)
            )
        label, *parted = name.split("...", 1)
        revision = find_revision(self.root, label)
        if parted:
            base = ask_git(self.root, "merge-base", revision.id, find_revision(self.root, parted[0]).id)
            revision = find_revision(self.root, base.decode("ascii").strip())
        found = self.at(revision, label)
        if not (found.root / PERSONAS).is_dir():
            raise ConfigError(f"{label} ({revision.short}) has no personas in this folder; name another commit")
        return found

    def _is_anothers(self, path: str) -> bool:
        """Whether a file is another agent's claims or recordings; personas and messages of others matter for all agents."""
        folder, *rest = path.split("/")
        if self.agent_id is None or len(rest) < 2:
            return False
        if folder == PROPOSITIONS and len(rest) == 2:
            return Path(rest[1]).stem not in ("_default", self.agent_id)
        return folder == RECORDINGS and rest[0] != self.agent_id


@contextmanager
def open_versions(root: Path, before: str, after: str) -> Iterator[tuple[Version, Version]]:
    """Open two versions of a world by their names; see ``Commits.named``."""
    with Commits(root) as commits:
        yield commits.named(before), commits.named(after)


def readable_recordings(folder: Path, settings: Settings) -> OpenedJudge | None:
    """Return the recordings of a folder; None: a line is not valid, as in formats of older versions."""
    try:
        return OpenedJudge(RecordedBackend(folder, settings=settings))
    except ConfigError:
        return None


@dataclass
class KnownJudge:
    """A judge of all known answers: recordings of versions, those of the world and its store, then a live judge.

    Attributes:
        known: of the world.
        also: judges of further recordings, which are asked first.
        models: only verdicts of these models count; None: of any.
        asking: asked once for each missing verdict; None: makes no API calls.
        spent: cost of its answers.
    """

    known: KnownVerdicts
    also: tuple[Judge, ...] = ()
    models: Collection[str] | None = None
    asking: AskedOnce | None = None
    spent: list[Usage] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"recorded:{', '.join(self.models or ())}"

    @property
    def live(self) -> bool:
        return self.asking is not None

    def has_recorded(self, requests: Iterable[JudgeRequest], *, failures: bool = False) -> bool:
        """Return whether all requests have a known verdict, without asking; a failure is none."""
        asked = [*requests]
        return replace(self, asking=None).answers(asked, self.models).keys() >= {item.key for item in asked}

    async def judge(self, requests: Sequence[JudgeRequest]) -> list[Verdict]:
        """Return verdicts in the order of the requests; missing ones are unrecorded."""
        who = ", ".join(self.models or ()) or "a judge"
        found = self.answers(requests, self.models)
        return [
            found.get(item.key)
            or Verdict(
                item.proposition_id,
                unscored=Unscored.UNRECORDED,
                detail=f"{item.dimension}/{item.proposition_id}: {who} was never asked",
            )
            for item in requests
        ]

    def answers(self, requests: Sequence[JudgeRequest], models: Collection[str] | None = None) -> dict[str, Verdict]:
        """Return the known verdicts of some models by key; missing ones are left out. ``models`` None: of any."""
        named = None if models is None else {model_name(model) for model in models}
        found = {request.key: no_entries(request) for request in requests if not request.trajectory.entries}

        def take(asked: Iterable[JudgeRequest], said: Iterable[Verdict]) -> None:
            for request, verdict in zip(asked, said, strict=True):
                if not verdict.has_failed and (named is None or model_name(verdict.model or "") in named):
                    found.setdefault(request.key, verdict)

        def missing() -> list[JudgeRequest]:
            return [request for request in requests if request.key not in found]

        for judge in self.also:
            if rest := missing():
                take(rest, run_async(judge.judge(rest)))
        for request, said in zip(rest := missing(), self.known.on(rest) if rest else (), strict=True):
            own = [verdict for verdict in said if named is None or model_name(verdict.model or "") in named]
            take([request] * len(own[request.sample :]), own[request.sample :])
        if self.asking and (rest := missing()):
            said = run_async(self.asking.judge(rest))
            self.spent += [verdict.usage for verdict in said]
            take(rest, said)
        return found


# Names that a judge may know are hidden from it: each becomes an invented one, and is turned back in quotes.
_INVENTED = ("Velmar", "Quorin", "Tasbek", "Ildram", "Norvex", "Pelund", "Ostrev", "Karnil", "Dremas", "Fyolt")
_CASED = r"[\p{Lu}\p{Ll}\p{N}]"
_WORD = regex.compile(r"\p{L}[\p{L}\p{M}]*")


@dataclass(frozen=True)
class HiddenNames:
    """Names and their invented replacements; names of ``exact`` are replaced only in that spelling."""

    pairs: Mapping[str, str]
    exact: Collection[str] = ()

    @classmethod
    def of(cls, agent: VersionAgent) -> "HiddenNames":
        """Return how an agent's display name, aliases and id are hidden, word by word.

        A name with a word that its persona or claims also have in small letters, as "Help Desk", is only hidden as a whole.
        """
        persona = agent.persona
        sets = [stored.propositions.propositions for stored in agent.sets.values() if stored.propositions is not None]
        texts = [persona.persona, *(item.claim for claims in sets for item in claims)]
        common = {word for text in texts for word in _WORD.findall(text) if word.islower()}
        found: dict[str, str] = {}
        for name in (persona.display_name, *persona.aliases, persona.agent_id):
            words = [word for word in _WORD.findall(name) if len(word) > 1]
            for word in [name] if any(word.lower() in common for word in words) else words:
                found.setdefault(word.casefold(), word)
        rounds = range(len(found) // len(_INVENTED) + 1)
        invented = (f"{word}{turn or ''}" for turn in rounds for word in _INVENTED)
        return cls(
            dict(zip(found.values(), invented, strict=False)),
            [name for name in found.values() if name.lower() in common],
        )

    def hide(self, text: str) -> str:
        """Return a text with the invented names."""
        patterns = []
        for name in sorted(self.pairs, key=len, reverse=True):
            found = f"(?{'-i' * (name in self.exact)}:{regex.escape(name)})"
            # Scripts without capitals put no space between words.
            patterns.append(rf"(?<!{_CASED}){found}(?!{_CASED})" if name.lower() != name.upper() else found)
        return _replaced(text, patterns, self.pairs)

    def show(self, text: str) -> str:
        """Return a text with the real names again."""
        back = {invented: name for name, invented in self.pairs.items()}
        return _replaced(text, sorted(back, key=len, reverse=True), back)

    def hidden(self, agent: VersionAgent) -> VersionAgent:
        """Return the agent as the judge is to see it: its name, persona and claims."""
        own = agent.persona
        own = replace(own, display_name=self.hide(own.display_name), persona=self.hide(own.persona))
        sets = dict(agent.sets)
        for name, stored in agent.sets.items():
            if (claims := stored.propositions) is not None:
                said = tuple(replace(item, claim=self.hide(item.claim)) for item in claims.propositions)
                sets[name] = StoredSet(stored.version, replace(claims, propositions=said))
        return VersionAgent(own, sets, {**agent.names, own.agent_id: own.display_name})


def _replaced(text: str, patterns: Sequence[str], names: Mapping[str, str]) -> str:
    """Return a text with names replaced, with the same small or capital letters."""
    by_key = {name.casefold(): other for name, other in names.items()}

    def other(match: regex.Match[str]) -> str:
        said, new = match[0], by_key[match[0].casefold()]
        return new.lower() if said.islower() else new.upper() if said.isupper() and len(said) > 1 else new

    return regex.sub("|".join(patterns), other, text, flags=regex.IGNORECASE) if patterns else text
