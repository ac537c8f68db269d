"""A machine that fails is said so, with exit code 3, and nothing is lost."""

import errno
import json
import os
import resource
import subprocess
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from persona_pipeline.base.documents.json import write_atomically
from persona_pipeline.cli import machine_failure
from tests.support.command_line import Cli
from tests.support.forking import forked_python
from tests.support.waiting import PATIENCE

CODE = "from persona_pipeline.cli import main; main()"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "a.json"),
            "a.json: No space left on device; the earlier content",
        ),
        (OSError(errno.EROFS, "Read-only file system", "a"), "mount it writable"),
        (PermissionError(errno.EACCES, "Permission denied", "a"), "check who owns it"),
        (ExceptionGroup("g", [ValueError(), OSError(errno.EDQUOT, "Quota", "b")]), "free some of your quota"),
        (OperationalError("INSERT", {}, Exception("database or disk is full")), "free some space"),
        (OperationalError("INSERT", {}, Exception("attempt to write a readonly database")), "permissions"),
        (RuntimeError("a bug"), None),
        (ValueError("another"), None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_what_is_the_machines_is_told_with_a_remedy_and_bugs_are_not(error: Exception, said: str | None) -> None:
    told = machine_failure(error)
    assert told is None if said is None else said in (told or "")


def run(root: Path, *arguments: str, most_bytes: int | None = None) -> subprocess.CompletedProcess:
    def limit() -> None:
        if most_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))

    environment = {"PATH": os.environ["PATH"], "PERSONA_ROOT": str(root), "HOME": str(root)}
    # A file that may not grow would be a compiled module too, cut off and believed by whoever imports it next.
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    command = [forked_python(), "-c", CODE, *arguments]
    return subprocess.run(
        command, env=environment, preexec_fn=limit, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def test_a_disk_that_fills_up_while_a_baseline_is_written_leaves_the_old_one(sample_root: Path) -> None:
    assert run(sample_root, "evaluate", "--agents", "jim", "--as-of", "2026-06-14T23:59:59Z").returncode == 0
    path = sample_root / "baselines" / "jim.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), "capturedAt": "2026-01-01T00:00:00Z"}), "utf-8")
    before = path.read_bytes()
    done = run(sample_root, "baseline", "--agents", "jim", "--window", "all", most_bytes=4096)
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    assert "the earlier content is unchanged" in done.stderr
    assert path.read_bytes() == before
    assert not list(path.parent.glob(".jim*"))


def test_a_report_that_cannot_be_written_is_said_so(cli: Cli) -> None:
    for output in ("/proc/nothing/report.json", "/dev/null/report.json"):
        done = cli("evaluate", "--agents", "jim", "--dimensions", "fluency", "--output", output)
        assert done.returncode == 3, done.stderr
        assert "Traceback" not in done.stderr and "the earlier content is unchanged" in done.stderr


def test_a_file_that_cannot_be_written_is_named_by_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    path.write_text("old", "utf-8")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left.*a\.json") as caught:
        write_atomically(path, "new")
    assert (caught.value.errno, path.read_text("utf-8"), list(tmp_path.iterdir())) == (errno.ENOSPC, "old", [path])
