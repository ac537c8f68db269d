"""Reports and what steps print, in an object store: fsspec's own one, in memory, stands for it."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from upath import UPath

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.settings import get_settings
from persona_pipeline.defs.platform.assets import reports_folder, write_texts
from persona_pipeline.defs.platform.dagster_internals import ComputeIOType
from persona_pipeline.defs.platform.step_logs import EnvironmentStepLogs

STORE = "memory://bucket"


@pytest.fixture
def store() -> Iterator[UPath]:
    folder = UPath(STORE)
    yield folder
    folder.fs.rm("/bucket", recursive=True)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        pytest.param({}, "world/.persona/reports", id="in the world"),
        pytest.param({"PERSONA_STATE": "elsewhere"}, "elsewhere/reports", id="with all else that is made"),
        pytest.param({"PERSONA_STATE": "elsewhere", "PERSONA_REPORTS": "pages"}, "pages", id="where it is said"),
        pytest.param({"PERSONA_REPORTS": f"{STORE}/reports"}, f"{STORE}/reports", id="in a store"),
    ],
)
def test_where_reports_go(variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    get_settings.cache_clear()
    assert str(reports_folder(Path("world"), get_settings())) == expected


def test_a_store_nobody_knows_is_an_error_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSONA_REPORTS", "nowhere://bucket")
    get_settings.cache_clear()
    with pytest.raises(ConfigError, match=r"PERSONA_REPORTS is 'nowhere://bucket'.*pip install"):
        reports_folder(Path("world"), get_settings())


def test_reports_are_written_to_a_store(store: UPath) -> None:
    folder = write_texts(store / "reports", {"report.html": "<p>ä</p>"})  # pyright: ignore[reportArgumentType]
    assert (folder / "report.html").read_text(encoding="utf-8") == "<p>ä</p>"


@dg.op
def talkative() -> None:
    print("a line of the step")


@dg.job(executor_def=dg.in_process_executor)
def talk() -> None:
    talkative()


def test_what_a_step_prints_is_read_on_another_machine(
    tmp_path: Path, store: UPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERSONA_STEP_LOGS", f"{STORE}/logs")
    config = {"module": EnvironmentStepLogs.__module__, "class": EnvironmentStepLogs.__name__}
    overrides = {"compute_logs": {**config, "config": {"base_dir": str(tmp_path / "unused")}}}
    with dg.instance_for_test(temp_dir=str(tmp_path), overrides=overrides) as instance:
        run = talk.execute_in_process(instance=instance)
        [captured] = instance.get_records_for_run(run.run_id, of_type=dg.DagsterEventType.LOGS_CAPTURED).records
        event = captured.event_log_entry.get_dagster_event()
        key = [run.run_id, "compute_logs", event.logs_captured_data.file_key]
        elsewhere = EnvironmentStepLogs(f"{STORE}/logs")
        assert "a line of the step" in (elsewhere.get_log_data(key).stdout or b"").decode()
        assert elsewhere.is_capture_complete(key) and not (tmp_path / "unused").exists()
        assert elsewhere.get_log_keys_for_log_key_prefix(key[:2], ComputeIOType.STDOUT) == [key]
        instance.compute_log_manager.delete_logs(prefix=[run.run_id])
        assert not list((store / "logs").rglob("*.out"))
