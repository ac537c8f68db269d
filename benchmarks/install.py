"""The wheel, in a new environment, as a stranger finds it.

**component**

A stranger's Dagster project, in a new environment: scaffolded worlds beside an asset ``messages`` of its own, materialized.

    .venv/bin/python benchmarks/install.py component

Builds the wheel, makes an environment with ``create-dagster`` and ``dg`` (from the package index or a cache), and does in it what
docs/reference/component.md says: a new project, an asset of chats, two worlds by ``dg scaffold``, one of which takes its messages
from that asset; checks, lists, and evaluates both with recorded judgments, without a key. Exit code 1 where something fails.

**matrix**

The wheel and the sdist, each in new environments: with the newest of all that is promised, and with the oldest.

    .venv/bin/python benchmarks/install.py matrix [PYTHON ...]

Builds the sdist, the wheel from the sdist and the wheel from the project, which must hold the same files. In each environment,
of each Python named (or this one), it makes a world, judges it over a local socket, takes a baseline, evaluates by the replay,
loads the world's Dagster project and runs its job. Exit code 1 where something fails.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from tests.support.messages_server import MessagesServer


def _run(
    command: list[str],
    cwd: Path | None = None,
    *,
    code: int | None = 0,
    path: Path | None = None,
    judge: bool = False,
) -> str:
    """Return what a command printed; it sees nothing of this project, and the judge's server only where it is to.

    ``code``: how it must end; None: either way.
    """
    hidden = ("PERSONA_", "PYTHONPATH") if judge else ("PERSONA_", "PYTHONPATH", "ANTHROPIC_")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(hidden)}
    if path is not None:
        environment["PATH"] = f"{path}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if code is not None and done.returncode != code:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


CHATS = '''
import dagster as dg
import pandas as pd

CHATS = {path!r}


@dg.asset
def messages() -> pd.DataFrame:
    """What was said in the shop."""
    rows = pd.read_json(CHATS, lines=True)
    return rows.rename(columns={{"agent_id": "speaker", "text": "body", "created_at": "sent_at"}}).drop(columns="id")


@dg.job
def evaluate_agent():
    """A job of the shop, with a name that a world alone in a code location has."""


defs = dg.Definitions(assets=[messages], jobs=[evaluate_agent], resources={{"world": 1, "values": 2, "evaluation": 3}})
'''
CHECKS = """
import persona_pipeline as pp

checks = pp.build_persona_checks(
    asset="messages", world={world!r}, columns={{"agent_id": "speaker", "text": "body", "created_at": "sent_at"}}
)
"""
LAB = """type: persona_pipeline.PersonaWorld

attributes:
  world: world
  prefix: lab
  messages:
    asset: messages
    columns: {agent_id: speaker, text: body, created_at: sent_at}
  leave_out: [schedules]
"""
RECORD = """
import os, sys, persona_pipeline as pp

assert "site-packages" in pp.__file__, pp.__file__
os.environ |= {"ANTHROPIC_BASE_URL": sys.argv[1], "ANTHROPIC_API_KEY": "test"}
for root in sys.argv[2:]:
    taken = pp.take_baselines(pp.load_world(root), judge="anthropic", record=True)
    assert taken.baselines, taken
"""
LOOK = """
import json, sqlite3, sys, dagster as dg

def count(root, table, where="1 = 1"):
    with sqlite3.connect(f"{root}/.persona/store.db") as connection:
        return connection.execute(f"select count(*) from {table} where {where}").fetchone()[0]

instance = dg.DagsterInstance.get()
found = {"partitions of 'agents'": instance.get_dynamic_partitions("agents")}
for name, root in zip(("office", "lab"), sys.argv[1:]):
    key = dg.AssetKey([name, "verdicts"])
    found[name] = {
        "agents": sorted(instance.get_dynamic_partitions(f"{name}/agents")),
        "compared": sorted(instance.get_materialized_partitions(key)),
        "messages": count(root, "run_messages"),
        "messages of the asset": count(root, "run_messages", "source = 'messages'"),
        "runs": count(root, "evaluation_runs"),
    }
