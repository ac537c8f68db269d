"""Time as a dimension: agents' scores week by week, so that history is a backfill and a trend one of Dagster's own plots."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta

import dagster as dg

from persona_pipeline.base.database.engine import Store, chunks
from persona_pipeline.base.documents.json import content_hash
from persona_pipeline.base.status import NOTHING
from persona_pipeline.defs import metadata
from persona_pipeline.defs.agents import outcomes
from persona_pipeline.defs.agents.evaluation import evaluated_or_retried
from persona_pipeline.defs.agents.specs import AGENT, WEEK, Specs, Weeks
from persona_pipeline.defs.agents.verdicts import AgentVerdict, agent_lines, failure_of
from persona_pipeline.defs.platform import run_tags
from persona_pipeline.defs.platform.assets import AssetOutcome
from persona_pipeline.defs.platform.dagster_internals import (
    DATA_VERSION,
    OBSERVED,
    lineage_tags,
    newest_events,
    newest_versions,
    partition_tags,
)
from persona_pipeline.defs.platform.place import EVALUATION, WORLD
from persona_pipeline.defs.platform.resources import evaluation_of, known_failures, world_of
from persona_pipeline.evaluation.changes import MessageVersion
from persona_pipeline.evaluation.run import Run
from persona_pipeline.guard.report import AgentReport
from persona_pipeline.world.messages.revision import aged_out_before, day_revisions

_MOMENT, _WEEK, _LENGTH = timedelta(microseconds=1), timedelta(days=7), "7d"
# Agents whose weeks are looked at together.
_AT_ONCE = 100


def week_versions(store: Store, agent_ids: Sequence[str], weeks: Collection[date]) -> dict[tuple[str, date], str]:
    """Return versions of agents' messages in weeks, and in the week before each, with which consistency compares.

    ``weeks``: the first day of each, in UTC.
    """
    days, found = [timedelta(day) for day in range(-_WEEK.days, _WEEK.days)], dict[tuple[str, date], str]()
    changed = day_revisions(store, agent_ids, min(weeks) + days[0], max(weeks) + days[-1])
    for about in ((agent_id, week) for agent_id in agent_ids for week in weeks):
        found[about] = str(MessageVersion(sum(changed.get((about[0], about[1] + day), 0) for day in days)))
    return found


def _is_other(before: str, now: str) -> bool:
    """Return whether the messages of a week changed. A version of release 0.2 is of before all changes that are counted."""
    return before != now and (MessageVersion.parse(before) is not None or now != str(MessageVersion(0)))


def week_observations(
    weeks: Weeks, instance: dg.DagsterInstance, store: Store, agent_ids: Sequence[str]
) -> Iterator[dg.AssetObservation]:
    """Yield the weeks that agents were evaluated in on other messages than there are now, so that these show as out of date."""
    with store.connect() as connection:
        aged = aged_out_before(connection)
    # Weeks that were evaluated before messages aged out stay unchanged.
    over = [week for week in weeks.over if aged is None or week - _WEEK >= aged.date()]
    for some in chunks(agent_ids, _AT_ONCE):
        keys = {weeks.key(agent_id, week): (agent_id, week) for agent_id in some for week in over}
        seen = newest_versions(instance, weeks.messages.key, OBSERVED, list(keys)) if keys else {}
        now = week_versions(store, some, over) if seen else {}
        for key, about in keys.items():
            if key in seen and _is_other(seen[key], now[about]):
                yield _observation(weeks, key, now[about])


def _observation(weeks: Weeks, key: dg.MultiPartitionKey, version: str) -> dg.AssetObservation:
    return dg.AssetObservation(weeks.messages.key, partition=key, tags={DATA_VERSION: version, **partition_tags(key)})


def window_end(week: date, newest: datetime | None) -> datetime | None:
    """Return the end of a week's window: of the week, or the ``newest`` message; None: no message since the week began.

    A window that ends after the newest message would be newer than every evaluation until the next message.
    """
    start = datetime.combine(week, time.min, UTC)
    if newest is None or newest < start:
        return None
    # The last moment of a window is in it, the one it begins after is not.
    return min(newest, start + _WEEK - _MOMENT)


def week_outcome(report: AgentReport | None) -> AssetOutcome:
    """Return an agent's scores in a week, as numbers that Dagster plots. ``report`` None: there were no messages."""
    if report is None:
        return AssetOutcome(content_hash([]), {"messages": 0, "verdict": NOTHING.word})
    found = outcomes.run_outcome(report.evaluation)
    facts = {
        # Every number is a plot: the costs would come before the scores.
        **{name: fact for name, fact in found.metadata.items() if not name.startswith("judge/")},
        **metadata.conclusion_metadata(report.conclusion),
        "regressions": len(report.comparison.regressions),
        "proposition_drops": len(report.comparison.drops),
        "findings": len(report.findings),
    }
    return AssetOutcome(found.version, facts)


