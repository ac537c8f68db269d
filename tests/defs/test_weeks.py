"""Agents' scores by week: history as a backfill, trends as Dagster's own plots."""

from datetime import UTC, date, datetime, timedelta

import dagster as dg
import pytest

from persona_pipeline.defs.cohort import window_end
from persona_pipeline.defs.component import build_world, world_settings
from persona_pipeline.defs.platform.dagster_internals import RANGE
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.settings import OrchestrationSettings
from persona_pipeline.world import World
from tests.defs import support
from tests.defs.support import Project
from tests.defs.test_past import newest
from tests.support.evaluating import latest_runs

EVERYBODY = ("dwight", "jim", "michael", "pam")
WEEKS = ("2026-06-01", "2026-06-08", "2026-06-15")
FIRST = date(2026, 6, 1)


@pytest.fixture
def weekly(sample: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The sample world, whose agents have weeks from its first message on."""
    built = build_world(Place(orchestration_settings=OrchestrationSettings(first_week=FIRST)))
    monkeypatch.setattr(support, "defs", built)
    sample.observe()
    return sample


def backfill(
    project: Project, first: str, last: str, agents: tuple[str, str] = ("dwight", "pam")
) -> dg.ExecuteInProcessResult:
    """Launch weeks of some agents as one run, as a backfill does."""
    tags = {tag: f"{agent}|{week}" for tag, agent, week in zip(RANGE, agents, (first, last), strict=True)}
    return project.run("__ASSET_JOB", tags, ("weekly_scores",))


def made(result: dg.ExecuteInProcessResult) -> dict[str, dict[str, object]]:
    """Return the metadata of the partitions that a run materialized."""
    events = [event.step_materialization_data.materialization for event in result.get_asset_materialization_events()]
    return {event.partition or "": {name: item.value for name, item in event.metadata.items()} for event in events}


def test_history_is_one_run_over_agents_and_weeks(weekly: Project) -> None:
    result = backfill(weekly, WEEKS[0], WEEKS[-1])
    found = made(result)
    assert result.success and set(found) == {f"{a}|{week}" for a in EVERYBODY for week in WEEKS}
    for facts in found.values():
        assert facts["messages"] in (21, 22)
        assert isinstance(facts["overall"], float) and isinstance(facts["score/adherence"], float)
    verdicts = {week: found[f"michael|{week}"]["verdict"] for week in WEEKS}
    assert verdicts[WEEKS[1]] == "in character" and verdicts[WEEKS[2]] == "drifted", "to have drifted is history"


def test_weeks_are_history_and_change_nothing_that_is_newest(weekly: Project) -> None:
    weekly.evaluate("michael")
    world = World.open(weekly.root)
    before, runs = newest(weekly), latest_runs(world.store, "michael")
    assert backfill(weekly, WEEKS[0], WEEKS[1]).success
    assert newest(weekly) == before
    ends = [run.evaluation.window_end for run in latest_runs(world.store, "michael")]
    world.store.close()
    assert ends[-1] == runs[-1].evaluation.window_end and len(ends) == 3, "drawn in the timeline, before the newest"


def test_a_week_in_which_an_agent_is_silent_is_an_answer(weekly: Project) -> None:
    with (weekly.root / "messages/general.jsonl").open("a", encoding="utf-8") as file:
        file.write(
            '{"id": "z", "agent_id": "pam", "channel": "general", "text": "Hm.", "created_at": "2026-06-29T08:00:00Z"}\n'
        )
    result = backfill(weekly, "2026-06-22", "2026-06-22", ("dwight", "michael"))
    assert result.success
    assert set(made(result)) == {f"{agent_id}|2026-06-22" for agent_id in ("dwight", "jim", "michael")}
    said = {(found["messages"], found["verdict"]) for found in made(result).values()}
    assert said == {(0, "cannot be told")}, "an agent with a baseline that falls silent cannot be told"


def test_a_broken_agent_stops_no_other(weekly: Project) -> None:
    (weekly.root / "personas/jim.yaml").write_text("display_name: Jim\npersonna: x\n", encoding="utf-8")
    result = backfill(weekly, WEEKS[0], WEEKS[1])
    assert not result.success
    assert set(made(result)) == {f"{a}|{week}" for a in EVERYBODY if a != "jim" for week in WEEKS[:2]}
    failure = next(event for event in result.all_events if event.is_step_failure).step_failure_data.user_failure_data
    assert failure and (failure.description or "").count("unknown key 'personna'") == 1


@pytest.mark.parametrize(
    "newest, expected",
    [
        (None, None),
        (datetime(2026, 5, 31, 23, 59, tzinfo=UTC), None),
        (datetime(2026, 6, 3, 8, tzinfo=UTC), datetime(2026, 6, 3, 8, tzinfo=UTC)),
        (datetime(2026, 6, 8, tzinfo=UTC), datetime(2026, 6, 8, tzinfo=UTC) - timedelta(microseconds=1)),
    ],
    ids=["no message", "silent since", "it has the newest message", "it is over"],
)
def test_a_week_ends_before_the_next_begins_or_with_the_newest_message(
    newest: datetime | None, expected: datetime | None
) -> None:
    assert window_end(FIRST, newest) == expected


def keys_of(definitions: dg.Definitions) -> set[str]:
    return {spec.key.to_user_string() for spec in definitions.resolve_all_asset_specs()}


def test_weeks_stand_under_a_prefix_and_can_be_left_out(sample: Project) -> None:
    place = Place(("office",), **world_settings(sample.root, {"first_week": "2026-06-01"}))
    key = dg.AssetKey(["office", "weekly_scores"])
    assert key.to_user_string() not in keys_of(build_world(place, leave_out=["weeks"]))
    assert not {name for name in keys_of(build_world(Place())) if "weekly" in name}, "without a first week"
    built = build_world(place)
    asset = built.resolve_assets_def(key)
    assert isinstance(asset.partitions_def, dg.MultiPartitionsDefinition)
    agents = asset.partitions_def.get_partitions_def_for_dimension("agent")
    assert isinstance(agents, dg.DynamicPartitionsDefinition) and agents.name == "office/agents"
    assert (asset.op.name, asset.op.pool) == ("office__evaluate_weeks", "office__judge")
    # As its sensor does: a range of two dimensions is looked up before a run's resources are there.
    sample.instance.add_dynamic_partitions("office/agents", ["pam"])
    tags = dict(zip(RANGE, (f"pam|{WEEKS[0]}", f"pam|{WEEKS[1]}"), strict=True))
    job = built.resolve_implicit_global_asset_job_def()
    result = job.execute_in_process(instance=sample.instance, tags=tags, asset_selection=[key], raise_on_error=False)
    assert result.success and set(made(result)) == {f"pam|{WEEKS[0]}", f"pam|{WEEKS[1]}"}
    assert {event.asset_key for event in result.get_asset_materialization_events()} == {key}
