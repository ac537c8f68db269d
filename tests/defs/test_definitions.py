"""The code location as a whole."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from persona_pipeline.base.settings import Settings
from persona_pipeline.definitions import defs
from persona_pipeline.defs.batches import BatchConfig
from persona_pipeline.defs.component import build_world
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.resources import EvaluationSettings, WorldResource
from persona_pipeline.defs.platform.settings import orchestration
from persona_pipeline.defs.suites import SuitesConfig
from persona_pipeline.defs.upkeep import CorrectionsConfig
from persona_pipeline.judging.claims import PROMPT_VERSION
from tests.defs.support import Project

PROJECT = Path(__file__).parents[2]
HEAVY = ("anthropic", "sklearn", "pandas", "scipy", "fastapi")


def test_every_asset_says_what_it_is_whose_and_where_it_belongs() -> None:
    for spec in defs.resolve_all_asset_specs():
        assert spec.description and spec.owners and spec.kinds and spec.group_name != "default", spec.key


def test_every_job_sensor_and_schedule_is_described() -> None:
    repository = defs.get_repository_def()
    named = [job for job in repository.get_all_jobs() if not job.name.startswith("__")]
    things = [*named, *repository.sensor_defs, *repository.schedule_defs]
    assert [thing.name for thing in things if not thing.description] == []


@pytest.mark.parametrize("config", [WorldResource, EvaluationSettings, BatchConfig, SuitesConfig, CorrectionsConfig])
def test_the_launchpad_explains_every_field(config: type[dg.Config]) -> None:
    shape = config.to_fields_dict()
    assert [name for name, field in shape.items() if not field.description] == []


@pytest.mark.parametrize(
    ("settings", "field"),
    [({"samples": 0}, "samples"), ({"max_usd": -1.0}, "max_usd"), ({"min_coverage": 2.0}, "min_coverage")],
)
def test_settings_that_make_no_sense_start_nothing(small: Project, settings: dict[str, float], field: str) -> None:
    result = small.evaluate("ann", ("messages",), **settings)
    assert not result.success and result.get_asset_materialization_events() == []
    [event] = [event for event in result.all_events if event.event_type_value == "PIPELINE_FAILURE"]
    error = event.job_failure_data.error
    assert error is not None and field in error.to_string()


def test_scores_carry_prompt_and_model_in_their_code_version_and_share_the_judge_pool() -> None:
    scores = defs.resolve_assets_def("fluency_scores")
    assert (scores.op.name, scores.op.pool) == ("evaluate", "judge")
    [version] = {spec.code_version for spec in scores.specs if spec.key.path[-1].endswith("_scores")}
    assert version == f"{PROMPT_VERSION}:claude-haiku-5-5"


def test_only_sensors_that_cost_nothing_run_from_the_start() -> None:
    running = {
        sensor.name
        for sensor in defs.get_repository_def().sensor_defs
        if sensor.default_status is dg.DefaultSensorStatus.RUNNING
    }
    assert running == {"source_changes"}


@pytest.mark.parametrize(
    ("value", "off"), [("true", {"run_failure_alert"}), ("", {"automation", "nightly", "voice_alarms"})]
)
def test_one_setting_switches_everything_on_that_starts_runs(
    value: str, off: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERSONA_AUTOMATION", value)
    orchestration.cache_clear()
    built = build_world(Place())
    found = {item.name for item in [*(built.sensors or ()), *(built.schedules or ())] if not _runs(item)}
    # The alert has a switch of its own: an address. An empty variable is not set.
    assert found == off if value else off <= found


def _runs(item: Any) -> bool:
    return item.default_status.value == "RUNNING"


def test_the_code_location_loads_whatever_the_files_say(small_root: Path) -> None:
    place = Place(settings=Settings(root=small_root / "nowhere"))
    assert build_world(place).resolve_all_asset_keys(), "there is no world at all"
    for path in ("personas/ann.yaml", "propositions/fluency/_default.yaml", "baselines/ann.json", "suites/x.eval.yaml"):
        target = small_root / path
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(b"{[\xff: ")
    code = f"import sys, persona_pipeline.definitions; print([m for m in {HEAVY!r} if m in sys.modules])"
    command = [sys.executable, "-W", "ignore", "-c", code]
    environment = {**os.environ, "PERSONA_ROOT": str(small_root)}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == "[]", "loading imports nothing heavy"


def test_the_instance_file_is_valid_and_keeps_runs_of_one_agent_apart(tmp_path: Path) -> None:
    content = yaml.safe_load((PROJECT / "dagster.yaml").read_text(encoding="utf-8"))
    with dg.instance_for_test(
        overrides={"concurrency": content["concurrency"], "run_queue": content["run_queue"]}, temp_dir=str(tmp_path)
    ) as instance:
        config = instance.get_concurrency_config().run_queue_config
    assert config is not None
    assert {"key": "dagster/partition", "value": {"applyLimitPerUniqueValue": True}, "limit": 1} in list(
        config.tag_concurrency_limits
    )
