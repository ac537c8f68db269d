"""Many agents in one run."""

from collections.abc import Callable

import dagster as dg
import pytest

from persona_pipeline.definitions import defs
from persona_pipeline.defs.agents.checks import ALL_IN_CHARACTER, GATE
from persona_pipeline.defs.agents.outcomes import scores_outcome
from persona_pipeline.defs.platform.settings import orchestration
from persona_pipeline.scoring.results import DimensionEvaluation
from persona_pipeline.world import World
from persona_pipeline.world.propositions.models import ALL_DIMENSIONS
from tests.defs.support import PARTITION, Project
from tests.support.worlds import write_yaml

BEFORE_THE_DRIFT = "2026-06-14T23:59:59Z"


def cohort_config(**config: object) -> dict[str, object]:
    return {"ops": {"cohort_shards": {"config": config}}}


def assets_of(result: dg.ExecuteInProcessResult) -> set[str]:
    events = [event for event in result.all_events if event.is_step_materialization]
    return {event.asset_key.to_user_string() for event in events if event.asset_key}


def failure_text(result: dg.ExecuteInProcessResult, step: str) -> str:
    failures = [event for event in result.all_events if event.is_step_failure and event.step_key == step]
    return failures[0].step_failure_data.error_display_string if failures else ""


def test_every_agent_is_reported_as_if_it_had_run_alone(sample: Project) -> None:
    result = sample.run("evaluate_cohort", as_of=BEFORE_THE_DRIFT)
    assert result.success
    storage = sample.instance.event_log_storage
    for name in ("personas", "messages", "proposition_sets/fluency", "fluency_scores", "baseline_comparisons"):
        assert storage.get_materialized_partitions(dg.AssetKey(name.split("/"))) == {"dwight", "jim", "michael", "pam"}
    checks = {(check.check_name, check.partition): check.passed for check in result.get_asset_check_evaluations()}
    everybody = ("dwight", "jim", "michael", "pam")
    assert checks == {(ALL_IN_CHARACTER, None): True, **{(g.name, a): True for g in GATE for a in everybody}}


def test_one_run_and_a_run_each_yield_the_same_versions(sample: Project) -> None:
    versions = []
    for run in (lambda: sample.run("evaluate_cohort"), lambda: sample.evaluate("michael")):
        run()
        versions.append(
            {
                name: sample.instance.event_log_storage.get_latest_tags_by_partition(
                    dg.AssetKey(name), dg.DagsterEventType.ASSET_MATERIALIZATION, ["dagster/data_version"], ["michael"]
                )
                for name in ("personas", "messages", "fluency_scores", "evaluation_runs", "baseline_comparisons")
            }
        )
    assert versions[0] == versions[1]


def test_a_drifted_agent_fails_the_run_after_everybody_was_evaluated(sample: Project) -> None:
    result = sample.run("evaluate_cohort", run_config=cohort_config(shard_size=1))
    assert not result.success
    key = dg.AssetKey("in_character")
    red = sample.instance.event_log_storage.get_latest_asset_partition_materialization_attempts_without_materializations
    assert set(red(key)) == {"michael"}, "the catalog is red there, though a cohort plans no asset"
    text = failure_text(result, "cohort_report")
    assert "drifted: michael (exit code 1)" in text
    assert "michael: adherence 8.7 → 0.3" in text
    assert (sample.root / ".persona/reports/cohort/report.html").is_file()


def test_a_broken_agent_stops_nobody_and_is_named_with_file_and_line(sample: Project) -> None:
    (sample.root / "personas/jim.yaml").write_text("display_name: Jim\npersonna: x\n", encoding="utf-8")
    result = sample.run("evaluate_cohort", as_of=BEFORE_THE_DRIFT)
    assert "jim.yaml:2" in failure_text(result, "cohort_report")
    evaluated = sample.instance.event_log_storage.get_materialized_partitions(dg.AssetKey("evaluation_runs"))
    assert evaluated == {"dwight", "michael", "pam"}


def test_one_dimension_of_many_agents_joins_their_runs(sample: Project) -> None:
    sample.run("evaluate_cohort", as_of=BEFORE_THE_DRIFT)
    result = sample.run("evaluate_cohort", run_config=cohort_config(dimensions=["fluency"]), as_of=BEFORE_THE_DRIFT)
    assert result.success
    written = assets_of(result)
    assert written == {"fluency_scores", "evaluation_runs", "baseline_comparisons", "in_character"}


