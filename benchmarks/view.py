"""The page of `persona-pipeline view` over a large store: seconds until a browser paints each of its lists.

    python benchmarks/view.py [--agents 50] [--messages 100000] [--weeks 52] [--times 7] [--postgres] [--keep FOLDER]

Rooms of ten agents that talked for 400 days, a stored run of each agent and week, each with twenty claims whose judge cited three
messages of that week, and 2,000 thumbs. `persona-pipeline view` is a process of its own; headless chromium opens each address so
often, in turn, and the medians of first contentful paint and of the server's answer are printed, in seconds, with the slowest and
the server's mean CPU seconds. The tables of all messages and of those out of character are fetched whole.
"""

import argparse
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.scale import database, write_files, write_runs
from tests.support.browser import ARGUMENTS

THUMBS = 2000
# Words of the texts, and one that stands in none: then every message is read.
COMMON, ABSENT = "kettle harbour", "zeppelin"
_PAINTED = """() => {
  const [navigation] = performance.getEntriesByType("navigation");
  const paint = performance.getEntriesByName("first-contentful-paint")[0];
  return paint && [paint.startTime / 1000, (navigation.responseEnd - navigation.requestStart) / 1000];
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=50)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--weeks", type=int, default=52)
    parser.add_argument("--times", type=int, default=7)
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--keep", type=Path, help="make the world here, and use it again when it is there")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = stack.enter_context(database(folder / "postgres")) if options.postgres else f"sqlite:///{folder}/store.db"
        if options.postgres or not (folder / "world").exists():
            build(folder / "world", url, options)
        measure(folder / "world", url, options.times)


def build(root: Path, url: str, options: argparse.Namespace) -> None:
    """Write the world, its messages, runs with verdicts on them, and thumbs."""
    from persona_pipeline.guard.labels.files import LABELS, write_label_files
    from persona_pipeline.guard.labels.messages import MarkSource, MessageLabel, message_label
    from persona_pipeline.scoring.messages.verdicts import Role
    from persona_pipeline.world import World

    started = time.perf_counter()
    write_files(root, options.agents, options.messages)
    world = World.open(root, url)
    world.sync()
    count = write_runs(root, url, options.weeks)
    draw = random.Random(2)
    said: dict[str, list[Any]] = {}
    for message in world.messages():
        said.setdefault(message.agent_id, []).append(message)
    judge(world, said, draw)
    chosen = draw.sample([message for own in said.values() for message in own], THUMBS)
    labels = [
        message_label(message, Role.IN if draw.random() < 0.7 else Role.OUT, "ada", MarkSource.PERSON)
        for message in chosen
    ]
    write_label_files(MessageLabel, root / LABELS, labels)
    world.store.close()
    print(
        f"{options.messages:,} messages, {count:,} runs, {len(labels):,} thumbs: {time.perf_counter() - started:.0f} s"
    )


def judge(world: Any, said: dict[str, list[Any]], draw: random.Random) -> None:
    """Write a verdict of each run on each message of its agent and window; 5 % are out of character, 1 % unclear."""
    from persona_pipeline.base.database import tables

    runs = tables.evaluation_runs
    with world.store.connect() as connection:
        rows = connection.execute(sa.select(runs.c.id, runs.c.agent_id, runs.c.window_end)).all()
    with world.store.begin() as connection:
        for row in rows:
            verdicts = [
                {
                    "evaluation_run_id": row.id,
                    "message_id": message.id,
                    "agent_id": row.agent_id,
                    "conversation": str(message.channel),
                    "said_at": message.created_at,
                    "verdict": verdict,
                    "claims": [f"adherence-common-{place}" for place in range(1, draw.randint(2, 4))] if is_bad else [],
                    "quote": " ".join(message.text.split()[2:7]) if is_bad else "",
                    "reason": "The manner is lost." if is_bad else "",
                }
                for message in said[row.agent_id]
                if 0 <= (row.window_end - message.created_at).days < 7
                for (verdict,) in [draw.choices(("out", "unclear", "in"), (5, 1, 94))]
                for is_bad in [verdict != "in"]
            ]
            if verdicts:
                connection.execute(sa.insert(tables.message_verdicts), verdicts)


def measure(root: Path, url: str, times: int) -> None:
    """Serve the page, open its addresses in a browser, and print what that takes."""
    from playwright.sync_api import sync_playwright

    kept = {name: value for name, value in os.environ.items() if not name.startswith("PERSONA_")}
    environment = {**kept, "PERSONA_ROOT": str(root), "PERSONA_DATABASE_URL": url, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "persona_pipeline", "view", "--port", "0", "--labeller", "ada"]
    started = time.perf_counter()
    server = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        base, key = re.findall(r"(http://[^/]+)/\?key=(\S+)", line)[0]
        print(f"address printed after {time.perf_counter() - started:.2f} s")
        with sync_playwright() as playwright:
            path = shutil.which("chromium")
            browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
            page = browser.new_page()
            for name, address in (
                ("the first page", f"/?key={key}"),
                ("the first list of messages out of character", "/messages?verdict=out"),
            ):
                page.goto(base + address)
                page.wait_for_function(_PAINTED)
                print(f"{name}, right after the start: {page.evaluate(_PAINTED)[0]:.2f} s")
            print(f"{'n = ' + str(times):<44}{'paint':>8}{'most':>8}{'answer':>8}{'CPU':>8}")
            found: dict[str, list[list[float]]] = {name: [] for name in addresses()}
            for _ in range(times):
                for name, address in addresses().items():
                    before = used(server.pid)
                    page.goto(base + address)
                    page.wait_for_function(_PAINTED)
                    found[name].append([*page.evaluate(_PAINTED), used(server.pid) - before])
            for name, values in found.items():
                paints, answers, spent = zip(*values, strict=True)
                middle = statistics.median(paints), max(paints), statistics.median(answers), statistics.fmean(spent)
                print(f"{name:<44}" + "".join(f"{value:>8.3f}" for value in middle))
            for address in ("/messages.csv?verdict=out", "/messages.csv"):
                fetch(page, base + address, server.pid, times)
            browser.close()
    finally:
        server.terminate()
        server.wait(10)


def fetch(page: Any, address: str, process: int, times: int) -> None:
    """Fetch a table so often, and print the median seconds, the mean CPU seconds and its size."""
    seconds, spent, size = [], [], 0
    for _ in range(times):
        started, before = time.perf_counter(), used(process)
        size = len(page.request.get(address, timeout=600_000).body())
        seconds.append(time.perf_counter() - started)
        spent.append(used(process) - before)
    name = address.partition("/messages")[2]
    print(f"{name:<44}{statistics.median(seconds):>8.2f}{statistics.fmean(spent):>8.2f}{size:>12,} bytes")


def used(process: int) -> float:
    """Return the CPU seconds of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def addresses() -> dict[str, str]:
    """Return what is opened, by what it is."""
    middle = quote("2025-08-01T00:00:00+00:00~m0")
    return {
        "agents": "/",
        "an agent": "/agent?id=agent-0007",
        "all messages, the worst first": "/messages",
        "all messages, the newest first": "/messages?order=newest",
        "of an agent, the worst first": "/messages?agent=agent-0007",
        "out of character": "/messages?verdict=out",
        "out of character, of an agent": "/messages?verdict=out&agent=agent-0007",
        "that break a claim": "/messages?claim=adherence-common-1",
        "of a room": "/messages?channel=room-0003",
        "out of character, of two weeks": "/messages?verdict=out&since=2025-09-01&until=2025-09-14",
        "of a week": f"/messages?window={quote('2025-09-06T00:00:00+00:00/2025-09-13T00:00:00+00:00')}",
        "search, common words": f"/messages?q={quote(COMMON)}",
        "search, a word that nobody said": f"/messages?q={ABSENT}",
        "search within an agent": f"/messages?agent=agent-0007&q={ABSENT}",
        "thumbs down": "/messages?thumb=down",
        "without a thumb": "/messages?thumb=none",
        "far back in the list": f"/messages?older={middle}",
        "a message": "/message?id=m50000",
        "a claim before and after": "/compare?agent=agent-0007&dimension=adherence&claim=adherence-common-1",
    }


if __name__ == "__main__":
    main()
