"""What programs of a suite opened is what their tests rest on: for --changed, --resume, --cache and Dagster's sensor alike."""

import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.base.settings import get_settings
from persona_pipeline.suites.running.opening import suite_files
from persona_pipeline.suites.running.suite_run import look_at_suite
from tests.suites.support import write
from tests.support.command_line import Cli, in_process

ANSWER = "print(open('../data/words.txt').read())\n"
LISTING = "import os\nprint('hello', sorted(os.listdir('../data')))\n"
ASKING = "import pathlib\nprint('bye' if pathlib.Path('../flags/rude').exists() else 'hello')\n"
IN_LIB = "import sys\nsys.path.insert(0, '../lib')\nimport words\nprint(words.SAID)\n"
FOUND = "import os\nHERE = os.path.dirname(os.path.abspath(__file__))\n"
CHILD = (
    "import subprocess, sys\ncommand = [sys.executable, '../tools/say.py']\n"
    "print(subprocess.run(command, capture_output=True, text=True).stdout)\n"
)
SYSTEM = "import os, sys\nsys.stdout.flush()\nos.system('cat ../data/words.txt')\n"
POOLED = """
import multiprocessing, pathlib
def read(name):
    return pathlib.Path(name).read_text()
if __name__ == "__main__":
    with multiprocessing.get_context("METHOD").Pool(1) as pool:
        print(pool.map(read, ["../data/words.txt"])[0])
"""
IN_C = "import ctypes\nread = ctypes.CDLL('libc.so.6')\nprint('hello', bool(read))\n"
STORED = "import sqlite3\nprint(sqlite3.connect('../data/words.db').execute('select word from words').fetchone()[0])\n"
INSTALLED = "import sys\nsys.path.insert(0, '../.venv/lib/python3/site-packages')\nimport thing\nprint(thing.SAID)\n"
FILES = {
    "data/words.txt": "hello",
    "data/v1/words.txt": "hello",
    "data/v2/words.txt": "hello again",
    "lib/words.py": "SAID = 'hello'\n",
    "tools/say.py": "print('hello')\n",
    "tools/say.sh": "echo hello\n",
    ".venv/lib/python3/site-packages/thing.py": "SAID = 'hello'\n",
    ".venv/lib/python3/site-packages/thing-1.0.dist-info/METADATA": "Name: thing\n",
    ".gitignore": ".persona/\n.venv/\n__pycache__/\n*.jsonl\n",
    "docs/page.md": "a page\n",
    "unrelated/other.py": "OTHER = 1\n",
}
_NUMBERS = itertools.count()
READERS = ("sensor", "changed", "resume", "cache")


def edit(name: str, text: str) -> Callable[[Path], None]:
    return lambda root: write(root, {name: text})


def remove(name: str) -> Callable[[Path], None]:
    return lambda root: (root / name).unlink()


