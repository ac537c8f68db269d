"""A dimension is declared once: one from outside goes through everything that the package's own do."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.scoring.plan import scorers
from persona_pipeline.world.propositions.models import ALL_DIMENSIONS, DIMENSIONS, _further
from tests.conftest import PROJECT
from tests.support.waiting import PATIENCE


def test_the_package_has_the_five_of_its_specification() -> None:
    assert ALL_DIMENSIONS == ("adherence", "consistency", "fluency", "convergence", "ideas_quantity")
    assert [name for name, item in DIMENSIONS.items() if not item.in_overall] == ["ideas_quantity"]
    assert list(scorers()) == list(ALL_DIMENSIONS)
    for item in DIMENSIONS.values():
        assert item.judged_weight + sum(item.parts.values()) == pytest.approx(1)


def test_a_dimension_from_outside_goes_through_everything(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.humorous_world", str(tmp_path / "world")],
        cwd=PROJECT,
        env={**os.environ, "PERSONA_DIMENSIONS": "tests.support.humour:HUMOUR", "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "score": 0.75 * 8,
        "fell": ["regression", "proposition_drop", "terms"],
        "verdict": "fell",
        "population": "humour",
        "unused": 0,
        "draft": True,
        "table": True,
        "assets": ["humour_scores", "proposition_sets/humour"],
        "reports": {"json": True, "markdown": True, "html": True, "junit": True},
    }


@pytest.mark.parametrize(
    ("named", "said"),
    [("nowhere:X", "cannot be loaded"), ("json:dumps", "is no persona_pipeline"), ("json", "write module:NAME")],
)
def test_what_is_no_dimension_is_named(named: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        _further(named)
