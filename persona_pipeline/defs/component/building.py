"""Everything Dagster knows of one world, under the names of its place: the project itself is one, a component is another."""

import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import dagster as dg

# Partitioned asset checks are a preview in Dagster 1.13; the tests hold what we use of them.
warnings.filterwarnings("ignore", category=dg.PreviewWarning)
warnings.filterwarnings("ignore", category=dg.BetaWarning)

from persona_pipeline.defs.agents.definitions import build_agents  # noqa: E402
from persona_pipeline.defs.batches import build_batches  # noqa: E402
from persona_pipeline.defs.changes.definitions import build_changes  # noqa: E402
from persona_pipeline.defs.changes.messages import build_message_rows  # noqa: E402
from persona_pipeline.defs.cohort.definitions import build_cohort  # noqa: E402
from persona_pipeline.defs.corrections import build_corrections  # noqa: E402
from persona_pipeline.defs.platform.place import Place  # noqa: E402
from persona_pipeline.defs.platform.resources import build_platform  # noqa: E402
from persona_pipeline.defs.platform.run_tags import runs_of  # noqa: E402
from persona_pipeline.defs.suites.definitions import build_suites  # noqa: E402
from persona_pipeline.defs.upkeep.definitions import build_upkeep  # noqa: E402


@dataclass(frozen=True)
class Upstream:
    """Where a world's messages come from: an asset.

    Attributes:
        columns: what its rows call it, by field of a message; None: it returns nothing and writes to the store itself.
    """

    asset: dg.AssetKey
    columns: Mapping[str, str] | None = None


def build_world(place: Place, *, messages: Upstream | None = None, leave_out: Collection[str] = ()) -> dg.Definitions:
    """Return the assets, checks, jobs, sensors, schedules and resources of a world.

    Args:
        messages: where they come from, if from an asset.
        leave_out: ``sensors``, ``schedules``, ``suites``, ``corrections``, ``batches``.
    """
    parts: list[dg.Definitions] = []
    messages_from: list[dg.AssetKey] = []
    if messages and messages.columns is not None:
        parts.append(build_message_rows(place, messages.asset, messages.columns))
        messages_from = [place.key("message_rows")]
    elif messages:
        messages_from = [messages.asset]
    agents = build_agents(place, messages_from)
    cohort = build_cohort(agents.specs)
    parts += [agents.definitions, cohort.definitions, build_changes(agents, cohort.evaluate_cohort)]
    if "suites" not in leave_out:
        parts.append(build_suites(place))
    if "corrections" not in leave_out:
        parts.append(build_corrections(place))
    if "batches" not in leave_out:
        parts.append(build_batches(place))
    others = dg.Definitions.merge(*parts)
    upkeep = build_upkeep(agents.specs, lambda run: not place.prefix or of_this_world(run))
    of_this_world = runs_of(dg.Definitions.merge(others, upkeep))
    built = dg.Definitions.merge(others, upkeep, build_platform(place))
    return dg.Definitions(
        assets=built.assets,
        asset_checks=built.asset_checks,
        jobs=built.jobs,
        sensors=None if "sensors" in leave_out else built.sensors,
        schedules=None if "schedules" in leave_out else built.schedules,
        resources=built.resources,
    )
