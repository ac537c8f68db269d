"""What ``dg scaffold defs persona_pipeline.PersonaWorld NAME`` writes: a small world and the YAML that puts it into the project."""

import re
from typing import Any

import dagster as dg
from dagster.components import scaffold_component

from persona_pipeline.world.world import template_world, write_new

WORLD = "world"
# The instance's settings are the project's; what a shell would do for the world stands in the README.
_LEFT_OUT = ("dagster.yaml",)


class PersonaWorldScaffolder(dg.Scaffolder):
    """Writes a world of two agents beside ``defs.yaml``."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        """Write the files.

        Raises:
            ConfigError: a file of the world is in the way.
        """
        world = request.target_path / WORLD
        write_new(world, {path: text for path, text in template_world().items() if path not in _LEFT_OUT})
        prefix = re.sub(r"[^A-Za-z0-9_]+", "_", request.target_path.name)
        scaffold_component(request, {"world": WORLD, "prefix": prefix})
