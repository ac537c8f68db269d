"""A world in a Dagster project: this project, a component of a user's project, or checks on a user's asset."""

import re
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional, get_args

import dagster as dg
from dagster.components import scaffold_component
from pydantic import Field, SecretStr, ValidationError, create_model, model_validator
from pydantic.fields import FieldInfo

from persona_pipeline.base.errors import ConfigError, Problem, did_you_mean, not_valid
from persona_pipeline.base.options import EvaluationRequest, given, option_fields, with_options
from persona_pipeline.base.settings import Settings
from persona_pipeline.defs import metadata
from persona_pipeline.defs.agents.evaluation import build_evaluation
from persona_pipeline.defs.agents.specs import build_specs
from persona_pipeline.defs.agents.verdicts import AgentVerdict, agent_line
from persona_pipeline.defs.batches import build_batches
from persona_pipeline.defs.changes import MOST_LEFT_OUT, build_changes, build_message_files, build_voices
from persona_pipeline.defs.cohort import build_cohort, build_weekly_scores
from persona_pipeline.defs.platform.dagster_internals import (
    MATERIALIZED,
    newest_events,
    upstream_asset,
    upstream_values,
)
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.resources import (
    NOT_OF_ASSETS,
    build_platform,
    known_agents,
    known_failures,
    opened_judge,
    opened_world,
)
from persona_pipeline.defs.platform.settings import OrchestrationSettings
from persona_pipeline.defs.suites import build_suites, suites_of
from persona_pipeline.defs.upkeep import build_corrections, build_upkeep
from persona_pipeline.evaluation.run import run_evaluation
from persona_pipeline.guard.gate import counted
from persona_pipeline.guard.report import AgentReport
from persona_pipeline.world.messages.mirroring import SyncResult
from persona_pipeline.world.world import bring_rows, template_world, write_new

# Partitioned asset checks are a preview in Dagster 1.13; the tests cover the parts in use.
warnings.filterwarnings("ignore", category=dg.PreviewWarning)
warnings.filterwarnings("ignore", category=dg.BetaWarning)


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


