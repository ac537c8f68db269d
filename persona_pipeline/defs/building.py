"""Everything Dagster knows of one world, under the names of its place: the project itself is one, a component is another."""

import warnings
from collections.abc import Collection, Sequence

import dagster as dg

# Partitioned asset checks are a preview in Dagster 1.13; the tests hold what we use of them.
warnings.filterwarnings("ignore", category=dg.PreviewWarning)
warnings.filterwarnings("ignore", category=dg.BetaWarning)

from persona_pipeline.defs.agents.definitions import build_agents  # noqa: E402
from persona_pipeline.defs.batches.definitions import build_batches  # noqa: E402
from persona_pipeline.defs.changes.definitions import build_changes  # noqa: E402
from persona_pipeline.defs.cohort.definitions import build_cohort  # noqa: E402
from persona_pipeline.defs.corrections.definitions import build_corrections  # noqa: E402
from persona_pipeline.defs.platform.definitions import build_platform  # noqa: E402
from persona_pipeline.defs.platform.place import Place  # noqa: E402
from persona_pipeline.defs.platform.run_tags import runs_of  # noqa: E402
from persona_pipeline.defs.suites.definitions import build_suites  # noqa: E402
from persona_pipeline.defs.upkeep.definitions import build_upkeep  # noqa: E402


def build_world(
    place: Place, *, messages_from: Sequence[dg.AssetKey] = (), without: Collection[str] = ()
) -> dg.Definitions:
    """Return the assets, checks, jobs, sensors, schedules and resources of a world.

    Args:
        messages_from: assets its messages come from, where they come from any.
        without: what is left out: ``sensors``, ``schedules``, ``suites``, ``corrections``, ``batches``.
    """
    agents = build_agents(place, messages_from)
    cohort = build_cohort(agents.specs)
    parts = [agents.definitions, cohort.definitions, build_changes(agents, cohort.evaluate_cohort)]
    if "suites" not in without:
        parts.append(build_suites(place))
    if "corrections" not in without:
        parts.append(build_corrections(place))
    if "batches" not in without:
        parts.append(build_batches(place))
    others = dg.Definitions.merge(*parts)
    upkeep = build_upkeep(agents.specs, (lambda _: True) if not place.prefix else runs_of(others))
    built = dg.Definitions.merge(others, upkeep, build_platform(place))
    return dg.Definitions(
        assets=built.assets,
        asset_checks=built.asset_checks,
        jobs=built.jobs,
        sensors=None if "sensors" in without else built.sensors,
        schedules=None if "schedules" in without else built.schedules,
        resources=built.resources,
    )
