"""The pictures of the documentation: the HTML report, the page to work in and Dagster on the sample world, taken in Chromium.

    python docs/site/screenshots.py [--site .persona/site]

They are written to docs/site/pictures/. With --site pages of a built site are taken instead, light, dark and 390 pixels wide, into
the folder `looks` beside it, to be looked at.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT))

from tests.support.browser import ARGUMENTS  # noqa: E402
from tests.support.messages_server import Call, MessagesServer, Reply, message, verdicts  # noqa: E402
from tests.support.stopping import stop_group  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PICTURES = PROJECT / "docs" / "site" / "pictures"
WORLD = ("personas", "propositions", "messages", "recordings", "baselines", "labels", "suites")
SHOWN = (
    "index",
    "how-to/costs",
    "how-to/good-claims",
    "how-to/corrections",
    "explanation/guard",
    "reference/commands",
    "reference/settings",
)
LOOKS = (("light", "light", 1360), ("dark", "dark", 1360), ("phone", "light", 390))


@contextlib.contextmanager
def sample_world() -> Iterator[Path]:
    """Copy the sample world into a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "world"
        for name in WORLD:
            shutil.copytree(PROJECT / name, root / name)
        for name in ("dagster.yaml", "workspace.yaml"):
            shutil.copy(PROJECT / name, root)
        yield root


def report(browser: "Browser", root: Path) -> None:
    """Take the top of the report."""
    page = root / "report.html"
    command = [sys.executable, "-m", "persona_pipeline", "evaluate", "--format", "html", "--output", str(page)]
    environment = {**os.environ, "PERSONA_ROOT": str(root)}
    # It ends with 1: an agent of the sample world has drifted.
    subprocess.run(command, env=environment, capture_output=True, check=False)
    for scheme in ("light", "dark"):
        _take(browser, page.as_uri(), PICTURES / f"report-{scheme}.png", scheme)


@contextlib.contextmanager
def dagster_dev(root: Path, variables: Mapping[str, str]) -> Iterator[str]:
    """Run `dagster dev` in a world and give its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-W", "ignore", "-m", "dagster", "dev", "--port", str(port), "--host", "127.0.0.1"]
    log, environment = subprocess.DEVNULL, {**os.environ, **variables}
    process = subprocess.Popen(command, cwd=root, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        _wait_for(f"http://127.0.0.1:{port}/server_info")
        yield f"http://127.0.0.1:{port}"
    finally:
        stop_group(process)


def _open(browser: "Browser", address: str, height: int = 900) -> "Page":
    page = browser.new_page(viewport={"width": 1600, "height": height})
    page.set_default_timeout(120_000)
    # Fonts and the like from elsewhere are not waited for.
    page.route(re.compile(r"^https?://(?!127\.0\.0\.1)"), lambda route: route.abort())
    page.goto(address)
    return page


# Dagster's name of a group is that of its code location, its repository, and its own.
_GROUP = "global@global"
AGENTS = ("dwight", "jim", "michael", "pam")
# The pages of Dagster in `how-to/dagster-in-pictures.md`: address, the text of a complete page, and height.
PAGES = {
    "lineage": (f"asset-groups?expanded={_GROUP}:evaluation,{_GROUP}:scores", "fluency_scores", 1050),
    "asset": ("assets/verdicts?view=overview", r"Latest check results\s+\d[\s\S]*regressions", 1000),
    "checks": ("assets/verdicts?view=checks", r"Failed[\s\S]*Latest execution\s+\d in character", 800),
    "automation": ("automation", r"source_changes[\s\S]*ago", 800),
    "backfill": ("runs/b/{backfill}", r"in_character\s+100% completed", 1300),
}
_ENDED = {"COMPLETED", "COMPLETED_SUCCESS", "COMPLETED_FAILED", "FAILED", "CANCELED"}


def dagster(browser: "Browser", root: Path) -> None:
    """Take Dagster's pages after a backfill of all agents, as `dagster dev` shows them."""
    with dagster_dev(root, {"PERSONA_SENSOR_SECONDS": "5"}) as address:
        page = _open(browser, address)
        every = "{assetNodes {assetKey {path} jobNames}}"
        nodes = [item for item in _asked(page, address, every)["assetNodes"] if "evaluate_agent" in item["jobNames"]]
        # The sensor makes agents partitions in its first look.
        while not _asset(page, address, "verdicts", "{partitionKeys}")["partitionKeys"]:
            page.wait_for_timeout(2000)
        backfill = _backfill(page, address, [item["assetKey"] for item in nodes], AGENTS)
        _wait_for_backfill(page, address, backfill)
        page.get_by_text("Hide navigation").click()
        for name, (path, complete, height) in PAGES.items():
            page.set_viewport_size({"width": 1280, "height": height})
            page.goto(f"{address}/{path.format(backfill=backfill)}")
            page.wait_for_function("text => new RegExp(text).test(document.body.innerText)", arg=complete)
            # The graph is laid out once more when its names are known.
            page.wait_for_timeout(4000)
            page.screenshot(path=PICTURES / f"dagster-{name}.png")


