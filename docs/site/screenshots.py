"""The pictures of the documentation: the HTML report, the page to work in and Dagster on the sample world, taken in Chromium.

    python docs/site/screenshots.py [--site .persona/site]

They are written to docs/site/pictures/. With --site pages of a built site are taken instead, light, dark and 390 pixels wide, into
the folder `looks` beside it, to be looked at.
"""

import argparse
import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT))

from tests.support.browser import ARGUMENTS  # noqa: E402
from tests.support.stopping import stop_group  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Browser

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


def dagster(browser: "Browser", root: Path) -> None:
    """Take the lineage of the assets, as `dagster dev` shows it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-W", "ignore", "-m", "dagster", "dev", "--port", str(port), "--host", "127.0.0.1"]
    log = subprocess.DEVNULL
    process = subprocess.Popen(command, cwd=root, stdout=log, stderr=log, start_new_session=True)
    try:
        _wait_for(f"http://127.0.0.1:{port}/server_info")
        page = browser.new_page(viewport={"width": 1600, "height": 900})
        page.set_default_timeout(120_000)
        page.route(re.compile(r"^https?://(?!127\.0\.0\.1)"), lambda route: route.abort())
        page.goto(f"http://127.0.0.1:{port}/asset-groups")
        for group in ("sources", "world", "scores", "evaluation"):
            page.get_by_text(group, exact=True).first.wait_for()
        # The graph is laid out once more when its names are known.
        page.wait_for_timeout(3000)
        page.screenshot(path=PICTURES / "dagster-lineage.png")
    finally:
        stop_group(process)


def view(browser: "Browser", root: Path) -> None:
    """Take the lines that broke character, as `persona-pipeline view` shows them."""
    command = [sys.executable, "-u", "-m", "persona_pipeline", "view", "--port", "0", "--labeller", "ada"]
    environment = {**os.environ, "PERSONA_ROOT": str(root)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        base, _, key = process.stdout.readline().split()[-1].partition("/?")
        address = f"{base}/messages?broke=1&agent=michael&{key}"
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
        browser.close()


if __name__ == "__main__":
    main()