def linked(name: str, target: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        (root / name).unlink(missing_ok=True)
        (root / name).symlink_to(target)

    return change


def both(*changes: Callable[[Path], None]) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        for one in changes:
            one(root)

    return change


def store(word: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        import sqlite3

        (root / "data").mkdir(exist_ok=True)
        connection = sqlite3.connect(root / "data/words.db")
        with connection:
            connection.execute("create table if not exists words (word text)")
            connection.execute("delete from words")
            connection.execute("insert into words values (?)", (word,))
        connection.close()

    return change


def upgrade(root: Path) -> None:
    packages = root / ".venv/lib/python3/site-packages"
    (packages / "thing.py").write_text("SAID = 'go away'\n")
    (packages / "thing-1.0.dist-info").rename(packages / "thing-2.0.dist-info")


@dataclass(frozen=True)
class Layout:
    """A program, where it reads, and what is done to that.

    Attributes:
        command: of the target's program, which runs in ``agent/``; ``function``: of a python target instead.
        before: what is done to the repository before it is committed.
        precise: a change of a file that it does not read is known to be none of its own.
    """

    id: str
    change: Callable[[Path], None]
    script: str = ANSWER
    files: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ("python3", "answer.py")
    function: str = ""
    before: Callable[[Path], None] = lambda root: None
    precise: bool = True


WORDS = edit("data/words.txt", "go away")
LAYOUTS = [
    Layout("../data", WORDS),
    Layout("../lib", edit("lib/words.py", "SAID = 'go away'\n"), IN_LIB),
    Layout(
        "a module of ../lib that appears beside the script",
        edit("agent/words.py", "SAID = 'no'\n"),
        IN_LIB.replace("0,", "99,"),
    ),
    Layout(
        "a file that ../lib reads when it is imported",
        WORDS,
        IN_LIB,
        {"lib/words.py": f"{FOUND}SAID = open(HERE + '/../data/words.txt').read()\n"},
    ),
    Layout("../tools, a Python program that it starts", edit("tools/say.py", "print('go away')\n"), CHILD),
    Layout(
        "../tools, that a shell script starts",
        edit("tools/say.sh", "echo go away\n"),
        "sh ../tools/say.sh\n",
        command=("sh", "answer.py"),
        precise=False,
    ),
    Layout(
        "what a shell reads before it starts Python",
        edit("data/words.txt", "print('go away')"),
        command=("sh", "-c", "cat ../data/words.txt | python3"),
        before=edit("data/words.txt", "print('hello')"),
        precise=False,
    ),
    Layout(
        "what a shell reads before it becomes a Python of the same arguments",
        WORDS,
        "''':'\ncat ../data/words.txt\nexec python3 $0\n'''\n",
        command=("sh", "answer.py"),
        precise=False,
    ),
    Layout(
        "what a Python without the record reads",
        WORDS,
        f"import subprocess, sys\nsubprocess.run([sys.executable, '-S', '-E', '-c', {ANSWER!r}])\n",
        precise=False,
    ),
    Layout(
        "a link on the way to a link",
        linked("data/now", "v2"),
        ANSWER.replace("data/", "flags/"),
        {"flags/x": ""},
        before=both(linked("data/now", "v1"), linked("flags/words.txt", "../data/now/words.txt")),
    ),
    Layout("what a forked process reads", WORDS, POOLED.replace("METHOD", "fork")),
    Layout("a new file in a folder that it lists", edit("data/more.txt", "x"), LISTING),
    Layout("a new file that it looks for", edit("flags/rude", ""), ASKING),
    Layout("a database", store("go away"), STORED, before=store("hello")),
    Layout("what a library in C may read", WORDS, IN_C, precise=False),
    Layout("a distribution of its environment", upgrade, INSTALLED),
    Layout(
        "a module of a package",
        edit("agent/pack/words.py", "SAID = 'no'\n"),
        "",
        {
            "agent/pack/__init__.py": "",
            "agent/pack/words.py": "SAID = 'hello'\n",
            "agent/pack/say.py": "from . import words\nprint(words.SAID)\n",
        },
        ("python3", "-m", "pack.say"),
    ),
    Layout(
        "../data of a function",
        WORDS,
        files={
            "agent/NAME.py": f"{FOUND}SAID = open(HERE + '/../data/words.txt').read()\ndef say(prompt):\n    return SAID\n"
        },
        function="say",
        precise=False,
    ),
]


@dataclass
class Repository:
    root: Path
    cli: Cli

    def make(self, layout: Layout) -> None:
        # Modules are loaded once a process.
        name = f"agent_{next(_NUMBERS)}"
        files = {**FILES, "agent/answer.py": layout.script, **layout.files}
        write(self.root, {path.replace("NAME", name): text for path, text in files.items()})
        target: dict[str, Any] = {"name": "program", "provider": "cli", "command": [*layout.command], "cwd": "."}
        if layout.function:
            target = {"name": "program", "provider": "python", "function": f"{name}:{layout.function}"}
        mock = {"name": "mock", "provider": "mock", "response": "hello"}
        write(self.root, {"agent/targets.yaml": json.dumps({"targets": [target, mock]})})
        test = "  - {id: %s, input: hi, execution: {target: %s}, assert: [{type: contains, value: hello}]}\n"
        write(self.root, {"agent/s.eval.yaml": "tests:\n" + test % ("t", "program") + test % ("u", "mock")})
        # A world holds its suites in suites/.
        (self.root / "suites").symlink_to("agent")
        layout.before(self.root)
        self.git("init", "-q")
        self.commit()

    def git(self, *arguments: str) -> None:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *identity, *arguments], cwd=self.root, check=True, capture_output=True)

    def commit(self) -> None:
        self.git("add", "-A")
        self.git("commit", "-qm", "as it is", "--allow-empty")

    def run(self, *options: str) -> list[dict[str, Any]]:
        done = self.cli("suite", "run", str(self.root / "agent"), "--allow-code", "--json", *options)
        assert done.returncode in (0, 1), done.stdout + done.stderr
        return json.loads(done.stdout)["tests"]

    def sensor(self) -> str:
        (file,) = suite_files(self.root)
        return look_at_suite(self.root, file, get_settings())[0]

    def seen(self, reader: str) -> list[str]:
        """Return the tests that a reader takes to rest on what changed since ``remember``."""
        if reader == "sensor":
            return ["t"] if self.sensor() != self.digest else []
        if reader == "cache":
            return [row["test_id"] for row in self.run("--cache") if not row.get("cached")]
        if reader == "changed":
            return [row["test_id"] for row in self.run("--changed", "HEAD")]
        before = len(self.rows)
        self.run("--resume", "--output", str(self.root / "r.jsonl"))
        lines = (self.root / "r.jsonl").read_text().splitlines()
        return [json.loads(line)["test_id"] for line in lines[before:]]

    def remember(self) -> None:
        self.run("--cache", "--output", str(self.root / "r.jsonl"))
        self.rows = (self.root / "r.jsonl").read_text().splitlines()
        self.digest = self.sensor()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Repository:
    root = tmp_path / "repository"
    root.mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path])
    return Repository(root, in_process(root, monkeypatch, capsys))


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.id)
def test_a_change_of_what_a_program_reads_is_seen(repository: Repository, layout: Layout) -> None:
    # The others have the sensor's digest.
    readers = READERS if layout is LAYOUTS[0] else READERS[:2]

    def seen() -> list[list[str]]:
        return [repository.seen(reader) for reader in readers]

    repository.make(layout)
    repository.remember()
    if layout.precise:
        write(repository.root, {"unrelated/other.py": "OTHER = 2\n", "docs/page.md": "another page\n"})
    assert seen() == [[]] * len(readers), "nothing has changed of what it reads"
    layout.change(repository.root)
    assert seen() == [["t"]] * len(readers)


