"""The examples run as they are written."""

import os
import subprocess
from pathlib import Path

from tests.support.clock import LONG
from tests.support.forking import forked_python

PROJECT = Path(__file__).parents[2]


def run(name: str, *arguments: str, **environment: str) -> str:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("ANTHROPIC_", "PERSONA_"))}
    done = subprocess.run(
        [forked_python(), str(PROJECT / "docs/examples" / name), *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=LONG,
        check=False,
        env=kept | environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_gate_in_a_tool_handler() -> None:
    out = run("corrections_gate.py")
    assert "attempt 2: passed_after_retry" in out
    assert "attempt 3: forced_through" in out
    assert "2 actions: 1 passed after a retry, 1 forced through; 5 checks" in out


def test_over_http_with_no_service_the_message_goes_out() -> None:
    out = run("corrections_http.py", "michael", "general", "Hello.", PERSONA_CORRECTIONS_URL="http://127.0.0.1:1")
    assert "sent: Hello." in out
