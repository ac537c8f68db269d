"""The files of a deployment: Compose and Kubernetes, written for a world from the templates beside this module.

The folder ``deploy/`` of the project is what ``render_deployment`` gives for the project itself; a test holds the two equal.
"""

from importlib import metadata
from importlib.resources import files

from persona_pipeline import __version__

_TEMPLATES = files(__package__) / "templates"
_SOURCE_ONLY, _WORLD_ONLY = frozenset[str](), frozenset({"constraints.txt"})
_PACKAGE = "persona-pipeline"


def render_deployment(name: str, *, source: bool = False) -> dict[str, str]:
    """Return the files of ``deploy/``, text by name.

    Args:
        name: what the deployment and its image are called: lower-case letters, digits and dashes.
        source: the image is built from a checkout of this project, with its lock, instead of from the published package.
    """
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=False, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    values = {
        "name": name,
        "source": source,
        "version": __version__,
        "dagster": metadata.version("dagster"),
        "constraints": () if source else installed_versions(),
    }
    texts = {
        template.name: environment.from_string(template.read_text(encoding="utf-8")).render(values)
        for template in _TEMPLATES.iterdir()
        if template.is_file()
    }
    if source:
        del texts["constraints.txt"]
    return dict(sorted(texts.items()))


def installed_versions() -> list[str]:
    """Return ``name==version`` of this package and of what it needs as it is installed here, extras too where they are."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    found: dict[str, str] = {}
    waiting = [_PACKAGE]
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in found:
            continue
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        found[name] = distribution.version
        # Markers are not looked at, nor which extras are meant: a constraint on what is not wanted says nothing.
        waiting += [Requirement(line).name for line in distribution.requires or ()]
    return [f"{name}=={version}" for name, version in sorted(found.items())]
