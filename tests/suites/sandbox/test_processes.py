"""Running programs: nothing is left behind, and nothing takes more than it may."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from persona_pipeline.suites.sandbox import processes
from persona_pipeline.suites.sandbox.processes import ProcessError, ProcessResult, run_process
from tests.support.clock import LONG, Clock
from tests.support.waiting import wait_until


def python(folder: Path, code: str, *, timeout: float = LONG, stdin: bytes = b"") -> ProcessResult:
    return run_process([sys.executable, "-c", code], cwd=folder, timeout=timeout, stdin=stdin)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def gone(pid: int) -> bool:
    """Whether a process is dead; one that was just killed takes a moment to go."""
    with suppress(TimeoutError):
        wait_until(lambda: not alive(pid), pause=0.02)
    return not alive(pid)


def test_output_errors_and_exit_code_come_back(tmp_path: Path) -> None:
    found = python(tmp_path, "import sys; print(sys.stdin.read()); sys.stderr.write('e'); sys.exit(3)", stdin=b"in")
    assert (found.stdout, found.stderr, found.returncode) == (b"in\n", b"e", 3)


def test_a_large_input_and_output_do_not_block_each_other(tmp_path: Path) -> None:
    data = b"x" * 3_000_000
    assert python(tmp_path, "import sys; sys.stdout.write(sys.stdin.read())", stdin=data).stdout == data


def test_a_program_need_not_read_its_input(tmp_path: Path) -> None:
    assert python(tmp_path, "print(1)", stdin=b"x" * 1_000_000).stdout == b"1\n"


GRANDCHILD = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session={session})
print(child.pid, flush=True)
time.sleep({sleep})
"""


@pytest.mark.parametrize("session", [False, True], ids=["in the group", "escaped into a session of its own"])
def test_what_a_program_leaves_running_is_killed(tmp_path: Path, session: bool) -> None:
    pid = int(python(tmp_path, GRANDCHILD.format(session=session, sleep=0)).stdout)
    assert gone(pid)


def test_a_program_that_takes_too_long_is_stopped_with_its_children(tmp_path: Path, clock: Clock) -> None:
    code = GRANDCHILD.format(session=True, sleep=3600)
    code = code.replace("print(child.pid", "open('pid','w').write(str(child.pid) + '.'); print(1")
    pid = tmp_path / "pid"
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(python, tmp_path, code, timeout=10 * LONG)
        wait_until(lambda: pid.exists() and pid.read_text("utf-8").endswith("."), pause=0.02)
        assert not running.done()
        clock.forward(10 * LONG)
        with pytest.raises(ProcessError, match="longer than 1200 s") as raised:
            running.result(LONG)
    assert raised.value.reason == "timeout"
    assert gone(int(pid.read_text("utf-8").rstrip(".")))


def test_a_program_that_writes_without_end_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "MOST_OUTPUT", 100_000)
    with pytest.raises(ProcessError) as raised:
        python(tmp_path, "while True: print('x' * 1000)")
    assert raised.value.reason == "too_much_output"


def test_endless_errors_are_cut_to_their_end(tmp_path: Path) -> None:
    found = python(tmp_path, "import sys; sys.stderr.write('x' * 1_000_000 + 'END')")
    assert len(found.stderr) <= 200_000
    assert found.error_text.endswith("END")


@pytest.mark.skipif(sys.platform != "linux", reason="resource limits are checked where CI runs")
@pytest.mark.parametrize(
    ("code", "limit"),
    [
        ("x = bytearray(300_000_000)", {"RLIMIT_DATA": 200_000_000}),
        ("open('f', 'wb').write(b'x' * 2_000_000)", {"RLIMIT_FSIZE": 1_000_000}),
        ("f = [open('/dev/null') for _ in range(200)]", {"RLIMIT_NOFILE": 64}),
        ("while True: pass", {"RLIMIT_CPU": 1}),
    ],
    ids=["memory", "file size", "open files", "processor time"],
)
def test_limits_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, limit: dict[str, int]) -> None:
    monkeypatch.setattr(processes, "LIMITS", processes.LIMITS | limit)
    assert python(tmp_path, code).returncode != 0


@pytest.mark.parametrize("program", ["no-such-program", "./none.sh", "/no/such/file"])
def test_a_program_that_is_not_there(tmp_path: Path, program: str) -> None:
    with pytest.raises(ProcessError) as raised:
        run_process([program], cwd=tmp_path, timeout=LONG)
    assert raised.value.reason == "not_found"


def test_a_relative_program_is_the_one_in_its_folder(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("#!/bin/sh\necho here\n", encoding="utf-8")
    script.chmod(0o755)
    assert run_process(["./run.sh"], cwd=tmp_path, timeout=LONG).stdout == b"here\n"


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ProcessError):
        run_process([sys.executable], cwd=tmp_path / "none", timeout=LONG)


def test_the_environment_is_scrubbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "x")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    found = python(tmp_path, "import os; print(sorted(os.environ))").stdout.decode()
    assert "SECRET_TOKEN" not in found
    assert "'LC_ALL'" in found
    assert "'PATH'" in found
    assert "SECRET_TOKEN" in os.environ