def _wait_for_backfill(page: "Page", address: str, backfill: str) -> None:
    query = "query($id: String!) {partitionBackfillOrError(backfillId: $id) {... on PartitionBackfill {status}}}"
    while _asked(page, address, query, id=backfill)["partitionBackfillOrError"]["status"] not in _ENDED:
        page.wait_for_timeout(2000)


WEEKS = 8
# How much of what michael says in each of the weeks he says since he drifted.
DRIFTED = (0, 0, 0, 0, 0.2, 0.4, 0.7, 1)


def over_weeks(root: Path) -> tuple[str, set[str]]:
    """Move the messages of a copied sample world over the last eight weeks, and return the first and what michael says since."""
    today = datetime.now(UTC).date()
    monday, first = datetime(2026, 6, 1, tzinfo=UTC), today - timedelta(days=today.weekday(), weeks=WEEKS)
    away, since = datetime(first.year, first.month, first.day, tzinfo=UTC) - monday, set[str]()
    shutil.rmtree(root / "baselines")
    for path in (root / "messages").glob("*.jsonl"):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        moments = [datetime.fromisoformat(row["created_at"]) for row in rows]
        weeks = [(moment - monday).days // 7 for moment in moments]
        now = [row["text"] for row, week in zip(rows, weeks, strict=True) if week == 2 and row["agent_id"] == "michael"]
        since.update(now)
        moved = []
        for week in range(WEEKS):
            for number, (row, moment) in enumerate(zip(rows, moments, strict=True)):
                is_now = row["agent_id"] == "michael" and now and number * 7 % 10 / 10 < DRIFTED[week]
                if weeks[number] == week % 2:
                    at = (moment + away + timedelta(weeks=week - week % 2)).isoformat()
                    text = now[number % len(now)] if is_now else row["text"]
                    moved.append({**row, "id": f"{row['id']}-{week}", "text": text, "created_at": at})
        path.write_text("".join(json.dumps(row) + "\n" for row in moved), encoding="utf-8")
    return first.isoformat(), since


def _mondays(first: str) -> list[str]:
    return [(date.fromisoformat(first) + timedelta(weeks=week)).isoformat() for week in range(WEEKS)]


def _asked(page: "Page", address: str, query: str, **variables: Any) -> dict[str, Any]:
    answer = page.request.post(f"{address}/graphql", data={"query": query, "variables": variables})
    return answer.json()["data"]


def _asset(page: "Page", address: str, name: str, fields: str) -> dict[str, Any]:
    query = f'{{assetNodeOrError(assetKey: {{path: ["{name}"]}}) {{... on AssetNode {fields}}}}}'
    return _asked(page, address, query)["assetNodeOrError"]


def _backfill(page: "Page", address: str, assets: Sequence[Any], partitions: Sequence[str]) -> str:
    launch = """mutation($it: LaunchBackfillParams!) {
      launchPartitionBackfill(backfillParams: $it) {... on LaunchBackfillSuccess {backfillId}}}"""
    about = {"assetSelection": assets, "partitionNames": partitions}
    return _asked(page, address, launch, it=about)["launchPartitionBackfill"]["backfillId"]


def weeks(browser: "Browser", root: Path) -> None:
    """Take agents' scores by week after a backfill. The judge is a stand-in on this machine."""
    first, since = over_weeks(root)
    files = (yaml.safe_load(path.read_text(encoding="utf-8")) for path in (root / "propositions").rglob("*.yaml"))
    # Without the name, which the judge is shown.
    bad = {item["claim"][-30:] for file in files for item in file["propositions"] if item.get("inverted")}

    def judge(call: Call) -> Reply:
        # Only what one agent says since it drifted is out of character; of that alone there is much where it speaks alone.
        said = [entry["text"] for entry in json.loads(call.evidence) if "text" in entry]
        share = sum(text in since for text in said) / max(1, len(said))

        def score(claim: str) -> int:
            held = round(9 - 8 * share) - len(claim) % 2
            return 9 - held if claim[-30:] in bad else held

        return message(json.dumps(verdicts(call.body, score)))

    with MessagesServer(handler=judge) as server:
        keys = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "stand-in", "PERSONA_JUDGE": "anthropic"}
        more = {"PERSONA_FIRST_WEEK": first, "PERSONA_SENSOR_SECONDS": "5", "PERSONA_QUIET_MINUTES": "0"}
        with dagster_dev(root, keys | more) as address:
            page = _open(browser, f"{address}/assets/weekly_scores", 1000)
            # The sensor makes agents partitions in its first look.
            while not _asset(page, address, "weekly_scores", "{partitionKeys}")["partitionKeys"]:
                page.wait_for_timeout(2000)
            chosen = [f"{name}|{week}" for name in AGENTS for week in _mondays(first)]
            backfill = _backfill(page, address, [{"path": ["weekly_scores"]}], chosen)
            _wait_for_backfill(page, address, backfill)
            page.set_viewport_size({"width": 1600, "height": 1500})
            page.goto(f"{address}/assets/weekly_scores?view=overview")
            page.get_by_role("button", name="Plots").click()
            page.wait_for_timeout(5000)
            page.screenshot(path=PICTURES / "dagster-weeks.png")


