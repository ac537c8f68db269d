"""An evaluation as of a past moment is history: it is kept, and what is newest stays as it is."""

from pathlib import Path

import dagster as dg
import pytest

from persona_pipeline.defs.agents.freshness import RECENTLY
from persona_pipeline.defs.agents.verdicts import ALL_IN_CHARACTER, GATE
from persona_pipeline.world import World
from persona_pipeline.world.messages.files import parse_time
from tests.defs.support import BEFORE_THE_DRIFT, Project, metadata_of
from tests.support.evaluating import latest_runs
from tests.support.worlds import replace_in


def newest(project: Project) -> dict[str, object]:
    """Return the newest event of each asset of michael's, and the state of the check that is red."""
    storage = project.instance.event_log_storage
    kind = dg.DagsterEventType.ASSET_MATERIALIZATION
    names = ("fluency_scores", "verdicts")
    found: dict[str, object] = {
        name: storage.get_latest_storage_id_by_partition(dg.AssetKey(name), kind).get("michael") for name in names
    }
    key = dg.AssetCheckKey(dg.AssetKey("verdicts"), "no_regression")
    checks = storage.get_asset_check_partition_info([key], partition_keys=["michael"])
    return {**found, "check": [item.latest_execution_status.value for item in checks]}


def observed(result: dg.ExecuteInProcessResult) -> set[str]:
    kind = dg.DagsterEventType.ASSET_OBSERVATION
    return {
        event.asset_key.to_user_string() for event in result.all_events if event.event_type is kind and event.asset_key
    }


@pytest.fixture
def red(drifted: tuple[Project, object], tmp_path: Path, instance: dg.DagsterInstance) -> Project:
    """michael, evaluated on the window he drifted in."""
    return drifted[0].copied(tmp_path / "red", instance)


@pytest.mark.parametrize("several", [False, True], ids=["alone", "in a cohort"])
def test_the_past_changes_nothing_that_is_newest(red: Project, several: bool) -> None:
    before = newest(red)
    assert before["check"] == ["FAILED"]
    result = (
        red.evaluate_all(agent_ids=["michael"], as_of=BEFORE_THE_DRIFT)
        if several
        else red.evaluate("michael", as_of=BEFORE_THE_DRIFT)
    )
    assert result.success, "before the drift nothing had fallen"
    made = {event.asset_key.path[0] for event in result.get_asset_materialization_events() if event.asset_key}
    assert made <= {"personas", "proposition_sets", "messages", "baseline_files"}
    said = {check.check_name: check.passed for check in result.get_asset_check_evaluations()}
    assert (said.pop(ALL_IN_CHARACTER), said.pop(RECENTLY)) == (False, True)
    assert said == {gate.name: gate.name not in ("no_regression", "baseline_is_current") for gate in GATE}, (
        "the checks are those of the newest window"
    )
    assert observed(result) == {"verdicts"}
    assert newest(red) == before
    world = World.open(red.root)
    ends = [run.evaluation.window_end for run in latest_runs(world.store, "michael")]
    world.store.close()
    assert ends[0] == parse_time(BEFORE_THE_DRIFT, name="as_of") and len(ends) == 2, "it is kept in the history"


def test_a_claim_edited_after_a_look_at_the_past_is_scored_on_the_newest_window(red: Project) -> None:
    ends = [metadata_of(red.evaluate("michael"), "verdicts")["window_end"].value]
    red.evaluate("michael", as_of=BEFORE_THE_DRIFT)
    replace_in(red.root / "propositions/fluency/michael.yaml", "claim: ", "claim:  ")
    part = ("proposition_sets/fluency", "fluency_scores", "verdicts")
    result = red.evaluate("michael", part)
    ends.append(metadata_of(result, "verdicts")["window_end"].value)
    assert not result.success and ends[0] == ends[1]
