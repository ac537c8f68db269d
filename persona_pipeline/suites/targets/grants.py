"""What a targets file may reach: a suite from a stranger names neither secrets nor servers without leave."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from persona_pipeline.settings import get_settings
from persona_pipeline.suites.format.files import repository_root


@dataclass(frozen=True)
class Grants:
    """What the user allows the targets of a suite.

    Attributes:
        environment: names of environment variables that the targets file may read.
        network: targets that ask a server may answer.
        roots: the folders that files of targets must lie in.
        own: the file is the user's own and no part of the suite's repository: it may read and reach what it names.
    """

    environment: frozenset[str] = frozenset()
    network: bool = False
    roots: tuple[Path, ...] = ()
    own: bool = False

    def reads(self, name: str) -> bool:
        """Whether the file may read an environment variable."""
        return self.own or name in self.environment

    def allows(self, path: Path) -> bool:
        """Whether a target may read a file, or what lies in a folder."""
        return self.own or any(path.resolve().is_relative_to(root) for root in self.roots)

    @property
    def reaches(self) -> bool:
        """Whether a target may ask a server."""
        return self.own or self.network


OWN = Grants(own=True)


def grants_for(
    targets: Path,
    suite: Path,
    *,
    environment: Iterable[str] | None = None,
    network: bool | None = None,
    folders: Iterable[Path] = (),
) -> Grants:
    """Return what a targets file may reach for a suite: all that it names if it lies outside the suite's repository (else folder).

    Args:
        environment, network: what is allowed to one inside; by default what the settings say, which is nothing unless set.
        folders: whose files it may name beside those of the repository and what the settings allow.
    """
    settings = get_settings()
    environment = settings.suite_environment if environment is None else environment
    network = settings.suite_allow_targets if network is None else network
    folder = suite.resolve().parent
    top = (repository_root(folder) or folder).resolve()
    # A link in the repository to a file outside is the repository's.
    places = (targets.resolve(), targets.absolute().parent.resolve() / targets.name)
    own = not any(place.is_relative_to(top) for place in places)
    roots = tuple(place.resolve() for place in (top, settings.world_root, *settings.suite_paths, *folders))
    return Grants(frozenset(environment), network, roots, own)
