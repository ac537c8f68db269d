"""A world in somebody's own Dagster project, as a component."""

from pathlib import Path
from typing import Annotated, Literal

import dagster as dg
from pydantic import Field

from persona_pipeline.defs.component.building import Upstream, build_world
from persona_pipeline.defs.component.scaffolding import PersonaWorldScaffolder
from persona_pipeline.defs.component.world_settings import WorldSettings, world_settings
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.errors import ConfigError

Part = Literal["sensors", "schedules", "suites", "corrections", "batches"]


class MessagesFrom(dg.Model, dg.Resolvable):
    """An asset of the project that a world's messages come from."""

    asset: Annotated[str, Field(description="Its key, with / between parts.")]
    returns: Annotated[
        Literal["rows", "nothing"],
        Field(
            description="'rows': a frame or a list of records, a message each, which are brought into the store. 'nothing': it "
            "writes messages to the store, or files to the world's folder messages/, itself."
        ),
    ] = "rows"
    columns: Annotated[
        dict[str, str],
        Field(
            description="What the rows call a field of a message, where they call it something else. Fields: id, agent_id, "
            "channel, recipient, text, created_at, run_id."
        ),
    ] = {}


@dg.scaffold_with(PersonaWorldScaffolder)
class PersonaWorld(dg.Component, dg.Model, dg.Resolvable):
    """Continuous evaluation of the personas in a folder: assets, checks, jobs, sensors and schedules under names of their own.

    Several can stand in one project, each with its own store and settings. To change how assets look, derive from it and override
    ``get_asset_spec``.

    .. code-block:: yaml

        type: persona_pipeline.PersonaWorld
        attributes:
          world: world
          prefix: office
          messages:
            asset: chat_logs
            columns: {agent_id: speaker, text: body, created_at: sent_at}
          leave_out: [batches]
          settings:
            judge: anthropic
            daily_usd: 5
            automation: true
    """

    world: Annotated[
        str,
        Field(description="Folder of the world: personas/, propositions/ and so on; from the folder of this file on."),
    ]
    prefix: Annotated[
        str,
        Field(
            min_length=1,
            description="What its asset keys begin with (office/evaluation_runs), and with two underscores its jobs, sensors, "
            "schedules, resources and pools (office__evaluate_agent).",
        ),
    ]
    messages: Annotated[
        MessagesFrom | None,
        Field(description="An asset its messages come from; without, the world's folder messages/."),
    ] = None
    leave_out: Annotated[list[Part], Field(description="What it is to be without.")] = []
    settings: Annotated[
        WorldSettings,
        Field(
            description="Its settings: those of the environment without PERSONA_, in small letters. What is not said is as the "
            "environment says, but for database_url, state and reports, which are each world's own."
        ),
    ] = WorldSettings()

    def get_asset_spec(self, spec: dg.AssetSpec) -> dg.AssetSpec:
        """Return how an asset is shown: to be overridden. Group, owners, tags, kinds, metadata and description may change."""
        return spec

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return everything Dagster knows of the world.

        Raises:
            ConfigError: there is no world in the folder, or a setting cannot be.
        """
        place = self.place(context.path if context.path.is_dir() else context.path.parent)
        messages = self.messages and Upstream(
            dg.AssetKey.from_user_string(self.messages.asset),
            self.messages.columns if self.messages.returns == "rows" else None,
        )
        built = build_world(place, messages=messages, leave_out=self.leave_out)
        if type(self).get_asset_spec is PersonaWorld.get_asset_spec:
            return built
        return built.map_asset_specs(func=self._shown)

    def place(self, folder: Path) -> Place:
        """Return where the world stands; ``folder``: from where its own is named.

        Raises:
            ConfigError: there is no world, or a setting cannot be.
        """
        root = (folder / Path(self.world).expanduser()).resolve()
        if not (root / "personas").is_dir():
            raise ConfigError(f"world: {root} is no world: it has no personas folder; dg scaffold defs writes one")
        return Place(tuple(self.prefix.split("/")), **world_settings(root, self.settings.model_dump(exclude_none=True)))

    def _shown(self, spec: dg.AssetSpec) -> dg.AssetSpec:
        shown = self.get_asset_spec(spec)
        kept = ("key", "deps", "partitions_def", "code_version", "skippable")
        if changed := [name for name in kept if getattr(shown, name) != getattr(spec, name)]:
            raise ConfigError(
                f"get_asset_spec changed {changed[0]} of {spec.key.to_user_string()}; what runs rests on it, so it has to stay"
            )
        return shown