def build_message_rows(place: Place, upstream: dg.AssetKey, columns: Mapping[str, str]) -> dg.Definitions:
    """Return the asset that writes the rows of another asset into the store, and the sensor that requests it.

    The IO manager of the other asset loads the rows, a partition at a time, and only partitions materialized since the last look.
    """

    @place.asset(
        "message_rows",
        "world",
        deps=[upstream],
        kinds={"sql"},
        # No resource registers agents here: the sensor of changes finds new agents by their missing partition.
        uses=(),
        # Not eager(): that waits until no partition of the other asset is missing.
        automation_condition=dg.AutomationCondition.any_deps_updated() & ~dg.AutomationCondition.in_progress(),
        description=f"The rows of `{upstream.to_user_string()}` as messages in the store, by id: they are added or updated, never "
        "removed. What is no message is left out and named in the log.",
    )
    def message_rows(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        partitions, read_to = _unread(context, upstream)
        total = SyncResult()
        failed: list[str] = []
        with (
            known_failures(),
            opened_world(place) as world,
            upstream_values(context, upstream) as loader,
        ):
            for partition in partitions:
                try:
                    rows = loader.load_asset_value(upstream, partition_key=partition)
                # A user's IO manager may raise anything: the other partitions are read.
                except Exception as error:
                    failed.append(f"partition {partition} cannot be loaded: {type(error).__name__}: {error}")
                    continue
                total.add(bring_rows(world, rows, source=upstream.to_user_string(), columns=columns))
        for problem in total.problems[:MOST_LEFT_OUT]:
            context.log.warning(f"left out: {problem}")
        if failed:
            # The next run reads everything since the last one that succeeded.
            raise dg.Failure("\n".join(failed), allow_retries=False)
        return dg.MaterializeResult(
            metadata={
                "added": total.written.inserted,
                "changed": total.written.updated,
                "unchanged": total.written.unchanged,
                "left_out": len(total.problems) + total.unnamed,
                "speakers": ", ".join(sorted(total.speakers)) or "nobody",
                "partitions": len(partitions),
                _READ_TO: read_to,
            }
        )

    follow = dg.AutomationConditionSensorDefinition(
        name=place.name("message_rows"),
        target=dg.AssetSelection.assets(message_rows),
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=place.orchestration.sensor_seconds,
        description=f"Brings messages into the store when {upstream.to_user_string()} was materialized. Judges nothing.",
    )
    return dg.Definitions(assets=[message_rows], sensors=[follow])


_READ_TO = "read_to_event"


def _unread(context: dg.AssetExecutionContext, upstream: dg.AssetKey) -> tuple[list[str | None], int]:
    """Return the partitions materialized since the last run that succeeded, and the newest event.

    An asset without partitions is one that is always read: None.
    """
    newest = newest_events(context.instance, upstream, MATERIALIZED)
    if not newest:
        return [] if upstream_asset(context, upstream).is_partitioned else [None], 0
    last = context.instance.get_latest_materialization_event(context.asset_key)
    known = last.asset_materialization.metadata if last and last.asset_materialization else {}
    read_to = known[_READ_TO].value if _READ_TO in known else None
    top = max(newest.values())
    # A new event log counts from one.
    if not isinstance(read_to, int) or read_to > top:
        read_to = 0
    return [it for it, event in sorted(newest.items()) if event > read_to], top


def build_world(
    place: Place, *, messages: MessagesFrom | None = None, leave_out: Collection[str] = ()
) -> dg.Definitions:
    """Return the assets, checks, jobs, sensors, schedules and resources of a world.

    ``messages``: where they come from, if from an asset. ``leave_out``: ``sensors``, ``schedules``, ``suites``, ``corrections``,
    ``batches``, ``weeks``.
    """
    parts: list[dg.Definitions] = []
    if messages and messages.returns == "rows":
        parts.append(build_message_rows(place, dg.AssetKey.from_user_string(messages.asset), messages.columns))
    specs = build_specs(place, weekly="weeks" not in leave_out)
    agents = dg.Definitions(
        [build_evaluation(specs), build_voices(specs), build_message_files(place), *build_weekly_scores(specs)]
    )
    parts += [agents, build_cohort(specs), build_upkeep(place), build_platform(place)]
    if "corrections" not in leave_out:
        parts.append(build_corrections(place))
    if "batches" not in leave_out:
        parts.append(build_batches(place))
    taken = {key.path[-1] for key in dg.Definitions.merge(*parts).resolve_all_asset_keys()}
    suites = [] if "suites" in leave_out else suites_of(place, place.environment.world_root, taken)
    if "suites" not in leave_out:
        parts.append(build_suites(place, suites, taken))
    built = dg.Definitions.merge(*parts, build_changes(specs, suites))
    return dg.Definitions(
        assets=built.assets,
        asset_checks=built.asset_checks,
        jobs=built.jobs,
        sensors=None if "sensors" in leave_out else built.sensors,
        schedules=None if "schedules" in leave_out else built.schedules,
        resources=built.resources,
    )


# What belongs to one world alone: a world with a folder of its own does not take the environment's.
OF_ONE_WORLD: dict[str, Any] = {"database_url": None, "state": None, "reports": ""}
_JUDGING = {name: field for name, field in Settings.model_fields.items() if name != "root"}
_RUNNING = OrchestrationSettings.model_fields
# Whom and which moment an evaluation is about, a run says.
_OF_A_RUN = ("as_of", "since", "record", "fresh")
_ASKED = option_fields(without=(*NOT_OF_ASSETS, *_OF_A_RUN, *_JUDGING, *_RUNNING))
NAMES = tuple(sorted({*_JUDGING, *_RUNNING, *_ASKED}))


def _written(field: FieldInfo) -> Any:
    """Return the type of a setting as YAML has it, or None."""
    kinds = [kind for kind in get_args(field.annotation) or (field.annotation,) if kind is not type(None)]
    if any(kind in (SecretStr, Path, date) for kind in kinds):
        return str | None
    return Optional[field.annotation]  # noqa: UP045


class WorldSettings(dg.Model, dg.Resolvable):
    """Settings of a world: those of the environment without ``PERSONA_``, in small letters."""

    @model_validator(mode="before")
    @classmethod
    def _blank_is_unset(cls, values: Any) -> Any:
        # An empty environment variable, as {{ env.X }} has it.
        return {name: value for name, value in values.items() if value != ""}


if not TYPE_CHECKING:
    # With a field a setting: a misspelt one is found with its line by ``dg check yaml``.
    _FIELDS = {name: (_written(field), None) for name, field in sorted({**_JUDGING, **_RUNNING}.items())}
    WorldSettings = create_model("WorldSettings", __base__=WorldSettings, __module__=__name__, **_FIELDS)
    WorldSettings = with_options(WorldSettings, _ASKED)


def world_settings(root: Path | None, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the world in a folder, as a ``Place`` has them; None: the environment's folder.

    ``values``: settings by name; the others are as the environment says, but for those of ``OF_ONE_WORLD`` in a folder of its own.
    Raises ``ConfigError``: a setting is unknown or has a value it cannot have; all such are named.
    """
    unknown = [name for name in values if name not in NAMES]
    if unknown:
        raise ConfigError(
            [
                Problem(
                    f"settings: there is no {name!r}{did_you_mean(name, NAMES)}; docs/reference/command-line.md has them"
                )
                for name in unknown
            ]
        )
    judging = {name: value for name, value in values.items() if name in _JUDGING}
    asked = given({name: value for name, value in values.items() if name in _ASKED})
    running = {name: value for name, value in values.items() if name in _RUNNING}
    try:
        settings = Settings(**({"root": root, **OF_ONE_WORLD} if root else {}) | judging)
        return {
            "settings": settings,
            "orchestration_settings": OrchestrationSettings(**running),
            "options": EvaluationRequest(**asked).model_dump(exclude_unset=True),
        }
    except ValidationError as error:
        raise not_valid(error, "settings: {name} is {value!r}: {why}") from None


WORLD = "world"
# The instance's settings belong to the project.
_LEFT_OUT = ("dagster.yaml",)


class PersonaWorldScaffolder(dg.Scaffolder):
    """Writes ``defs.yaml`` and a world of two agents."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        """Write the files; ConfigError: a file of the world is in the way."""
        world = request.target_path / WORLD
        write_new(world, {path: text for path, text in template_world().items() if path not in _LEFT_OUT})
        prefix = re.sub(r"[^A-Za-z0-9_]+", "_", request.target_path.name)
        scaffold_component(request, {"world": WORLD, "prefix": prefix})


Part = Literal["sensors", "schedules", "suites", "corrections", "batches", "weeks"]


@dg.scaffold_with(PersonaWorldScaffolder)
class PersonaWorld(dg.Component, dg.Model, dg.Resolvable):
    """Continuous evaluation of the personas in a folder: assets, checks, jobs, sensors and schedules under a prefix.

    A project can have several, each with its own store and settings. To change how assets look, override ``get_asset_spec`` in a
    subclass.

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
        str | None,
        Field(
            description="Folder of the world: personas/, propositions/ and so on; from the folder of this file on. Without, "
            "the environment's world: PERSONA_ROOT, PERSONA_DATABASE_URL and so on."
        ),
    ] = None
    prefix: Annotated[
        str,
        Field(
            description="What its asset keys begin with (office/verdicts), and with two underscores its jobs, sensors, "
            "schedules, resources and pools (office__evaluate_agent). Without, they have their plain names.",
        ),
    ] = ""
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
        """Return the definitions of the world.

        Raises:
            ConfigError: the folder has no world, or a setting is not valid.
        """
        place = self.place(context.path if context.path.is_dir() else context.path.parent)
        built = build_world(place, messages=self.messages, leave_out=self.leave_out)
        if type(self).get_asset_spec is PersonaWorld.get_asset_spec:
            return built
        return built.map_asset_specs(func=self._shown)

    def place(self, folder: Path) -> Place:
        """Return the place of the world; its folder is relative to ``folder``.

        Raises:
            ConfigError: the folder has no world, or a setting is not valid.
        """
        prefix, said = tuple(self.prefix.split("/")) if self.prefix else (), self.settings.model_dump(exclude_none=True)
        if self.world is None:
            return Place(prefix, **world_settings(None, said) if said else {})
        root = (folder / Path(self.world).expanduser()).resolve()
        if not (root / "personas").is_dir():
            raise ConfigError(f"world: {root} is no world: it has no personas folder; dg scaffold defs writes one")
        return Place(prefix, **world_settings(root, said))

    def _shown(self, spec: dg.AssetSpec) -> dg.AssetSpec:
        shown = self.get_asset_spec(spec)
        kept = ("key", "deps", "partitions_def", "code_version", "skippable")
        if changed := [name for name in kept if getattr(shown, name) != getattr(spec, name)]:
            raise ConfigError(
                f"get_asset_spec changed {changed[0]} of {spec.key.to_user_string()}; what runs rests on it, so it has to stay"
            )
        return shown


def build_persona_checks(
    *,
    asset: str | Sequence[str] | dg.AssetKey | dg.AssetsDefinition,
    world: str | Path,
    agents: Sequence[str] | None = None,
    returns: Literal["rows", "nothing"] = "rows",
    columns: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
    blocking: bool = False,
) -> dg.AssetChecksDefinition:
    """Return a check for each agent, ``persona_<agent>``, on an asset: it fails if the agent regressed or was not judged in full.

    Args:
        asset: the asset, or its key.
        world: folder of the world whose personas, claims, baselines and recordings count.
        agents: the agents to check; None: all with a persona file now.
        returns: ``rows``: the asset is a frame or a list of records, a message each, which are first brought into the world's
            store; ``nothing``: it writes them there itself, or to the world's ``messages`` folder.
        columns: what the rows call a field of a message, where they call it something else.
        settings: the world's, as of the component: ``judge``, ``window``, ``max_usd``, ``database_url`` and so on.
        blocking: downstream assets wait for the check and do not run if it fails.

    Raises:
        ConfigError: the folder has no world, an agent has no persona file, or a setting is not valid.
    """
    root = Path(world).expanduser().resolve()
    if not (root / "personas").is_dir():
        raise ConfigError(f"{root} is no world: it has no personas folder; run persona-pipeline init")
    known = known_agents(root)
    chosen = list(known if agents is None else agents)
    if wrong := [name for name in chosen if name not in known]:
        raise ConfigError(f"{wrong[0]!r} has no persona file in {root}{did_you_mean(wrong[0], known)}")
    place = Place((), **world_settings(root, settings or {}))
    key = asset.key if isinstance(asset, dg.AssetsDefinition) else dg.AssetKey.from_coercible(asset)
    names = {_check_name(agent_id): agent_id for agent_id in chosen}
    if alike := set(chosen) - set(names.values()):
        raise ConfigError(f"the check of {min(alike)!r} has the name of another agent's; check them apart")

    def evaluate(asked: Sequence[str], rows: Any) -> Mapping[str, tuple[AgentVerdict, AgentReport]]:
        with opened_world(place) as opened:
            if returns == "rows":
                bring_rows(opened, rows, source=key.to_user_string(), columns=columns)
            request = opened.settled(EvaluationRequest(**{**place.asked, "agents": asked}))
            found = run_evaluation(opened, opened_judge(opened, request), request).report.agents
            return {name: (agent_line(report, counted(request)), report) for name, report in found.items()}

    @dg.multi_asset_check(
        name=f"persona_checks_of_{key.to_python_identifier()}",
        specs=[
            dg.AssetCheckSpec(
                name,
                asset=key,
                blocking=blocking,
                description=f"{agent_id} still sounds like itself: nothing dropped below its baseline, and everything was judged.",
            )
            for name, agent_id in names.items()
        ],
        can_subset=True,
        ins={"rows": dg.AssetIn(key)} if returns == "rows" else None,
    )
    def checks(context: dg.AssetCheckExecutionContext, **inputs: Any) -> Iterator[dg.AssetCheckResult]:
        asked = [names[check.name] for check in context.selected_asset_check_keys]
        with known_failures():
            reports = evaluate(sorted(asked), inputs.get("rows"))
        for agent_id in asked:
            yield _result(key, *reports[agent_id])

    return checks


def _check_name(agent_id: str) -> str:
    return f"persona_{re.sub(r'[^A-Za-z0-9_]', '_', agent_id)}"


def _result(key: dg.AssetKey, line: AgentVerdict, report: AgentReport) -> dg.AssetCheckResult:
    shown = {"comparison": metadata.comparison_table(report.comparison)}
    facts = metadata.conclusion_metadata(report.conclusion) | shown
    return metadata.check_result(_check_name(report.evaluation.agent_id), line.wrong, facts, asset_key=key)
