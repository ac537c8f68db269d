"""Several partitions are one run, and what the runs say at their end."""

import shutil
import uuid
from pathlib import Path

import dagster as dg
import pytest
import sqlalchemy as sa

from persona_pipeline.base.database import tables
from persona_pipeline.definitions import defs
from persona_pipeline.defs.agents.freshness import RECENTLY
from persona_pipeline.defs.agents.outcomes import scores_outcome
from persona_pipeline.defs.agents.verdicts import ALL_IN_CHARACTER, GATE, AgentVerdict, verdict
from persona_pipeline.defs.platform.dagster_internals import MATERIALIZED, newest_versions
from persona_pipeline.defs.platform.run_tags import VERDICT
from persona_pipeline.guard.report import (
    EXIT_BUDGET,
    EXIT_COVERAGE,
    EXIT_REGRESSION,
    Conclusion,
    Finding,
    Result,
    RunReport,
)
from persona_pipeline.scoring.results import DimensionEvaluation
from tests.defs.support import BEFORE_THE_DRIFT, Project
from tests.support.evaluating import latest_runs
from tests.support.worlds import write_yaml

NAMES = ("personas", "messages", "fluency_scores", "verdicts")
Ran = tuple[Project, dg.ExecuteInProcessResult]
EVERYBODY = {"dwight", "jim", "michael", "pam"}


@pytest.fixture
def judged(healthy: Ran, tmp_path: Path, instance: dg.DagsterInstance) -> Project:
    """A copy of the sample world, everybody judged before the drift."""
    return healthy[0].copied(tmp_path / "judged", instance)


def tag_of(project: Project, result: dg.ExecuteInProcessResult) -> str | None:
    run = project.instance.get_run_by_id(result.run_id)
    return run.tags.get(VERDICT) if run else None


def compared(project: Project) -> set[str]:
    return project.instance.event_log_storage.get_materialized_partitions(dg.AssetKey("verdicts"))


def test_all_partitions_are_one_run_that_reports_everybody(healthy: Ran) -> None:
    sample, result = healthy
    assert result.success and compared(sample) == EVERYBODY
    checks = {(check.check_name, check.partition) for check in result.get_asset_check_evaluations()}
    by_agent = (*(gate.name for gate in GATE), RECENTLY)
    assert checks == {(name, agent_id) for name in by_agent for agent_id in EVERYBODY} | {(ALL_IN_CHARACTER, None)}
    assert {event.step_key for event in result.all_events if event.is_step_success} == {"evaluate"}
    assert tag_of(sample, result) == "in character"


def test_broken_files_among_them_stop_nobody_else(sample: Project) -> None:
    (sample.root / "personas/jim.yaml").write_text("display_name: Jim\npersonna: x\n", encoding="utf-8")
    write_yaml(sample.root / "baselines/pam.json", {"agentId": "pam"})
    result = sample.evaluate_all(as_of=BEFORE_THE_DRIFT)
    assert not result.success and compared(sample) == EVERYBODY - {"jim", "pam"}
    failure = next(event for event in result.all_events if event.is_step_failure).step_failure_data
    assert "jim.yaml:2" in failure.error_display_string and "dimensions is required" in failure.error_display_string
    assert (tag_of(sample, result) or "").startswith("broken: jim, pam")


def test_an_agent_to_look_at_comes_last_on_the_pages_of_assets(everybody: Ran) -> None:
    sample, _ = everybody
    event = sample.instance.get_latest_materialization_event(dg.AssetKey("verdicts"))
    shown = event and event.asset_materialization
    assert shown and (shown.partition, shown.metadata["verdict"].value) == ("michael", "drifted")


def test_a_part_of_all_partitions_is_that_part_of_everybody(judged: Project) -> None:
    part = ("proposition_sets/fluency", "fluency_scores", "verdicts", "in_character")
    result = judged.evaluate_all(part, as_of=BEFORE_THE_DRIFT)
    names = {event.asset_key.to_user_string() for event in result.get_asset_materialization_events() if event.asset_key}
    assert result.success and names == set(part), (
        "to a backfill, what is planned and stayed as it was must be said again"
    )


def test_sources_alone_are_brought_in_and_nothing_is_judged(sample: Project) -> None:
    (sample.root / "personas/jim.yaml").write_text("display_name: Jim\npersonna: x\n", encoding="utf-8")
    result = sample.evaluate_all(("personas",))
    made = {event.partition for event in result.all_events if event.is_step_materialization}
    failure = next(event for event in result.all_events if event.is_step_failure).step_failure_data
    assert made == EVERYBODY - {"jim"} and "jim.yaml:2" in failure.error_display_string