print(json.dumps(found))
"""


@dataclass
class Stranger:
    """Somebody with an environment and a project, who sees nothing of this one."""

    bin: Path
    home: Path
    cwd: Path
    seconds: dict[str, tuple[float, float]] = field(default_factory=dict)

    def run(self, *command: str, name: str = "", code: int = 0) -> str:
        """Run a command of the environment and note its seconds, and those of CPU; ``name`` is what they are noted under."""
        environment = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("PERSONA_", "ANTHROPIC_", "PYTHONPATH", "DAGSTER_"))
        }
        environment |= {
            "PATH": f"{self.bin}{os.pathsep}{environment['PATH']}",
            "VIRTUAL_ENV": str(self.bin.parent),
            "DAGSTER_HOME": str(self.home),
            "DAGSTER_DISABLE_TELEMETRY": "1",
            "COLUMNS": "200",
        }
        started, cpu = time.perf_counter(), _children()
        done = subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            cwd=self.cwd,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        self.seconds[name or " ".join(command)] = (time.perf_counter() - started, _children() - cpu)
        if done.returncode != code:
            raise SystemExit(
                f"{' '.join(command)} ended with {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
            )
        return done.stdout + done.stderr


def run_component() -> None:
    with tempfile.TemporaryDirectory(prefix="component-project-") as place:
        folder = Path(place)
        stranger = _environment(folder)
        stranger.run("create-dagster", "project", "shop", "--no-uv-sync")
        uv = [sys.executable, "-m", "uv", "--quiet", "pip", "install", "--python", str(stranger.bin / "python")]
        subprocess.run([*uv, "--no-deps", "--no-build-isolation", "-e", str(folder / "shop")], check=True)
        stranger.cwd = folder / "shop"
        worlds = _write(stranger)
        for name in ("list components", "check yaml", "check defs"):
            said = stranger.run("dg", *name.split())
            assert name != "list components" or "persona_pipeline.PersonaWorld" in said, said
        said = stranger.run("dg", "list", "defs", "--json", name="dg list defs")
        listed = json.loads(said[said.index("{\n") : said.rindex("}") + 1])
        _materialize(stranger, worlds)
        _report(stranger, listed)


def _environment(folder: Path) -> Stranger:
    """Make an environment with the wheel, ``dg`` and ``create-dagster``."""
    python = str(folder / "env" / "bin" / "python")
    uv = [sys.executable, "-m", "uv", "--quiet"]
    install = [*uv, "pip", "install", "--python", python]
    build = [
        *uv,
        "build",
        "--wheel",
        "--no-build-isolation",
        "--python",
        sys.executable,
        "-o",
        str(folder),
        str(PROJECT),
    ]
    subprocess.run(build, check=True)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([*uv, "venv", "--python", sys.executable, str(folder / "env")], check=True)
    lock = str(PROJECT / "requirements.lock")
    subprocess.run([*install, "--no-deps", "--require-hashes", "-r", lock], check=True)
    subprocess.run([*install, "--no-deps", str(wheel)], check=True)
    pins = [line.rstrip(" \\") for line in Path(lock).read_text(encoding="utf-8").splitlines() if "==" in line]
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(pin for pin in pins if not pin.startswith((" ", "#"))) + "\n", encoding="utf-8")
    subprocess.run(
        [*install, "-c", str(constraints), "dagster-dg-cli", "create-dagster", "hatchling", "editables"], check=True
    )
    home = folder / "home"
    home.mkdir()
    # An instance as it comes, not ours.
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n", encoding="utf-8")
    return Stranger(folder / "env" / "bin", home, folder)


def _write(stranger: Stranger) -> list[str]:
    """Write the asset of chats, scaffold two worlds, and return their folders."""
    defs = stranger.cwd / "src" / "shop" / "defs"
    chats = stranger.cwd / "chats.jsonl"
    (defs / "chats.py").write_text(CHATS.format(path=str(chats)), encoding="utf-8")
    for name in ("office", "lab"):
        stranger.run("dg", "scaffold", "defs", "persona_pipeline.PersonaWorld", name)
    worlds = [str(defs / name / "world") for name in ("office", "lab")]
    # The second world has no messages of its own: they come out of the asset.
    Path(worlds[1], "messages", "team.jsonl").rename(chats)
    (defs / "lab" / "defs.yaml").write_text(LAB, encoding="utf-8")
    (defs / "voices.py").write_text(CHECKS.format(world=worlds[1]), encoding="utf-8")
    return worlds


def _materialize(stranger: Stranger, worlds: list[str]) -> None:
    """Bring the asset's rows into one world, record judgments, and evaluate both worlds by the replay."""
    rows = 'key:"messages" or key:"lab/message_rows"'
    stranger.run("dg", "launch", "--assets", rows, name="dg launch --assets messages, lab/message_rows")
    with MessagesServer() as server:
        stranger.run("python", "-c", RECORD, server.url, *worlds, name="record judgments")
    print(f"{server.paid} judgments recorded")
    # Now that there is something to replay, the checks on the asset pass too.
    stranger.run("dg", "launch", "--assets", rows, name="the same, with checks that pass")
    for job in ("office__persona_regression", "lab__persona_regression"):
        stranger.run("dg", "launch", "--job", job)
    stranger.run("dg", "launch", "--job", "office__evaluate_agent", "--partition", "mira")
    found = json.loads(
        stranger.run("python", "-W", "ignore", "-c", LOOK, *worlds, name="look").strip().splitlines()[-1]
    )
    print(json.dumps(found, indent=1))
    assert found["partitions of 'agents'"] == []
    office, lab = found["office"], found["lab"]
    assert office["agents"] == lab["agents"] == office["compared"] == lab["compared"] == ["mira", "otto"], found
    assert office["messages"] == lab["messages"] == lab["messages of the asset"] and not office["messages of the asset"]


