"""The wheel alone, in a new environment with the pinned dependencies: does everything a user is promised work there?

    .venv/bin/python -m benchmarks.fresh_install

Builds the wheel, makes an environment (dependencies come from the package index or a cache), and does in it, in an empty folder:
a world by ``init``, the API with a live judge over a local socket, recordings, baselines, a comparison, a suite, the gate, a pytest
run with the plugin; and checks with pyright that all public names are typed. Exit code 1 where something fails.
"""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from tests.support.messages_server import MessagesServer

PROJECT = Path(__file__).parents[1]
SCRIPT = """
import asyncio, os, persona_pipeline as pp

assert "site-packages" in pp.__file__, pp.__file__
os.environ |= {"ANTHROPIC_BASE_URL": os.environ["JUDGE_URL"], "ANTHROPIC_API_KEY": "test"}
world = pp.load_world("world")
print(pp.estimate(world, judge="anthropic"))
taken = pp.take_baselines(world, judge="anthropic", record=True)
print(taken, [path.name for path in taken.baselines])
again = asyncio.run(pp.evaluate_async(world))
print(again, again.exit_code)
print(again.to_frame().pivot(index="agent", columns="dimension", values="score").round(1).to_string())
print(pp.compare(taken, again), len(again._repr_html_()), "characters of HTML")
open("greeting.eval.yaml", "w").write("tests: [{id: greet, input: '?', assert: [{type: contains, value: Ada}]}]")
run = pp.run_suite("greeting.eval.yaml", responses=pp.read_responses({"greet": "Hello, Ada!"}), world=world)
print(run, run.to_frame("assert")[["test", "assert", "score"]].to_string())
gate = pp.open_gate(world, settings=pp.CorrectionSettings(action_gate_enabled=True))
print(gate.check_sync(world.agent_ids()[0], "Hello.", channel="general").outcome)
"""
TESTS = """
import pytest

@pytest.mark.persona("mira", dimension="adherence", threshold=0)
def test_she_is_scored(): pass

@pytest.mark.persona("mira", threshold=9)
def test_she_is_perfect(): pass

@pytest.mark.persona("mira", "otto")
def test_nobody_has_fallen(): pass

@pytest.mark.persona("mira", threshold=0, samples=3)
def test_three_times(): pass
"""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="fresh-install-") as place:
        folder = Path(place)
        bin_ = folder / "env" / "bin"
        uv = [sys.executable, "-m", "uv", "--quiet"]
        install = [*uv, "pip", "install", "--python", str(bin_ / "python")]
        _run([*uv, "build", "--wheel", "--no-build-isolation", "--python", sys.executable, "-o", place, str(PROJECT)])
        (wheel,) = folder.glob("*.whl")
        _run([*uv, "venv", "--python", sys.executable, str(folder / "env")])
        _run([*install, "--no-deps", "--require-hashes", "-r", str(PROJECT / "requirements.lock")])
        _run([*install, "--no-deps", str(wheel)])
        _run([*install, "-c", str(_constraints(folder)), "pytest", "pytest-xdist"])
        home = folder / "home"
        home.mkdir()
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB")
        print(_run([str(bin_ / "persona-pipeline"), "init", "world"], home).strip())
        (home / "script.py").write_text(SCRIPT, encoding="utf-8")
        with MessagesServer() as server:
            os.environ["JUDGE_URL"] = server.url
            print(_run([str(bin_ / "python"), "script.py"], home))
        assert not server.problems
        print(server.paid, "judgments paid")
        (home / "test_voices.py").write_text(textwrap.dedent(TESTS), encoding="utf-8")
        (home / "pytest.ini").write_text("[pytest]\npersona_root = world\n", encoding="utf-8")
        print(_run([str(bin_ / "python"), "-m", "pytest", "-v", "-n", "2", "-p", "no:cacheprovider"], home, code=1))
        _check_types(home, bin_)


def _check_types(home: Path, bin_: Path) -> None:
    """Check that pyright knows the type of every public name and of its members, without having to infer one."""
    command = [
        str(PROJECT / ".venv" / "bin" / "pyright"),
        "--ignoreexternal",
        "--outputjson",
        "--verifytypes",
        "persona_pipeline",
    ]
    told = json.loads(_run(command, home, code=None, path=bin_))["typeCompleteness"]
    public = json.loads(_run([str(bin_ / "python"), "-c", _NAMES], home))
    found, loose = set(), []
    for symbol in told["symbols"]:
        name = symbol["name"]
        if any(name == known or name.startswith(f"{known}.") for known in public):
            found.add(name)
            # What is built of something loose is said where that stands; pydantic's own `model_config` is never annotated.
            said = [item["message"] for item in symbol["diagnostics"] if "artially unknown" not in item["message"]]
            loose += [
                f"{name}: {text}" for text in said if "ocstring" not in text and not name.endswith(".model_config")
            ]
    loose += [f"{name} is not found" for name in public if name not in found]
    print("\n".join(loose) or f"{len(public)} public names and {len(found) - len(public)} members of them are typed")
    if loose:
        raise SystemExit(1)


# Where each public name is defined, as pyright names it.
_NAMES = (
    "import json, persona_pipeline as pp;"
    "print(json.dumps(sorted({f'{getattr(m, n).__module__}.{n}' for m in (pp, pp.testing, pp.corrections) for n in m.__all__"
    " if isinstance(getattr(m, n), type) or callable(getattr(m, n))})))"
)


def _constraints(folder: Path) -> Path:
    """Return the development pins without their hashes, as constraints want them."""
    lines = (PROJECT / "requirements-dev.lock").read_text(encoding="utf-8").splitlines()
    pins = [line.rstrip(" \\") for line in lines if "==" in line and not line.startswith((" ", "#"))]
    path = folder / "constraints.txt"
    path.write_text("\n".join(pins) + "\n", encoding="utf-8")
    return path


def _run(command: list[str], cwd: Path | None = None, *, code: int | None = 0, path: Path | None = None) -> str:
    """Return what a command printed; it sees nothing of this project. ``code``: how it must end; None: either way."""
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("PERSONA_", "ANTHROPIC_", "PYTHONPATH"))
    }
    if path is not None:
        environment["PATH"] = f"{path}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if code is not None and done.returncode != code:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
