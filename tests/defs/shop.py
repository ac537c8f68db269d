"""Somebody's own Dagster project, with two worlds in it: what the component is tested in."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster.components.testing import create_defs_folder_sandbox

from persona_pipeline.base.database.engine import Store, open_store
from tests.defs.support import PARTITION

CHATS = [
    {"speaker": "ann", "room": "till", "body": "Change is a myth.", "sent_at": "2026-03-12T09:00:00Z"},
    {"speaker": "bob", "room": "till", "body": "The till hums in B flat.", "sent_at": "2026-03-12T09:01:00Z"},
    {"speaker": "ann", "room": "till", "body": None, "sent_at": "2026-03-12T09:02:00Z"},
]
COLUMNS = {"agent_id": "speaker", "channel": "room", "text": "body", "created_at": "sent_at"}
# Everything here has a name that a world has too where it is alone.
OWN = f"""
import dagster as dg

@dg.asset(group_name="world")
def messages(world: dg.ResourceParam[str]):
    return {CHATS!r}

@dg.job
def evaluate_agent():
    pass

@dg.op
def break_down():
    raise ValueError("the till is jammed")

@dg.job
def broken():
    break_down()

@dg.schedule(job=evaluate_agent, cron_schedule="0 0 * * *")
def nightly():
    return dg.RunRequest()

defs = dg.Definitions(
    assets=[messages],
    jobs=[evaluate_agent, broken],
    schedules=[nightly],
    resources={{
        "world": "mine",
        "values": "mine",
        "evaluation": "mine",
        "io_manager": dg.FilesystemIOManager(base_dir=dg.EnvVar("SHOP_VALUES")),
    }},
    executor=dg.multi_or_in_process_executor,
)
"""


@dataclass(frozen=True)
class Shop:
    """A loaded project: what Dagster knows of it, its instance, and the folders of its worlds."""

    defs: dg.Definitions
    instance: dg.DagsterInstance
    roots: dict[str, Path]

    def run(
        self, job: str, agent_id: str = "", tags: dict[str, str] | None = None, **options: Any
    ) -> dg.ExecuteInProcessResult:
        """Run a job, of one agent or of all."""
        tags = tags or ({PARTITION: agent_id} if agent_id else {})
        definition = self.defs.resolve_job_def(job)
        return definition.execute_in_process(instance=self.instance, tags=tags, raise_on_error=False, **options)

    def materialize(self, *keys: str) -> dg.ExecuteInProcessResult:
        """Materialize assets by hand."""
        job = self.defs.resolve_implicit_global_asset_job_def()
        chosen = [dg.AssetKey.from_user_string(key) for key in keys]
        return job.execute_in_process(instance=self.instance, asset_selection=chosen, raise_on_error=False)

    def look(self, name: str, cursor: str | None = None) -> dg.SensorResult | dg.SkipReason:
        """Run a sensor once, as the daemon does: its resources are the code location's."""
        repository = self.defs.get_repository_def()
        sensor = repository.get_sensor_def(name)
        resources = {key: (self.defs.resources or {})[key] for key in sensor.required_resource_keys}
        context = dg.build_sensor_context(
            instance=self.instance, resources=resources, cursor=cursor, repository_def=repository
        )
        with context as opened:
            result = sensor._raw_fn(opened)
        assert isinstance(result, dg.SensorResult | dg.SkipReason)
        return result

    @contextmanager
    def store(self, name: str) -> Iterator[Store]:
        """Open the store that a world has in its own folder."""
        opened = open_store(f"sqlite:///{self.roots[name] / '.persona' / 'store.db'}")
        yield opened
        opened.close()

    def has_store(self, name: str) -> bool:
        return (self.roots[name] / ".persona" / "store.db").exists()


@contextmanager
def open_shop(
    instance: dg.DagsterInstance, roots: dict[str, Path], attributes: dict[str, dict[str, Any]], code: str = OWN
) -> Iterator[Shop]:
    """Load a project with a world a folder, as ``dg`` would, from its files."""
    with create_defs_folder_sandbox() as sandbox, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHOP_VALUES", str(sandbox.defs_folder_path.parent / "values"))
        for name, root in roots.items():
            body = {
                "type": "persona_pipeline.PersonaWorld",
                "attributes": {"world": str(root), "prefix": name, **attributes.get(name, {})},
            }
            (sandbox.defs_folder_path / name).mkdir()
            (sandbox.defs_folder_path / name / "defs.yaml").write_text(yaml.safe_dump(body), encoding="utf-8")
        (sandbox.defs_folder_path / "own.py").write_text(code, encoding="utf-8")
        with sandbox.build_all_defs() as defs:
            yield Shop(defs, instance, roots)
