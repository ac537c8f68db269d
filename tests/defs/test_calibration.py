"""The asset that says how far people agree with the judges."""

import re

from persona_pipeline.defs.upkeep import CURRENT, ENOUGH
from persona_pipeline.world import World
from tests.calibration.test_worlds import label
from tests.defs.support import Project, metadata_of


def test_the_asset_says_what_labels_are_missing(sample: Project) -> None:
    result = sample.materialize("calibration")
    told = {check.check_name: check for check in result.get_asset_check_evaluations()}
    assert {name: check.passed for name, check in told.items()} == {ENOUGH: False, CURRENT: True}
    assert "No person has labelled anything" in str(told[ENOUGH].description)


def test_the_asset_shows_each_judge_beside_people(sample: Project) -> None:
    world = World.open(sample.root)
    label(world, lambda score: 9 - round(score), 80)
    world.store.close()
    result = sample.materialize("calibration")
    assert re.search(
        "adherence, judged by .*: 80 judgments labelled", str(metadata_of(result, "calibration")["calibration"].value)
    )
    assert {item.check_name: item.passed for item in result.get_asset_check_evaluations()}[ENOUGH]
