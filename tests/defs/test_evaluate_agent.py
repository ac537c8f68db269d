"""One agent from its files to its checks, on instances that know nothing."""

import json

import dagster as dg
import pytest
import sqlalchemy as sa
from dagster._core.execution.plan.objects import StepFailureData

from persona_pipeline.base.database import tables
from persona_pipeline.defs.agents.freshness import RECENTLY
from persona_pipeline.defs.agents.specs import build_specs
from persona_pipeline.defs.agents.verdicts import ALL_IN_CHARACTER, GATE, check_specs
from persona_pipeline.defs.platform import resources
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.world import World
from tests.defs.support import BEFORE_THE_DRIFT, PARTITION, Project, metadata_of, rows_of
from tests.support.worlds import replace_in, write_yaml

CHECKS = (*(check.name for check in GATE), RECENTLY, ALL_IN_CHARACTER)
Ran = tuple[Project, dg.ExecuteInProcessResult]


def checks_of(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    return {check.check_name: check.passed for check in result.get_asset_check_evaluations()}


def failure_of(result: dg.ExecuteInProcessResult) -> StepFailureData:
    failed = next(event for event in result.all_events if event.is_step_failure)
    return failed.step_failure_data


def materialized(result: dg.ExecuteInProcessResult) -> set[str]:
    return {event.asset_key.to_user_string() for event in result.get_asset_materialization_events() if event.asset_key}


def test_a_drifted_agent_fails_its_run_with_the_claims_that_fell(drifted: Ran) -> None:
    _, result = drifted
    assert not result.success
    # A drop that may be chance is a warning.
    red = {"no_regression": False, "baseline_is_current": False, ALL_IN_CHARACTER: False}
    assert checks_of(result) == {**dict.fromkeys(CHECKS, True), **red}
    assert "in_character" not in materialized(result) and "verdicts" in materialized(result)
    failed = next(check for check in result.get_asset_check_evaluations() if not check.passed)
    assert failed.partition == "michael"
    assert failed.severity is dg.AssetCheckSeverity.ERROR
    assert failed.description is not None
    assert "adherence 8.7 → 0.3" in failed.description


def test_a_threshold_fails_a_run_that_held(sample: Project) -> None:
    result = sample.evaluate("jim", as_of=BEFORE_THE_DRIFT, threshold=9.0)
    assert not result.success and not checks_of(result)["no_regression"]
    assert "is below 9" in failure_of(result).error_display_string


def test_what_a_run_is_not_to_fail_on_is_said_and_fails_nothing(sample: Project) -> None:
    result = sample.evaluate("michael", only_fail_on=["coverage"])
    assert result.success and checks_of(result) == {
        **dict.fromkeys(CHECKS, True),
        "baseline_is_current": False,
        ALL_IN_CHARACTER: False,
    }
    assert "in_character" not in materialized(result)
    assert "drifted" in str(metadata_of(result, "verdicts")), "it is not in character all the same"
    assert not sample.evaluate_all(agent_ids=["michael"], only_fail_on=["regression"]).success


def test_a_blank_instance_evaluates_an_agent_and_windows_before_where_they_are_asked_for(sample: Project) -> None:
    result = sample.evaluate("pam", as_of=BEFORE_THE_DRIFT, history=1)
    assert result.success and checks_of(result) == dict.fromkeys(CHECKS, True)
    assert "verdicts" in materialized(result)
    with sample.world.open().store.connect() as connection:
        ends = connection.execute(sa.select(tables.evaluation_runs.c.window_end).distinct()).all()
    assert len(ends) == 2


def test_a_run_of_no_known_agent_fails_and_says_how_to_name_one(sample: Project) -> None:
    tags = f"give --tags '{json.dumps({PARTITION: 'pam'})}', agents are "
    for named, said in ({PARTITION: "nobody"}, "there is no agent 'nobody'; "), ({}, "the run names no agent; "):
        for result in (sample.run("evaluate_agent", named), sample.materialize("voices", tags=named)):
            assert not result.success
            failure = failure_of(result)
            assert failure.user_failure_data and (failure.user_failure_data.description or "").startswith(said + tags)
            [line] = failure.error_display_string.splitlines()
            assert said + tags in line, "a line, not a trace"


def test_runs_are_labelled_whoever_starts_them(sample: Project) -> None:
    result = sample.evaluate("jim", ("personas", "messages"), window="3d")
    run = sample.instance.get_run_by_id(result.run_id)
    assert run is not None
    labels = {key: run.tags.get(f"persona/{key}") for key in ("agent", "judge", "window")}
    assert labels == {"agent": "jim", "judge": "recorded", "window": "3d"}
    assert run.tags.get("persona/commit")


def test_a_verdict_is_of_everything_whatever_part_is_asked_for(sample: Project) -> None:
    part = ("personas", "messages", "fluency_scores", "verdicts")
    result = sample.evaluate("pam", part, as_of=BEFORE_THE_DRIFT)
    assert result.success and materialized(result) == set(part) and set(checks_of(result)) == set(CHECKS)
    assert {"score/adherence", "score/fluency"} <= set(metadata_of(result, "verdicts"))


def test_a_broken_file_fails_its_agent_with_file_and_line(small: Project) -> None:
    for path, content in (
        ("personas/bob.yaml", "display_name: Bob\npersonna: x\n"),
        ("propositions/fluency/bob.yaml", "dimension: fluency\npropositions: 7\n"),
        ("baselines/bob.json", '{\n"agentId": '),
    ):
        target = small.root / path
        kept = target.read_text(encoding="utf-8") if target.exists() else None
        target.parent.mkdir(exist_ok=True)
        target.write_text(content, encoding="utf-8")
        broken = small.evaluate("bob")
        failure = failure_of(broken)
        assert f"{target.name}:2" in failure.error_display_string
        assert failure.user_failure_data is not None
        assert f"{target.name}:2" in str(failure.user_failure_data.metadata["problems"].value)
        assert not any(event.is_step_up_for_retry for event in broken.all_events)
        # ann has nothing recorded and no baseline.
        assert kept is None or "cannot be told: ann" in failure_of(small.evaluate("ann")).error_display_string
        target.unlink() if kept is None else target.write_text(kept, encoding="utf-8")


def test_a_broken_default_file_fails_its_dimension_and_no_other(small: Project) -> None:
    write_yaml(small.root / "propositions/fluency/_default.yaml", {"dimension": "fluency", "propositions": 7})
    made = materialized(small.evaluate("ann"))
    assert {"proposition_sets/adherence", "proposition_sets/consistency"} <= made
    # As on the command line, nobody is paid to judge an agent one of whose files is broken; a part that is not can be asked for.
    assert "proposition_sets/fluency" not in made and "adherence_scores" not in made
    alone = small.evaluate("ann", ("proposition_sets/adherence", "adherence_scores"))
    assert alone.success and materialized(alone) == {"proposition_sets/adherence", "adherence_scores"}


@pytest.mark.parametrize(
    ("error", "tried"),
    [
        (sa.exc.OperationalError("SELECT 1", {}, Exception("database is locked")), 1 + resources.DATABASE_RETRIES),
        (TypeError("a defect"), 1),
    ],
    ids=["a lost database is tried again and then given up", "a defect is not"],
)
def test_what_is_tried_again(small: Project, monkeypatch: pytest.MonkeyPatch, error: Exception, tried: int) -> None:
    tries: list[str] = []

    def failing(world: World, agent_id: str) -> None:
        tries.append(agent_id)
        raise error

    monkeypatch.setattr(resources, "DATABASE_SECONDS", 0.01)
    monkeypatch.setattr(World, "sync_persona", failing)
    assert not small.evaluate("ann", ("personas",)).success
    assert len(tries) == tried


def test_every_check_of_a_partitioned_asset_is_partitioned_alike() -> None:
    # Dagster accepts a check without partitions in silence and hands it every agent at once.
    agents = dg.DynamicPartitionsDefinition(name="agents")
    for spec in check_specs(build_specs(Place())):
        assert spec.partitions_def == (None if spec.name == ALL_IN_CHARACTER else agents)


def test_metadata_are_numbers_to_plot_and_what_is_worst_and_nothing_large(drifted: Ran) -> None:
    _, result = drifted
    run = metadata_of(result, "verdicts")
    assert run["score/adherence"].value == pytest.approx(0.1, abs=0.5) and isinstance(run["overall"].value, float)
    adherence = metadata_of(result, "adherence_scores")
    worst = rows_of(adherence["worst_propositions"])
    assert len(worst) == 3 and all(row["reasoning"] for row in worst)
    told = [metadata_of(result, name) for name in ("messages", "fluency_scores", "convergence_scores")]
    for shown in (run, adherence, *told):
        text = str([value.value for value in shown.values()])
        assert "data:image/" not in text
        assert len(text) < 8_000, text


def test_a_replaced_word_in_a_claim_is_unrecorded_and_fails_the_coverage_check(sample: Project) -> None:
    replace_in(sample.root / "propositions/fluency/pam.yaml", "claim: ", "claim: Never ")
    result = sample.evaluate("pam", as_of=BEFORE_THE_DRIFT)
    assert checks_of(result)["full_coverage"] is False
