"""The two sides of a comparison: a world's folder, or a commit of it, read as data."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from persona_pipeline.errors import ConfigError, Problem
from persona_pipeline.evaluation.read import proposition_set
from persona_pipeline.judging.open import RECORDINGS
from persona_pipeline.propositions.storing import StoredSet
from persona_pipeline.world.aliases import read_names
from persona_pipeline.world.changes import ask_git
from persona_pipeline.world.models import Persona
from persona_pipeline.world.personas import PERSONAS, agent_ids, load_persona
from persona_pipeline.world.revisions import Revision, find_revision, revision_folder

HERE = "as it stands"


@dataclass(frozen=True)
class SideAgent:
    """One agent as a side has it. ``sets``: its claims by dimension; ``names``: everybody's display names."""

    persona: Persona
    sets: Mapping[str, StoredSet]
    names: Mapping[str, str]


@dataclass(frozen=True)
class Side:
    """A version of a world.

    Attributes:
        label: what a person calls it: a revision's name, a folder, or ``as it stands``.
        root: a folder that holds it; that of a commit is there only while the sides are open.
        revision: the commit; None: a folder.
    """

    label: str
    root: Path
    revision: Revision | None = None

    @property
    def name(self) -> str:
        """The label, with the commit where it does not tell it."""
        short = self.revision.short if self.revision else ""
        return self.label if not short or short in self.label else f"{self.label} ({short})"

    @property
    def recordings(self) -> Path:
        """Its recorded judgments."""
        return self.root / RECORDINGS

    def agent_ids(self) -> list[str]:
        """Return its agents, sorted.

        Raises:
            ConfigError: a file's name cannot be an agent's id.
        """
        with self._named():
            return agent_ids(self.root)

    def agent(self, agent_id: str, dimensions: Sequence[str]) -> SideAgent:
        """Read an agent's persona and its claims of some dimensions.

        Raises:
            ConfigError: files of it are missing or not valid, with their places in this version.
        """
        with self._named():
            persona = load_persona(self.root, agent_id)
            sets = {name: proposition_set(self.root, agent_id, name) for name in dimensions}
        names = {known: item.display_name or known for known, item in read_names(self.root).items()}
        return SideAgent(persona, sets, names)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Say of a problem in a commit in which one it stands, not in which folder it was unpacked."""
        try:
            yield
        except ConfigError as error:
            if self.revision is None:
                raise
            whole, label = f"{self.root}/", f"{self.label}:"
            raise ConfigError(
                [
                    replace(p, message=p.message.replace(whole, label), path=p.path and p.path.replace(whole, label))
                    for p in error.problems
                ]
            ) from error


def split_versions(text: str) -> tuple[str, str]:
    """Return the two sides of ``A..B`` (``A..`` is ``A..HEAD``); one version alone stands before the world as it is, ``""``.

    ``A...B`` is what ``B`` changed since the two parted, as with ``git diff``.

    Raises:
        ConfigError: there is nothing before the dots.
    """
    if Path(text).is_dir() or ".." not in text:
        return text, ""
    before, dots, after = text.partition("...") if "..." in text else text.partition("..")
    if not before:
        raise ConfigError(f"{text!r} does not say what comes before; write REV..REV, such as main..HEAD")
    return (f"{before}...{after or 'HEAD'}" if dots == "..." else before), after or "HEAD"


@contextmanager
def open_sides(root: Path, before: str, after: str) -> Iterator[tuple[Side, Side]]:
    """Give both sides while they are compared; commits are unpacked outside the user's checkout, and nothing of them is run.

    Args:
        root: the world's folder.
        before, after: a commit's name, a folder with a world, or ``""`` for the world as it stands.

    Raises:
        ConfigError: there is no such commit or world.
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
    revision = find_revision(root, _parting(root, *name.split("...", 1)) if "..." in name else name)
    return Side(name.partition("...")[0], stack.enter_context(revision_folder(root, revision)), revision)


def _parting(root: Path, one: str, other: str) -> str:
    first, second = find_revision(root, one), find_revision(root, other)
    return ask_git(root, "merge-base", first.id, second.id).decode("ascii").strip()