def test_one_run_and_a_run_each_yield_the_same_versions(everybody: Ran, drifted: Ran) -> None:
    together, alone = (
        {name: newest_versions(project.instance, dg.AssetKey(name), MATERIALIZED, ["michael"]) for name in NAMES}
        for project, _ in (everybody, drifted)
    )
    assert together == alone and all(together.values())


def test_baselines_alone_are_compared_again_without_judging(judged: Project) -> None:
    (judged.root / "recordings").rename(judged.root / "gone")
    result = judged.evaluate_all(("verdicts", "in_character"))
    names = {event.asset_key.to_user_string() for event in result.get_asset_materialization_events() if event.asset_key}
    assert result.success and names == {"verdicts", "in_character"}


def test_a_drifted_agent_is_red_and_the_others_are_not(everybody: Ran) -> None:
    sample, _ = everybody
    red = sample.instance.event_log_storage.get_latest_asset_partition_materialization_attempts_without_materializations
    assert set(red(dg.AssetKey("in_character"))) == {"michael"}


def test_a_dimension_whose_files_were_deleted_is_asked_for_and_is_unscored(judged: Project) -> None:
    judged.tick()
    shutil.rmtree(judged.root / "propositions/fluency")
    [request] = [item for item in judged.tick() if item.agent_id == "pam"]
    assert "fluency_scores" in request.assets and "adherence_scores" not in request.assets
    assert not judged.evaluate("pam", request.assets).success
    world = judged.world.open()
    *_, run = latest_runs(world.store, "pam")
    scores = tables.evaluation_scores.c
    with world.store.connect() as connection:
        of_run = sa.select(scores.dimension).where(scores.evaluation_run_id == uuid.UUID(run.evaluation.run_id))
        assert "fluency" not in connection.execute(of_run).scalars().all()
    world.store.close()
    assert run.comparison.dimensions["fluency"].current is None and run.conclusion.verdict is Result.CANNOT_TELL


def test_who_judged_is_part_of_the_version_of_a_score() -> None:
    scored = DimensionEvaluation(dimension="fluency", score=7.0)
    versions = [
        scores_outcome(item, dg.AssetSpec("x", code_version=judge)).version
        for item in (scored, None)
        for judge in ("1:a", "1:a", "1:b")
    ]
    assert versions[0] == versions[1] and versions[3] == versions[4]
    assert len(set(versions)) == 4, "a score that another judge gave alike stays out of date otherwise"


def test_many_partitions_are_launched_25_a_run() -> None:
    job = defs.resolve_job_def("evaluate_agent")
    policies = {job.asset_layer.asset_graph.get(key).backfill_policy for key in job.asset_layer.executable_asset_keys}
    assert policies == {dg.BackfillPolicy.multi_run(max_partitions_per_run=25)}


def test_the_list_of_runs_says_who_regressed(drifted: Ran) -> None:
    assert (tag_of(*drifted) or "").startswith("drifted: michael")


def line(agent_id: str, *exit_codes: int) -> AgentVerdict:
    findings = [Finding(kind="x", exit_code=code, message="m") for code in exit_codes]
    conclusion = Conclusion.of(findings) or Conclusion(verdict=Result.HELD)
    return AgentVerdict(agent_id=agent_id, conclusion=conclusion, findings=findings)


@pytest.mark.parametrize(
    "lines, expected",
    [
        ([], "nobody was evaluated"),
        ([line("ann")], "in character"),
        ([line("ann", EXIT_COVERAGE, EXIT_REGRESSION), line("bob")], "drifted: ann"),
        ([line("ann", EXIT_BUDGET), line("bob", EXIT_REGRESSION)], "drifted: bob; cannot be told: ann"),
        ([line("ann", EXIT_BUDGET), AgentVerdict(agent_id="bob", broken=["x"])], "broken: bob; cannot be told: ann"),
        ([AgentVerdict(agent_id="ann", broken=["ann.yaml:2"])], "broken: ann"),
        ([AgentVerdict(agent_id="ann"), line("bob")], "nothing to judge: ann"),
        ([line(f"a{n}", EXIT_REGRESSION) for n in range(7)], "drifted: a0, a1, a2, a3, a4 and 2 more"),
    ],
)
def test_a_verdict_fits_a_label(lines: list[AgentVerdict], expected: str) -> None:
    assert verdict(lines) == expected


def test_a_finding_about_the_whole_run_is_in_its_label() -> None:
    gone = RunReport(findings=[Finding(kind="missing_agent", message="bob has a baseline and no persona")])
    assert verdict([line("ann")], gone) == "cannot be told: the run as a whole"
