"""Compose and Kubernetes files of a deployment, rendered from the templates in this folder."""

import re
from importlib import metadata

from persona_pipeline.version import __version__

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
    """Return ``name==version`` of every package that is installed here; an unneeded constraint does no harm."""
    found = {re.sub(r"[-_.]+", "-", item.name).lower(): item.version for item in metadata.distributions()}
    return [f"{name}=={version}" for name, version in sorted(found.items())]
