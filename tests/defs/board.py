"""A world under Dagster's own daemon and webserver: backfills are launched, and what the board then says is read."""

import json
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from persona_pipeline.definitions import defs
from tests.support.cohort import PROJECT, free_port
from tests.support.stopping import stop_group
from tests.support.waiting import PATIENCE, wait_until

# The daemon looks at backfills every 30 seconds otherwise, and each takes two looks.
_DAEMON = """
import dagster._daemon.controller as controller
controller.DEFAULT_DAEMON_INTERVAL_SECONDS = 1
from dagster._daemon.__main__ import main
main()
"""
_LOCATION = {"repositoryLocationName": "persona_pipeline.definitions", "repositoryName": "__repository__"}
_LAUNCH = """mutation($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
  __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
_RUN = """mutation($params: ExecutionParams!) { launchRun(executionParams: $params) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
_RUN_STATUS = """query($id: ID!) { runOrError(runId: $id) { ... on Run { status tags { key value } } } }"""
_BACKFILL = """query($id: String!) { partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill {
  status runs { status tags { key value } } assetBackfillData { assetBackfillStatuses {
    ... on AssetPartitionsStatusCounts { assetKey { path } numPartitionsFailed numPartitionsMaterialized } } } } } }"""
_ASSETS = """query($keys: [AssetKeyInput!]) { assetNodes(assetKeys: $keys) {
  assetKey { path } partitionStats { numMaterialized numFailed }
  staleStatusByPartition assetChecksOrError { ... on AssetChecks { checks { name
    executionForLatestMaterialization { status evaluation { severity description } } } } } } }"""
ENDED = {"COMPLETED", "COMPLETED_SUCCESS", "COMPLETED_FAILED", "FAILED", "CANCELED"}


@dataclass(frozen=True)
class Board:
    """What the pages are made of."""

    root: Path
    site: str
    backfills: list[str] = field(default_factory=list)

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        """Ask the webserver by GraphQL, as its pages do."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.site}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            said = json.load(answer)
        assert "errors" not in said, said
        return said["data"]

    def backfill(self, agents: Sequence[str]) -> dict[str, Any]:
        """Launch a backfill of all assets of some agents, wait for its end and return what is said of it."""
        params = {"assetSelection": evaluated(), "partitionNames": list(agents)}
        launched = self.ask(_LAUNCH, params=params)["launchPartitionBackfill"]
        assert launched["__typename"] == "LaunchBackfillSuccess", launched
        self.backfills.append(launched["backfillId"])
        return _until(lambda: self.ask(_BACKFILL, id=launched["backfillId"])["partitionBackfillOrError"])

    def evaluate(self, agent_id: str) -> dict[str, Any]:
        """Launch a run of one agent, wait for its end and return what is said of it."""
        params = {
            "selector": {**_LOCATION, "jobName": "evaluate_agent"},
            "mode": "default",
            "executionMetadata": {"tags": [{"key": "dagster/partition", "value": agent_id}]},
        }
        launched = self.ask(_RUN, params=params)["launchRun"]
        assert launched["__typename"] == "LaunchRunSuccess", launched
        return _until(lambda: self.ask(_RUN_STATUS, id=launched["run"]["runId"])["runOrError"])

    def assets(self) -> dict[str, dict[str, Any]]:
        """Return what the catalog says of each asset of the agents, by key."""
        found = self.ask(_ASSETS, keys=evaluated())["assetNodes"]
        return {"/".join(item["assetKey"]["path"]): item for item in found}


def evaluated() -> list[dict[str, list[str]]]:
    """Return the keys of all assets that a run of an agent makes."""
    return [
        {"path": list(key.path)} for key in defs.resolve_job_def("evaluate_agent").asset_layer.executable_asset_keys
    ]


def _until(ask: Any) -> dict[str, Any]:
    found: list[dict[str, Any]] = []

    def ended() -> bool:
        found[:] = [ask()]
        return found[0]["status"] in {*ENDED, "SUCCESS", "FAILURE"}

    wait_until(ended, pause=0.5)
    return found[0]


@contextmanager
def open_board(root: Path, python: str) -> Iterator[Board]:
    """Start daemon and webserver in a world's folder, as somebody does who has no other settings."""
    shutil.copy(PROJECT / "dagster.yaml", root)
    port = free_port()
    place = ["-m", "persona_pipeline.definitions"]
    commands = {
        "daemon": [python, "-W", "ignore", "-c", _DAEMON, "run", *place],
        "webserver": [
            python,
            "-W",
            "ignore",
            "-m",
            "dagster_webserver",
            *place,
            "-h",
            "127.0.0.1",
            "-p",
            str(port),
        ],
    }
    outside = {key: value for key, value in os.environ.items() if not key.startswith(("PERSONA_", "DAGSTER_"))}
    running = []
    try:
        for name, command in commands.items():
            with (root / f"{name}.log").open("wb") as log:
                running.append(
                    subprocess.Popen(
                        command,
                        cwd=root,
                        env={**outside, "DAGSTER_HOME": str(root), "PERSONA_ROOT": str(root)},
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                )
        opened = Board(root, f"http://127.0.0.1:{port}")
        wait_until(lambda: _answers(opened.site))
        yield opened
    finally:
        for process in running:
            stop_group(process)


def _answers(site: str) -> bool:
    try:
        with urllib.request.urlopen(f"{site}/server_info", timeout=1):
            return True
    except (urllib.error.URLError, OSError):
        return False
