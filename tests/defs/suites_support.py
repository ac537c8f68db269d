"""A world with eval suites, driven the way Dagster's daemon drives it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.resources import EvaluationSettings
from persona_pipeline.defs.suites import build_run_eval_suites, build_source, build_suite
from persona_pipeline.suites.running.opening import suite_files
from tests.defs.support import PARTITION, Watched

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
        place, files = Place(), suite_files(self.root)
        return dg.Definitions(
            assets=[*(build_suite(place, file) for file in files), *(build_source(place, file) for file in files)],
            jobs=[build_run_eval_suites(place)],
            resources={"world": self.world, "evaluation": EvaluationSettings()},
        )

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
        """Let the sensor that is always on record what is there, and return the suites the other asks to run."""
        self.observe()
        return [name for request in self.requests("suite_changes") for name in suites_of(request)]

    def observe(self) -> None:
        self.requests("suite_observations")

    def targets(self, name: str = "desk") -> list[str]:
        return list(self.instance.get_dynamic_partitions(f"suite_targets/{name}"))

    def checks(self, name: str = "desk") -> dict[tuple[str | None, str], str]:
        """Return the newest status of each check by target."""
        keys = [dg.AssetCheckKey(dg.AssetKey(["suites", name]), check) for check in ("gates", "verdict")]
        found = self.instance.event_log_storage.get_asset_check_partition_info(keys)
        return {(item.partition_key, item.check_key.name): item.latest_execution_status.value for item in found}


def suites_of(request: dg.RunRequest) -> list[str]:
    """Return the suites a run is about."""
    return list(request.run_config["ops"]["choose_suites"]["config"]["suites"])