def _first_record(root: Path) -> Path:
    return sorted((root / ".persona/opened").iterdir())[0]


@pytest.mark.parametrize(
    "change",
    [
        lambda root: _first_record(root).write_text('[["./data/words.txt", "", 1]'),
        lambda root: _first_record(root).unlink(),
        lambda root: (root / ".gitignore").write_text("__pycache__/\n*.jsonl\n"),
    ],
    ids=["half written", "gone", "in git"],
)
def test_a_record_that_cannot_be_believed_is_none(repository: Repository, change: Callable[[Path], object]) -> None:
    repository.make(Layout("", WORDS))
    repository.remember()
    assert repository.seen("changed") == []
    change(repository.root)
    repository.commit()
    write(repository.root, {"unrelated/other.py": "OTHER = 2\n"})
    assert repository.seen("changed") == ["t"], "the whole repository counts"


def test_what_differs_from_the_last_run_counts_as_a_change(repository: Repository) -> None:
    repository.make(Layout("", WORDS))
    repository.remember()
    WORDS(repository.root)
    repository.commit()
    assert repository.seen("changed") == ["t"], "what it opens now was not recorded"
    assert repository.seen("changed") == []


def test_a_program_that_ran_out_of_time_may_open_anything(repository: Repository) -> None:
    repository.make(Layout("", WORDS, "import time\ntime.sleep(60)\n"))
    repository.cli(
        "suite", "run", str(repository.root / "agent"), "--allow-code", "--timeout", "1", "--max-retries", "0"
    )
    write(repository.root, {"unrelated/other.py": "OTHER = 2\n"})
    done = repository.cli("suite", "run", str(repository.root / "agent"), "--changed", "HEAD", "--json")
    assert [row["test_id"] for row in json.loads(done.stdout)["tests"]] == ["t"]
