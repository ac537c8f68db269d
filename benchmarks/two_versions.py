"""Two versions of this package on one store: an older worker reads and writes while the newer one does.

    python -m benchmarks.two_versions [--old COMMIT ...] [--rounds 3] [--postgres]

Of each older commit the package is taken out of git. Both versions read messages of their own in and evaluate at the same time,
each as a process, on a store that the older one made. Where the newer one's schema is newer, it brings the store up to date in the
middle of the older one's reading; from then on the older one has to refuse it by name. In the end every message whose command ended
well stands in the store once, and the newer version reads what both evaluated.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import sqlalchemy as sa

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from persona_pipeline.base.database import tables
from persona_pipeline.base.database.engine import open_store
from persona_pipeline.testing.worlds import write_small_world
from tests.support.messages_server import MessagesServer
from tests.support.postgres import fresh_database, postgres_server

# The same schema, and the first one.
OLDER = ("fee18c4", "a7bee73")
COMMAND = "from persona_pipeline.cli import main; main()"
MESSAGES = 4_000


@dataclass
class Version:
    """The package as some commit has it, and what its commands said."""

    name: str
    code: Path
    environment: dict[str, str]
    prefix: str
    written: int = 0
    ended: list[tuple[str, int, str]] = field(default_factory=list)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", COMMAND, *arguments],
            env=self.environment | {"PYTHONPATH": str(self.code)},
            cwd=self.code,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self, process: subprocess.Popen[str], what: str) -> int:
        _, said = process.communicate(timeout=480)
        self.ended.append((what, process.returncode, said.strip()[-400:]))
        return process.returncode


def messages(path: Path, prefix: str) -> Path:
    """Write messages that both versions read."""
    start = datetime(2026, 5, 1, tzinfo=UTC)
    with path.open("w", encoding="utf-8") as file:
        for number in range(MESSAGES):
            row = {"id": f"{prefix}{number}", "agent_id": ("ann", "bob")[number % 2], "channel": f"c{number % 50}"}
            row |= {"text": f"text {number}", "created_at": (start + timedelta(seconds=number)).isoformat()}
            file.write(json.dumps(row) + "\n")
    return path


def together(folder: Path, commit: str, rounds: int, url: str) -> int:
    """Run both versions on one store and print what came of it; return how much was wrong."""
    old_code = folder / "old"
    old_code.mkdir()
    archive = subprocess.run(
        ["git", "-C", str(PROJECT), "archive", commit, "persona_pipeline"], capture_output=True, check=True
    )
    subprocess.run(["tar", "-x", "-C", str(old_code)], input=archive.stdout, check=True)
    root = write_small_world(folder / "world")
    with MessagesServer(latency=0.02) as server:
        environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        environment |= {"PERSONA_ROOT": str(root), "PERSONA_DATABASE_URL": url, "ANTHROPIC_API_KEY": "k"}
        environment |= {"ANTHROPIC_BASE_URL": server.url, "PERSONA_JUDGE_CANARIES": "0"}
        old, new = Version(commit, old_code, environment, "old"), Version("this one", PROJECT, environment, "new")
        old.end(old.start("evaluate", "--agents", "ann", "--judge", "anthropic"), "evaluate, alone")
        for number in range(rounds):
            under_way = []
            for version in (old, new):
                path = messages(folder / f"{version.prefix}{number}.jsonl", f"{version.prefix}-{number}-")
                under_way.append((version, version.start("ingest", str(path)), "ingest"))
                # The newer one comes in the middle of the older one's work.
                time.sleep(2)
            for version, agent in ((old, "ann"), (new, "bob")):
                under_way.append(
                    (version, version.start("evaluate", "--agents", agent, "--judge", "anthropic"), "evaluate")
                )
            for version, process, what in under_way:
                if version.end(process, what) == 0 and what == "ingest":
                    version.written += MESSAGES
        problems = server.problems
    return told(old, new, url, problems)


def told(old: Version, new: Version, url: str, problems: list[str]) -> int:
    wrong = len(problems)
    with ExitStack() as stack:
        store = open_store(url)
        stack.callback(store.close)
        with store.connect() as connection:
            for version in (old, new):
                whose = tables.run_messages.c.id.like(f"{version.prefix}-%")
                count = connection.execute(sa.select(sa.func.count()).where(whose)).scalar_one()
                # What a command wrote that was refused afterwards is no loss.
                wrong += count < version.written or count > MESSAGES * len(version.ended)
                print(
                    f"  messages of {version.name}: {count:,} stored, {version.written:,} of commands that ended well"
                )
            runs = connection.execute(sa.select(sa.func.count()).select_from(tables.evaluation_runs)).scalar_one()
            if store.is_sqlite:
                said = connection.execute(sa.text("PRAGMA integrity_check")).scalar_one()
                wrong += said != "ok"
                print(f"  integrity: {said}")
    for version in (old, new):
        seen: dict[tuple[str, int, str], int] = {}
        for what, code, said in version.ended:
            last = said.splitlines()[-1][:160] if code not in (0, 1) and said else ""
            seen[what, code, last] = seen.get((what, code, last), 0) + 1
        for (what, code, last), times in seen.items():
            print(f"  {version.name}: {times} x {what}: exit {code} {last}")
    traces = [said for version in (old, new) for _, _, said in version.ended if "Traceback" in said]
    wrong += len([1 for _, code, _ in new.ended if code not in (0, 1, 3)]) + len(
        [1 for _, _, said in new.ended if "Traceback" in said]
    )
    print(f"  runs stored: {runs}; tracebacks: {len(traces)}; wrong: {wrong}", flush=True)
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", nargs="*", default=OLDER)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--postgres", action="store_true", help="on a Postgres of its own instead of SQLite")
    arguments = parser.parse_args()
    wrong = 0
    for commit in arguments.old:
        with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
            folder = Path(name)
            url = f"sqlite:///{folder / 'store.db'}"
            if arguments.postgres:
                url = stack.enter_context(fresh_database(stack.enter_context(postgres_server(folder / "postgres"))))
            print(f"{commit} and this one on {url.split(':')[0]}", flush=True)
            wrong += together(folder, commit, arguments.rounds, url)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
