"""The wheel and the sdist, each in new environments: with the newest of all that is promised, and with the oldest.

    .venv/bin/python benchmarks/install.py matrix [PYTHON ...]

Builds the sdist, the wheel from the sdist and the wheel from the project, which must hold the same files. In each environment,
of each Python named (or this one), it makes a world, judges it over a local socket, takes a baseline, evaluates by the replay,
loads the world's Dagster project and runs its job. Exit code 1 where something fails.
"""

import os
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from tests.support.messages_server import MessagesServer


def _run(command: list[str], cwd: Path | None = None, *, code: int = 0, judge: bool = False) -> str:
    """Return what a command printed; it sees nothing of this project, and the judge's server only where it is to.

    ``code``: how it must end.
    """
    hidden = ("PERSONA_", "PYTHONPATH") if judge else ("PERSONA_", "PYTHONPATH", "ANTHROPIC_")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(hidden)}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != code:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


PACKAGES = ("dagster", "pydantic", "sqlalchemy", "pandas", "anthropic")
# What a new world is taken through, and how each command ends: nothing to compare with, then in character.
STEPS = (
    ("persona-pipeline evaluate --judge anthropic --record --samples 3", 3),
    ("persona-pipeline baseline --samples 3", 0),
    ("persona-pipeline evaluate", 0),
    ("dagster definitions validate -m persona_pipeline.definitions", 0),
    ("dagster job execute -m persona_pipeline.definitions -j persona_regression", 0),
)


def run_matrix(pythons: list[str]) -> None:
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


if __name__ == "__main__":
    if sys.argv[1:2] != ["matrix"]:
        sys.exit(__doc__)
    run_matrix(sys.argv[2:] or [sys.executable])