def events_of_week(
    weeks: Weeks, instance: dg.DagsterInstance, found: Mapping[dg.MultiPartitionKey, tuple[str, AssetOutcome]]
) -> Iterator[dg.AssetObservation | dg.AssetMaterialization]:
    """Yield the version of the messages that was evaluated for each partition, then the results, which depend on it."""
    for key, (version, _) in found.items():
        yield _observation(weeks, key, version)
    seen = newest_events(instance, weeks.messages.key, OBSERVED, set(found))
    for key, (version, outcome) in found.items():
        tags = lineage_tags(outcome.version, None, {weeks.messages.key: (version, seen.get(key))})
        yield dg.AssetMaterialization(
            weeks.scores.key, partition=key, metadata=outcome.metadata, tags={**tags, **partition_tags(key)}
        )


def build_weekly_scores(specs: Specs) -> list[dg.AssetSpec | dg.AssetsDefinition]:
    """Return the messages of weeks and the step that evaluates them; nothing if the settings have no first week."""
    place, weeks = specs.place, specs.weeks
    if weeks is None:
        return []

    @dg.multi_asset(
        name=place.name("evaluate_weeks"),
        specs=[weeks.scores],
        partitions_def=weeks.partitions,
        pool=place.judge_pool,
        required_resource_keys=place.names([WORLD, EVALUATION]),
        backfill_policy=dg.BackfillPolicy.single_run(),
        description="Evaluate agents as of the end of weeks, week by week, as any run does. A broken agent stops no other.",
    )
    def evaluate_weeks(context: dg.AssetExecutionContext) -> Iterator[dg.AssetObservation | dg.AssetMaterialization]:
        asked: dict[date, list[str]] = defaultdict(list)
        for key in context.partition_keys:
            about = weeks.partitions.get_partition_key_from_str(key).keys_by_dimension
            asked[date.fromisoformat(about[WEEK])].append(about[AGENT])
        agents = {agent_id for some in asked.values() for agent_id in some}
        whom = " ".join(agents) if len(agents) == 1 else f"{len(agents)} agents"
        when = f"{len(asked)} weeks from {min(asked)} on"
        context.instance.add_run_tags(context.run_id, {run_tags.AGENT: whom, run_tags.WINDOW: when})
        size, broken = place.orchestration.shard_size, dict[str, AgentVerdict]()
        with known_failures():
            opened, evaluation = world_of(place, context), evaluation_of(place, context)
            for problem in opened.sync_messages().problems:
                context.log.warning(f"left out: {problem}")
            for week, some in ((first, part) for first in sorted(asked) for part in chunks(asked[first], size)):
                # Messages that arrive from here on may or may not be evaluated.
                versions = week_versions(opened.store, some, [week])
                result, end = Run(), window_end(week, opened.newest_message_time())
                if end is not None:
                    about = {"as_of": end, "window": _LENGTH, "since": None, "history": 0, "touched": False}
                    request = evaluation.request(opened, some).model_copy(update=about)
                    result = evaluated_or_retried(context, opened, evaluation, request)
                broken |= {line.agent_id: line for line in agent_lines(result) if line.broken}
                found = {a: week_outcome(result.reports.get(a)) for a in some if a not in result.broken}
                made = {weeks.key(a, week): (versions[a, week], outcome) for a, outcome in found.items()}
                yield from events_of_week(weeks, context.instance, made)
        if failure := failure_of(list(broken.values())):
            raise failure

    return [weeks.messages, evaluate_weeks]
