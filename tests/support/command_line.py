"""The command line's own ``main`` in this process, on a world."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from persona_pipeline.base.settings import get_settings
from persona_pipeline.cli import main


@dataclass(frozen=True)
class Done:
    """How the command line ended."""

    returncode: int
    stdout: str
    stderr: str


Cli = Callable[..., Done]


def in_process(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Return what runs a command."""
    monkeypatch.setenv("PERSONA_ROOT", str(root))

    def run(*arguments: str) -> Done:
        get_settings.cache_clear()
        monkeypatch.setattr(sys, "argv", ["persona-pipeline", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
            sys.exit(0)
        said = capsys.readouterr()
        return Done(int(ended.value.code or 0), said.out, said.err)

    return run