def view(browser: "Browser", root: Path) -> None:
    """Take the messages out of character, as `persona-pipeline view` shows them."""
    command = [sys.executable, "-u", "-m", "persona_pipeline", "view", "--port", "0", "--labeller", "ada"]
    environment = {**os.environ, "PERSONA_ROOT": str(root)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        base, _, key = process.stdout.readline().split()[-1].partition("/?")
        address = f"{base}/messages?verdict=out&agent=michael&{key}"
        for scheme in ("light", "dark"):
            _take(browser, address, PICTURES / f"view-{scheme}.png", scheme)
    finally:
        stop_group(process)


def site(browser: "Browser", folder: Path) -> None:
    """Take some pages of a built site in every look, and say which are wider than their window."""
    for name in SHOWN:
        for look, scheme, width in LOOKS:
            target = folder.parent / "looks" / f"{name.replace('/', '-')}-{look}.png"
            target.parent.mkdir(exist_ok=True)
            wide = _take(browser, (folder / f"{name}.html").resolve().as_uri(), target, scheme, width)
            print(f"{name} {look}: {'wider than its window' if wide > width else 'fits'}")


def _take(browser: "Browser", address: str, target: Path, scheme: Any, width: int = 1200) -> int:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.goto(address)
    page.screenshot(path=target)
    wide = page.evaluate("document.documentElement.scrollWidth")
    page.close()
    return wide


def _wait_for(address: str) -> None:
    end = time.monotonic() + 480
    while time.monotonic() < end:
        with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=1):
            return
        time.sleep(0.5)
    raise SystemExit(f"{address} does not answer")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--site", type=Path, help="A built site whose pages are taken; the pictures are left as they are."
    )
    arguments = parser.parse_args()
    from playwright.sync_api import sync_playwright

    PICTURES.mkdir(exist_ok=True)
    with sync_playwright() as playwright, sample_world() as root:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(ARGUMENTS))
        if arguments.site:
            site(browser, arguments.site)
        else:
            report(browser, root)
            view(browser, root)
            dagster(browser, root)
            weeks(browser, root)
        browser.close()


if __name__ == "__main__":
    main()
