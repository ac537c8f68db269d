"""A live run in a process of its own: what it says on a terminal and in a pipe, and what a Ctrl-C leaves behind."""

import os
import pty
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.clock import LONG
from tests.support.forking import forked_python
from tests.support.messages_server import MessagesServer
from tests.support.waiting import wait_until

JUDGMENTS = 10


@pytest.fixture
def environment(small_root: Path, server: MessagesServer) -> dict[str, str]:
    return {**os.environ, "PERSONA_ROOT": str(small_root), "PERSONA_JUDGE_WIDTH": "1", "PERSONA_DATABASE_URL": ""}


@pytest.fixture
def evaluate() -> list[str]:
    return [forked_python(), "-m", "persona_pipeline", "evaluate", "--judge", "anthropic", "--no-confirm"]


def test_a_run_that_is_interrupted_says_what_is_kept_and_goes_on(
    environment: dict[str, str], evaluate: list[str], server: MessagesServer
) -> None:
    server.answer_only(4)
    process = subprocess.Popen(evaluate, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    wait_until(lambda: len(server.calls) >= 5, pause=0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=LONG)
    assert process.returncode == 130
    assert re.search(r"stopped: 4 judgments are kept \(\$0\.\d{4} paid\); run the same command again to continue", said)
    assert "Traceback" not in said
    server.drop_unanswered()
    server.answer_only(None)
    again = subprocess.run(evaluate, env=environment, capture_output=True, text=True, check=False, timeout=LONG)
    assert server.paid == JUDGMENTS, "nothing was paid twice"
    (line,) = [line for line in again.stderr.splitlines() if line.startswith("judged")]
    assert re.fullmatch(r"judged 10 of 10, 4 known before, \$0\.\d{4}", line)


def test_on_a_terminal_it_is_one_line(environment: dict[str, str], evaluate: list[str], server: MessagesServer) -> None:
    server.latency = 0.08
    ours, its = pty.openpty()
    with subprocess.Popen(evaluate, env=environment, stderr=its, stdout=subprocess.DEVNULL) as process:
        os.close(its)
        seen = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:
                break
            if not part:
                break
            seen += part
    os.close(ours)
    assert process.returncode in (0, 3)
    first = seen.split(b"\n", 1)[0].decode()
    pictures = [part for part in first.split("\r\x1b[2K") if part]
    assert len(pictures) > 2
    assert re.fullmatch(r"judged 10 of 10, \$0\.\d{4}\r?", pictures[-1])
    assert any("left" in part for part in pictures)
