"""A world with eval suites, driven the way Dagster's daemon drives it."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import dagster as dg

from persona_pipeline.base.settings import Settings
from persona_pipeline.defs.agents.specs import build_specs
from persona_pipeline.defs.changes import build_source_changes
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.resources import EvaluationSettings, WorldResource
from persona_pipeline.defs.suites import build_suites, suites_of
from persona_pipeline.suites.running.opening import SuiteFile, suite_files
from tests.defs.support import PARTITION, Watched, automation_result, note_run

DESK = """
execution: {targets: [good, bad]}
tests:
  - {id: greets, input: hi, assert: [{type: contains, value: hello, required: true}]}
  - {id: is-short, input: hi, assert: [{type: regex, value: "^.{1,20}$"}]}
"""
TARGETS = """
targets:
  - {name: good, provider: mock, response: hello}
  - {name: bad, provider: replay, path: answers/bad.jsonl}
  - {name: unused, provider: mock, response: hello}
"""
ANSWERS = '{"id": "greets", "answer": "go away"}\n{"id": "is-short", "answer": "ok"}\n'


@cache
def _definitions(root: Path, database_url: str, _files: tuple[SuiteFile, ...]) -> dg.Definitions:
    # Of names alone: what stands in the files is read by who runs them.
    place = Place(settings=Settings(root=root))
    suites = suites_of(place, root, ())
    sensors = [build_source_changes(build_specs(place), suites)]
    world = WorldResource(root=str(root), database_url=database_url)
    resources = {"world": world, "evaluation": EvaluationSettings()}
    return dg.Definitions.merge(build_suites(place, suites, ()), dg.Definitions(sensors=sensors, resources=resources))


@dataclass(frozen=True)
class Suites(Watched):
    """A world with suites, the assets of its files, and the instance that runs them."""

    def __post_init__(self) -> None:
        self.write("desk.eval.yaml", DESK)
        self.write("targets.yaml", TARGETS)
        self.write("answers/bad.jsonl", ANSWERS)

    def write(self, name: str, text: str) -> Path:
        path = self.root / "suites" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    @property
    def definitions(self) -> dg.Definitions:
        """What the code location would be made of if it were loaded now."""
        return _definitions(self.root, self.database_url, tuple(suite_files(self.root)))

    @property
    def code(self) -> dg.Definitions:
        return self.definitions

    def run(self, *names: str, **settings: Any) -> dg.ExecuteInProcessResult:
        """Run the job."""
        job = self.definitions.resolve_job_def("run_eval_suites")
        config = {
            "ops": {"choose_suites": {"config": {"suites": list(names)}}},
            "resources": {"evaluation": {"config": settings}},
        }
        return job.execute_in_process(instance=self.instance, run_config=config, raise_on_error=False)

    def materialize(self, target: str, name: str = "desk") -> dg.ExecuteInProcessResult:
        """Materialize one partition of one suite's asset."""
        return self.definitions.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=self.instance,
            asset_selection=[dg.AssetKey(["suites", name])],
            tags={PARTITION: target},
            raise_on_error=False,
        )

    def tick(self) -> list[str]:
        """Report what is there, note a run of every suite that Dagster asks for, which does nothing, and return their names."""
        self.observe()
        definitions, asked = self.definitions, list[str]()
        suites = [key for key in definitions.resolve_asset_graph().materializable_asset_keys if key.path[0] == "suites"]
        result = automation_result(definitions, self.instance, suites)
        for key in sorted(suites):
            for target in result.get_requested_partitions(key):
                asked.append("/".join(key.path[1:]))
                note_run(self.instance, "__ASSET_JOB", [key], target or "", dg.DagsterRunStatus.FAILURE)
        return list(dict.fromkeys(asked))

    def observe(self) -> None:
        """Let the sensor report what is there."""
        self.requests("source_changes")

    def targets(self, name: str = "desk") -> list[str]:
        return list(self.instance.get_dynamic_partitions(f"suite_targets/{name}"))

    def checks(self, name: str = "desk") -> dict[tuple[str | None, str], str]:
        """Return the newest status of each check by target."""
        keys = [dg.AssetCheckKey(dg.AssetKey(["suites", name]), check) for check in ("gates", "verdict")]
        found = self.instance.event_log_storage.get_asset_check_partition_info(keys)
        return {(item.partition_key, item.check_key.name): item.latest_execution_status.value for item in found}