def test_baselines_alone_are_compared_again_without_judging(sample: Project) -> None:
    sample.run("evaluate_cohort", as_of=BEFORE_THE_DRIFT)
    result = sample.run("evaluate_cohort", run_config=cohort_config(compare_only=True), as_of=BEFORE_THE_DRIFT)
    assert result.success
    written = assets_of(result)
    assert written == {"baseline_comparisons", "in_character"}


def test_shards_hold_at_most_as_many_agents_as_they_should(small: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSONA_SHARD_SIZE", "1")
    orchestration.cache_clear()
    result = small.run("evaluate_cohort")
    steps = {event.step_key for event in result.all_events if event.is_step_success}
    assert {"evaluate_shard[from_1]", "evaluate_shard[from_2]"} <= steps


def test_an_agent_without_a_file_is_reported_not_lost(small: Project) -> None:
    result = small.run("evaluate_cohort", run_config=cohort_config(agents=["ann", "zoe"]))
    assert "write personas/zoe.yaml" in failure_text(result, "cohort_report")


def test_an_empty_world_says_what_to_write(small: Project) -> None:
    for path in (small.root / "personas").iterdir():
        path.unlink()
    result = small.run("evaluate_cohort")
    assert not result.success


# What says when an agent was evaluated last is said in every run.
SAID_ANYWAY = {"evaluation_runs", "baseline_comparisons", "in_character"}
BEFORE_IT = {"personas", "messages", *(f"proposition_sets/{name}" for name in ALL_DIMENSIONS)}
BEFORE_IT |= {f"{name}_scores" for name in ALL_DIMENSIONS}


def said_of(result: dg.ExecuteInProcessResult, agent_id: str) -> set[str]:
    events = [event for event in result.all_events if event.is_step_materialization and event.partition == agent_id]
    return {event.asset_key.to_user_string() for event in events if event.asset_key}


def a_run_of_pam_planned_it_and_died(sample: Project) -> None:
    sample.instance.create_run_for_job(defs.resolve_job_def("evaluate_agent"), tags={PARTITION: "pam"})


def test_who_judged_is_part_of_the_version_of_a_score() -> None:
    scored = DimensionEvaluation(dimension="fluency", score=7.0)
    versions = [
        scores_outcome(item, dg.AssetSpec("x", code_version=judge)).version
        for item in (scored, None)
        for judge in ("1:a", "1:a", "1:b")
    ]
    assert versions[0] == versions[1] and versions[3] == versions[4]
    assert len(set(versions)) == 4, "a score that another judge gave alike stays out of date otherwise"


@pytest.mark.parametrize(
    ("happens", "again"),
    [
        pytest.param(lambda sample: None, set(), id="nothing"),
        pytest.param(a_run_of_pam_planned_it_and_died, BEFORE_IT, id="it is red until it is said"),
    ],
)
def test_what_stayed_as_it_was_is_not_said_again(
    sample: Project, happens: Callable[[Project], None], again: set[str]
) -> None:
    sample.run("evaluate_cohort", as_of=BEFORE_THE_DRIFT)
    happens(sample)
    result = sample.run("evaluate_cohort", as_of=BEFORE_THE_DRIFT)
    assert result.success
    assert said_of(result, "pam") == SAID_ANYWAY | again
    assert said_of(result, "jim") == SAID_ANYWAY


def test_the_store_holds_what_the_run_found(sample: Project) -> None:
    from tests.support.evaluating import newest_run

    sample.run("evaluate_cohort", run_config=cohort_config(agents=["pam"]), as_of=BEFORE_THE_DRIFT)
    world = World.open(sample.root)
    run = newest_run(world.store, "pam")
    world.store.close()
    assert run is not None and run.evaluation.overall is not None and run.whole
    assert set(run.evaluation.dimensions) == {"adherence", "consistency", "fluency", "convergence", "ideas_quantity"}


def test_a_broken_baseline_is_its_agents_alone(sample: Project) -> None:
    write_yaml(sample.root / "baselines/pam.json", {"agentId": "pam"})
    result = sample.run("evaluate_cohort", as_of=BEFORE_THE_DRIFT)
    assert "dimensions is required" in failure_text(result, "cohort_report")
    compared = sample.instance.event_log_storage.get_materialized_partitions(dg.AssetKey("baseline_comparisons"))
    assert compared == {"dwight", "jim", "michael"}
