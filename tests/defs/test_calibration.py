"""The asset that says how far the judges can be believed."""

from persona_pipeline.defs.upkeep import BELIEVED, CURRENT, ENOUGH, calibration_metadata
from persona_pipeline.evaluation.calibrate import calibrate_world
from persona_pipeline.world import World
from tests.calibration.test_worlds import label
from tests.defs.support import Project, rows_of


def test_the_asset_shows_the_judges_and_its_checks_say_what_is_wrong(sample: Project) -> None:
    result = sample.materialize("calibration")
    told = {check.check_name: check for check in result.get_asset_check_evaluations()}
    assert {name: check.passed for name, check in told.items()} == {BELIEVED: True, ENOUGH: False, CURRENT: True}
    assert "not validated: 0 human labels" in str(told[ENOUGH].description)
    (event,) = result.asset_materializations_for_node("calibration")
    assert {row["dimension"] for row in rows_of(event.metadata["calibration"])} >= {"adherence", "fluency"}


def test_a_judge_at_chance_fails_its_check(sample: Project) -> None:
    world = World.open(sample.root)
    label(world, lambda score: 9 - round(score), 80)
    (row,) = rows_of(calibration_metadata(calibrate_world(world, ["adherence"]))["calibration"])
    assert (row["belief"], row["labelled"]) == ("chance", "80")
    world.store.close()
