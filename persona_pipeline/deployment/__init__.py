"""Compose and Kubernetes files of a deployment, rendered from the templates in this folder."""

import re
from importlib import metadata

from persona_pipeline.version import __version__

_PACKAGE = "persona-pipeline"
# Extras an image may be built with.
_EXTRAS = frozenset({"bedrock", "docker", "kubernetes", "objects", "openai", "vertex"})
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+) *(?:\[([^\]]*)\])?")
_OF_EXTRA = re.compile(r"extra *== *['\"]([^'\"]+)")
_CONSTRAINTS = "constraints.txt"


def render_deployment(name: str, *, source: bool = False) -> dict[str, str]:
    """Return the files of ``deploy/``, text by name.

    Args:
        name: what the deployment and its image are called: lower-case letters, digits and dashes.
        source: the image is built from a checkout of this project, with its lock, instead of from the published package.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(__name__),
        autoescape=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    values = {"name": name, "source": source, "version": __version__, "dagster": metadata.version("dagster")}
    values["constraints"] = [] if source else installed_versions()
    templates = [name for name in environment.list_templates() if not (source and name == _CONSTRAINTS)]
    return {template: environment.get_template(template).render(values) for template in templates}


def installed_versions() -> list[str]:
    """Return ``name==version`` of this package and its dependencies, extras included, as installed here."""
    found: dict[str, str] = {}
    waiting = [(_PACKAGE, _EXTRAS)]
    seen = set[tuple[str, frozenset[str]]]()
    while waiting:
        name, extras = waiting.pop()
        name = re.sub(r"[-_.]+", "-", name).lower()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        found[name] = distribution.version
        for line in distribution.requires or ():
            needed, extra = _REQUIREMENT.match(line), _OF_EXTRA.search(line)
            # Other markers are ignored: an unneeded constraint does no harm.
            if needed and (extra is None or extra[1] in extras):
                waiting.append((needed[1], frozenset((needed[2] or "").replace(" ", "").split(","))))
    return [f"{name}=={version}" for name, version in sorted(found.items())]
