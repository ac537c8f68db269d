"""When an agent was evaluated too long ago: a check per agent, as Dagster's own freshness is of a whole asset."""

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime, timedelta

import dagster as dg

from persona_pipeline.defs import metadata
from persona_pipeline.defs.agents.specs import Specs
from persona_pipeline.defs.platform.assets import evaluated
from persona_pipeline.defs.platform.dagster_internals import MATERIALIZED, newest_events

RECENTLY = "evaluated_recently"
WARN, ERROR = dg.AssetCheckSeverity.WARN.value, dg.AssetCheckSeverity.ERROR.value


def build_check(specs: Specs) -> dg.AssetCheckSpec:
    """Return the check of every agent's verdict."""
    return dg.AssetCheckSpec(
        RECENTLY,
        asset=specs.verdicts.key,
        partitions_def=specs.agents,
        description="The agent was evaluated in the last PERSONA_FRESH_HOURS, or in twice as many where it is an error.",
    )


def overdue(specs: Specs, instance: dg.DagsterInstance, now: datetime | None = None) -> dict[str, str]:
    """Return the severity of each agent whose newest verdict is too old; agents without any are left out."""
    hours = timedelta(hours=specs.place.orchestration.fresh_hours)
    newest = newest_events(instance, specs.verdicts.key, MATERIALIZED) if hours else {}
    found: dict[str, str] = {}
    for age, severity in ((hours, WARN), (2 * hours, ERROR)) if newest else ():
        after = ((now or datetime.now(UTC)) - age).timestamp()
        asked = dg.AssetRecordsFilter(asset_key=specs.verdicts.key, after_timestamp=after)
        # The first event that is young enough: earlier events are too old.
        recent = instance.fetch_materializations(asked, limit=1, ascending=True).records
        first = recent[0].storage_id if recent else max(newest.values()) + 1
        found |= {agent_id: severity for agent_id, event in newest.items() if event < first}
    return found


def freshness_evaluations(
    specs: Specs, agent_ids: Collection[str], late: Mapping[str, str]
) -> Iterator[dg.AssetCheckEvaluation]:
    """Yield the check's result for each agent. ``late``: the severity of each overdue agent."""
    hours = specs.place.orchestration.fresh_hours
    for agent_id in agent_ids:
        severity = late.get(agent_id)
        age = hours * (2 if severity == ERROR else 1)
        wrong = [f"Last evaluated more than {age:g} hours ago."] if severity else []
        said = metadata.check_result(RECENTLY, wrong, {}, severity=dg.AssetCheckSeverity(severity or WARN))
        yield evaluated(specs.verdicts.key, agent_id, said)


def report_freshness(
    specs: Specs, instance: dg.DagsterInstance, agent_ids: Collection[str], late: Mapping[str, str]
) -> None:
    """Set the check's result in the run of each agent's newest verdict.

    Dagster keeps one result of a check of a partition without a run and refuses a second one.
    """
    for evaluation in freshness_evaluations(specs, agent_ids, late):
        event = dg.DagsterEvent(
            event_type_value=dg.DagsterEventType.ASSET_CHECK_EVALUATION.value,
            job_name="evaluate_agent",
            event_specific_data=evaluation,
        )
        asked = dg.AssetRecordsFilter(asset_key=specs.verdicts.key, asset_partitions=[evaluation.partition or ""])
        for record in instance.fetch_materializations(asked, limit=1).records:
            if record.run_id:
                instance.report_dagster_event(event, record.run_id)
