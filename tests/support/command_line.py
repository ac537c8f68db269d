"""The command line's own ``main`` on a world, in this process or in one of its own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from persona_pipeline.base.settings import get_settings
from persona_pipeline.cli import main
from tests.support.forking import forked_python
from tests.support.waiting import PATIENCE

# A terminal that only knows ASCII.
ASCII: dict[str, Any] = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}


class Done(NamedTuple):
    """How the command line ended."""

    returncode: int
    stdout: str
    stderr: str


Cli = Callable[..., Done]


def in_process(root: Path | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Return what runs a command in this process, on a world; ``cwd`` and environment variables hold for one command."""
    if root is not None:
        monkeypatch.setenv("PERSONA_ROOT", str(root))

    def run(*arguments: str, cwd: Path | None = None, **environment: str) -> Done:
        with monkeypatch.context() as patched:
            for name, value in environment.items():
                patched.setenv(name, value)
            if cwd is not None:
                patched.chdir(cwd)
            patched.setattr(sys, "argv", ["persona-pipeline", *arguments])
            get_settings.cache_clear()
            capsys.readouterr()
            with pytest.raises(SystemExit) as ended:
                main()
                sys.exit(0)
        said = capsys.readouterr()
        return Done(int(ended.value.code or 0), said.out, said.err)

    return run


def apart(*arguments: str, cwd: Path | None = None, **environment: str) -> Done:
    """Run a command in a process of its own; one that is told how to write is started anew, as others are forked."""
    python = sys.executable if ASCII.keys() & environment.keys() else forked_python()
    done = subprocess.run(
        [python, "-m", "persona_pipeline", *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)