def _report(stranger: Stranger, listed: dict) -> None:
    kinds = {kind: len(items) for kind, items in listed.items() if isinstance(items, list)}
    print(", ".join(f"{count} {kind}" for kind, count in kinds.items()))
    for name in ("office", "lab"):
        lines = (stranger.cwd / "src" / "shop" / "defs" / name / "defs.yaml").read_text(encoding="utf-8").splitlines()
        print(f"{name}: {sum(bool(line.strip()) for line in lines)} lines of YAML")
    for name, (seconds, cpu) in stranger.seconds.items():
        print(f"{seconds:6.1f} s {cpu:6.1f} CPU  {name}")


def _children() -> float:
    """Return the CPU seconds of the processes that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


PACKAGES = ("dagster", "pydantic", "sqlalchemy", "pandas", "anthropic")
# What a new world is taken through, and how each command ends: nothing to compare with, then in character.
STEPS = (
    ("persona-pipeline evaluate --judge anthropic --record --samples 3", 3),
    ("persona-pipeline baseline --samples 3", 0),
    ("persona-pipeline evaluate", 0),
    ("dagster definitions validate -m persona_pipeline.definitions", 0),
    ("dagster job execute -m persona_pipeline.definitions -j persona_regression", 0),
)


def run_matrix() -> None:
    pythons = sys.argv[1:] or [sys.executable]
    with tempfile.TemporaryDirectory(prefix="install-matrix-") as place, MessagesServer() as server:
        folder = Path(place)
        wheel, sdist = _build(folder)
        os.environ |= {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "test"}
        for number, (python, built, oldest) in enumerate(
            (python, built, oldest) for python in pythons for oldest in (False, True) for built in (wheel, sdist)
        ):
            started = time.perf_counter()
            versions = _evaluate_in_new_environment(folder / str(number), python, built, oldest=oldest)
            kind = "oldest" if oldest else "newest"
            print(f"{built.suffix[1:]:<4} {kind}  {versions}  {time.perf_counter() - started:.0f} s", flush=True)
        assert not server.problems, server.problems


def _build(folder: Path) -> tuple[Path, Path]:
    """Build wheel and sdist, and check that the project and the sdist make the same wheel."""
    build = [sys.executable, "-m", "uv", "--quiet", "build", "--no-build-isolation", "--python", sys.executable]
    _run([*build, "-o", str(folder / "of-sdist"), str(PROJECT)])
    _run([*build, "--wheel", "-o", str(folder / "of-project"), str(PROJECT)])
    (wheel,), (sdist,) = (folder / "of-sdist").glob("*.whl"), (folder / "of-sdist").glob("*.tar.gz")
    held = [zipfile.ZipFile(folder / kind / wheel.name) for kind in ("of-sdist", "of-project")]
    first, second = ({item.filename: item.CRC for item in archive.infolist()} for archive in held)
    assert first == second, sorted({*first.items()} ^ {*second.items()})
    print(f"{wheel.name}: {len(first)} files, {wheel.stat().st_size / 1e6:.1f} MB; {sdist.stat().st_size / 1e6:.1f} MB")
    return wheel, sdist


def _evaluate_in_new_environment(folder: Path, python: str, built: Path, *, oldest: bool) -> str:
    """Install, take a world through ``STEPS``, and return the versions it was done with."""
    bin_ = folder / "env" / "bin"
    uv = [sys.executable, "-m", "uv", "--quiet"]
    install = [*uv, "pip", "install", "--python", str(bin_ / "python")]
    _run([*uv, "venv", "--python", python, str(folder / "env")])
    if oldest:
        pins = folder / "oldest.txt"
        compiled = [*uv, "pip", "compile", "--resolution", "lowest-direct", "--python", str(bin_ / "python")]
        _run([*compiled, "-o", str(pins), str(PROJECT / "pyproject.toml")])
        _run([*install, "-r", str(pins)])
    _run([*install, str(built)])
    _run([str(bin_ / "persona-pipeline"), "init", "world"], folder)
    (folder / "dagster").mkdir()
    os.environ["DAGSTER_HOME"] = str(folder / "dagster")
    for command, code in STEPS:
        name, *rest = command.split()
        _run([str(bin_ / name), *rest], folder / "world", code=code, judge=True)
    asked = f"import sys, importlib.metadata as m; print(sys.version.split()[0], *(f'{{n}} {{m.version(n)}}' for n in {PACKAGES}))"
    return _run([str(bin_ / "python"), "-c", asked]).strip()


COMMANDS = {"component": run_component, "matrix": run_matrix}


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit(f"{__doc__}\nname one of {', '.join(COMMANDS)}")
    sys.exit(COMMANDS[sys.argv.pop(1)]())
