"""The asset that says how far people agree with the judges."""

from persona_pipeline.defs.upkeep import CURRENT, ENOUGH, calibration_metadata
from persona_pipeline.evaluation.calibrate import calibrate_world
from persona_pipeline.world import World
from tests.calibration.test_worlds import label
from tests.defs.support import Project, rows_of


def test_the_asset_says_what_labels_are_missing(sample: Project) -> None:
    result = sample.materialize("calibration")
    told = {check.check_name: check for check in result.get_asset_check_evaluations()}
    assert {name: check.passed for name, check in told.items()} == {ENOUGH: False, CURRENT: True}
    assert "No person has labelled anything" in str(told[ENOUGH].description)


def test_the_asset_shows_each_judge_beside_people(sample: Project) -> None:
    world = World.open(sample.root)
    label(world, lambda score: 9 - round(score), 80)
    (row,) = rows_of(calibration_metadata(calibrate_world(world, ["adherence"]))["calibration"])
    assert (row["dimension"], row["labelled"]) == ("adherence", "80")
    world.store.close()
    told = {item.check_name: item for item in sample.materialize("calibration").get_asset_check_evaluations()}
    assert told[ENOUGH].passed
