"""A world on Dagster's board: backfills are launched in this process, and what the pages then say is read."""

import json
import logging
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import uvicorn
from dagster._core.launcher.sync_in_memory_run_launcher import SyncInMemoryRunLauncher
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster._daemon.backfill import execute_backfill_iteration

from persona_pipeline.definitions import defs
from tests.defs.support import Project
from tests.defs.test_killed_daemon import ORIGIN
from tests.support.cohort import free_port
from tests.support.waiting import PATIENCE, wait_until

_LAUNCH = """mutation($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
  __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
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

    project: Project
    site: str
    workspace: WorkspaceProcessContext
    # Runs make an event loop, which the threads of the browser and of a backfill have.
    worker: ThreadPoolExecutor
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
        while (said := self.ask(_BACKFILL, id=self.backfills[-1])["partitionBackfillOrError"])["status"] not in ENDED:
            self.worker.submit(self._look).result()
        return said

    def _look(self) -> None:
        list(execute_backfill_iteration(self.workspace, logging.getLogger("backfill")))

    def evaluate(self, agent_id: str) -> dict[str, Any]:
        """Evaluate one agent and return what is said of the run."""
        run = self.worker.submit(self.project.evaluate, agent_id).result()
        return self.ask(_RUN_STATUS, id=run.run_id)["runOrError"]

    def assets(self) -> dict[str, dict[str, Any]]:
        """Return what the catalog says of each asset of the agents, by key."""
        found = self.ask(_ASSETS, keys=evaluated())["assetNodes"]
        return {"/".join(item["assetKey"]["path"]): item for item in found}


def evaluated() -> list[dict[str, list[str]]]:
    """Return the keys of all assets that a run of an agent makes."""
    return [
        {"path": list(key.path)} for key in defs.resolve_job_def("evaluate_agent").asset_layer.executable_asset_keys
    ]


@contextmanager
def open_board(project: Project) -> Iterator[Board]:
    """Serve the pages of a world, that of the environment, whose runs and backfills this process executes."""
    instance = project.instance
    launch = SyncInMemoryRunLauncher.launch_run
    lock, connect = threading.RLock(), instance.run_storage.connect  # type: ignore[attr-defined]

    @contextmanager
    def one_at_a_time() -> Iterator[Any]:
        with lock, connect() as connection:
            yield connection

    # It takes a second to load, and the other workers need none of it.
    from dagster_webserver.app import create_app_from_workspace_process_context

    with (
        # Of a database in memory SQLite makes no one wait: who comes second fails.
        patch.object(instance.run_storage, "connect", one_at_a_time),
        # No other process opens it.
        patch.object(instance, "get_ref", lambda: None),
        WorkspaceProcessContext(instance, InProcessWorkspaceLoadTarget(ORIGIN)) as workspace,
        ThreadPoolExecutor(2) as worker,
        patch.object(SyncInMemoryRunLauncher, "launch_run", lambda *run: worker.submit(launch, *run).result()),
    ):
        port = free_port()
        server = uvicorn.Server(
            uvicorn.Config(create_app_from_workspace_process_context(workspace), "127.0.0.1", port, log_level="warning")
        )
        serving = threading.Thread(target=server.run)
        serving.start()
        try:
            wait_until(lambda: server.started)
            yield Board(project, f"http://127.0.0.1:{port}", workspace, worker)
        finally:
            server.should_exit = True
            serving.join()
