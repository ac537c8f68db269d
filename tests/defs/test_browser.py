"""A newcomer's path through the web interface: graph, one agent evaluated, a failed check read, a sensor, an edit, its run."""

import os
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from persona_pipeline.defs.agents.specs import build_specs
from persona_pipeline.defs.changes import recorded_versions
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.evaluation.changes import MESSAGES
from tests.defs.support import PARTITION, Project
from tests.support.browser import chromium
from tests.support.cohort import free_port
from tests.support.stopping import stop_group
from tests.support.waiting import wait_until
from tests.support.worlds import replace_in

PROJECT = Path(__file__).parents[2]
FINISHED = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE)
pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture
def site(sample_root: Path, forked: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """`dagster dev` in the sample world's folder, and no other setting up."""
    if shutil.which("chromium") is None:
        pytest.skip("no chromium on this machine")
    for name in ("dagster.yaml", "workspace.yaml"):
        shutil.copy(PROJECT / name, sample_root)
    monkeypatch.chdir(sample_root)
    monkeypatch.setenv("PERSONA_SENSOR_SECONDS", "2")
    port = free_port()
    with (sample_root / "dev.log").open("wb") as log:
        process = subprocess.Popen(
            [forked / "dagster", "dev", "--port", str(port), "--host", "127.0.0.1"],
            env=os.environ,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    address = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: _answers(address))
        # This test looks into the same instance; a newcomer sets no such variable.
        monkeypatch.setenv("DAGSTER_HOME", str(sample_root))
        monkeypatch.chdir(sample_root)
        yield address
    finally:
        stop_group(process)


def test_a_newcomers_path(site: str, sample_root: Path) -> None:
    from playwright.sync_api import expect

    with dg.DagsterInstance.get() as instance, chromium() as browser:
        # As if everybody had been evaluated on what the sensors saw at first: what is new from here on is what the newcomer does.
        agents = {path.stem for path in (sample_root / "personas").glob("*.yaml")}
        wait_until(lambda: agents <= recorded_versions(build_specs(Place()), instance)[MESSAGES].keys())
        Project(sample_root, instance).remember()
        page = browser.new_page(viewport={"width": 1600, "height": 1000})
        page.set_default_timeout(120_000)
        expect.set_options(timeout=120_000)

        page.goto(f"{site}/asset-groups")
        for group in ("sources", "scores", "evaluation"):
            expect(page.get_by_text(group, exact=True).first).to_be_visible()
        expect(page.get_by_text("Join the Dagster community")).to_have_count(0)

        page.goto(f"{site}/locations/persona-pipeline/jobs/evaluate_agent")
        page.get_by_role("button", name="Materialize all").click()
        page.get_by_text("Select a partition or create one").click()
        page.get_by_text("michael", exact=True).first.click()
        page.keyboard.press("Escape")
        before = _finished(instance)
        page.get_by_role("button", name="Launch 1 run").click()
        wait_until(lambda: _finished(instance) == before + 1)

        page.goto(f"{site}/assets/verdicts?view=checks&checkDetail=no_regression")
        expect(page.get_by_text("blocking", exact=True)).to_be_visible()
        expect(page.get_by_text(re.compile(r"michael: adherence 8\.\d → 0\.\d")).first).to_be_visible()
        page.goto(f"{site}/assets/verdicts?partition=michael&view=partitions")
        expect(page.locator("tr").filter(has_text="score/adherence").first).to_be_visible()

        page.goto(f"{site}/locations/persona-pipeline/sensors/automation")
        page.locator("label").filter(has=page.locator("input[type=checkbox]")).first.click()
        expect(page.locator("input[type=checkbox]").first).to_be_checked()
        replace_in(sample_root / "personas/pam.yaml", "display_name: ", "display_name:  ")
        wait_until(lambda: _finished(instance) == before + 2)
        page.goto(f"{site}/runs")
        for label in ("persona/agent: pam", "persona/judge: recorded", "persona/window: 7d"):
            expect(page.get_by_text(label).first).to_be_visible()
        expect(page.get_by_role("link", name="automation", exact=True)).to_be_visible()
        expect(page.get_by_text("persona/agent: dwight")).to_have_count(0)


def _finished(instance: dg.DagsterInstance) -> int:
    """Return how many evaluations have ended; reading messages is a run too."""
    return sum(run.status in FINISHED and PARTITION in run.tags for run in instance.get_runs())


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/server_info", timeout=1):
            return True
    except OSError:
        return False
